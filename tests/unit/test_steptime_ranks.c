/* The step time of many ranks: what travels, what hides behind what, and what waits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "card.h"
#include "megatron/parts.h"
#include "oomplan/generations.h"
#include "oomplan/steptime.h"
#include "oomplan/sweep.h"
#include "step/time/cards.h"
#include "step/time/collectives.h"

/* What hides beside products: weights that many tokens meet, tensor collectives up to a third of them;
 * and attention under TransformerEngine on a Hopper card, 2.2 times as fast, not on an A100. */
static void beside_products(void **state)
{
	const struct oom_gpu a100 = card("NVLink3 600 GB/s", 8), h100 = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time t, u;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.product_flops = 1e15;
	t = oom_step_time(&p, &e, &a100);
	e.work.streamed = 1e9;
	u = oom_step_time(&p, &e, &a100);
	assert_true(u.total_s >= t.total_s && u.total_s < 1.0001 * t.total_s);
	/* a product of one token is bound by its weights */
	e.work.streamed = 1e14;
	assert_true(oom_step_time(&p, &e, &a100).total_s > 10 * t.total_s);
	e.work.streamed = 0;
	p.engine = OOM_ENGINE_MEGATRON;
	p.gpus = p.tp = 8;
	e.work.tensor_bytes = 231e9;            /* a second at 231 GB/s */
	t = oom_step_time(&p, &e, &a100);
	e.work.tensor_behind = 0.5;
	u = oom_step_time(&p, &e, &a100);
	assert_true(fabs(t.part_s[OOM_TIME_TENSOR] - 2 * u.part_s[OOM_TIME_TENSOR]) < 1e-6);
	e.work.tensor_bytes *= 100;
	u = oom_step_time(&p, &e, &a100);
	assert_true(fabs(100 * t.part_s[OOM_TIME_TENSOR] - u.part_s[OOM_TIME_TENSOR] -
			 u.part_s[OOM_TIME_PRODUCTS] / 3) < 1e-6);
	e.work.attention_flops = 1e15;
	/* half of it on fp32 takes longer */
	t = oom_step_time(&p, &e, &a100);
	e.work.wide_flops = 5e14;
	u = oom_step_time(&p, &e, &a100);
	assert_true(u.part_s[OOM_TIME_ATTENTION] > 2 * t.part_s[OOM_TIME_ATTENTION]);
	e.work.wide_flops = 0;
	for (int i = 0; i < 2; i++) {
		const struct oom_gpu *g = i ? &h100 : &a100;

		p.engine = OOM_ENGINE_FSDP2;
		p.attn = OOM_ATTN_SDPA;
		t = oom_step_time(&p, &e, g);
		p.engine = OOM_ENGINE_MEGATRON;
		u = oom_step_time(&p, &e, g);
		assert_true(fabs(t.part_s[OOM_TIME_ATTENTION] / u.part_s[OOM_TIME_ATTENTION] -
				 (i ? 2.2 : 1)) < 1e-6);
	}
}

/* Wrapped layers are gathered by hooks in Python, before and after each pass: Qwen2.5-0.5B with 192 matrices of
 * adapters over 105 tokens on four H100s takes 0.57 s a step under FSDP and 0.14 whole (Soup,
 * benchmarks/gate-h100-validation.md); DeepSpeed's stage 3 fetches 1,300 tensors of Qwen-72B in 2.2 s (QwenLM/Qwen,
 * README.md), products included. */
static void hooks(void **state)
{
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double whole;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.launches = 5000;
	e.work.units = 24;
	e.work.tensors = 290 + 192;
	e.work.trained = 192;
	p.gpus = 4;
	p.lora_r = 16;
	p.engine = OOM_ENGINE_FSDP1;
	whole = oom_step_time(&p, &e, &g).total_s;
	p.zero_stage = 3;
	assert_true(fabs(oom_step_time(&p, &e, &g).total_s - whole - 0.43) < 0.1);
	/* units of FSDP2 are the layers, whatever is adapted: 24 and the root in two passes, of a millisecond each */
	p.engine = OOM_ENGINE_FSDP2;
	assert_true(fabs(oom_step_time(&p, &e, &g).total_s - whole - 0.05) < 0.02);
	/* one card has nothing to gather */
	p.gpus = 1;
	assert_true(oom_step_time(&p, &e, &g).total_s <= whole);
	p.gpus = 4;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.zero_stage = 2;
	whole = oom_step_time(&p, &e, &g).total_s;
	assert_true(whole < 0.2);
	p.zero_stage = 3;
	p.grad_ckpt = OOM_CKPT_FULL;
	e.work.tensors = 1300;
	assert_true(oom_step_time(&p, &e, &g).total_s > whole + 0.5 &&
		    oom_step_time(&p, &e, &g).total_s < 2.2);
}

/* Megatron's layers take their time of the processor, however small they are: 24 of BERT-large over 16 micro-batches on
 * four tensor ranks of H100s 1.743 s a step (Megatron-LM, bert_mcore_tp4_pp1, golden_values_dev_dgx_h100.json, median of
 * iteration-time).  Large layers take no longer for it, nor do another engine's. */
static void layers_of_python(void **state)
{
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double large;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.units = 24;
	/* 18 kernels a layer forward and 26 backward, and those of the head (megatron/work.c) */
	e.work.launches = 24 * 18 + 20;
	e.work.launches_back = 24 * 26 + 12;
	e.work.product_flops = 1e12;
	p.precision = OOM_BF16;
	p.engine = OOM_ENGINE_MEGATRON;
	p.gpus = p.tp = 4;
	p.grad_accum = 16;
	assert_true(fabs(oom_step_time(&p, &e, &g).total_s / 1.743 - 1) < 0.1);
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_LAUNCHES] > 1.4);
	e.work.product_flops = 200e12;
	large = oom_step_time(&p, &e, &g).total_s;
	e.work.units = 1;
	e.work.launches = 18 + 20;
	e.work.launches_back = 26 + 12;
	assert_true(fabs(oom_step_time(&p, &e, &g).total_s / large - 1) < 1e-3);
	/* nothing of it under an engine that runs the model's own layers */
	e.work.product_flops = 1e12;
	e.work.units = 24;
	p.tp = 1;
	p.engine = OOM_ENGINE_HF;
	assert_true(oom_step_time(&p, &e, &g).total_s < 0.2);
}

/* (p - 1) / (m v): 4 stages, 8 micro-batches, 2 chunks: 3/16 of the time of a micro-batch's stages. */
static void bubbles(void **state)
{
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time t;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.product_flops = 240e12;
	p.precision = OOM_BF16;
	p.engine = OOM_ENGINE_MEGATRON;
	p.gpus = p.pp = 4;
	p.grad_accum = 8;
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_BUBBLE] / t.part_s[OOM_TIME_PRODUCTS] - 3.0 / 8) < 1e-3);
	p.vpp = 2;
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_BUBBLE] / t.part_s[OOM_TIME_PRODUCTS] - 3.0 / 16) < 1e-3);
	/* few micro-batches wait most of the time */
	p.vpp = p.grad_accum = 1;
	assert_int_equal(oom_step_time(&p, &e, &g).binds, OOM_BOUND_BUBBLE);
}

/* Data parallelism hides behind long computation, and shows beside a short one. */
static void gradients(void **state)
{
	const struct oom_gpu g = card("PCIe 4.0", 8.6);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time t;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.gpus = 2;
	e.grad_bytes = 11250000000;     /* a second over the ring's 11.25 GB/s */
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_GRADIENTS] - 1) < 1e-3);
	assert_int_equal(t.binds, OOM_BOUND_NETWORK);
	e.work.product_flops = 1e16;
	t = oom_step_time(&p, &e, &g);
	assert_true(t.part_s[OOM_TIME_GRADIENTS] < 0.2);
}

/* FSDP2 gathers tensor-wise fp8 weights in 8 bits (torchao, enable_fsdp_float8_all_gather), row-wise ones in 16. */
static void gathers_in_8_bits(void **state)
{
	const struct oom_gpu g = card("PCIe 4.0", 8.9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double wide, row, narrow;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.gpus = 2;
	p.engine = OOM_ENGINE_FSDP2;
	p.zero_stage = 3;
	p.precision = OOM_BF16;
	e.param_bytes = 11250000000;
	wide = oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS];
	p.fp8 = OOM_FP8_ROWWISE;
	row = oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS];
	p.fp8 = OOM_FP8_TENSORWISE;
	narrow = oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS];
	assert_true(wide > 0 && fabs(row / wide - 1) < 1e-9 && fabs(narrow / wide - 0.5) < 1e-3);
}

/* Ranks of one sequence reduce and gather with those of other data (megatron/core/parallel_state.py, the data-parallel group
 * with context parallelism); stages are outermost in the order of ranks, tensor ranks innermost. */
static void groups(void **state)
{
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double whole;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.engine = OOM_ENGINE_MEGATRON;
	p.gpus = 64;
	p.nodes = 8;
	e.grad_bytes = 100000000000;
	whole = oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS];
	p.cp = 2;
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS] / whole - 1) < 1e-6);
	p.cp = 1;
	p.pp = 8;       /* each stage is one machine, whose network the ring no longer meets */
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS] < 0.9 * whole);
	p.pp = 1;
	p.tp = 8;       /* every rank of its group is on another machine */
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS] > 5 * whole);
}

/* DeepSpeed's collectives add to the computation (engines.c), FSDP's hide behind it. */
static void waiting(void **state)
{
	const struct oom_gpu g = card("PCIe 4.0", 8.6);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time t;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.gpus = 2;
	p.zero_stage = 2;
	p.engine = OOM_ENGINE_DEEPSPEED;
	e.grad_bytes = 22500000000;     /* a second: every rank passes on half of them, once */
	e.work.product_flops = 1e16;
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_GRADIENTS] - 1) < 1e-3);
	p.engine = OOM_ENGINE_FSDP2;
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS] < 0.2);
	/* weights that are gathered module by module take twice as long between machines, not within one */
	e.grad_bytes = 0;
	e.param_bytes = 10000000000;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.zero_stage = 3;
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_GRADIENTS] - 2 * 10e9 / 2 / 11.25e9) < 1e-3);
	p.nodes = 2;
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_GRADIENTS] - 2 * 2 * 10e9 / 2 / (3e9 * 0.75)) < 0.01);
}

/* Scores that no kernel fuses: with 96 heads of 150, two bytes wide lines of nothing, batched products take 1.8 times as long
 * as with heads of 192, and per score 13 bytes go through memory forward and 19 backward (models/megatron/work.c). */
static void unfused_scores(void **state)
{
	struct oom_megatron m = oom_megatron_default();
	struct oom_work odd, even, fused;
	double scores;

	(void)state;
	m.layers = 1;
	m.hidden = m.ffn_hidden = 9600;
	m.heads = m.query_groups = 96;
	m.padded_vocab = 64;
	m.seq = 1024;
	m.precision = OOM_MG_BF16;
	m.attention = OOM_MG_ATTN_UNFUSED;
	m.kv_channels = 150;
	odd = oom_mg_work(&m);
	m.kv_channels = 192;
	even = oom_mg_work(&m);
	assert_true(fabs(odd.batched_flops / 150 / (even.batched_flops / 192) - 1.8) < 1e-9);
	m.attention = OOM_MG_ATTN_FLASH;
	fused = oom_mg_work(&m);
	scores = (double)m.micro_batch * 1024 * 1024 * 96;
	assert_true(fabs((even.bytes - fused.bytes) / scores - (13 + 19)) < 1e-9);
}

/* Experts take longer than one product of as many multiplications: 1.3 times where one is alone on its rank, or wide,
 * twice where narrow ones are grouped.  What is beside them does not change. */
static void unlike_experts(void **state)
{
	static const struct {
		int64_t experts, ep, ffn;
		double times;
	} of[] = {{8, 8, 32768, 1.3}, {8, 2, 32768, 1.3 + 0.7 * 1536 / 32768}, {8, 2, 1536, 2}, {8, 2, 768, 2}, {8, 8, 768, 1.3}};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct oom_megatron m = oom_megatron_default();
		double plain, moe, router;

		m.layers = 1;
		m.hidden = 1024;
		m.heads = m.query_groups = 8;
		m.kv_channels = 128;
		m.padded_vocab = 64;
		m.seq = 1024;
		m.swiglu = true;
		m.precision = OOM_MG_BF16;
		m.experts = of[i].experts;
		m.ep = of[i].ep;
		m.moe_topk = 1;
		m.moe_imbalance = 1;
		m.moe_ffn = of[i].ffn;
		moe = oom_mg_work(&m).product_flops;
		m.experts = 0;
		m.ep = 1;
		m.ffn_hidden = of[i].ffn;
		plain = oom_mg_work(&m).product_flops;
		/* three matrices, six operations each; a router of eight, in tiles of 64 */
		router = 6 * 1024 * 1024.0 * 64 * (double)m.micro_batch;
		assert_true(fabs((moe - plain - router) / (18 * 1024 * 1024.0 * (double)of[i].ffn * (double)m.micro_batch) -
				 (of[i].times - 1)) < 1e-6);
	}
}

/* PyTorch's own attention is cuDNN's from 2.11 on, on a Hopper and a Blackwell of data centres: a run of a version that is
 * named, before and after its knobs are resolved; FlashAttention's own package and other cards have what they had. */
static void attention_by_version(void **state)
{
	static const struct {
		double capability;
		int64_t attn;
		bool faster;
	} rows[] = {{9, OOM_ATTN_SDPA, true}, {10, OOM_ATTN_SDPA, true}, {9, OOM_ATTN_FLASH, false}, {8, OOM_ATTN_SDPA, false},
		    {12, OOM_ATTN_SDPA, false}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct oom_gpu g = card("NVLink4 900 GB/s", rows[i].capability);
		struct oom_plan p = oom_plan_default();
		struct oom_speed old, now;

		p.precision = OOM_BF16;
		p.attn = rows[i].attn;
		assert_int_equal(oom_attention_by_version(&g, &p), rows[i].faster);
		p.torch = OOM_VERSION(2, 9);
		oom_speed_of(&g, &p, &old);
		p.torch = OOM_VERSION(2, 11);
		oom_speed_of(&g, &p, &now);
		assert_true(fabs(now.attention / old.attention - (rows[i].faster ? 2.2 : 1)) < 1e-9);
		assert_false(oom_attention_by_version(&g, &p));
		oom_plan_resolve(&p);
		assert_int_equal(p.torch, 0);
		oom_speed_of(&g, &p, &now);
		assert_true(fabs(now.attention / old.attention - (rows[i].faster ? 2.2 : 1)) < 1e-9);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(beside_products),
		cmocka_unit_test(hooks),
		cmocka_unit_test(layers_of_python), cmocka_unit_test(bubbles),
		cmocka_unit_test(gradients),
		cmocka_unit_test(groups),
		cmocka_unit_test(gathers_in_8_bits),
		cmocka_unit_test(waiting),
		cmocka_unit_test(unfused_scores),
		cmocka_unit_test(unlike_experts),
		cmocka_unit_test(attention_by_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
