/* Encoder-decoders: parameters of their classes, what Whisper's memory depends on, tasks they do
 * not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "priced.h"

static struct oom_plan small(void)
{
	struct oom_plan p = oom_plan_default();

	p.micro_batch = 1;
	p.seq_len = 16;
	return p;
}

/* The default configuration of each class, built on the meta device with transformers 5.12
 * (AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq .from_config; parameters counted once when
 * tied). */
static void default_configurations(void **state)
{
	static const struct {
		const char *type;
		uint64_t params;
	} cases[] = {
		{"whisper", 37760640}, {"speech_to_text", 29536256}, {"umt5", 172122112}, {"switch_transformers", 317312256},
		{"longt5", 60506624}, {"pop2piano", 59108352}, {"led", 459801600}, {"nllb-moe", 6880712704}, {"t5gemma", 5596853760},
		{"t5gemma2", 4747846400}, {"fsmt", 483913728}, {"prophetnet", 391321600}, {"pegasus_x", 568568832},
		{"bigbird_pegasus", 576891904}, {"seamless_m4t", 1370531840}, {"qwen2_audio", 12692062208},
		{"audioflamingo3", 12708843520}, {"vibevoice_asr", 12772521344}, {"speecht5", 151165056}, {"moonshine", 27092736},
		{"dia", 1611160576}, {"kyutai_speech_to_text", 2696431425},
	};
	const struct oom_plan p = small();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char json[80];
		struct oom_eval e;

		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", cases[i].type);
		e = must(json, &p);
		if (e.total_params != cases[i].params)
			fail_msg("%s: %llu parameters, expected %llu", cases[i].type,
				 (unsigned long long)e.total_params,
				 (unsigned long long)cases[i].params);
	}
}

/* Three layers of the default configuration, 2 clips, 200 labels, AdamW: the phases that the
 * measuring harness's loop gives on input_features (transformers 5.12, PyTorch 2.14, emulated
 * CUDA). */
static void whisper_measured(void **state)
{
	static const struct {
		enum oom_precision precision;
		double overall, forward;
	} rows[] = {{OOM_BF16, 493766144, 320058880}, {OOM_AMP_BF16, 890098688, 589524992}};
	struct oom_plan p = small();

	(void)state;
	p.micro_batch = 2;
	p.seq_len = 512;
	p.tgt_len = 200;
	p.num_layers = 3;
	p.convert_outputs_fp32 = false;
	/* adamw, one kernel an operation over all tensors */
	p.optimizer = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_eval e;

		p.precision = rows[i].precision;
		e = must("{\"model_type\": \"whisper\"}", &p);
		assert_true((double)e.overall_peak > 0.9999 * rows[i].overall &&
			    (double)e.overall_peak < 1.0001 * rows[i].overall);
		assert_true((double)e.peak[OOM_PHASE_FWD1] > 0.9999 * rows[i].forward &&
			    (double)e.peak[OOM_PHASE_FWD1] < 1.0001 * rows[i].forward);
	}
}

/* Three layers of a small Moonshine, 2 recordings of 38400 samples, 64 labels, AdamW, measured in the same way: whole, and with
 * adapters of rank 8 and checkpoints.  Its first convolution is hooked, and its loss casts the logits (loss_function). */
static void moonshine_measured(void **state)
{
	static const struct {
		const char *targets;            /* NULL: none */
		double overall, forward;
	} rows[] = {{NULL, 36459008, 21789696}, {"q_proj+v_proj", 14959616, 14205440},
		    {"all-linear", 16397312, 14924288}};
	static const char config[] =
		"{\"model_type\": \"moonshine\", \"hidden_size\": 192, \"intermediate_size\": 384, \"vocab_size\": 2048,"
		" \"encoder_num_hidden_layers\": 3, \"decoder_num_hidden_layers\": 3,"
		" \"encoder_num_attention_heads\": 4, \"decoder_num_attention_heads\": 4}";
	struct oom_plan p = small();

	(void)state;
	p.micro_batch = 2;
	p.seq_len = 38400;
	p.tgt_len = 64;
	p.convert_outputs_fp32 = false;
	p.optimizer = 0;
	p.precision = OOM_BF16_AMP;
	p.lora_dropout = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_eval e;

		p.lora_r = rows[i].targets ? 8 : 0;
		p.grad_ckpt = rows[i].targets ? OOM_CKPT_FULL : OOM_CKPT_NONE;
		snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", rows[i].targets ? rows[i].targets : "");
		e = must(config, &p);
		assert_true((double)e.overall_peak > 0.9999 * rows[i].overall &&
			    (double)e.overall_peak < 1.003 * rows[i].overall);
		assert_true((double)e.peak[OOM_PHASE_FWD1] > 0.9999 * rows[i].forward &&
			    (double)e.peak[OOM_PHASE_FWD1] < 1.003 * rows[i].forward);
	}
}

/* A clip has 2 x max_source_positions frames whatever seq_len says; labels beyond
 * max_target_positions are cut. */
static void whisper_sizes(void **state)
{
	struct oom_plan p = small();
	struct oom_eval a, b;

	(void)state;
	p.tgt_len = 100;
	a = must("{\"model_type\": \"whisper\"}", &p);
	p.seq_len = 4096;
	b = must("{\"model_type\": \"whisper\"}", &p);
	assert_int_equal(a.overall_peak, b.overall_peak);
	p.tgt_len = 448;
	a = must("{\"model_type\": \"whisper\"}", &p);
	p.tgt_len = 2000;
	b = must("{\"model_type\": \"whisper\"}", &p);
	assert_int_equal(a.saved_bytes, b.saved_bytes);
}

static void other_tasks(void **state)
{
	static const char *const types[] = {"t5", "led", "whisper", "fsmt", "t5gemma"};
	struct oom_plan p = small();

	(void)state;
	p.task = OOM_TASK_IMAGE_CLS;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_eval e;
		char json[80];

		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", types[i]);
		assert_int_not_equal(price(json, &p, &e, &err), OOM_OK);
		assert_non_null(strstr(err.text, "task"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(default_configurations),
		cmocka_unit_test(whisper_measured),
		cmocka_unit_test(moonshine_measured),
		cmocka_unit_test(whisper_sizes),
		cmocka_unit_test(other_tasks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
