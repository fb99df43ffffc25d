/* From allocated to used bytes: what is reserved without a replay, with one, and on a card that is too small for the cache;
 * context, workspaces and NCCL beside it.  Figures with their sources stand in models/step/overheads.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"
#include "step/program.h"
#include "step/reserved.h"
#include "generation_configs.h"

#define MIB ((uint64_t)1 << 20)

static void a_ratio_stands_for_a_replay(void **state)
{
	struct oom_plan p = oom_plan_default();
	const struct oom_eval e = {.overall_peak = 1000 * MIB};

	(void)state;
	assert_int_equal(oom_reserved_estimate(&e, &p), 1080 * MIB);
	p.allocator = OOM_ALLOC_EXPANDABLE;
	assert_int_equal(oom_reserved_estimate(&e, &p), 1050 * MIB);
}

static struct oom_eval beside(double sm, int64_t gpus)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e = {.overall_peak = 3 * MIB, .reserved_bytes = 5 * MIB};

	p.compute_capability = sm;
	p.gpus = gpus;
	p.lazy_modules = 1;
	if (gpus > 1) {
		p.engine = OOM_ENGINE_HF;
		p.rank0_contexts = 0;
	}
	oom_overheads(&e, &p);
	assert_int_equal(e.used_bytes, e.reserved_bytes + e.context_bytes + e.workspace_bytes + e.nccl_bytes);
	assert_int_equal(e.allocated_bytes, e.overall_peak + e.workspace_bytes);
	return e;
}

static void beside_the_cache(void **state)
{
	struct oom_eval e = beside(8.0, 1);

	(void)state;
	/* 0.47 GiB on an A100, no NCCL on one card, two workspaces of 8.125 MiB */
	assert_int_equal(e.context_bytes, 482 * MIB);
	assert_true(e.context_measured);
	assert_int_equal(e.nccl_bytes, 0);
	assert_int_equal(e.workspace_bytes, 16 * MIB + 256 * 1024);
	assert_int_equal(beside(8.0, 2).nccl_bytes, 1485 * MIB);
	/* 32 MiB each on Hopper; little NCCL on cards for desktops; a T4's context */
	assert_int_equal(beside(9.0, 1).workspace_bytes, 64 * MIB);
	assert_int_equal(beside(8.6, 2).nccl_bytes, 192 * MIB);
	assert_int_equal(beside(7.5, 1).context_bytes, 141 * MIB);
	/* read on a card: what NVML says less what is reserved */
	assert_int_equal(beside(9.0, 1).context_bytes, 767 * MIB);
	assert_true(beside(9.0, 1).context_measured);
	assert_int_equal(beside(10.0, 1).context_bytes, 767 * MIB);
	assert_false(beside(10.0, 1).context_measured);
	assert_int_equal(beside(12.0, 1).context_bytes, 512 * MIB);
}

static void the_other_ranks_contexts(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e = {.reserved_bytes = 1};

	(void)state;
	p.compute_capability = 8.0;
	p.engine = OOM_ENGINE_HF;
	p.gpus = 8;
	p.nodes = 2;
	p.rank0_contexts = 1;
	oom_overheads(&e, &p);
	assert_int_equal(e.context_bytes, 4 * 482 * MIB);
}

/* A training step of one layer, replayed without a card, then on one that has room for what is alive but not for all of the cache. */
static void replayed_and_squeezed(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_eval free, tight, cheap;
	const char *config = MISTRAL(1);
	uint64_t outside, card;
	size_t played;

	(void)state;
	p.precision = OOM_BF16;
	p.micro_batch = 4;
	p.seq_len = 4096;
	assert_int_equal(oom_keys_parse(&keys, config, strlen(config), "config.json", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	assert_int_equal(oom_evaluate(ev, m, &p, 0, &cheap, &err), OOM_OK);
	assert_false(cheap.reserved_replayed);
	assert_int_equal(cheap.reserved_bytes, oom_reserved_estimate(&cheap, &p));
	assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &free, &err), OOM_OK);
	assert_true(free.reserved_replayed);
	assert_true(free.reserved_bytes > free.overall_peak);
	assert_int_equal(free.retries, 0);
	outside = free.used_bytes - free.reserved_bytes;
	card = outside + free.reserved_bytes - 2 * MIB;
	assert_int_equal(oom_evaluate_on(ev, m, &p, card, OOM_EVAL_REPLAY, &tight, &err), OOM_OK);
	assert_int_equal(tight.overall_peak, free.overall_peak);
	assert_int_equal(tight.wanted_bytes, free.used_bytes);
	assert_true(tight.used_bytes <= card && tight.retries > 0);
	/* a card for all of it changes nothing */
	assert_int_equal(oom_evaluate_on(ev, m, &p, free.used_bytes, OOM_EVAL_REPLAY, &tight, &err), OOM_OK);
	assert_int_equal(tight.used_bytes, free.used_bytes);
	/* cards of the same kernels and workspaces share a replay; a Hopper's workspaces are larger, a Volta's kernels others */
	played = ev->n_replayed;
	p.compute_capability = 8.9;
	assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &tight, &err), OOM_OK);
	assert_int_equal(ev->n_replayed, played);
	assert_int_equal(tight.reserved_bytes, free.reserved_bytes);
	p.compute_capability = 9;
	assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &tight, &err), OOM_OK);
	assert_int_equal(ev->n_replayed, played + 1);
	p.compute_capability = 7;
	assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &tight, &err), OOM_OK);
	assert_int_equal(ev->n_replayed, played + 2);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* Where gradients lie in one piece or stay as zeros a micro-batch ends as it began, once the first has been through: no
 * number of them, and no second step, reserves more than two do.  (A replay plays what begins where another did only
 * once.) */
static void micro_batches_that_repeat(void **state)
{
	static const struct {
		int64_t engine, zero, gpus, zero_grad, offload;
	} plans[] = {{OOM_ENGINE_DEEPSPEED, 2, 1, OOM_ZERO_GRAD_NONE, true},
		     {OOM_ENGINE_DEEPSPEED, 1, 4, OOM_ZERO_GRAD_NONE, false},
		     {OOM_ENGINE_HF, 0, 1, OOM_ZERO_GRAD_ZEROS, false}};
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	struct oom_evaluator *ev = oom_evaluator_new();
	const char *config = MISTRAL(3);

	(void)state;
	assert_int_equal(oom_keys_parse(&keys, config, strlen(config), "config.json", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		uint64_t two = 0;

		for (int64_t n = 2; n <= 5; n++) {
			struct oom_plan p = oom_plan_default();
			struct oom_eval e;

			p.precision = OOM_BF16;
			p.engine = plans[i].engine;
			p.zero_stage = plans[i].zero;
			p.gpus = plans[i].gpus;
			p.zero_grad = plans[i].zero_grad;
			p.offload_optimizer = plans[i].offload ? OOM_OFFLOAD_CPU : 0;
			p.grad_accum = n;
			assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &e, &err), OOM_OK);
			assert_true(e.reserved_replayed);
			two = n == 2 ? e.reserved_bytes : two;
			assert_int_equal(e.reserved_bytes, two);
		}
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ratio_stands_for_a_replay),
		cmocka_unit_test(beside_the_cache),
		cmocka_unit_test(the_other_ranks_contexts),
		cmocka_unit_test(replayed_and_squeezed),
		cmocka_unit_test(micro_batches_that_repeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
