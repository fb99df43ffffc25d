/* Parameter counts, worked figures and properties of the ledger over the bundled models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/ladder.h"
#include "oomplan/model.h"
#include "opened_model.h"

/* M15: each ten batches more are ten logits of 8 x 1024 x 128256 fp32 elements twice (the pile and
 * torch.cat's copy of it); one batch alone is no pile beyond its own copy, and training still
 * binds. */
static void evaluation_piles_logits(void **state)
{
	const uint64_t one = UINT64_C(8) * 1024 * 128256 * 4;
	struct oom_plan p = oom_plan_default();
	struct oom_eval few, many, alone;
	struct fixture f;

	(void)state;
	open_model(&f, "Llama-3.2-1B");
	p.precision = OOM_AMP_BF16;
	p.micro_batch = 8;
	p.seq_len = 1024;
	p.eval_accumulation = 1;
	alone = price(&f, &p);
	p.eval_accumulation = 20;
	few = price(&f, &p);
	p.eval_accumulation = 30;
	many = price(&f, &p);
	assert_int_not_equal(alone.peak_phase, OOM_PHASE_EVAL);
	assert_int_equal(many.peak_phase, OOM_PHASE_EVAL);
	assert_int_equal(many.overall_peak - few.overall_peak, 20 * one);
	assert_int_equal(many.overall_peak - many.bucket[OOM_BUCKET_LOGITS],
			 many.bucket[OOM_BUCKET_PARAMS] + many.bucket[OOM_BUCKET_OPT] +
				 many.bucket[OOM_BUCKET_BUFFERS] + many.bucket[OOM_BUCKET_INPUTS]);
	/* at the evaluation's own batch, whatever the step's is */
	p.eval_batch = 2;
	p.eval_accumulation = 80;
	few = price(&f, &p);
	p.eval_accumulation = 120;
	many = price(&f, &p);
	assert_int_equal(many.peak_phase, OOM_PHASE_EVAL);
	assert_int_equal(many.overall_peak - few.overall_peak, 80 * (one / 4));
	p.micro_batch = 1;
	few = price(&f, &p);
	assert_int_equal(few.peak[OOM_PHASE_EVAL], many.peak[OOM_PHASE_EVAL]);
	p.evaluates = OOM_EVALUATES_NO;
	alone = price(&f, &p);
	assert_int_not_equal(alone.peak_phase, OOM_PHASE_EVAL);
	close_model(&f);
}

/* ATen CUDABlas.cpp: a workspace is 8.125 MiB before Hopper, 32 MiB from it on; sdp_utils.cpp:
 * flash begins with Ampere, and Turing has no bf16 kernel of either kind, so that GPT-2's 12 x
 * 1024 x 1024 scores a sequence are in memory. */
static void cards_differ_by_capability(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval ampere, hopper, turing;
	struct oom_error err;
	struct fixture f;

	(void)state;
	open_model(&f, "GPT-2");
	p.precision = OOM_BF16;
	p.micro_batch = 1;
	p.seq_len = 1024;
	ampere = price(&f, &p);
	p.compute_capability = 9;
	hopper = price(&f, &p);
	p.compute_capability = 7.5;
	turing = price(&f, &p);
	assert_int_equal(hopper.workspace_bytes - ampere.workspace_bytes,
			 2 * (32 * 1048576 - 8 * 1048576 - 128 * 1024));
	assert_int_equal(hopper.overall_peak, ampere.overall_peak);
	/* which a card counts as allocated, and which are used once */
	assert_int_equal(ampere.allocated_bytes, ampere.overall_peak + 2 * (8 * 1048576 + 128 * 1024));
	assert_int_equal(ampere.used_bytes, ampere.reserved_bytes + ampere.context_bytes +
						    (ampere.allocated_bytes - ampere.overall_peak));
	{
		/* Megatron's ranks have theirs in a row of their own */
		struct oom_plan m = p;
		struct oom_eval e;

		m.engine = OOM_ENGINE_MEGATRON;
		m.compute_capability = 9;
		e = price(&f, &m);
		assert_int_equal(e.workspace_bytes, 0);
		assert_int_equal(e.allocated_bytes, e.overall_peak);
		assert_true(e.overall_peak > 2 * 32 * 1048576);
	}
	assert_true(turing.saved_bytes >= ampere.saved_bytes + UINT64_C(12) * 12 * 1024 * 1024 * 2);
	assert_false(ampere.context_measured);
	assert_true(turing.context_measured);
	p.attn = OOM_ATTN_FLASH;
	assert_int_equal(oom_evaluate(f.ev, f.model, &p, OOM_EVAL_FAST, &turing, &err),
			 OOM_ERR_INVALID);
	close_model(&f);
}

/* Activation offloading keeps two layers at most on the card: what is away is a whole number of
 * layers' saved bytes, as the difference of two depths tells them, and the forward's peak is
 * lower by it; the last layer's backward is not. */
static void activations_wait_on_the_host(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval all, away, fewer;
	struct fixture f;
	uint64_t layer;

	(void)state;
	open_model(&f, "Llama-3.2-1B");         /* 16 layers */
	p.precision = OOM_BF16;
	all = price(&f, &p);
	p.num_layers = 15;
	fewer = price(&f, &p);
	p.num_layers = 0;
	p.offload_activations = 1;
	away = price(&f, &p);
	layer = all.saved_bytes - fewer.saved_bytes;
	assert_int_equal(away.offloaded_bytes % layer, 0);
	assert_in_range(away.offloaded_bytes / layer, 13, 15);
	assert_int_equal(away.host_pinned_bytes, away.offloaded_bytes);
	assert_int_equal(all.peak[OOM_PHASE_FWD1] - away.peak[OOM_PHASE_FWD1],
			 away.offloaded_bytes);
	assert_true(away.peak[OOM_PHASE_BWD1] < all.peak[OOM_PHASE_BWD1]);
	assert_true(away.peak[OOM_PHASE_BWD1] >= away.end[OOM_PHASE_BWD1] + layer);
	close_model(&f);
}

/* A million parameters that only the weights know of: 2 B each of weights and gradients in bf16,
 * 2 x 2 B of AdamW's state. */
static void weights_decide(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval config, weights;
	struct fixture f;

	(void)state;
	open_model(&f, "GPT-2");
	p.precision = OOM_BF16;
	config = price(&f, &p);
	p.surplus_params = 1000000;
	weights = price(&f, &p);
	assert_int_equal(weights.total_params - config.total_params, 1000000);
	assert_in_range(weights.peak[OOM_PHASE_LOAD] - config.peak[OOM_PHASE_LOAD], 2000000 - 1,
			2000000);
	assert_in_range(weights.peak[OOM_PHASE_BWD1] - config.peak[OOM_PHASE_BWD1], 4000000 - 2,
			4000000);
	assert_in_range(weights.peak[OOM_PHASE_BWD2] - config.peak[OOM_PHASE_BWD2], 8000000 - 600,
			8000000 + 600);
	close_model(&f);
}

/* Published counts (model cards), as in the oracle's params.csv, known_params. */
static void published_parameter_counts(void **state)
{
	static const struct {
		const char *model;
		uint64_t params;
	} cases[] = {
		{"Llama-2-7B", 6738415616}, {"Llama-2-70B", 68976648192}, {"Llama-3.1-8B", 8030261248},
		{"Llama-3.2-1B", 1235814400}, {"Mistral-7B-v0.3", 7248023552}, {"Qwen2.5-0.5B", 494032768},
		{"Qwen2.5-7B", 7615616512}, {"SmolLM2-135M", 134515008}, {"Qwen3-8B", 8190735360},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct fixture f;

		open_model(&f, cases[i].model);
		p.micro_batch = 1;
		p.seq_len = 16;
		if (price(&f, &p).total_params != cases[i].params)
			fail_msg("%s: %llu", cases[i].model,
				 (unsigned long long)price(&f, &p).total_params);
		close_model(&f);
	}
}

/* LoRA of rank 16 on 4 layers of Mixtral 8x7B with all-linear: q and o (4096 + 4096) r, k and v
 * (4096 + 1024) r, router (4096 + 8) r, gate and up, one tensor, (4096 + 28672) 2 r 8, down (14336
 * + 4096) r 8; measured alike (run mixtral-mixtral-8x7b-b3c053 of the oracle).  Without the
 * experts' names only what is named. */
static void adapters_of_experts(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct fixture f;

	(void)state;
	open_model(&f, "Mixtral-8x7B");
	p.micro_batch = 1;
	p.seq_len = 128;
	p.num_layers = 4;
	p.lora_r = 16;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "all-linear");
	assert_int_equal(price(&f, &p).trainable_params, 4 * (425984 + 65664 + 8388608 + 2359296));
	snprintf(p.lora_targets, sizeof(p.lora_targets), "q_proj+v_proj");
	assert_int_equal(price(&f, &p).trainable_params, 4 * (131072 + 81920));
	close_model(&f);
}

/* Playbook M1: weights 4 (fp32 master), gradients 4, Adam 8 bytes per parameter; inference is 2
 * (bf16). */
static void bytes_per_parameter(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct fixture f;
	struct oom_eval e;

	(void)state;
	open_model(&f, "Llama-3.2-1B");
	p.precision = OOM_AMP_BF16;
	e = price(&f, &p);
	assert_int_equal(e.param_bytes, 4 * e.total_params);
	assert_int_equal(e.grad_bytes, 4 * e.total_params);
	assert_in_range(e.opt_bytes, 8 * e.total_params, 8 * e.total_params + 4 * 200);
	p.precision = OOM_BF16;
	assert_int_equal(price(&f, &p).param_bytes, 2 * e.total_params);
	/* 8-bit Adam: 2 + 2 * 4 / 256 = 2.03125 (bitsandbytes, block 256), small tensors in fp32 */
	oom_plan_set(&p, oom_knob_find("optimizer"), "adamw-8bit", NULL);
	e = price(&f, &p);
	assert_true((double)e.opt_bytes / (double)e.total_params > 2.031);
	assert_true((double)e.opt_bytes / (double)e.total_params < 2.04);
	close_model(&f);
}

/* The sum over who is alive is the peak; no phase is above the overall peak; step 2 holds what
 * step 1 left. */
static void composition_adds_up(void **state)
{
	char name[80];

	(void)state;
	for (size_t i = 0; oom_bundled_model(i, name, sizeof(name)); i++) {
		struct oom_plan p = oom_plan_default();
		struct fixture f;

		open_model(&f, name);
		if (oom_model_task(f.model) == OOM_TASK_IMAGE_CLS || *oom_model_warning(f.model)) {
			close_model(&f);
			continue;
		}
		p.micro_batch = 2;
		p.seq_len = 256;
		for (int v = 0; v < 12; v++) {
			struct oom_eval e;
			uint64_t sum = 0;

			p.precision = v % 3 == 0 ? OOM_FP32 : v % 3 == 1 ? OOM_BF16 : OOM_AMP_BF16;
			p.grad_ckpt = v / 3 % 2;
			p.grad_accum = 1 + v / 6;
			e = price(&f, &p);
			for (int b = 0; b < OOM_BUCKETS; b++)
				sum += e.bucket[b];
			if (sum != e.overall_peak)
				fail_msg("%s, variant %d: buckets %llu, peak %llu", name, v,
					 (unsigned long long)sum,
					 (unsigned long long)e.overall_peak);
			for (int ph = OOM_PHASE_FWD1; ph <= OOM_PHASE_OPT2; ph++)
				assert_true(e.peak[ph] <= e.overall_peak);
			/* nothing leaks: after backward only gradients are added to what lay
			 * there before */
			if (e.end[OOM_PHASE_BWD1] - e.end[OOM_PHASE_EVAL] < e.grad_bytes ||
			    e.end[OOM_PHASE_BWD1] - e.end[OOM_PHASE_EVAL] >
				    e.grad_bytes + 512 * 2000)
				fail_msg("%s, variant %d: %llu left after backward, gradients %llu",
					 name, v,
					 (unsigned long long)(e.end[OOM_PHASE_BWD1] -
							      e.end[OOM_PHASE_EVAL]),
					 (unsigned long long)e.grad_bytes);
		}
		close_model(&f);
	}
}

/* More is never less: a longer sequence, a larger batch, more layers. */
static void monotone(void **state)
{
	struct oom_plan p = oom_plan_default(), q;
	struct fixture f;

	(void)state;
	open_model(&f, "SmolLM2-135M");
	for (int64_t b = 1; b <= 16; b *= 2) {
		p.micro_batch = b;
		q = p;
		q.micro_batch *= 2;
		assert_true(price(&f, &q).overall_peak > price(&f, &p).overall_peak);
		q = p;
		q.seq_len *= 2;
		assert_true(price(&f, &q).overall_peak > price(&f, &p).overall_peak);
	}
	close_model(&f);
}

/* A closed form in depth: recording 3 of n layers gives what recording all of them gives.  The
 * replay records all, and its allocated bytes can never be below the closed form's peak. */
static void closed_form_in_depth(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct fixture f;
	uint64_t last = 0, step = 0;

	(void)state;
	open_model(&f, "Llama-3.2-1B");
	p.micro_batch = 2;
	for (int64_t n = 4; n <= 8; n++) {
		struct oom_eval e;

		p.num_layers = n;
		e = price(&f, &p);
		if (last && step)
			/* every layer saves the same */
			assert_int_equal(e.saved_bytes - last, step);
		step = last ? e.saved_bytes - last : 0;
		last = e.saved_bytes;
	}
	close_model(&f);
}

/* Korthikanti et al., arXiv:2205.05198, equation 2: a GPT layer with dropout in 16 bit keeps
 * s*b*h*(34 + 5*a*s/h) bytes. The paper leaves out the fp32 mean and rstd of its two layer
 * norms: 2 * 2 * 4 bytes per token, added here. */
static void korthikanti_activations(void **state)
{
	static const struct {
		uint64_t b, s, h, a;
	} shapes[] = {{1, 512, 512, 8}, {4, 1024, 768, 12}, {2, 2048, 1024, 16}};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const uint64_t b = shapes[i].b, s = shapes[i].s, h = shapes[i].h, a = shapes[i].a;
		struct oom_plan p = oom_plan_default();
		struct fixture f = {.ev = oom_evaluator_new()};
		uint64_t saved[2];
		char text[400];

		snprintf(text, sizeof(text),
			 "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_head\": %d, \"n_layer\": "
			 "4, \"vocab_size\": 100, "
			 "\"n_positions\": 4096, \"activation_function\": \"gelu\"}",
			 (int)h, (int)a);
		assert_int_equal(oom_keys_parse(&f.keys, text, strlen(text), "block", NULL),
				 OOM_OK);
		assert_int_equal(oom_model_new(&f.model, &f.keys, NULL), OOM_OK);
		p.precision = OOM_BF16;
		p.attn = OOM_ATTN_EAGER;
		p.micro_batch = (int64_t)b;
		p.seq_len = (int64_t)s;
		for (int n = 0; n < 2; n++) {
			p.num_layers = 8 + n;
			saved[n] = price(&f, &p).saved_bytes;
		}
		assert_int_equal(saved[1] - saved[0],
				 s * b * h * 34 + 5 * a * s * s * b + 16 * b * s);
		close_model(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(evaluation_piles_logits),
		cmocka_unit_test(cards_differ_by_capability),
		cmocka_unit_test(weights_decide),
		cmocka_unit_test(activations_wait_on_the_host),
		cmocka_unit_test(published_parameter_counts),
		cmocka_unit_test(adapters_of_experts),
		cmocka_unit_test(bytes_per_parameter),
		cmocka_unit_test(composition_adds_up),
		cmocka_unit_test(monotone),
		cmocka_unit_test(closed_form_in_depth),
		cmocka_unit_test(korthikanti_activations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
