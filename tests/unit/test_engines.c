/* Sharded and offloaded model states against the ZeRO paper and DeepSpeed's estimators;
 * refusals; the floor. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "oomplan/engine.h"
#include "oomplan/rules.h"
#include "step/engines.h"
#include "step/pass.h"
#include "step/passes/sharing.h"

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

/* A model of n parameters in 16 bit under AdamW: two fp32 moments over an fp32 master, two 16-bit
 * ones without. */
static struct oom_model_sums model(uint64_t n)
{
	static struct oom_state_sums state, master;

	state = (struct oom_state_sums){.rounded = 4 * n, .temps = {2 * n, 2 * n}};
	master = (struct oom_state_sums){.rounded = 8 * n, .temps = {4 * n, 4 * n}};
	return (struct oom_model_sums){.total = n,
				       .trainable = n,
				       .layer = n / 32,
				       .params = 2 * n,
				       .grads = 2 * n,
				       .half = true,
				       .state = &state,
				       .master_state = &master};
}

/* The plan's holdings over that model. */
static struct oom_schedule held(const struct oom_plan *p, const struct oom_model_sums *in)
{
	struct oom_schedule s;

	oom_schedule_init(&s, in, 0, 0);
	s.ranks.n = (uint64_t)p->gpus;
	s.ranks.bucket = oom_reduce_bucket(p, in->hidden, in->half);
	oom_apply_passes(&s, p);
	return s;
}

static uint64_t named(const struct oom_schedule *s, const char *name)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n_hold; i++)
		sum += !strcmp(s->hold[i].name, name) ? s->hold[i].bytes : 0;
	return sum;
}

static uint64_t on_card(const struct oom_schedule *s, enum oom_holding_id id)
{
	return s->hold[id].place == OOM_ON_GPU ? s->hold[id].bytes : 0;
}

/* Weights, gradients, master weights and optimizer state on the card.  Stage 2 divides gradients in
 * the streams of the backward pass: grads says how many bytes of them a rank keeps. */
static double states(const struct oom_schedule *s, uint64_t grads)
{
	return (double)(on_card(s, OOM_HOLD_WEIGHTS) + on_card(s, OOM_HOLD_MASTER) +
			on_card(s, OOM_HOLD_STATE) + grads);
}

/* Rajbhandari et al., arXiv:1910.02054, figure 1: 7.5 B parameters, 64 GPUs, K = 12: 120, 31.4,
 * 16.6, 1.9 GB. */
static void test_paper(void **state)
{
	const uint64_t n = 7500000000, grads[] = {2 * n, 2 * n / 64, 2 * n / 64};
	static const double want[] = {31.4, 16.6, 1.9};
	const struct oom_model_sums in = model(n);

	(void)state;
	for (int z = 1; z <= 3; z++) {
		const struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, 64, z);
		const struct oom_schedule s = held(&p, &in);

		assert_true(fabs(states(&s, grads[z - 1]) / GB - want[z - 1]) < 0.06);
		/* stage 3 allocates its part of the gradients at once */
		assert_int_equal(on_card(&s, OOM_HOLD_GRADS), z == 3 ? grads[2] : 0);
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

/* Ours against the estimator: the same bytes and, in holdings of their own, what it leaves out
 * (buckets) or puts in while the step runs (fp32 gradients: temporaries). */
static void test_against_estimator(void **state)
{
	const uint64_t n = 3000000000;
	const struct oom_model_sums in = model(n);
	struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, 8, 2);
	struct oom_schedule s = held(&p, &in);

	(void)state;
	assert_true(fabs(states(&s, 2 * n / 8) + (double)s.temps[0] -
			 oom_ds_estimate2((double)n, 8, 1, false).gpu) < 64);
	/* reduce_bucket_size 5e8 in 16 bit: not in the estimator */
	assert_int_equal(s.ranks.bucket, 2 * 500000000);
	p.offload_optimizer = OOM_OFFLOAD_CPU;
	s = held(&p, &in);
	assert_true(states(&s, 0) == oom_ds_estimate2((double)n, 8, 1, true).gpu);
	/* host: 16 B per parameter over the node (4 gradients pinned, 12 pageable); the estimator
	 * adds its factor 1.5 */
	assert_true(fabs((double)(oom_held_in(&s, OOM_IN_PINNED) +
				  oom_held_in(&s, OOM_IN_PAGEABLE)) * 8 * 1.5 -
			 (double)n * 16 * 1.5) < 1e3);
	p.zero_stage = 3;
	p.offload_params = OOM_OFFLOAD_CPU;
	s = held(&p, &in);
	assert_int_equal(states(&s, on_card(&s, OOM_HOLD_GRADS)), 0);
	assert_true(fabs((double)(oom_held_in(&s, OOM_IN_PINNED) +
				  oom_held_in(&s, OOM_IN_PAGEABLE)) * 8 - (double)n * 18) < 1e3);
}

/* Transients do not shrink with more GPUs. */
static void test_floor(void **state)
{
	const struct oom_model_sums in = model(8000000000);
	const struct oom_plan few = plan(OOM_ENGINE_DEEPSPEED, 8, 3),
			      many = plan(OOM_ENGINE_DEEPSPEED, 1024, 3);
	const struct oom_schedule a = held(&few, &in), b = held(&many, &in);

	(void)state;
	assert_true(a.hold[OOM_HOLD_WEIGHTS].bytes > 100 * b.hold[OOM_HOLD_WEIGHTS].bytes);
	assert_true(oom_buffers_of(&a) == oom_buffers_of(&b) && oom_buffers_of(&a) > 0);
}

/* FSDP keeps shards in the type the parameters were loaded in, fp32 under mixed precision although
 * the step computes in bf16; NO_SHARD reduces flat gradients in place, DDP's buckets are a copy. */
static void test_fsdp_holdings(void **state)
{
	const struct oom_model_sums in = model(1000);
	struct oom_plan p = plan(OOM_ENGINE_FSDP2, 8, 3);
	struct oom_schedule s = held(&p, &in);

	(void)state;
	assert_int_equal(s.hold[OOM_HOLD_WEIGHTS].bytes, 2000 / 8);
	assert_int_equal(s.hold[OOM_HOLD_STATE].bytes, 4000 / 8);
	p.precision = OOM_AMP_BF16;
	assert_true(oom_engine_casts(&p));
	s = held(&p, &in);
	assert_int_equal(s.hold[OOM_HOLD_WEIGHTS].bytes, 4000 / 8);
	assert_int_equal(s.hold[OOM_HOLD_STATE].bytes, 8000 / 8);
	assert_int_equal(s.temps[1], 4000 / 8);
	p.zero_stage = 0;
	s = held(&p, &in);
	assert_int_equal(named(&s, "DDP buckets"), 0);
	p.engine = OOM_ENGINE_HF;
	s = held(&p, &in);
	assert_int_equal(named(&s, "DDP buckets"), 2000);
}

/* Every pass says what it is, and the plan that asks for nothing gets none. */
static void test_passes_speak(void **state)
{
	const struct oom_plan p = oom_plan_default();

	(void)state;
	for (size_t i = 0; oom_pass_at(i); i++) {
		const struct oom_pass *pass = oom_pass_at(i);

		assert_true(*pass->name && *pass->summary && *pass->knobs && *pass->source);
		assert_true(pass->hooks || pass->holdings);
		assert_false(pass->applies(&p));
	}
}

/* Two of GPUs, nodes and GPUs per node give the third; what contradicts itself is refused. */
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

/* ZeRO-3: parameters below the threshold stay whole (partition_parameters.py ds_persist); what is fetched ahead
 * fills the cap, whatever the bucket, and nothing is fetched ahead with a bucket of 0. */
static void test_persistence(void **state)
{
	struct oom_plan p = plan(OOM_ENGINE_DEEPSPEED, 8, 3);
	struct oom_model_sums in = model(8000000000);
	struct oom_schedule none, some, ahead;

	(void)state;
	p.max_live_params = 100000000;
	none = held(&p, &in);
	in.small = 300000;
	some = held(&p, &in);
	assert_true(some.hold[OOM_HOLD_WEIGHTS].bytes ==
		    none.hold[OOM_HOLD_WEIGHTS].bytes + 2 * 300000);
	p.max_live_params = 2000000000;
	some = held(&p, &in);
	assert_true(named(&some, "gathered parameters") == 2 * (uint64_t)2000000000);
	p.prefetch_bucket = 0;
	ahead = held(&p, &in);
	/* at the turn half of the reuse distance, and a layer */
	assert_true(named(&ahead, "gathered parameters") == 2 * (1000000000 + in.layer));
	/* transformers' "auto": 4096 x 4096 in place of 5e8 */
	in.hidden = 4096;
	p.prefetch_bucket = p.reduce_bucket = OOM_COUNT_AUTO;
	some = held(&p, &in);
	assert_true(named(&some, "gathered parameters") == 2 * (uint64_t)2000000000);
	assert_true(named(&ahead, "reduce bucket") - named(&some, "reduce bucket") ==
		    2 * (500000000 - 16777216));
}

/* Every engine of the knob says what it keeps and buffers. */
/* accelerate's prepare_model upcasts FSDP1's flat parameters that train (accelerator.py); adapters are in fp32 already, and
 * their base stays as it is.  FSDP2 is also run without. */
static void test_upcast(void **state)
{
	struct oom_plan p = plan(OOM_ENGINE_FSDP1, 4, 3);

	(void)state;
	p.precision = OOM_BF16_AMP;
	oom_engine_respell(&p);
	assert_int_equal(p.precision, OOM_AMP_BF16);
	p.precision = OOM_FP16_AMP;
	oom_engine_respell(&p);
	assert_int_equal(p.precision, OOM_AMP_FP16);
	p.precision = OOM_BF16;         /* without autocast nothing is */
	oom_engine_respell(&p);
	assert_int_equal(p.precision, OOM_BF16);
	p.precision = OOM_BF16_AMP;
	p.lora_r = 8;
	oom_engine_respell(&p);
	assert_int_equal(p.precision, OOM_BF16_AMP);
	p = plan(OOM_ENGINE_FSDP2, 4, 3);
	p.precision = OOM_BF16_AMP;
	oom_engine_respell(&p);
	assert_int_equal(p.precision, OOM_BF16_AMP);
}

static void test_engines_speak(void **state)
{
	const struct oom_option *k = oom_knob_find("engine");
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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paper),
		cmocka_unit_test(test_estimators),
		cmocka_unit_test(test_against_estimator),
		cmocka_unit_test(test_floor),
		cmocka_unit_test(test_fsdp_holdings),
		cmocka_unit_test(test_passes_speak),
		cmocka_unit_test(test_engines_speak),
		cmocka_unit_test(test_upcast),
		cmocka_unit_test(test_gpus_per_node),
		cmocka_unit_test(test_persistence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
