/* What the search says beside its best plan, and the work that its times are of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
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

/* Something that is not exact is as asked in c and changed in the best plan. */
static bool leaves_more(const struct oom_candidate *c, const struct oom_candidate *best,
			const struct oom_plan *p)
{
	const struct oom_plan *a = &c->plan, *b = &best->plan;

	return (a->precision == p->precision && b->precision != p->precision) ||
	       (a->optimizer == p->optimizer && b->optimizer != p->optimizer) ||
	       (a->step_in_backward == p->step_in_backward &&
		b->step_in_backward != p->step_in_backward) ||
	       (a->offload_optimizer == p->offload_optimizer && a->offload_params == p->offload_params &&
		(b->offload_optimizer != p->offload_optimizer || b->offload_params != p->offload_params)) ||
	       (a->seq_len == p->seq_len && b->seq_len != p->seq_len) ||
	       (a->lora_r == p->lora_r && b->lora_r != p->lora_r);
}

/* Every alternative has something the best has not, keeps the batch, and each departure of the
 * best has a reason. */
static void test_alternatives(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("Llama-3.2-1B", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_search s;

	(void)state;
	for (uint64_t gib = 10; gib <= 40; gib += 6) {
		const uint64_t capacity = gib << 30;
		const struct oom_search_query q = {.asked = &p, .capacity_bytes = capacity};
		bool needed = false;

		assert_int_equal(oom_search(ev, m, &q, &s, &err), OOM_OK);
		assert_true(s.found);
		assert_true(s.best.used_bytes <= oom_budget(capacity, &s.best.plan));
		for (size_t i = 0; i < s.n_alternatives; i++) {
			const struct oom_candidate *c = &s.alternative[i];

			assert_true(leaves_more(c, &s.best, &p) ||
				    c->seconds_per_sample < s.best.seconds_per_sample ||
				    c->departures < s.best.departures);
			assert_int_equal(c->plan.micro_batch * c->plan.grad_accum,
					 p.micro_batch * p.grad_accum);
		}
		assert_int_equal(oom_search_reasons(ev, m, &q, &s, &err), OOM_OK);
		assert_int_equal(s.n_reasons, s.best.departures);
		/* nothing is in the plan for nothing: without it, it cannot run, does not fit, or
		 * is slower (or it would be the better plan itself) */
		for (size_t i = 0; i < s.n_reasons; i++) {
			assert_true(!s.reason[i].runs || !s.reason[i].fits ||
				    s.reason[i].seconds_per_sample > s.best.seconds_per_sample ||
				    s.best.classes);
			needed |= s.reason[i].runs && !s.reason[i].fits;
		}
		assert_true(needed || gib > 24);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* FLOPs of a step, by hand for GPT-2 (12 layers, h 768, V 50257): a token's products are 24 h^2 a
 * layer, the head 2 h V, scores and their sum 4 s h a layer; a gradient of each input of a product
 * costs as much as the product; full checkpointing runs the layers (not the head) once more. */
static void test_flops(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("GPT-2", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	const double s = 1024, h = 768, layers = 12 * (24 * s * h * h + 4 * s * s * h),
		     head = 2 * s * h * 50257;

	(void)state;
	for (int i = 0; i < 24; i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_error err = {{0}};
		struct oom_eval e;
		double want;

		p.fused_ce = i & 1;
		p.grad_ckpt = i >> 1 & 1;
		p.attn = i >> 2 & 1;
		p.precision = i / 8 % 3 == 0 ? OOM_FP32 : i / 8 % 3 == 1 ? OOM_BF16 : OOM_AMP_BF16;
		assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err), OOM_OK);
		want = 3 * (layers + head) + (p.grad_ckpt ? layers : 0);
		assert_true(e.flops_per_sample > 0.999 * want && e.flops_per_sample < 1.001 * want);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_alternatives),
					   cmocka_unit_test(test_flops)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
