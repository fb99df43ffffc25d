/* The step time: hand calculations on round numbers, and what must hold whatever the parameters of
 * the cards are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/steptime.h"
#include "oomplan/sweep.h"
#include "tape/tape.h"
#include "step/time/collectives.h"

/* ---- links ---- */

static struct oom_gpu card(const char *interconnect, double capability)
{
	struct oom_gpu g;

	memset(&g, 0, sizeof(g));
	snprintf(g.interconnect, sizeof(g.interconnect), "%s", interconnect);
	g.compute_capability = capability;
	g.bandwidth_gb_s = 2000;
	g.bf16_tflops = g.fp16_tflops = 300;
	g.tdp_w = 1e6;                  /* power is no limit */
	return g;
}

static void links(void **state)
{
	static const struct {
		const char *interconnect;
		double capability, gb_s;        /* what a ring reaches, one way */
	} rows[] = {
		/* half of what is stated for both directions, 0.77 of it */
		{"NVLink4 900 GB/s", 9, 450 * 0.77},
		{"NVLink4+NVSwitch 900 GB/s", 9, 450 * 0.77},
		{"NVLink2 300 GB/s", 7, 150 * 0.77},
		{"NVLink bridge 600 GB/s, PCIe 5.0", 8, 300 * 0.77},
		{"Infinity Fabric 896 GB/s", 0, 448 * 0.77},
		/* 21 of 24 ports stay inside */
		{"24x100 GbE RoCE, 525 GB/s in a server", 0, 262.5 * 0.77},
		{"NVLink", 8, 300 * 0.77},
		{"NVLink+NVSwitch", 7, 150 * 0.77},
		/* PCIe: 12.5 GB/s in generation 3, twice as much in each later one; 0.45 of it */
		{"PCIe 3.0", 7.5, 12.5 * 0.45},
		{"PCIe 4.0", 8.6, 25 * 0.45},
		{"PCIe 4.0 x8", 8.6, 12.5 * 0.45},
		{"PCIe 5.0", 9, 50 * 0.45},
		{"", 8, 25 * 0.45},
		{"", 7, 12.5 * 0.45},
		/* slower than PCIe, which is there anyway */
		{"NVLink 9 GB/s", 8, 25 * 0.45},
		{" GB/s", 8, 25 * 0.45},
		{"PCIe 77777777777777", 8, 25 * 0.45},
	};
	const struct oom_plan p = oom_plan_default();

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct oom_gpu g = card(rows[i].interconnect, rows[i].capability);
		struct oom_speed s;

		oom_speed_of(&g, &p, &s);
		if (fabs(s.link / (rows[i].gb_s * 1e9) - 1) > 1e-9)
			fail_msg("%s: %g bytes per second, not %g GB/s", rows[i].interconnect, s.link,
				 rows[i].gb_s);
	}
}

/* A ring over nodes: the adapters of all GPUs of a node together, up to the link. */
static void rings(void **state)
{
	struct oom_speed s = {.link = 300e9, .network = 20e9, .nvlink = true};
	const struct oom_peers within = {8, 8}, across = {16, 8}, one_each = {4, 1}, alone = {1, 1};

	(void)state;
	assert_true(oom_ring_speed(&s, within) == 300e9);
	assert_true(oom_ring_speed(&s, across) == 160e9);
	assert_true(oom_ring_speed(&s, one_each) == 20e9);
	s.network = 100e9;
	assert_true(oom_ring_speed(&s, across) == 300e9);
	assert_true(oom_ring_seconds(&s, alone, 1e12, 100) == 0);
	assert_true(oom_exchange_seconds(&s, alone, 1e12, 100) == 0);
	/* 300 GB over 300 GB/s; no call, no latency */
	assert_true(fabs(oom_ring_seconds(&s, within, 300e9, 0) - 1) < 1e-12);
	/* every other rank of 16 is on the other node: half over the network, half over the link */
	assert_true(fabs(oom_exchange_seconds(&s, across, 300e9, 0) - (1.5 + 0.5)) < 1e-12);
	/* each call costs something, more over several nodes */
	assert_true(oom_ring_seconds(&s, across, 0, 10) > oom_ring_seconds(&s, within, 0, 10));
}

static void networks(void **state)
{
	struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_plan p = oom_plan_default();
	struct oom_speed s;

	(void)state;
	p.gpus = 16;
	p.nodes = 2;
	/* 3200 Gbit/s a machine = 400 GB/s = 50 GB/s for each of 8 GPUs, three quarters of it */
	g.network_gbps = 3200;
	oom_speed_of(&g, &p, &s);
	assert_true(fabs(s.network / 37.5e9 - 1) < 1e-9);
	g.network_gbps = 100;
	oom_speed_of(&g, &p, &s);
	assert_true(fabs(s.network / (100.0 / 8 / 8 * 0.75e9) - 1) < 1e-9);
}

/* ---- parts ---- */

static double sum(const struct oom_step_time *t)
{
	double s = 0;

	for (int i = 0; i < OOM_TIME_PART_COUNT; i++) {
		assert_true(t->part_s[i] >= 0);
		s += t->part_s[i];
	}
	return s;
}

/* What an A100's units reach of 300 TFLOP/s that no power limits takes 1 s. */
static void products(void **state)
{
	struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time t;
	double limited;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.precision = OOM_BF16;
	p.micro_batch = 4;
	e.work.product_flops = oom_card_class(&g)->products * 300e12;
	e.work.model_flops = 180e12;
	t = oom_step_time(&p, &e, &g);
	assert_true(fabs(t.part_s[OOM_TIME_PRODUCTS] - 1) < 1e-6);
	assert_true(fabs(t.total_s - sum(&t)) < 1e-12);
	assert_true(fabs(t.samples_per_s - 4) < 1e-5);
	assert_true(fabs(t.mfu - 0.6) < 1e-6);          /* 180 of 300 */
	assert_int_equal(t.binds, OOM_BOUND_COMPUTE);
	assert_true(t.low_s < t.total_s && t.total_s < t.high_s);
	/* twice the micro-steps, twice the time */
	p.grad_accum = 2;
	assert_true(fabs(oom_step_time(&p, &e, &g).total_s - 2 * t.total_s) < 1e-9);
	/* a power limit: 10 W do not feed 200 TFLOP/s; twice the watts, 2^0.6 the speed */
	g.tdp_w = 10;
	assert_true(oom_step_time(&p, &e, &g).total_s > 5 * t.total_s);
	limited = oom_step_time(&p, &e, &g).total_s;
	g.tdp_w = 20;
	assert_true(fabs(limited / oom_step_time(&p, &e, &g).total_s - pow(2, 0.6)) < 1e-2);
	/* 8-bit products are quicker, the rest is as before */
	g = card("NVLink4 900 GB/s", 9);
	t = oom_step_time(&p, &e, &g);
	p.fp8 = OOM_FP8_TENSORWISE;
	assert_true(fabs(t.total_s / oom_step_time(&p, &e, &g).total_s - 1.6) < 1e-6);
	/* twice as quick, or three times, on Blackwell under TransformerEngine, where 4 bits are the units' own */
	g = card("NVLink5 1800 GB/s", 10);
	p.engine = OOM_ENGINE_MEGATRON;
	p.fp8 = OOM_FP8_NONE;
	t = oom_step_time(&p, &e, &g);
	p.fp8 = OOM_FP8_TENSORWISE;
	assert_true(fabs(t.total_s / oom_step_time(&p, &e, &g).total_s - 2) < 1e-6);
	p.fp8 = OOM_FP8_NVFP4;
	assert_true(fabs(t.total_s / oom_step_time(&p, &e, &g).total_s - 3) < 1e-6);
}

/* Trays of four cards that NVLink joins: 72 are as one machine, more are several. */
static void domains(void **state)
{
	struct oom_gpu gb200 = card("NVLink5 1800 GB/s", 10);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double alone, joined;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.engine = OOM_ENGINE_MEGATRON;
	p.gpus = p.tp = 64;
	p.nodes = 16;
	e.work.tensor_bytes = 1e12;
	e.work.tensor_calls = 1000;
	alone = oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR];
	gb200.nvlink_domain = 72;
	joined = oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR];
	/* 900 GB/s of NVLink one way, and 50 of four adapters each */
	assert_true(alone > 4 * joined);
	p.nodes = 1;
	assert_true(fabs(oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR] - joined) < 1e-12);
	p.gpus = p.tp = 144;
	p.nodes = 36;
	assert_true(oom_step_time(&p, &e, &gb200).part_s[OOM_TIME_TENSOR] > joined);
}

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

/* A step of tiny kernels takes as long as they take to launch: no batch makes it shorter. */
static void launches(void **state)
{
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	struct oom_step_time t;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.launches = 1000;
	e.work.product_flops = 1e9;
	t = oom_step_time(&p, &e, &g);
	assert_int_equal(t.binds, OOM_BOUND_LAUNCHES);
	/* Python takes between 5 and 50 us for one */
	assert_true(t.total_s > 5e-3 && t.total_s < 50e-3);
	p.compile = 1;
	assert_true(oom_step_time(&p, &e, &g).total_s < t.total_s / 2);
	/* much computation hides them all */
	p.compile = 0;
	e.work.product_flops = 1e15;
	t = oom_step_time(&p, &e, &g);
	assert_int_equal(t.binds, OOM_BOUND_COMPUTE);
	assert_true(t.part_s[OOM_TIME_LAUNCHES] < 1e-3 * t.total_s);
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
	assert_true(t.part_s[OOM_TIME_GRADIENTS] < 0.05);
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
	assert_true(oom_step_time(&p, &e, &g).part_s[OOM_TIME_GRADIENTS] < 0.05);
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

/* Sides of a product: whole lines of 64 elements, less of them, odd ones; thin ones as their tile. */
static void tiles(void **state)
{
	static const struct {
		uint64_t in, out;
		double times;
	} rows[] = {{4096, 4096, 1}, {4096, 128256, 1}, {768, 50304, 1}, {768, 50257, 1.8},
		    {14400, 1800, 1.3}, {4096, 1840, 1.15}, {16, 4096, 4}, {4096, 8, 8}, {0, 64, 1}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_true(fabs(oom_product_tiles(rows[i].in, rows[i].out, OOM_DT_BF16) -
				 rows[i].times) < 1e-12);
	/* 32-bit products do without tensor cores */
	assert_true(oom_product_tiles(768, 50257, OOM_F32) < 1.0001);
}

static double factor(const struct oom_plan *p, const struct oom_eval *e, const struct oom_gpu *g)
{
	const struct oom_step_time t = oom_step_time(p, e, g);

	assert_true(fabs(t.high_s / t.total_s - t.total_s / t.low_s) < 1e-9);
	return t.high_s / t.total_s;
}

/* The interval is as wide as what the step is made of is unknown. */
static void intervals(void **state)
{
	const struct oom_gpu a100 = card("NVLink3 600 GB/s", 8), v100 = card("NVLink2 300 GB/s", 7),
			     other = card("", 0);
	struct oom_gpu told = a100;
	struct oom_plan p = oom_plan_default(), q;
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.product_flops = 1e15;
	/* cards that several published rows of, one did, nobody did */
	assert_true(factor(&p, &e, &a100) < 1.3);
	assert_true(factor(&p, &e, &v100) > factor(&p, &e, &a100));
	assert_true(factor(&p, &e, &other) > 2);
	/* a network that nobody named */
	q = p;
	q.gpus = 16;
	q.nodes = 2;
	e.grad_bytes = 1000000000000;
	told.network_gbps = 800;
	assert_true(factor(&q, &e, &a100) > factor(&q, &e, &told));
	/* 8-bit products, the processor's part */
	q = p;
	q.fp8 = OOM_FP8_TENSORWISE;
	assert_true(factor(&q, &e, &a100) > factor(&p, &e, &a100));
	e.offloaded_bytes = 100000000000;
	e.work.product_flops = 1;
	assert_true(factor(&p, &e, &a100) > 1.5);
}

/* What is offloaded or paged costs time; without, no host part. */
static void hosts(void **state)
{
	const struct oom_gpu g = card("PCIe 4.0", 8);
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
	e.host_pageable_bytes = 0;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.offload_optimizer = OOM_OFFLOAD_CPU;
	/* 28 bytes per parameter at 100 GB/s, gradients there and weights back */
	assert_true(fabs(oom_step_time(&p, &e, &g).part_s[OOM_TIME_HOST] - (0.28 + 8 / 25.0)) < 1e-9);
}

/* ---- work ---- */

static void price(struct oom_plan *p, struct oom_eval *e)
{
	struct oom_keys keys;
	struct oom_model *m;
	struct oom_error err = {{0}};
	struct oom_evaluator *ev = oom_evaluator_new();

	memset(&keys, 0, sizeof(keys));
	assert_int_equal(oom_keys_read_model(&keys, OOM_SOURCE_ROOT "/data/models/Llama-3.2-1B.json", &err),
			 OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	if (oom_evaluate(ev, m, p, 0, e, &err))
		fail_msg("%s", err.text);
	oom_model_free(m);
	oom_keys_release(&keys);
	oom_evaluator_free(ev);
}

/* Llama-3.2-1B: 16 layers of 2 x 2048^2 + 2 x 2048 x 512 + 3 x 2048 x 8192 = 60,817,408 elements, a head
 * of 128256 x 2048: 1,235,746,816; forward and two gradients take 6 operations for each and token.
 * Scores: half of 2 x 2 x 2048 x s a layer and token, once forward and 2.5 times backward. */
static void work(void **state)
{
	const double n = 4 * 512, matrices = 1235746816.0, layers = 16 * 60817408.0;
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double launches, bytes;

	(void)state;
	p.precision = OOM_BF16;
	p.micro_batch = 4;
	p.seq_len = 512;
	p.attn = OOM_ATTN_FLASH;
	price(&p, &e);
	assert_true(fabs(e.work.product_flops / (6 * n * matrices) - 1) < 1e-9);
	assert_true(fabs(e.work.attention_flops / (16 * n * 2 * 2048 * 512 * 3.5) - 1) < 1e-9);
	assert_true(e.work.fp32_flops == 0 && e.work.batched_flops == 0);
	/* without a fused kernel: both halves, in two batched products with two gradients each */
	p.attn = OOM_ATTN_EAGER;
	price(&p, &e);
	assert_true(fabs(e.work.batched_flops / (16 * n * 2 * 2 * 2048 * 512 * 3) - 1) < 1e-9);
	assert_true(e.work.attention_flops == 0);
	assert_true(e.work.wide_flops == 0 && e.work.wide_batched_flops == 0);
	/* beside 4-bit layers that are prepared and not under autocast all is fp32 (peft/utils/other.py
	 * prepare_model_for_kbit_training; bitsandbytes' Linear4bit gives back its input's type): of 32 heads over 8,
	 * for which PyTorch then has no fused kernel (Context.cpp, check_batch_size_and_num_heads_dense) */
	p.attn = OOM_ATTN_SDPA;
	p.lora_r = 8;
	strcpy(p.lora_targets, "all-linear");
	p.qlora = p.kbit_prepare = true;
	price(&p, &e);
	assert_true(e.work.wide_batched_flops > 0 && e.work.wide_batched_flops >= e.work.batched_flops);
	p.precision = OOM_BF16_AMP;
	price(&p, &e);
	assert_true(e.work.attention_flops > 0 && e.work.wide_batched_flops == 0 && e.work.wide_flops == 0);
	p.precision = OOM_BF16;
	p.lora_r = 0;
	p.lora_targets[0] = 0;
	p.qlora = p.kbit_prepare = false;
	p.attn = OOM_ATTN_FLASH;
	price(&p, &e);
	/* PyTorch's profiler lists about 60 kernels per layer forward and as many backward; not a tenth
	 * and not ten times as many */
	assert_true(e.work.launches > 16 * 20 && e.work.launches < 16 * 120);
	assert_true(e.work.units == 16);
	launches = e.work.launches;
	bytes = e.work.bytes;
	/* launches do not depend on the batch, bytes do */
	p.micro_batch = 8;
	price(&p, &e);
	assert_true(e.work.launches == launches && e.work.bytes > 1.5 * bytes);
	/* checkpointing runs the layers, not the head, once more */
	p.micro_batch = 4;
	p.grad_ckpt = OOM_CKPT_FULL;
	price(&p, &e);
	assert_true(e.work.product_flops <= 6 * n * matrices + 2 * n * layers);
	assert_true(e.work.product_flops > 6 * n * matrices + 1.7 * n * layers);
	assert_true(e.work.launches > 1.5 * launches);
	/* frozen weights have no gradient: 4 in place of 6, and the adapters */
	p.grad_ckpt = OOM_CKPT_NONE;
	p.lora_r = 8;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "q_proj+v_proj");
	price(&p, &e);
	assert_true(e.work.product_flops + e.work.fp32_flops > 4 * n * matrices &&
		    e.work.product_flops < 4.4 * n * matrices);
}

/* The same model on Megatron: what tensor parallelism divides, and what it sends. */
static void megatron(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval one, two;
	const double n = 4 * 512, h = 2048;

	(void)state;
	p.engine = OOM_ENGINE_MEGATRON;
	p.precision = OOM_BF16;
	p.micro_batch = 4;
	p.seq_len = 512;
	p.attn = OOM_ATTN_FLASH;
	price(&p, &one);
	assert_true(fabs(one.work.product_flops / (6 * n * 1235746816.0) - 1) < 0.01);
	assert_true(one.work.tensor_bytes == 0 && one.work.pipeline_bytes == 0);
	p.gpus = p.tp = 2;
	p.sp = 1;
	price(&p, &two);
	assert_true(fabs(one.work.product_flops / two.work.product_flops - 2) < 0.01);
	/* a weight is read three times in 16 bit, and its gradient read and written in 32 */
	assert_true(fabs(one.work.streamed / (14 * 1235814400.0) - 1) < 0.01);
	/* the backward ones travel beside the weights' gradients: two of four */
	assert_true(one.work.tensor_behind == 0 && fabs(two.work.tensor_behind - 0.5) < 1e-9);
	/* two all-reduces forward and two backward a layer: 2 (t - 1) / t of n h 16-bit elements */
	assert_true(fabs(two.work.tensor_bytes / (16 * 4 * n * h * 2) - 1) < 1e-9);
	p.tp = 1;
	p.sp = 0;
	p.pp = 2;
	p.grad_accum = 2;
	price(&p, &two);
	assert_true(two.work.product_flops < 0.7 * one.work.product_flops);
	assert_true(two.work.pipeline_bytes == 2 * n * h * 2);
}

/* Every part has its row, said in full, and the rows add up to the step. */
static void ledger(void **state)
{
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	struct oom_time_row rows[OOM_TIME_PART_COUNT];
	struct oom_plan p = oom_plan_default();
	struct oom_step_time t;
	struct oom_eval e;
	double sum = 0;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.gpus = 16;
	p.nodes = 2;
	p.grad_accum = 4;
	e.work.product_flops = 1e14;
	e.work.attention_flops = 1e13;
	e.work.bytes = 1e11;
	e.grad_bytes = e.param_bytes = 10000000000;
	e.offloaded_bytes = 1000000000;
	t = oom_step_time(&p, &e, &g);
	oom_step_time_explain(&p, &e, &g, rows);
	for (int i = 0; i < OOM_TIME_PART_COUNT; i++) {
		sum += rows[i].seconds;
		assert_int_equal(rows[i].part, i);
		assert_true(*rows[i].formula && *rows[i].source && *rows[i].inputs);
		assert_true(strlen(rows[i].inputs) < sizeof(rows[i].inputs) - 1);
	}
	assert_true(fabs(sum - t.total_s) < 1e-12 * t.total_s);
	/* 100 TFLOP a micro-step, 4 of them */
	assert_non_null(strstr(rows[OOM_TIME_PRODUCTS].inputs, "100 Tflop"));
	assert_non_null(strstr(rows[OOM_TIME_PRODUCTS].inputs, "x 4"));
	assert_non_null(strstr(rows[OOM_TIME_GRADIENTS].inputs, "a guess"));
	p.seq_len = 0;
	assert_true(oom_step_tokens(&p) == 1);
}

/* A class is a maker's, then a generation's; who names neither is nobody's. */
static void makers(void **state)
{
	struct oom_gpu g = card("", 0);

	(void)state;
	assert_string_equal(oom_card_class(NULL)->name, "A100");
	assert_string_equal(oom_card_class(&g)->name, "other");
	strcpy(g.vendor, "amd");
	assert_string_equal(oom_card_class(&g)->name, "CDNA");
	strcpy(g.vendor, "intel");
	assert_string_equal(oom_card_class(&g)->name, "Gaudi");
	strcpy(g.vendor, "nobody");
	assert_string_equal(oom_card_class(&g)->name, "other");
	g = card("", 9);
	assert_string_equal(oom_card_class(&g)->name, "Hopper");
	g.compute_capability = 8.7;
	assert_string_equal(oom_card_class(&g)->name, "Ampere without HBM");
}

/* 8 copies of a token over 4 machines meet 4 (1 - 0.75^8) = 3.6 of them, of which three quarters are others:
 * 2.7 leave instead of 6, and all 8 travel inside. */
static void tokens_go_once_to_a_machine(void **state)
{
	const struct oom_gpu h100 = card("NVLink4 900 GB/s", 9);
	const struct oom_plan p = oom_plan_default();
	const struct oom_peers over = {32, 8}, within = {8, 8};
	const double once = 4 * (1 - pow(0.75, 8));
	struct oom_speed s;

	(void)state;
	oom_speed_of(&h100, &p, &s);
	/* 1 GB a copy */
	assert_true(fabs(oom_exchange_once_seconds(&s, over, 8e9, 0, 8) -
			 (once * 0.75 * 1e9 / (s.network / 0.75 * 0.87) + 8e9 / s.link)) < 1e-9);
	assert_true(oom_exchange_once_seconds(&s, over, 8e9, 0, 8) < oom_exchange_seconds(&s, over, 8e9, 0));
	assert_true(fabs(oom_exchange_once_seconds(&s, within, 8e9, 10, 8) -
			 oom_exchange_seconds(&s, within, 8e9, 10)) < 1e-12);
}

static void words(void **state)
{
	(void)state;
	assert_string_equal(oom_bound_str(OOM_BOUND_PCIE), "PCIe");
	assert_string_equal(oom_time_part_str(OOM_TIME_HOST), "host");
	for (int i = 0; i < OOM_TIME_PART_COUNT; i++)
		assert_true(*oom_time_part_summary((enum oom_time_part)i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links),     cmocka_unit_test(rings),	  cmocka_unit_test(networks),
		cmocka_unit_test(products),  cmocka_unit_test(launches), cmocka_unit_test(bubbles),
		cmocka_unit_test(beside_products), cmocka_unit_test(domains),
		cmocka_unit_test(gradients), cmocka_unit_test(hosts),	  cmocka_unit_test(work),
		cmocka_unit_test(megatron),  cmocka_unit_test(words),
		cmocka_unit_test(makers),    cmocka_unit_test(tokens_go_once_to_a_machine),
		cmocka_unit_test(ledger),	  cmocka_unit_test(waiting),   cmocka_unit_test(tiles),	  cmocka_unit_test(intervals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
