/* The search against brute force written separately, and solutions against their neighbours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/search.h"

static struct oom_model *load(const char *name, struct oom_keys *keys)
{
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;

	assert_int_equal(oom_keys_read_model(keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, keys, &err), OOM_OK);
	return m;
}

/* Grids without offload and sharding, nested loops in place of the walk over axes: the least (class, time, departures). */
static bool brute(struct oom_evaluator *ev, const struct oom_model *m, const struct oom_plan *a, uint64_t capacity, double *best)
{
	struct oom_error err = {{0}};
	bool found = false;
	int best_class = 0;

	for (int precision = 0; precision < 2; precision++)
		for (int ckpt = 0; ckpt < 2; ckpt++)
			for (int loss = 0; loss < 2; loss++)
				for (int attn = 0; attn < 2; attn++)
					for (int alloc = 0; alloc < 2; alloc++)
						for (int64_t b = 1; b <= a->micro_batch * a->grad_accum; b++) {
							struct oom_plan p = *a;
							struct oom_eval e;
							double t;

							if (a->micro_batch * a->grad_accum % b)
								continue;
							p.micro_batch = b;
							p.grad_accum = a->micro_batch * a->grad_accum / b;
							p.precision = precision ? OOM_AMP_BF16 : p.precision;
							p.grad_ckpt = ckpt ? OOM_CKPT_FULL : p.grad_ckpt;
							p.fused_ce = loss ? OOM_LOSS_FUSED : p.fused_ce;
							p.attn = attn ? OOM_ATTN_SDPA : p.attn;
							p.allocator = alloc ? OOM_ALLOC_EXPANDABLE : p.allocator;
							if (oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err) || e.used_bytes > oom_budget(capacity, &p))
								continue;
							t = 1 / oom_step_time(&p, &e, NULL).samples_per_s;
							if (!found || precision < best_class || (precision == best_class && t < *best)) {
								*best = t;
								best_class = precision;
							}
							found = true;
						}
	return found;
}

static void test_brute_force(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("GPT-2", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	uint32_t seed = 7;
	int found = 0, not_found = 0;

	(void)state;
	for (int i = 0; i < 120; i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_search s;
		struct oom_error err = {{0}};
		uint64_t capacity;
		double t = 0;
		bool any;

		seed = seed * 1664525 + 1013904223;
		p.num_layers = 2 + seed % 3;
		p.seq_len = 64 << (seed >> 8) % 4;
		p.micro_batch = 1 + (seed >> 12) % 12;
		p.grad_accum = 1 + (seed >> 16) % 3;
		p.attn = (seed >> 20) % 2 ? OOM_ATTN_EAGER : OOM_ATTN_SDPA;
		p.optimizer = 0;                /* no Adam variant to choose, no offload to save anything */
		p.offload_optimizer = OOM_OFFLOAD_CPU;  /* leaves that axis without a second value */
		p.engine = OOM_ENGINE_DEEPSPEED;
		p.zero_stage = 2;
		capacity = (uint64_t)(1000 + (seed >> 4) % 2500) << 20;
		assert_int_equal(oom_search(ev, m, &p, capacity, NULL, 0, OOM_OBJECTIVE_TIME, &s, &err), OOM_OK);
		any = brute(ev, m, &p, capacity, &t);
		if (s.found != any || (any && s.best.seconds_per_sample != t))
			fail_msg("problem %d: search %d %.9g, brute force %d %.9g", i, s.found, s.best.seconds_per_sample, any, t);
		found += any;
		not_found += !any;
	}
	assert_true(found > 20);                /* both answers occur */
	assert_true(not_found > 5);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* Every alternative is undominated by the best and by the others. */
static void test_alternatives(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("Llama-3.2-1B", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_search s;

	(void)state;
	assert_int_equal(oom_search(ev, m, &p, (uint64_t)24 << 30, NULL, 0, OOM_OBJECTIVE_TIME, &s, &err), OOM_OK);
	assert_true(s.found);
	for (size_t i = 0; i < s.n_alternatives; i++) {
		const struct oom_candidate *c = &s.alternative[i];

		assert_true(c->cls < s.best.cls || c->seconds_per_sample < s.best.seconds_per_sample || c->departures < s.best.departures);
		assert_int_equal(c->plan.micro_batch * c->plan.grad_accum, p.micro_batch * p.grad_accum);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

static void test_solve(void **state)
{
	static const char *const knobs[] = {"micro-batch", "seq-len", "num-layers", "lora-r"};
	struct oom_keys keys = {0};
	struct oom_model *m = load("Llama-3.2-1B", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	const uint64_t capacity = (uint64_t)32 << 30;
	struct oom_error err = {{0}};
	struct oom_solution s;
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.precision = OOM_BF16;
	p.micro_batch = 1;
	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		struct oom_plan q = p;
		struct oom_eval e;

		if (!strcmp(knobs[i], "lora-r"))
			strcpy(q.lora_targets, "all-linear");
		assert_int_equal(oom_solve(ev, m, &q, knobs[i], capacity, &s, &err), OOM_OK);
		assert_true(s.exists);
		*oom_plan_field(&q, oom_knob_find(knobs[i])) = s.value;
		assert_int_equal(oom_evaluate(ev, m, &q, OOM_EVAL_FAST, &e, &err), OOM_OK);
		assert_true(e.used_bytes <= oom_budget(capacity, &q));
		if (s.at_limit)
			continue;
		*oom_plan_field(&q, oom_knob_find(knobs[i])) = s.value + 1;
		assert_true(oom_evaluate(ev, m, &q, OOM_EVAL_FAST, &e, &err) || e.used_bytes > oom_budget(capacity, &q));
	}
	assert_int_equal(oom_solve(ev, m, &p, "micro-bath", capacity, &s, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "micro-batch"));
	assert_int_equal(oom_solve(ev, m, &p, "micro-batch", (uint64_t)1 << 30, &s, &err), OOM_OK);
	assert_false(s.exists);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force), cmocka_unit_test(test_alternatives),
					   cmocka_unit_test(test_solve)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
