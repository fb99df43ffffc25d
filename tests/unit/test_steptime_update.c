/* The update: what goes through memory, what is searched, and where states are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "card.h"
#include "oomplan/steptime.h"
#include "oomplan/sweep.h"
#include "step/engines.h"
#include "step/time/cards.h"

/* What is offloaded or paged costs time; without, no host part. */
static void hosts(void **state)
{
	struct oom_gpu g = card("PCIe 4.0", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.trainable_params = 1000000000;
	e.param_bytes = e.grad_bytes = 4000000000;
	e.opt_bytes = 8000000000;
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] == 0);
	e.host_pageable_bytes = 8000000000;
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] - 8 / 25.0) < 1e-9);
	/* paged states stay on a card that has room for them */
	g.capacity_bytes = 24000000000;
	e.overall_peak = 15000000000;
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] == 0);
	e.overall_peak = 17000000000;
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] > 0);
	e.host_pageable_bytes = 0;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.offload_optimizer = OOM_OFFLOAD_CPU;
	/* 28 bytes per parameter at the 35 GB/s of DeepSpeed's own figures, gradients there and weights back */
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] - (0.8 + 8 / 25.0)) < 1e-9);
	/* torch's fused update, at 100 GB/s */
	p.engine = OOM_ENGINE_FSDP2;
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] - (0.28 + 8 / 25.0)) < 1e-9);
}

static int64_t named(const char *optimizer)
{
	struct oom_plan p = oom_plan_default();

	assert_int_equal(oom_plan_set(&p, oom_knob_find("optimizer"), optimizer, NULL), OOM_OK);
	return p.optimizer;
}

/* Megatron and DeepSpeed update by one kernel over many tensors (apex' or TransformerEngine's FusedAdam), whatever form of
 * AdamW is named; torch's own goes through its lists of tensors two and a half times. */
static void fused_updates(void **state)
{
	static const struct {
		int64_t engine;
		double fused;           /* of what the list's update takes, or more */
	} of[] = {{OOM_ENGINE_HF, 2.5}, {OOM_ENGINE_DEEPSPEED, 1}, {OOM_ENGINE_MEGATRON, 1}, {OOM_ENGINE_MEGATRON_DEEPSPEED, 1}};
	struct oom_gpu g = card("NVLink3 600 GB/s", 8);

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double listed, fused;
		struct oom_eval e;

		memset(&e, 0, sizeof(e));
		e.opt_bytes = 8000000000;
		p.engine = of[i].engine;
		p.optimizer = named("adamw");
		listed = oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER];
		p.optimizer = named("adamw-fused");
		fused = oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER];
		assert_true(fused > 0 && fabs(listed / fused - of[i].fused) < 1e-9);
	}
}

/* An update goes through the weights as they are kept, or through an engine's fp32 copy: a billion parameters, SGD without
 * states, gradients of 16 bit read and cleared. */
static void updated_weights(void **state)
{
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	const double memory = g.bandwidth_gb_s * 1e9 * 0.85;
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.optimizer = named("adamw-fused");
	e.trainable_params = e.total_params = 1000000000;
	e.param_bytes = e.grad_bytes = 2000000000;
	/* and the gradients' norm before */
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER] * memory / (2 * (2e9 + 2e9) + 2e9) - 1) < 1e-9);
	p.engine = OOM_ENGINE_DEEPSPEED;
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER] * memory / (2 * (4e9 + 2e9) + 2e9) - 1) < 1e-9);
}

/* Adafactor works tensor by tensor on fp32: 25.5 times 4 bytes of a parameter, 44 ms for the 1.236 billion of Llama-3.2-1B at 0.85 of
 * an H100's 3.35 TB/s, where 57 were measured (data/h100_steps.csv), and the gradients' norm. */
static void adafactor(void **state)
{
	struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double ms;

	(void)state;
	memset(&e, 0, sizeof(e));
	g.bandwidth_gb_s = 3350;
	p.optimizer = named("adafactor");
	e.trainable_params = e.total_params = 1236000000;
	e.param_bytes = e.grad_bytes = 2472000000;
	ms = oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER] * 1e3;
	assert_true(fabs(ms - (44.27 + 0.87)) < 0.1);
}

/* bitsandbytes' 8-bit states are searched by the card's units, one block after another: 3.8 ns of a unit per parameter, which
 * is 48 ms for a billion on a V100 of 80 and 29 on an H100 of 132, whose bytes (12 a parameter in bf16) take 6. */
static void searched_states(void **state)
{
	static const struct {
		double capability, ms;
	} of[] = {{7, 47.5}, {9, 28.8}};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		const struct oom_gpu g = card("NVLink4 900 GB/s", of[i].capability);
		struct oom_plan p = oom_plan_default();
		struct oom_eval e;

		memset(&e, 0, sizeof(e));
		p.optimizer = named("adamw-8bit");
		/* no bytes: what is searched alone */
		e.trainable_params = e.total_params = 1000000000;
		assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER] * 1e3 - of[i].ms) < 0.1);
		p.optimizer = named("adamw-fused");
		assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_OPTIMIZER] == 0);
	}
}

/* 148 tensors of a GPT-2 take the optimizer's Python 1.3 ms a step, whatever the micro-steps (data/h100_steps.csv: gpt2-b1, 2.3 ms
 * with the update), and nothing where the card is behind. */
static void python_of_tensors(void **state)
{
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double alone, behind;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.optimizer = named("adamw-fused");
	p.grad_accum = 4;
	e.work.trained = 148;
	alone = oom_step_time(&p, &e, &g).part_s[OOM_TIME_LAUNCHES] * 1e3;
	assert_true(fabs(alone - 1.332) < 0.001);
	e.work.product_flops = 20e12;
	behind = oom_step_time(&p, &e, &g).part_s[OOM_TIME_LAUNCHES] * 1e3;
	assert_true(behind < 0.001);
}

/* TransformerEngine's attention and casts on AMD's cards are its own, not PyTorch's: as on NVIDIA's from Hopper on. */
static void engine_of_amd(void **state)
{
	struct oom_gpu g = card("Infinity Fabric", 0);
	struct oom_plan p = oom_plan_default();
	struct oom_speed loop, core;

	(void)state;
	snprintf(g.vendor, sizeof(g.vendor), "amd");
	snprintf(g.architecture, sizeof(g.architecture), "CDNA3");
	p.precision = OOM_BF16;
	p.attn = OOM_ATTN_FLASH;
	oom_speed_of(&g, &p, &loop);
	p.engine = OOM_ENGINE_MEGATRON;
	oom_speed_of(&g, &p, &core);
	assert_true(core.attention > 2 * loop.attention);
	assert_true(core.memory > 2 * loop.memory);
	p.attn = OOM_ATTN_EAGER;
	oom_speed_of(&g, &p, &core);
	assert_true(core.attention < 1.1 * loop.attention);
}

/* A graph of a layer is one launch each way; what it does not hold, experts among it, is launched as ever. */
static void graphs(void **state)
{
	const struct oom_work w = {.launches = 18 * 80 + 20, .launches_back = 26 * 80 + 12, .captured = 44 * 80, .replays = 160};
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.engine = OOM_ENGINE_MEGATRON;
	assert_true(fabs(oom_engine_launched(&p, &w) - 1) < 1e-9);
	p.cuda_graphs = 1;
	assert_true(fabs(oom_engine_launched(&p, &w) - 192.0 / 3552) < 1e-9);
	assert_true(oom_engine_layers_s(&p, &w) < 0.02);
	p.engine = OOM_ENGINE_HF;
	assert_true(fabs(oom_engine_launched(&p, &w) - 1) < 1e-9);
}

/* Products of fp32 in TF32 are the tensor cores': an A100's 156 of 312 Tflop/s, and not its 19.5. */
static void tensor_float(void **state)
{
	struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_speed off, on;

	(void)state;
	g.fp32_tflops = 19.5;
	g.tf32_tflops = 156;
	p.precision = OOM_FP32;
	oom_speed_of(&g, &p, &off);
	p.tf32 = 1;
	oom_speed_of(&g, &p, &on);
	assert_true(fabs(off.fp32_products - off.fp32) < 1);
	assert_true(on.fp32_products > 6 * off.fp32_products && on.fp32_products < 8 * off.fp32_products);
	assert_true(on.wide_batched > off.wide_batched);
	g.tf32_tflops = 0;              /* before Ampere */
	oom_speed_of(&g, &p, &on);
	assert_true(fabs(on.fp32_products - on.fp32) < 1);
}

/* What large fp32 products alone were measured at is as much as a step's do: 4.35 Tflop/s of a T4 (data/gpus.csv), for 6.9 of its
 * units and 17 of its power. */
static void fp32_measured_alone(void **state)
{
	struct oom_gpu g = card("PCIe 3.0", 7.5);
	struct oom_plan p = oom_plan_default();
	struct oom_speed told, alone;

	(void)state;
	g.fp16_tflops = g.bf16_tflops = 65;
	g.tdp_w = 70;
	p.precision = OOM_FP32;
	oom_speed_of(&g, &p, &told);
	g.fp32_matmul_tflops = 4.35;
	oom_speed_of(&g, &p, &alone);
	assert_true(told.fp32 > 6.5e12 && told.fp32 < 7e12);
	assert_true(fabs(alone.fp32 - 4.35e12) < 1 && fabs(alone.fp32_products - 4.35e12) < 1);
	g.fp32_matmul_tflops = 9;       /* and no more than is sustained */
	oom_speed_of(&g, &p, &alone);
	assert_true(fabs(alone.fp32 - told.fp32) < 1);
}

/* DeepSpeed's pipeline engine reduces after its passes (deepspeed/runtime/pipe/engine.py _exec_reduce_grads), fp32 gradients in
 * bf16 (_bf16_reduce_grads): four bytes a weight twice, and its updated two bytes once, over a ring of 231 GB/s. */
static void pipeline_engine_reduces(void **state)
{
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time core, pipe;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.product_flops = 1e15;
	e.work.units = 1;
	e.total_params = e.trainable_params = 1000000000;
	e.param_bytes = 2000000000;
	e.grad_bytes = 2000000000;
	p.gpus = 8;
	p.zero_stage = 1;
	p.precision = OOM_BF16;
	p.engine = OOM_ENGINE_MEGATRON;
	core = oom_step_time(&p, &e, &g);
	p.engine = OOM_ENGINE_MEGATRON_DEEPSPEED;
	pipe = oom_step_time(&p, &e, &g);
	assert_true(core.part_s[OOM_TIME_GRADIENTS] < 0.2 * pipe.part_s[OOM_TIME_GRADIENTS]);
	assert_true(fabs(pipe.part_s[OOM_TIME_GRADIENTS] / (10e9 * 7 / 8 / 231e9) - 1) < 0.01);
}

/* Mixtures of experts and images leave more open than texts of dense models do (interval.c): 0.30 and 0.15 beside the rows'
 * scatter and a class that many published, of both 1.4 times as much towards slower steps. */
static void kinds_of_models(void **state)
{
	struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_step_time t;
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.product_flops = 1e15;
	g.step_sources = 19;
	for (int kind = 0; kind < 3; kind++) {
		static const double more[] = {0, 0.30, 0.15};

		e.total_params = 1000;
		e.active_params = kind == 1 ? 300 : 1000;
		p.task = kind == 2 ? OOM_TASK_IMAGE_CLS : OOM_TASK_CAUSAL_LM;
		t = oom_step_time(&p, &e, &g);
		assert_true(fabs(log(t.high_s / t.total_s) -
				 1.4 * sqrt(0.19 * 0.19 + 0.12 * 0.12 + more[kind] * more[kind])) < 1e-6);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engine_of_amd),
		cmocka_unit_test(graphs),
		cmocka_unit_test(tensor_float),
		cmocka_unit_test(fp32_measured_alone),
		cmocka_unit_test(pipeline_engine_reduces),
		cmocka_unit_test(kinds_of_models),
		cmocka_unit_test(hosts),
		cmocka_unit_test(fused_updates),
		cmocka_unit_test(updated_weights),
		cmocka_unit_test(adafactor),
		cmocka_unit_test(searched_states),
		cmocka_unit_test(python_of_tensors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
