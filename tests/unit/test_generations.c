/* Library generations: how versions are read, what rows say, what they come to in bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/generations.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"
#include "oomplan/units.h"
#include "generation_configs.h"
#include "priced.h"

static void versions_are_read(void **state)
{
	static const struct {
		const char *text;
		int64_t version;        /* -1: refused */
	} cases[] = {{"4.45", OOM_VERSION(4, 45)}, {"4.5", OOM_VERSION(4, 5)}, {"4.45.2", OOM_VERSION(4, 45)},
		     {"5", OOM_VERSION(5, 0)}, {"5.0.0rc1", OOM_VERSION(5, 0)}, {"newest", 0},
		     {"4.999", OOM_VERSION(4, 999)}, {"4.1000", -1}, {"", -1}, {"v4.45", -1},
		     {"4.", -1}, {".45", -1}, {"-4.45", -1}, {"3.5", -1}, {"99999999999999999999", -1},
		     {"0", -1}};
	const struct oom_option *k = oom_knob_find("transformers");
	struct oom_plan p = oom_plan_default();
	char text[40];

	(void)state;
	assert_int_equal(p.transformers, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		const enum oom_status st = oom_plan_set(&p, k, cases[i].text, &err);

		if (!st != (cases[i].version >= 0))
			fail_msg("\"%s\": %s", cases[i].text, st ? err.text : "was taken");
		if (!st)
			assert_int_equal(p.transformers, cases[i].version);
		else
			assert_non_null(strstr(err.text, "4.0"));
	}
	/* as it is written, so it is read */
	p.transformers = OOM_VERSION(4, 7);
	assert_string_equal(oom_plan_get(&p, k, text, sizeof(text)), "4.7");
	assert_int_equal(oom_plan_set(&p, k, text, NULL), OOM_OK);
	assert_int_equal(p.transformers, OOM_VERSION(4, 7));
}

/* Trainers of other objectives and of smoothed labels give the model no labels (trl/trainer/dpo_trainer.py
 * concatenated_forward; transformers/trainer.py compute_loss): the class upcasts its logits before 4.46 all the same,
 * what a loss makes of labels after that is not theirs.  TRL took a log_softmax of all logits until 0.15 of February 2025
 * (huggingface/trl#2799). */
static void losses_without_labels_are_only_upcast(void **state)
{
	static const struct {
		int64_t version, loss, of_smoothed, with_labels;
	} cases[] = {{OOM_VERSION(4, 35), OOM_LOSS_SLICED, OOM_LOSS_SLICED, OOM_LOSS_SLICED},
		     {OOM_VERSION(4, 45), OOM_LOSS_SLICED, OOM_LOSS_SLICED, OOM_LOSS_SLICED},
		     {OOM_VERSION(4, 46), OOM_LOSS_OWN_TYPE, OOM_LOSS_PLAIN, OOM_LOSS_SLICED_APART},
		     {OOM_VERSION(4, 49), OOM_LOSS_PLAIN, OOM_LOSS_PLAIN, OOM_LOSS_PLAIN}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan sft = oom_plan_default(), dpo, smoothed;
		struct oom_error err = {{0}};

		sft.transformers = cases[i].version;
		sft.fused_ce = OOM_LOSS_PLAIN;
		dpo = smoothed = sft;
		dpo.objective = OOM_METHOD_DPO;
		smoothed.label_smoothing = 0.1;
		oom_plan_resolve(&sft);
		oom_plan_resolve(&dpo);
		oom_plan_resolve(&smoothed);
		assert_int_equal(sft.fused_ce, cases[i].with_labels);
		assert_int_equal(dpo.fused_ce, cases[i].loss);
		assert_int_equal(smoothed.fused_ce, cases[i].of_smoothed);
		if (oom_plan_check(&dpo, &err) || oom_plan_check(&smoothed, &err))
			fail_msg("%s", err.text);
	}
}

/* Every row is about knobs that there are, cites something, and does what it says, from its version
 * on no more. */
static void rows_do_what_they_say(void **state)
{
	const struct oom_generation *g;

	(void)state;
	for (size_t i = 0; (g = oom_generation_at(i)) != NULL; i++) {
		const struct oom_option *library = oom_knob_find(g->library), *k = oom_knob_find(g->knob);
		struct oom_plan p = oom_plan_default();

		assert_non_null(library);
		assert_non_null(k);
		assert_int_equal(library->kind, OOM_OPTION_VERSION);
		assert_true(*g->summary && *g->source && g->from != g->to);
		for (int64_t v = g->before - 1; v <= g->before; v++) {
			char word[OOM_VALUE_SIZE];

			p = oom_plan_default();
			assert_int_equal(oom_plan_set(&p, k, g->from, NULL), OOM_OK);
			if (g->engine)
				assert_int_equal(oom_plan_set(&p, oom_knob_find("engine"), g->engine, NULL), OOM_OK);
			p.objective = g->of == OOM_ABOUT_ANSWERS ? OOM_METHOD_DPO : OOM_METHOD_SFT;
			*oom_plan_field(&p, library) = v;
			assert_true(oom_plan_dated(&p));
			oom_plan_resolve(&p);
			assert_false(oom_plan_dated(&p));
			oom_plan_get(&p, k, word, sizeof(word));
			/* an earlier row of the same knob may have had the first word */
			if (v < g->before)
				assert_string_equal(word, g->to);
			else
				assert_string_not_equal(word, g->to);
			if (v == g->before && g->since)
				assert_string_equal(word, g->since);
		}
	}
}

/* Bytes that layers keep of rotary positions: two of max_position_embeddings x head_dim each, in bf16 here.  The
 * versions are those of transformers' own changes (generations.c). */
static void layers_kept_rotary_tables(void **state)
{
	static const struct {
		const char *config;
		int64_t version;
		uint64_t bytes;
	} cases[] = {
		{TABLED("mistral", 32, 32768), OOM_VERSION(4, 41), (uint64_t)2 * 32 * 32768 * 128 * 2},
		{TABLED("mistral", 32, 32768), OOM_VERSION(4, 42), 0},
		{TABLED("llama", 32, 4096), OOM_VERSION(4, 39), (uint64_t)2 * 32 * 4096 * 128 * 2},
		{TABLED("llama", 32, 4096), OOM_VERSION(4, 40), 0},
		{TABLED("qwen2", 28, 32768), OOM_VERSION(4, 44), (uint64_t)2 * 28 * 32768 * 128 * 2},
		{TABLED("qwen2", 28, 32768), OOM_VERSION(4, 45), 0},
		{TABLED("qwen3", 28, 32768), OOM_VERSION(4, 39), 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		uint64_t now, then;

		p.precision = OOM_BF16;
		now = must(cases[i].config, &p).peak[OOM_PHASE_LOAD];
		p.transformers = cases[i].version;
		then = must(cases[i].config, &p).peak[OOM_PHASE_LOAD];
		if (then - now != cases[i].bytes)
			fail_msg("case %d: %lld bytes, expected %llu", (int)i, (long long)(then - now),
				 (unsigned long long)cases[i].bytes);
	}
}

/* Mistral-7B with LoRA as logged before that (foundation-model-stack/fms-acceleration, pull request 14 of May 2024:
 * transformers 4.40, 4096 tokens; peak bytes of one GPU and of two under FSDP1). */
static void tables_are_in_what_was_measured(void **state)
{
	static const struct {
		int64_t gpus, micro_batch;
		double bytes, slack;
	} cases[] = {{1, 8, 37098695168, 0.0005}, {2, 2, 15123161088, 0.0005}, {2, 4, 21433753600, 0.0005}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double got;

		p.precision = OOM_BF16_AMP;
		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.lora_r = 16;
		strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
		p.lora_dropout = 0;
		p.seq_len = 4096;
		p.micro_batch = cases[i].micro_batch;
		p.gpus = cases[i].gpus;
		p.transformers = OOM_VERSION(4, 40);
		p.torch = OOM_VERSION(2, 2);
		p.peft = OOM_VERSION(0, 10);
		if (p.gpus > 1) {
			p.engine = OOM_ENGINE_FSDP1;
			p.zero_stage = 3;
		}
		got = (double)must(TABLED("mistral", 32, 32768), &p).allocated_bytes;
		if (fabs(got / cases[i].bytes - 1) > cases[i].slack)
			fail_msg("case %d: %.0f bytes, measured %.0f", (int)i, got, cases[i].bytes);
	}
}

static void what_is_said_stands(void **state)
{
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.transformers = OOM_VERSION(4, 40);
	p.use_reentrant = OOM_REENTRANT_FALSE;
	p.fused_ce = OOM_LOSS_FUSED;
	oom_plan_resolve(&p);
	assert_int_equal(p.use_reentrant, OOM_REENTRANT_FALSE);
	assert_int_equal(p.fused_ce, OOM_LOSS_FUSED);
}

/* pytorch/pytorch#85692: 666,632,192 bytes with CUDA_MODULE_LOADING=DEFAULT, 287,047,680 with LAZY. */
static void old_contexts_are_large(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval now, then;

	(void)state;
	/* what torch 1 does otherwise besides */
	p.attn = OOM_ATTN_EAGER;
	p.zero_grad = OOM_ZERO_GRAD_ZEROS;
	now = must(MISTRAL(2), &p);
	p.torch = OOM_VERSION(1, 12);
	then = must(MISTRAL(2), &p);
	assert_int_equal(then.context_bytes - now.context_bytes, 666632192 - 287047680);
	assert_int_equal(then.used_bytes - now.used_bytes, 666632192 - 287047680);
	assert_int_equal(then.overall_peak, now.overall_peak);
	p.torch = OOM_VERSION(1, 13);
	assert_int_equal(must(MISTRAL(2), &p).context_bytes, now.context_bytes);
	/* huggingface/transformers docs/source/en/model_memory_anatomy.md: 1343 MB on a V100 */
	p.torch = OOM_VERSION(1, 12);
	p.compute_capability = 7;
	then = must(MISTRAL(2), &p);
	assert_int_equal(then.context_bytes, (uint64_t)1343 << 20);
	assert_true(then.context_measured);
}

/* In b s vocabulary logits, at the peak of a forward pass that ends in them: log-probabilities and fp32
 * logits, or those sliced and copied, or that beside the 16-bit ones. */
static void logits_by_version(void **state)
{
	static const struct {
		int64_t version;
		double bytes;
	} cases[] = {{OOM_VERSION(4, 45), 12}, {OOM_VERSION(4, 46), 14}, {OOM_VERSION(4, 48), 14},
		     {OOM_VERSION(4, 49), 10}, {0, 10}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		uint64_t peak[2];
		double one;

		p.precision = OOM_BF16;
		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.transformers = cases[i].version;
		p.micro_batch = 4;
		for (int k = 0; k < 2; k++) {
			p.seq_len = 4096 << k;
			peak[k] = must(MISTRAL(1), &p).peak[OOM_PHASE_FWD1];
		}
		/* beside logits: the layer's input, the final norm's and its product */
		one = (double)(peak[1] - peak[0]) / 4 / 4096 / 32000;
		if (one < cases[i].bytes || one > cases[i].bytes + 2)
			fail_msg("version %d: %.2f bytes per logit", (int)cases[i].version, one);
	}
}

/* Logits that a loss without labels gets are the class's own, 2 bytes wider before 4.46, and so is the log_softmax
 * beside them: those of DPO's pair of answers, and its reference's, which it holds beside them; SimPO has none.  Per token of a pair of answers. */
static void logits_without_labels(void **state)
{
	static const struct {
		enum oom_method objective;
		double bytes;
	} cases[] = {{OOM_METHOD_DPO, 2 * 4 * 2}, {OOM_METHOD_SIMPO, 2 * 2 * 2}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double one[2];

		for (int old = 0; old < 2; old++) {
			struct oom_plan p = oom_plan_default();
			uint64_t peak[2];

			p.objective = cases[i].objective;
			p.precision = OOM_BF16;
			p.attn = OOM_ATTN_FLASH;
			p.grad_ckpt = OOM_CKPT_FULL;
			p.transformers = OOM_VERSION(4, old ? 45 : 46);
			p.micro_batch = 4;
			for (int k = 0; k < 2; k++) {
				p.seq_len = 4096 << k;
				peak[k] = must(MISTRAL(1), &p).peak[OOM_PHASE_FWD1];
			}
			one[old] = (double)(peak[1] - peak[0]) / 4 / 4096 / 32000;
		}
		if (fabs(one[1] - one[0] - cases[i].bytes) > 0.05)
			fail_msg("%d: %.2f bytes per logit more", (int)cases[i].objective, one[1] - one[0]);
	}
}

/* logits[..., :-1, :] of one sequence is contiguous as it stands: nothing is copied, and two sequences of half the
 * length cost the copy, 4 bytes per logit. */
static void one_sequence_is_not_copied(void **state)
{
	uint64_t peak[2];

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct oom_plan p = oom_plan_default();

		p.precision = OOM_BF16;
		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.transformers = OOM_VERSION(4, 45);
		p.micro_batch = 1 + k;
		p.seq_len = 8192 >> k;
		peak[k] = must(MISTRAL(1), &p).peak[OOM_PHASE_FWD1];
	}
	assert_true(fabs((double)(peak[1] - peak[0]) / 8192 / 32000 - 4) < 0.01);
}

/* Weights and states end a step, with zero_grad's zeros the gradients too; the next forward runs above
 * them, and the backward adds to them in place. */
static void zeros_stay(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval none, zeros;

	(void)state;
	p.precision = OOM_FP32;
	none = must(MISTRAL(2), &p);
	p.zero_grad = OOM_ZERO_GRAD_ZEROS;
	zeros = must(MISTRAL(2), &p);
	assert_int_equal(zeros.peak[OOM_PHASE_FWD1], none.peak[OOM_PHASE_FWD1]);
	assert_int_equal(zeros.peak[OOM_PHASE_FWD2], none.peak[OOM_PHASE_FWD2] + none.grad_bytes);
	assert_int_equal(zeros.end[OOM_PHASE_OPT2], none.end[OOM_PHASE_OPT2] + none.grad_bytes);
	assert_int_equal(zeros.end[OOM_PHASE_BWD2], none.end[OOM_PHASE_BWD2]);
	assert_true(zeros.peak[OOM_PHASE_BWD2] > none.peak[OOM_PHASE_BWD2]);
	/* engines with gradients in parts */
	p.engine = OOM_ENGINE_FSDP2;
	p.zero_stage = 3;
	p.gpus = 2;
	zeros = must(MISTRAL(2), &p);
	p.zero_grad = OOM_ZERO_GRAD_NONE;
	assert_int_equal(must(MISTRAL(2), &p).overall_peak, zeros.overall_peak);
}

/* Frozen 4-bit layers of a layer without adapters keep q, k and v's input, o's (attention keeps it
 * anyway), gate and up's, and down's: b s (4096 + 4096 + 14336) elements of 16 bit. */
static void old_bitsandbytes_keeps_inputs(void **state)
{
	struct oom_plan p = oom_plan_default();
	uint64_t saved[2][2];

	(void)state;
	p.precision = OOM_BF16;
	p.attn = OOM_ATTN_FLASH;
	p.qlora = 1;
	p.kbit_prepare = 0;
	p.lora_r = 8;
	strcpy(p.lora_targets, "q_proj");
	p.micro_batch = 2;
	p.seq_len = 1024;
	for (int old = 0; old < 2; old++)
		for (int more = 0; more < 2; more++) {
			p.bitsandbytes = OOM_VERSION(0, old ? 42 : 43);
			saved[old][more] = (more ? must(MISTRAL(4), &p) : must(MISTRAL(3), &p)).saved_bytes;
		}
	assert_int_equal(saved[1][1] - saved[1][0] - (saved[0][1] - saved[0][0]),
			 2 * 1024 * (4096 + 4096 + 14336) * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_without_labels_are_only_upcast),
		cmocka_unit_test(versions_are_read),
		cmocka_unit_test(rows_do_what_they_say),
		cmocka_unit_test(layers_kept_rotary_tables),
		cmocka_unit_test(tables_are_in_what_was_measured),
		cmocka_unit_test(what_is_said_stands),
		cmocka_unit_test(old_contexts_are_large),
		cmocka_unit_test(logits_by_version),
		cmocka_unit_test(logits_without_labels),
		cmocka_unit_test(one_sequence_is_not_copied),
		cmocka_unit_test(zeros_stay),
		cmocka_unit_test(old_bitsandbytes_keeps_inputs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
