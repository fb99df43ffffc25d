/* Speech encoders with a head for connectionist temporal classification.  Parameters: transformers 5.12.1's own count of
 * Wav2Vec2ForCTC, HubertForCTC, Data2VecAudioForCTC, WavLMForCTC, SEWForCTC, Wav2Vec2ConformerForCTC and Wav2Vec2BertForCTC, whole
 * and with what freeze_feature_encoder() leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "knobs.h"
#include "priced.h"

#define MODEL(type, class) "{\"model_type\": \"" type "\", \"architectures\": [\"" class "\"]}"
/* Types whose default config has no letters. */
#define LETTERS(type, more) "{\"model_type\": \"" type "\", \"vocab_size\": 32" more "}"
#define ADAPTED ", \"add_adapter\": true, \"output_hidden_size\": 512"

static struct oom_plan with(const char *text)
{
	struct oom_plan p = oom_plan_default();

	set(&p, text);
	return p;
}

static void parameters_are_counted(void **state)
{
	static const struct {
		const char *config, *plan;
		uint64_t trained;
	} rows[] = {
		{MODEL("wav2vec2", "Wav2Vec2ForCTC"), "audio-seconds=2", 94396320},
		{MODEL("wav2vec2", "Wav2Vec2ForCTC"), "audio-seconds=2 freeze=feature_extractor", 90195872},
		{MODEL("wav2vec2", "Wav2Vec2ForCTC"), "audio-seconds=2 freeze=pos_conv_embed", 89676832},
		{MODEL("hubert", "HubertForCTC"), "audio-seconds=2", 94396320},
		{MODEL("wavlm", "WavLMForCTC"), "audio-seconds=2", 94406544},
		{MODEL("wavlm", "WavLMForCTC"), "audio-seconds=2 freeze=feature_extractor", 90206096},
		{MODEL("sew", "SEWForCTC"), "audio-seconds=2", 93221024},
		{MODEL("sew", "SEWForCTC"), "audio-seconds=2 freeze=feature_extractor", 91377056},
		{LETTERS("wav2vec2-bert", ""), "audio-seconds=2", 580525920},
		{LETTERS("wav2vec2-bert", ", \"position_embeddings_type\": \"relative\""), "audio-seconds=2", 605628768},
		{LETTERS("wav2vec2-conformer", ""), "audio-seconds=2", 179754912},
		{LETTERS("wav2vec2-conformer", ""), "audio-seconds=2 freeze=feature_extractor", 175554464},
		{LETTERS("wav2vec2-conformer", ", \"position_embeddings_type\": \"rotary\""), "audio-seconds=2", 172658592},
		{LETTERS("wav2vec2", ADAPTED), "audio-seconds=2 freeze=encoder.layers", 14450080},
		{LETTERS("wavlm", ADAPTED), "audio-seconds=2 freeze=adapter.layers.1", 97940880},
		{LETTERS("wav2vec2-conformer", ADAPTED), "audio-seconds=2 freeze=adapter", 179746720},
		{LETTERS("wav2vec2-bert", ADAPTED ", \"use_intermediate_ffn_before_adapter\": true"), "audio-seconds=2 freeze=intermediate_ffn",
		 589435744},
		{MODEL("data2vec-audio", "Data2VecAudioForCTC"), "audio-seconds=2", 93188896},
		{MODEL("data2vec-audio", "Data2VecAudioForCTC"), "audio-seconds=2 freeze=feature_extractor", 88982304},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = with(rows[i].plan);
		struct oom_eval e = must(rows[i].config, &p);

		if (e.trainable_params != rows[i].trained)
			fail_msg("%s: %llu parameters train", rows[i].plan, (unsigned long long)e.trainable_params);
	}
}

/* The length of the audio makes the step, not that of the labels: of these there are no more than frames. */
static void audio_makes_the_step(void **state)
{
	const char *config = MODEL("wav2vec2", "Wav2Vec2ForCTC");
	struct oom_plan brief = with("audio-seconds=5 seq-len=64"), twice = with("audio-seconds=10 seq-len=64"),
			wordy = with("audio-seconds=5 seq-len=4096"), full = with("audio-seconds=5 seq-len=249");
	const uint64_t short_peak = must(config, &brief).peak[OOM_PHASE_FWD2];

	(void)state;
	assert_true(must(config, &twice).peak[OOM_PHASE_FWD2] > short_peak + short_peak / 4);
	/* 249 frames: (80000 - 400) / 320 + 1; the labels themselves come along */
	assert_true(must(config, &wordy).peak[OOM_PHASE_FWD2] < must(config, &full).peak[OOM_PHASE_FWD2] + short_peak / 1000);
}

/* What is frozen before the first layer keeps nothing of the samples. */
static void frozen_convolutions_keep_nothing(void **state)
{
	const char *config = MODEL("wav2vec2", "Wav2Vec2ForCTC");
	struct oom_plan whole = with("audio-seconds=5 precision=fp32"), frozen = with("audio-seconds=5 precision=fp32 freeze=feature_extractor");
	const struct oom_eval a = must(config, &whole), b = must(config, &frozen);
	/* b x 512 x 15999 frames of the first convolution in fp32, of which the group norm and the activation each keep one */
	const uint64_t kept = (uint64_t)whole.micro_batch * 512 * 15999 * 4 * 2;

	(void)state;
	assert_true(a.end[OOM_PHASE_FWD1] > b.end[OOM_PHASE_FWD1] + kept);
}

/* WavLM's attention takes the weights of its projections and calls none of them: their adapters get no gradient. */
static void passed_adapters_have_no_states(void **state)
{
	const char *config = MODEL("wavlm", "WavLMForCTC");
	struct oom_plan attention = with("audio-seconds=2 lora-r=4 lora-targets=q_proj+v_proj"),
			feed = with("audio-seconds=2 lora-r=4 lora-targets=intermediate_dense");

	(void)state;
	assert_int_equal(must(config, &attention).grad_bytes, 0);
	/* 12 layers, r (768 + 3072) weights each, in fp32 */
	assert_int_equal(must(config, &feed).grad_bytes, (uint64_t)12 * 4 * (768 + 3072) * 4);
}

/* Each convolution of data2vec's positions is counted for itself: there cannot be a billion of them. */
static void positions_end(void **state)
{
	static const char *const numbers[] = {"0", "65", "1000000000"};

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const struct oom_plan p = with("audio-seconds=2");
		struct oom_error err = {{0}};
		struct oom_eval e;
		char json[120];

		snprintf(json, sizeof(json), "{\"model_type\": \"data2vec-audio\", \"num_conv_pos_embeddings\": %s}", numbers[i]);
		assert_int_not_equal(price(json, &p, &e, &err), OOM_OK);
		assert_non_null(strstr(err.text, "num_conv_pos_embeddings"));
	}
}

/* A second of audio is 49 frames; PyTorch pools or convolves no fewer than it has a window for. */
static void frames_end(void **state)
{
	static const char *const configs[][2] = {
		{"{\"model_type\": \"sew\", \"squeeze_factor\": 50}", "squeeze_factor"},
		{"{\"model_type\": \"wav2vec2\", \"vocab_size\": 32, \"add_adapter\": true, \"adapter_kernel_size\": 52}", "add_adapter"},
	};
	const struct oom_plan p = with("audio-seconds=1");
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
		assert_int_not_equal(price(configs[i][0], &p, &e, &err), OOM_OK);
		assert_non_null(strstr(err.text, configs[i][1]));
	}
	assert_int_equal(price("{\"model_type\": \"sew\", \"squeeze_factor\": 49}", &p, &e, &err), OOM_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_are_counted),
		cmocka_unit_test(audio_makes_the_step),
		cmocka_unit_test(frozen_convolutions_keep_nothing),
		cmocka_unit_test(passed_adapters_have_no_states),
		cmocka_unit_test(positions_end),
		cmocka_unit_test(frames_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
