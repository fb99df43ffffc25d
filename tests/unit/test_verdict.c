/* OOM_EVAL_VERDICT asks for less and gets the same verdict: on cards between what a plan allocates and more than an
 * endless card reserves, with the same bytes where it fits.  Every card is asked with evaluators that know nothing, and
 * with one that has been asked before, in either order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "oomplan/model.h"

struct counts {
	int fits, dies, of_cache;
};

static bool ask(struct oom_evaluator *ev, const struct oom_model *m, const struct oom_plan *p, uint64_t capacity,
		unsigned flags, struct oom_eval *e)
{
	struct oom_error err = {""};
	bool fits = false;

	if (oom_judge(ev, m, p, capacity, flags, e, &fits, &err))
		fail_msg("%s", err.text);
	return fits;
}

static void compare(struct oom_evaluator *kept, const struct oom_model *m, const struct oom_plan *p, uint64_t capacity,
		    struct counts *n)
{
	struct oom_evaluator *one = oom_evaluator_new(), *two = oom_evaluator_new();
	struct oom_eval want, got, again;
	const bool fits = ask(one, m, p, capacity, OOM_EVAL_FAST, &want);

	assert_int_equal(ask(two, m, p, capacity, OOM_EVAL_VERDICT, &got), fits);
	assert_int_equal(ask(kept, m, p, capacity, OOM_EVAL_VERDICT, &again), fits);
	n->fits += fits;
	n->dies += !fits;
	/* what is allocated at once would have found room: the cache is what it died of */
	assert_int_equal(want.died, !fits && want.used_bytes - want.reserved_bytes + want.overall_peak <= oom_budget(capacity, p));
	assert_true(!got.died || want.died);
	n->of_cache += want.died;
	if (fits) {
		assert_int_equal(got.used_bytes, want.used_bytes);
		assert_int_equal(got.wanted_bytes, want.wanted_bytes);
		assert_int_equal(got.retries, want.retries);
		assert_int_equal(again.used_bytes, want.used_bytes);
	} else {
		assert_true(got.used_bytes > oom_budget(capacity, p));
		assert_true(got.used_bytes > got.reserved_bytes);
	}
	/* what was not asked for is there when it is */
	ask(two, m, p, capacity, OOM_EVAL_REPLAY, &got);
	ask(kept, m, p, capacity, OOM_EVAL_REPLAY, &again);
	ask(one, m, p, capacity, OOM_EVAL_REPLAY, &want);
	assert_int_equal(got.used_bytes, want.used_bytes);
	assert_int_equal(got.wanted_bytes, want.wanted_bytes);
	assert_int_equal(again.wanted_bytes, want.wanted_bytes);
	oom_evaluator_free(one);
	oom_evaluator_free(two);
}

static void cards(struct oom_evaluator *kept, const struct oom_model *m, const struct oom_plan *p, struct counts *n)
{
	enum { STEPS = 24 };
	struct oom_eval e;
	struct oom_error err = {""};
	uint64_t least, most;

	assert_int_equal(oom_evaluate(kept, m, p, OOM_EVAL_REPLAY, &e, &err), OOM_OK);
	least = e.used_bytes - e.reserved_bytes + e.overall_peak;
	most = e.used_bytes;
	least -= least / 50;
	most += most / 20;
	for (int i = 0; i <= STEPS; i++)
		compare(kept, m, p, (uint64_t)((double)(least + (most - least) / STEPS * (uint64_t)i) / (1 - p->margin)), n);
}

static void the_same_verdict(void **state)
{
	static const char *const models[] = {"GPT-2", "Llama-3.2-1B"};
	struct counts n = {0, 0, 0};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct oom_evaluator *kept = oom_evaluator_new();
		struct oom_plan p = oom_plan_default();
		struct oom_model *m = NULL;
		struct oom_keys keys = {0};
		struct oom_error err = {""};

		assert_int_equal(oom_keys_read_model(&keys, models[i], &err), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		p.micro_batch = 4;
		cards(kept, m, &p, &n);
		p.precision = OOM_AMP_BF16;
		p.grad_accum = 3;
		cards(kept, m, &p, &n);
		p.grad_ckpt = OOM_CKPT_FULL;
		cards(kept, m, &p, &n);
		oom_evaluator_free(kept);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	/* of 150: both kinds were met */
	assert_true(n.fits > 20);
	assert_true(n.dies > 20);
	assert_true(n.of_cache > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_verdict)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
