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

#include "card.h"
#include "oomplan/steptime.h"
#include "oomplan/sweep.h"
#include "tape/tape.h"
#include "step/time/cards.h"
#include "step/time/collectives.h"
#include "step/time/steptime_as.h"

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
	/* a power limit: 1 W does not feed 200 TFLOP/s; twice the watts, 2^0.6 the speed */
	g.tdp_w = 1;
	assert_true(oom_step_time(&p, &e, &g).total_s > 5 * t.total_s);
	limited = oom_step_time(&p, &e, &g).total_s;
	g.tdp_w = 2;
	assert_true(fabs(limited / oom_step_time(&p, &e, &g).total_s - pow(2, 0.6)) < 1e-2);
	/* 8-bit products are quicker, the rest is as before */
	g = card("NVLink4 900 GB/s", 9);
	t = oom_step_time(&p, &e, &g);
	p.fp8 = OOM_FP8_TENSORWISE;
	assert_true(fabs(t.total_s / oom_step_time(&p, &e, &g).total_s - 1.8) < 1e-6);
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

/* Casting to 8 bits takes bytes of each element that products meet, so that wide layers gain more: a product of a token with
 * 4,096 x 4,096, of which both sides' elements are cast, less than one with 16,384 x 16,384. */
static void casts(void **state)
{
	static const double width[] = {4096, 16384};
	const struct oom_gpu g = card("NVLink4 900 GB/s", 9);
	double gain[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_step_time wide, narrow;
		struct oom_eval e;

		memset(&e, 0, sizeof(e));
		p.precision = OOM_BF16;
		e.work.product_flops = 6 * 8192 * width[i] * width[i];
		e.work.written = 2 * 8192 * width[i];
		wide = oom_step_time(&p, &e, &g);
		p.fp8 = OOM_FP8_TENSORWISE;
		narrow = oom_step_time(&p, &e, &g);
		/* 4 bytes per element, at the memory's speed */
		assert_true(fabs(narrow.part_s[OOM_TIME_TRAFFIC] * 1e9 * g.bandwidth_gb_s * oom_card_class(&g)->memory /
					 (4 * e.work.written) - 1) < 1e-9);
		gain[i] = wide.total_s / narrow.total_s;
	}
	assert_true(1.3 < gain[0] && gain[0] + 0.1 < gain[1] && gain[1] < 2);
}

/* cuBLAS on an A100 in 16 bit: some 130, 205 and 241 Tflop/s with sides of 1,024, 2,048 and 4,096, 253 with 8,192. */
static void shapes(void **state)
{
	static const struct {
		double side, share;
	} rows[] = {{1024, 0.51}, {2048, 0.81}, {4096, 0.95}};
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e, large;

	(void)state;
	p.precision = OOM_BF16;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const double m = rows[i].side, k = 8192 / m;

		memset(&e, 0, sizeof(e));
		large = e;
		large.work.product_flops = 2.0 * 8192 * 8192 * 8192;
		large.work.written = 8192.0 * 8192;
		large.work.depth = 8192;
		/* as many multiplications in smaller products */
		e.work.product_flops = large.work.product_flops;
		e.work.written = k * k * k * m * m;
		e.work.depth = k * k * k * m;
		assert_true(fabs(oom_step_time(&p, &large, &g).total_s / oom_step_time(&p, &e, &g).total_s / rows[i].share - 1) < 0.08);
	}
}

/* FlashAttention-2 forward and backward reaches 59 of 79 Tflop/s at 512 keys on an RTX A5000 and 204 of 302 on an H100
 * where nothing is masked; under a causal mask twice as many are lost on the diagonal. */
static void keys_per_query(void **state)
{
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double at_length, at_8k;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.precision = OOM_BF16;
	e.work.attention_flops = 1e15;
	p.seq_len = 8192;
	at_8k = oom_step_time(&p, &e, &g).part_s[OOM_TIME_ATTENTION];
	p.seq_len = 384;
	at_length = oom_step_time(&p, &e, &g).part_s[OOM_TIME_ATTENTION];
	assert_true(at_length / at_8k > 1.8 && at_length / at_8k < 2);
}

/* NF4 is looked up on the units of fp32, which an A100 has few of, and an RTX 4090's memory is slower than they are:
 * 1.9 ps an element of 1,333 GB/s, 7 to 14 measured (litgpt, tutorials/resource-tables.md). */
static void unpacked(void **state)
{
	const struct oom_gpu g = card("NVLink3 600 GB/s", 8);
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;
	double s;

	(void)state;
	memset(&e, 0, sizeof(e));
	p.precision = OOM_BF16;
	e.work.unpacked = 1e12;
	s = oom_step_time(&p, &e, &g).part_s[OOM_TIME_UNPACKING];
	assert_true(s > 7 && s < 10);
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

/* torch.compile merges point-wise kernels; what products write stays. */
static void compiled_bytes(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_work w;

	(void)state;
	memset(&w, 0, sizeof(w));
	p.precision = OOM_AMP_BF16;
	w.bytes = 10e9;
	w.written = 1e9;                /* 2 bytes there and 2 back */
	assert_true(fabs(oom_moved_bytes(&p, &w, 0) - 10e9) < 1);
	p.compile = 1;
	assert_true(fabs(oom_moved_bytes(&p, &w, 0) - (4e9 + 0.35 * 6e9)) < 1);
	/* all of it is products' */
	w.written = 3e9;
	assert_true(fabs(oom_moved_bytes(&p, &w, 0) - 10e9) < 1);
	/* casts beside, merged or not */
	assert_true(fabs(oom_moved_bytes(&p, &w, 4) - (10e9 + 0.4 * 12e9)) < 1);
	p.compile = 0;
	assert_true(fabs(oom_moved_bytes(&p, &w, 4) - 22e9) < 1);
}

/* Cards whose data sheet gives fp32 more than their power feeds: whole steps of BERT come to
 * 25 Tflop/s of an L40S's 92 and 15 of an A100's 19.5 (milabench, config/scaling). */
static void powered(void **state)
{
	static const struct {
		double capability, peak, watts, reached;
	} rows[] = {{8.9, 362, 350, 25e12}, {8, 312, 400, 15e12}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_gpu g = card("PCIe 4.0", rows[i].capability);
		struct oom_plan p = oom_plan_default();
		struct oom_speed s;

		g.bf16_tflops = g.fp16_tflops = rows[i].peak;
		g.tdp_w = rows[i].watts;
		p.precision = OOM_FP32;
		oom_speed_of(&g, &p, &s);
		assert_true(s.fp32 > rows[i].reached && s.fp32 < 2 * rows[i].reached);
	}
}

/* Products that were measured alone say more than power does: an L40S's 1.4 times as much (data/gpus.csv, matmul_tflops). */
static void measured_alone(void **state)
{
	struct oom_gpu g = card("PCIe 4.0", 8.9);
	const struct oom_plan p = oom_plan_default();
	struct oom_speed told, alone;

	(void)state;
	g.bf16_tflops = g.fp16_tflops = 362;
	g.tdp_w = 350;
	oom_speed_of(&g, &p, &told);
	g.matmul_tflops = 248.8;
	oom_speed_of(&g, &p, &alone);
	assert_true(alone.products > 1.38 * told.products && alone.products < 1.44 * told.products);
}

/* AMD numbers no generation: CDNA 4 is known by its name, and what a table says of it holds for it alone. */
static void generations(void **state)
{
	struct oom_gpu g = card("Infinity Fabric", 0);

	(void)state;
	snprintf(g.vendor, sizeof(g.vendor), "amd");
	snprintf(g.architecture, sizeof(g.architecture), "CDNA3");
	assert_string_equal(oom_card_class(&g)->name, "CDNA");
	snprintf(g.architecture, sizeof(g.architecture), "CDNA4");
	assert_string_equal(oom_card_class(&g)->name, "CDNA 4");
	assert_int_equal(oom_card_class(&g)->sources, 2);
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

	/* 1.4 times the spread towards slower steps, 1.2 towards faster ones */
	assert_true(fabs(log(t.high_s / t.total_s) / 1.4 - log(t.total_s / t.low_s) / 1.2) < 1e-9);
	return exp(log(t.high_s / t.total_s) / 1.4);
}

/* The interval is as wide as what the step is made of is unknown. */
static void intervals(void **state)
{
	struct oom_gpu a100 = card("NVLink3 600 GB/s", 8), told;
	const struct oom_gpu turing = card("NVLink2 100 GB/s", 7.5), other = card("", 0), unseen = a100;
	struct oom_plan p = oom_plan_default(), q;
	struct oom_eval e;

	(void)state;
	memset(&e, 0, sizeof(e));
	e.work.product_flops = 1e15;
	a100.step_sources = 19;         /* as data/gpus.csv counts them */
	told = a100;
	assert_true(factor(&p, &e, &unseen) > 1.03 * factor(&p, &e, &a100));
	/* cards that several published rows of, one did, nobody did */
	assert_true(factor(&p, &e, &a100) < 1.3);
	assert_true(factor(&p, &e, &turing) > factor(&p, &e, &a100));
	assert_true(factor(&p, &e, &other) > 2);
	/* a network that nobody named */
	q = p;
	q.gpus = 16;
	q.nodes = 2;
	e.grad_bytes = 1000000000000;
	told.network_gbps = 800;
	assert_true(factor(&q, &e, &a100) > factor(&q, &e, &told));
	/* samples that share a sequence: how much of its attention is theirs */
	q = p;
	e.work.attention_flops = 1e15;
	/* of which version of FlashAttention, too; scores that are written are no version's */
	q.attn = OOM_ATTN_EAGER;
	assert_true(factor(&p, &e, &a100) > 1.05 * factor(&q, &e, &a100));
	q = p;
	q.packing = true;
	assert_true(factor(&q, &e, &a100) > 1.1 * factor(&p, &e, &a100));
	e.work.attention_flops = 0;
	/* 8-bit products, the processor's part */
	q = p;
	q.fp8 = OOM_FP8_TENSORWISE;
	assert_true(factor(&q, &e, &a100) > factor(&p, &e, &a100));
	e.offloaded_bytes = 100000000000;
	e.work.product_flops = 1;
	assert_true(factor(&p, &e, &a100) > 1.5);
	/* what launching takes, where it is as long as the card's own time (a second each) and little of it shows: it moves
	 * the step by a half of what it is off by, 0.7 as a logarithm, beside the scatter of rows and of the class */
	memset(&e, 0, sizeof(e));
	e.work.product_flops = oom_card_class(&a100)->products * 300e12;
	e.work.launches = 1e6 / oom_card_class(&a100)->python_us;
	assert_true(fabs(log(factor(&p, &e, &a100)) - sqrt(0.19 * 0.19 + 0.12 * 0.12 + 0.35 * 0.35)) < 1e-6);
}

/* ---- work ---- */

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
	/* an RTX 5090's rows are not an Ada's: its units do more than their data sheet says */
	g.compute_capability = 12;
	assert_true(oom_card_class(&g)->products > 1);
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
		cmocka_unit_test(products),    cmocka_unit_test(shapes),   cmocka_unit_test(keys_per_query),
		cmocka_unit_test(unpacked),    cmocka_unit_test(launches), cmocka_unit_test(powered),
		cmocka_unit_test(measured_alone),
		cmocka_unit_test(generations), cmocka_unit_test(makers),   cmocka_unit_test(tiles),
		cmocka_unit_test(intervals),   cmocka_unit_test(words),    cmocka_unit_test(casts), cmocka_unit_test(compiled_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
