/* Sharded and offloaded model states against the ZeRO paper and DeepSpeed's estimators;
 * refusals; the floor. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "oomplan/rules.h"
#include "step/engines.h"

static const double GB = 1e9, GIB = 1073741824.0;

static struct oom_plan plan(int engine, int64_t gpus, int64_t zero)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.engine = engine;
	p.gpus = gpus;
	p.zero_stage = zero;
	return p;
}

/* n parameters in 16 bit with Adam: 2 + 2 + (fp32 states come from the engine) */
static struct oom_engine_in model(uint64_t n)
{
	return (struct oom_engine_in){.total = n,
				      .trainable = n,
				      .layer = n / 32,
				      .root = n / 100,
				      .params = 2 * n,
				      .grads = 2 * n,
				      .opt = 4 * n,
				      .half = true};
}

static double states(const struct oom_states *s)
{
	return (double)(s->params + s->grads + s->opt);
}

/* Rajbhandari et al., arXiv:1910.02054, figure 1: 7.5 B parameters, 64 GPUs, K = 12: 120, 31.4,
 * 16.6, 1.9 GB. */
static void test_paper(void **state)
{
	static const double want[] = {31.4, 16.6, 1.9};
	const struct oom_engine_in in = model(7500000000);

	(void)state;
	for (int z = 1; z <= 3; z++) {
		const struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, 64, z);
		struct oom_states s;

		oom_engine_states(&p, &in, &s);
		assert_true(fabs(states(&s) / GB - want[z - 1]) < 0.06);
	}
	/* undivided: 2 + 2 + 12 bytes */
	assert_true(16 * 7.5 == 120);
}

/* DeepSpeed's printed estimates for t5-small, one GPU (60M parameters, 16M in the largest layer),
 * stage 3; the offload rows of stage 2 follow 2 N on the GPU and max(4 x GPUs, 16) N x 1.5 on
 * the host. */
static void test_estimators(void **state)
{
	const double n = 60506624, l = 32128.0 * 512;
	static const struct {
		bool opt, params, init;
		double cpu, gpu;
	} want[] = {{true, true, true, 1.52, 0.06},   {true, true, false, 1.52, 0.06},
		    {true, false, true, 1.35, 0.17},  {true, false, false, 1.35, 0.17},
		    {false, false, true, 0.09, 1.08}, {false, false, false, 0.34, 1.08}};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct oom_ds_estimate e = oom_ds_estimate3(n, l, 1, 1, want[i].opt,
								  want[i].params, want[i].init);

		assert_true(fabs(e.cpu / GIB - want[i].cpu) < 0.006);
		assert_true(fabs(e.gpu / GIB - want[i].gpu) < 0.006);
	}
	assert_true(oom_ds_estimate2(1e9, 8, 1, true).gpu == 2e9);
	assert_true(oom_ds_estimate2(1e9, 8, 1, true).cpu == 32e9 * 1.5);
	assert_true(oom_ds_estimate2(1e9, 8, 1, false).gpu == 2e9 + 18e9 / 8);
}

/* Ours against the estimator: the same bytes and, in rows of their own, what it leaves out
 * (buckets) or puts in while the step runs (fp32 gradients: temps). */
static void test_against_estimator(void **state)
{
	const uint64_t n = 3000000000;
	const struct oom_engine_in in = model(n);
	struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, 8, 2);
	struct oom_states s;

	(void)state;
	oom_engine_states(&p, &in, &s);
	assert_true(fabs(states(&s) + (double)s.temps[0] -
			 oom_ds_estimate2((double)n, 8, 1, false).gpu) < 64);
	/* reduce_bucket_size 5e8 in 16 bit: not in the estimator */
	assert_int_equal(s.bwd, 2 * 500000000);
	p.offload_optimizer = OOM_OFFLOAD_CPU;
	oom_engine_states(&p, &in, &s);
	assert_true(states(&s) == oom_ds_estimate2((double)n, 8, 1, true).gpu);
	/* host: 16 B a parameter over the node (4 gradients pinned, 12 pageable); the estimator
	 * adds its factor 1.5 */
	assert_true(fabs((double)(s.host_pinned + s.host_pageable) * 8 * 1.5 -
			 (double)n * 16 * 1.5) < 1e3);
	p.zero_stage = 3;
	p.offload_params = OOM_OFFLOAD_CPU;
	p.sub_group_size = 1000000000000;
	oom_engine_states(&p, &in, &s);
	assert_int_equal(s.params + s.grads + s.opt, 0);
	assert_true(fabs((double)(s.host_pinned + s.host_pageable) * 8 - (double)n * 18) < 1e3);
}

/* Transients do not shrink with more GPUs. */
static void test_floor(void **state)
{
	const struct oom_engine_in in = model(8000000000);
	static const int engines[] = {OOM_ENGINE_DEEPSPEED, OOM_ENGINE_FSDP1, OOM_ENGINE_FSDP2};

	(void)state;
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		const struct oom_plan few = plan(engines[i], 8, 3),
				      many = plan(engines[i], 1024, 3);
		struct oom_states a, b;

		oom_engine_states(&few, &in, &a);
		oom_engine_states(&many, &in, &b);
		assert_true(a.params > 100 * b.params);
		assert_true(a.fwd == b.fwd && a.bwd == b.bwd && a.fwd > 0);
	}
}

/* fully_shard of a block of P bytes: 3 P in forward; in backward the unit in use, the prefetched
 * one, the gradients and the previous reduce-scatter input, and the head's gradient
 * (data/fsdp2_tracker.csv: each a column of it). */
static void test_fsdp2(void **state)
{
	struct oom_plan p = plan(OOM_ENGINE_FSDP2, 8, 3);
	const struct oom_engine_in in = {.total = 1000,
					 .trainable = 1000,
					 .layer = 100,
					 .root = 50,
					 .head = 20,
					 .params = 2000,
					 .grads = 2000,
					 .opt = 4000,
					 .half = true};
	struct oom_states s;

	(void)state;
	oom_engine_states(&p, &in, &s);
	assert_int_equal(s.fwd, 2 * (50 + 3 * 100));
	assert_int_equal(s.bwd, 2 * (50 + 4 * 100 + 20));
	/* shards in fp32, gathered and computed in bf16, reduced in fp32 */
	p.precision = OOM_AMP_BF16;
	assert_true(oom_engine_casts(&p));
	oom_engine_states(&p, &in, &s);
	assert_int_equal(s.params, 4000 / 8);
	assert_int_equal(s.fwd, 2 * (50 + 3 * 100));
	assert_int_equal(s.bwd, 2 * (50 + 3 * 100 + 20) + 4 * 100);
	assert_int_equal(s.bwd_end, 2 * 2 * 50 + 4 * 100);
	/* NO_SHARD: flat gradients are reduced in place, DDP's buckets are a copy */
	p.zero_stage = 0;
	oom_engine_states(&p, &in, &s);
	assert_int_equal(s.comm, 0);
	p.zero_stage = 2;
	oom_engine_states(&p, &in, &s);
	assert_int_equal(s.fwd, 2 * (1000 + 2 * 100));
	assert_int_equal(s.bwd, 2 * (1000 + 20) + 4 * 100);
}

/* Two of GPUs, nodes and GPUs a node give the third; what contradicts itself is refused. */
static void test_gpus_per_node(void **state)
{
	static const struct {
		int64_t gpus, nodes, per_node, want_gpus, want_nodes;
		bool valid;
	} rows[] = {{1, 4, 8, 32, 4, true},  {32, 1, 8, 32, 4, true}, {32, 4, 8, 32, 4, true},
		    {1, 1, 8, 8, 1, true},   {12, 1, 8, 12, 1, false}, {16, 4, 8, 16, 4, false},
		    {16, 2, 0, 16, 2, true}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, rows[i].gpus, 2);
		struct oom_error err = {{0}};

		p.nodes = rows[i].nodes;
		p.gpus_per_node = rows[i].per_node;
		oom_plan_settle(&p);
		assert_int_equal(p.gpus, rows[i].want_gpus);
		assert_int_equal(p.nodes, rows[i].want_nodes);
		assert_int_equal(oom_plan_check(&p, &err) == OOM_OK, rows[i].valid);
	}
}

/* ZeRO-3: parameters below the threshold stay whole (partition_parameters.py ds_persist), and the
 * prefetch bucket is part of what lives. */
static void test_persistence(void **state)
{
	struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, 8, 3);
	struct oom_engine_in in = model(8000000000);
	struct oom_states none, some, ahead;

	(void)state;
	p.max_live_params = 100000000;
	oom_engine_states(&p, &in, &none);
	in.small = 300000;
	oom_engine_states(&p, &in, &some);
	assert_true(some.params == none.params + 2 * 300000);
	p.max_live_params = 2000000000;
	oom_engine_states(&p, &in, &some);
	p.prefetch_bucket += 1000000;
	oom_engine_states(&p, &in, &ahead);
	assert_true(ahead.fwd == some.fwd + 2 * 1000000);
	/* transformers' "auto": 0.9 x 4096 x 4096 in place of the 5e7 + 1e6 above, 4096 x 4096 in
	 * place of 5e8 */
	in.hidden = 4096;
	p.prefetch_bucket = p.reduce_bucket = OOM_COUNT_AUTO;
	oom_engine_states(&p, &in, &some);
	assert_true(ahead.fwd - some.fwd == 2 * (51000000 - 16777216 / 10 * 9));
	assert_true(ahead.comm - some.comm == 2 * (500000000 - 16777216));
}

/* Every engine of the knob says what it keeps and buffers. */
static void test_engines_speak(void **state)
{
	const struct oom_knob *k = oom_knob_find("engine");
	size_t n = 0;

	(void)state;
	for (; k->choice(n); n++) {
		assert_non_null(oom_engine_at(n));
		assert_true(*oom_engine_at(n)->keeps && *oom_engine_at(n)->buffers &&
			    *oom_engine_at(n)->source);
	}
	assert_null(oom_engine_at(n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_paper),
					   cmocka_unit_test(test_estimators),
					   cmocka_unit_test(test_against_estimator),
					   cmocka_unit_test(test_floor),
					   cmocka_unit_test(test_fsdp2),
					   cmocka_unit_test(test_engines_speak),
					   cmocka_unit_test(test_gpus_per_node),
					   cmocka_unit_test(test_persistence)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
