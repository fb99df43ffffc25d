/* The search against brute force written separately (brute.h), over the plans that frameworks run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "brute.h"

static struct oom_model *load(const char *name, struct oom_keys *keys)
{
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;

	assert_int_equal(oom_keys_read_model(keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, keys, &err), OOM_OK);
	return m;
}

static uint64_t used(const struct brute *b, struct triple *t)
{
	struct oom_error err = {{0}};
	struct oom_eval e;

	if (!t->used) {
		assert_int_equal(oom_evaluate(b->ev, b->model, &t->plan, OOM_EVAL_REPLAY, &e, &err),
				 OOM_OK);
		t->used = e.used_bytes;
	}
	return t->used;
}

/* The order the header promises. */
static int order(const struct brute *b, struct triple *x, struct triple *y)
{
	const bool few = b->objective == OOM_OBJECTIVE_FEWEST_CHANGES;
	const double a[5] = {brute_gravest(x->changes), __builtin_popcount(x->changes),
			     few ? x->departures : x->cost, few ? x->cost : x->departures,
			     -(double)x->plan.micro_batch};
	const double c[5] = {brute_gravest(y->changes), __builtin_popcount(y->changes),
			     few ? y->departures : y->cost, few ? y->cost : y->departures,
			     -(double)y->plan.micro_batch};

	for (int i = 0; i < 5; i++)
		if (a[i] != c[i])
			return a[i] < c[i] ? -1 : 1;
	if (used(b, x) != used(b, y))
		return used(b, x) < used(b, y) ? -1 : 1;
	return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* x is nowhere worse than y. */
static bool covers(const struct triple *x, const struct triple *y)
{
	return !(x->changes & ~y->changes) && x->cost <= y->cost && x->departures <= y->departures;
}

/* How many different plans nothing else covers. */
static size_t front(struct triple *t, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		size_t j = 0;

		for (; j < k && !covers(&t[j], &t[i]); j++)
			;
		if (j < k)
			continue;
		for (j = 0; j < k;)
			if (covers(&t[i], &t[j]))
				t[j] = t[--k];
			else
				j++;
		t[k++] = t[i];
	}
	return k;
}

/* Where two answers part. */
static void print_knobs(const struct oom_plan *asked, const struct oom_plan *x, const struct oom_plan *y)
{
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE], b[OOM_VALUE_SIZE], c[OOM_VALUE_SIZE];

		oom_plan_get(asked, k, a, sizeof(a));
		oom_plan_get(x, k, b, sizeof(b));
		oom_plan_get(y, k, c, sizeof(c));
		if (strcmp(a, b) || strcmp(a, c))
			print_error("%s: asked %s, search %s, brute force %s\n", k->name, a, b, c);
	}
}

static void compare(struct brute *b, int problem, unsigned allow)
{
	struct triple *best = NULL;
	struct oom_error err = {{0}};
	struct oom_search_query q = {.asked = b->asked,
				     .capacity_bytes = b->capacity,
				     .allow = allow,
				     .objective = b->objective};
	struct oom_search s, one;
	struct oom_compat rules;

	assert_int_equal(oom_search(b->ev, b->model, &q, &s, &err), OOM_OK);
	q.best_only = true;
	assert_int_equal(oom_search(b->ev, b->model, &q, &one, &err), OOM_OK);
	assert_int_equal(s.found, one.found);
	assert_true(one.replayed <= s.replayed);
	if (s.found)
		assert_memory_equal(&s.best, &one.best, sizeof(one.best));
	/* asked for verdicts alone it finds the same plan, and with rules that the caller has compiled */
	q.verdicts_only = true;
	assert_int_equal(oom_compat_init(&rules, b->model, b->asked, NULL, &err), OOM_OK);
	q.compat = &rules;
	assert_int_equal(oom_search(b->ev, b->model, &q, &one, &err), OOM_OK);
	assert_int_equal(s.found, one.found);
	if (s.found)
		assert_memory_equal(&s.best.plan, &one.best.plan, sizeof(one.best.plan));
	for (size_t i = 0; i < b->n; i++)
		if (!best || order(b, &b->all[i], best) < 0)
			best = &b->all[i];
	if (s.found != (b->n > 0))
		fail_msg("problem %d: search %d, brute force %zu", problem, s.found, b->n);
	if (!best)
		return;
	if ((int)s.best.cls != brute_gravest(best->changes) ||
	    s.best.seconds_per_sample != best->seconds || s.best.departures != best->departures ||
	    s.best.wanted_bytes != used(b, best) || s.best.used_bytes > s.best.wanted_bytes) {
		print_knobs(b->asked, &s.best.plan, &best->plan);
		fail_msg("problem %d, objective %d: search class %d, %.9g s, %d departures, %llu; "
			 "brute force %d, %.9g, %d, %llu",
			 problem, b->objective, s.best.cls, s.best.seconds_per_sample,
			 s.best.departures, (unsigned long long)s.best.wanted_bytes,
			 brute_gravest(best->changes), best->seconds, best->departures,
			 (unsigned long long)best->used);
	}
	assert_int_equal(s.n_undominated + 1, front(b->all, b->n));
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 16) % n;
}

/* A set-up as somebody might ask for it. */
static struct oom_plan some_plan(uint32_t *seed)
{
	static const int64_t gpus[] = {1, 1, 1, 2, 4, 6, 8};
	struct oom_plan p = oom_plan_default();

	p.num_layers = 2 + draw(seed, 3);
	p.seq_len = 64 << draw(seed, 4);
	p.micro_batch = 1 + draw(seed, 12);
	p.grad_accum = 1 + draw(seed, 3);
	p.attn = draw(seed, 2) ? OOM_ATTN_EAGER : OOM_ATTN_SDPA;
	p.precision = draw(seed, 4) ? OOM_FP32 : OOM_AMP_BF16;
	p.grad_ckpt = draw(seed, 4) ? OOM_CKPT_NONE : OOM_CKPT_FULL;
	p.allocator = draw(seed, 4) ? OOM_ALLOC_NATIVE : OOM_ALLOC_EXPANDABLE;
	p.optimizer = draw(seed, 3) ? brute_named("adamw") :
		      draw(seed, 2) ? brute_named("adamw-8bit") :
				      brute_named("sgd");
	p.gpus = gpus[draw(seed, 7)];
	p.nodes = p.gpus > 2 ? 1 + draw(seed, 2) : 1;
	switch (p.gpus > 1 ? draw(seed, 3) : draw(seed, 4) / 3) {
	case 1:
		p.engine = OOM_ENGINE_DEEPSPEED;
		p.zero_stage = p.gpus > 1 ? 1 + draw(seed, 3) : 2;
		if (p.zero_stage > 1 && draw(seed, 2))
			p.offload_optimizer = OOM_OFFLOAD_CPU;
		break;
	case 2:
		p.engine = OOM_ENGINE_FSDP2;
		p.zero_stage = 2 + draw(seed, 2);
		break;
	}
	return p;
}

/* What does not run becomes what does, before anything is searched for. */
static void ask(struct brute *b, struct oom_plan *p)
{
	assert_int_equal(oom_compat_init(&b->compat, b->model, p, NULL, NULL), OOM_OK);
	oom_compat_mend(&b->compat, p);
	b->excused = oom_compat_broken(&b->compat, p, p);
	b->asked = p;
}

static void test_brute_force(void **state)
{
	static const char *const models[] = {"GPT-2", "SmolLM2-135M"};
	enum { PROBLEMS = 28 };
	uint32_t seed = 7;
	int found = 0, not_found = 0;

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct oom_keys keys = {0};
		struct oom_model *m = load(models[k], &keys);
		struct brute b = {.ev = oom_evaluator_new(), .model = m,
				  .loss = k ? OOM_LOSS_FUSED : OOM_LOSS_CHUNKED_NLL, .liger = k > 0};

		for (int i = 0; i < PROBLEMS / 2; i++) {
			struct oom_plan p = some_plan(&seed);
			const unsigned allow = draw(&seed, 3) ? 0 : 1 + draw(&seed, 3);

			ask(&b, &p);
			b.objective = (enum oom_objective)(i % 4);
			b.capacity = (uint64_t)((p.gpus > 1 ? 1900 : 520) +
						150 * draw(&seed, 1 + draw(&seed, 20)))
				     << 20;
			brute_all(&b, allow);
			found += b.n > 0;
			not_found += !b.n;
			compare(&b, k * 1000 + i, allow);
		}
		free(b.all);
		oom_evaluator_free(b.ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	assert_true(found > 10);               /* both answers occur */
	assert_true(not_found > 2);
}

/* Megatron's layouts: every degree up to the number of GPUs, whatever it divides. */
static void megatron(struct brute *b, struct oom_plan p)
{
	const struct oom_model_shape m = oom_model_shape(b->model);
	const int64_t n = p.gpus, a_sp = p.sp;

	for (p.tp = 1; p.tp <= n / p.nodes; p.tp++)
		for (p.pp = 1; p.pp <= n; p.pp++)
			for (p.cp = 1; p.cp <= n; p.cp++) {
				if ((int64_t)m.n_heads % p.tp || n % (p.tp * p.pp * p.cp) ||
				    p.num_layers % p.pp || (p.cp > 1 && p.seq_len % (2 * p.cp)))
					continue;
				for (p.zero_stage = 0; p.zero_stage < 2; p.zero_stage++)
					for (p.grad_ckpt = 0; p.grad_ckpt < 3; p.grad_ckpt++)
						for (p.fused_ce = 0; p.fused_ce < 2; p.fused_ce++)
							for (p.sp = a_sp; p.sp < (p.tp > 1 ? 2 : 1);
							     p.sp++)
								if (brute_reachable(b->asked, &p))
									brute_batches(b, p, false);
			}
}

static void test_megatron(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("GPT-2", &keys);
	struct brute b = {.ev = oom_evaluator_new(), .model = m};
	uint32_t seed = 3;
	int found = 0;

	(void)state;
	for (int i = 0; i < 60; i++) {
		struct oom_plan p = oom_plan_default();

		p.engine = OOM_ENGINE_MEGATRON;
		p.precision = OOM_BF16;
		p.num_layers = 4;
		p.gpus = 4 << draw(&seed, 3);
		p.nodes = p.gpus > 8 ? 2 : 1;
		p.micro_batch = 1 + draw(&seed, 4);
		p.grad_accum = 1 + draw(&seed, 4);
		p.seq_len = 256 << draw(&seed, 4);
		ask(&b, &p);
		b.objective = (enum oom_objective)(i % 4);
		b.capacity = (uint64_t)(2200 + 100 * draw(&seed, 30)) << 20;
		b.n = 0;
		megatron(&b, p);
		found += b.n > 0;
		compare(&b, i, 0);
	}
	assert_true(found > 10 && found < 60);
	free(b.all);
	oom_evaluator_free(b.ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force),
					   cmocka_unit_test(test_megatron)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
