/* What waits in host memory: checkpoints, and states and gradients of one GPU.
 *
 * Checkpoints: a function of one's own in the place of torch's checkpoint, which moves every layer's input
 * away and brings it back (unsloth's Unsloth_Offloaded_Gradient_Checkpointer, axolotl's `gradient_checkpointing: offload`).
 *
 * Measured with such a function, PyTorch 2.14.1 and transformers 5.12.1 on fake tensors (2026-11-25).  It
 * waits for its copies; what is priced has one layer's worth on its way besides, as torchtune's streams have, and unsloth's
 * newer one keeps two such buffers (unsloth_zoo/gradient_checkpointing.py GPU_BUFFERS): never below what was measured, and
 * at most two hidden states above. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/oomplan.h"
#include "oomplan/option.h"
#include "generation_configs.h"
#include "priced.h"

/* meta-llama/Llama-3.2-1B config.json, but for its depth */
#define LLAMA(layers) \
	"{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":2048,\"intermediate_size\":8192," \
	"\"num_hidden_layers\":" layers ",\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64," \
	"\"tie_word_embeddings\":true}"

static void test_offloaded_checkpoints(void **state)
{
	enum { HIDDEN = 2 * 1024 * 2048 };
	static const struct {
		const char *config;
		enum oom_precision precision;
		int64_t r;
		uint64_t measured, hidden;
	} cases[] = {
		{LLAMA("6"), OOM_BF16, 0, 6951512064, 2 * HIDDEN},
		{LLAMA("4"), OOM_AMP_BF16, 0, 9791370240, 4 * HIDDEN},
		{LLAMA("6"), OOM_BF16_AMP, 16, 4483465216, 2 * HIDDEN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		uint64_t peak;

		p.precision = cases[i].precision;
		p.optimizer = 0;
		p.micro_batch = 2;
		p.seq_len = 1024;
		p.grad_ckpt = OOM_CKPT_FULL;
		while (strcmp(oom_knob_find("optimizer")->choice((size_t)p.optimizer)->name, "adamw-fused"))
			p.optimizer++;
		p.lora_r = cases[i].r;
		snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", cases[i].r ? "all-linear" : "");
		peak = must(cases[i].config, &p).overall_peak;
		p.offload_activations = 1;
		assert_true(must(cases[i].config, &p).overall_peak < peak);
		peak = must(cases[i].config, &p).overall_peak;
		if (peak < cases[i].measured || peak > cases[i].measured + 2 * cases[i].hidden)
			fail_msg("case %zu: %llu priced, %llu measured", i, (unsigned long long)peak,
				 (unsigned long long)cases[i].measured);
	}
}

/* offload_gradients=True: after the backward the card holds weights alone, and no phase needs more
 * than before.  Qwen's norms and biases (896 elements and fewer) are stepped on the card: their
 * gradients stay, their two moments and a counter of the fused kernel's come. */
static void streamed(struct oom_plan *p, const struct oom_eval *whole)
{
	struct oom_eval e, small;

	p->offload_gradients = 1;
	e = must(MISTRAL(4), p);
	assert_int_equal(whole->end[OOM_PHASE_BWD2] - e.end[OOM_PHASE_BWD2], whole->grad_bytes);
	for (int i = 0; i < OOM_PHASES; i++)
		assert_true(e.peak[i] <= whole->peak[i]);
	assert_int_equal(e.host_pinned_bytes, whole->host_pinned_bytes);
	small = must(QWEN, p);
	/* 24 layers: two norms of 896 elements, biases of 896, 128 and 128; the last norm.  Blocks of
	 * 512 bytes: 2048 of 896 elements, 512 of 128. */
	assert_int_equal(small.end[OOM_PHASE_BWD2] - small.end[OOM_PHASE_LOAD] - small.input_bytes,
			 (24 * (3 * 2048 + 2 * 512) + 2048) * 3 + 512 * (24 * 5 + 1));
	p->offload_gradients = 0;
}

/* torchao's CPUOffloadOptimizer on one GPU: the states are gone from the card, weights and gradients
 * are not; a pinned copy of both is on the host.  ZeRO-3 on one GPU divides nothing. */
static void one_gpu_runs_what_many_do(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval here, away, zero;

	(void)state;
	p.precision = OOM_BF16;
	here = must(MISTRAL(4), &p);
	p.offload_optimizer = OOM_OFFLOAD_CPU;
	away = must(MISTRAL(4), &p);
	assert_true(here.end[OOM_PHASE_OPT2] - away.end[OOM_PHASE_OPT2] - here.opt_bytes < 512 * 200);
	assert_int_equal(away.host_pinned_bytes, 2 * 2 * away.total_params);
	/* all states but those of norms (4096 elements and more leave, Mistral's norms too) */
	assert_true(away.host_pageable_bytes - here.opt_bytes < 512 * 200);
	streamed(&p, &away);
	p.offload_optimizer = OOM_OFFLOAD_NONE;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.zero_stage = 3;
	zero = must(MISTRAL(4), &p);
	/* 2 + 2 of weights and gradients, 4 + 8 of master and moments */
	assert_true(zero.end[OOM_PHASE_OPT2] >= 16 * zero.total_params);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_offloaded_checkpoints),
					   cmocka_unit_test(one_gpu_runs_what_many_do)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
