/* Rules that are left open while only sizes change, against all rules: a plan that breaks none and is then
 * given other sizes breaks one exactly where oom_plan_broken, which knows nothing of what is open, finds one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "knobs.h"
#include "oomplan/rules.h"
#include "plan/open_rules.h"

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static uint64_t draw(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	return (*x ^= *x << 17) >> 11;
}

/* A value of the knob: any word, any number near its least, or its default. */
static void redraw(struct oom_plan *p, const struct oom_option *k, uint64_t *x)
{
	static const double cards[] = {0, 6.1, 7, 7.5, 8, 8.6, 8.9, 9, 10};
	size_t words = 0;

	switch (k->kind) {
	case OOM_OPTION_FLAG: *oom_plan_field(p, k) = (int64_t)(draw(x) % 2); break;
	case OOM_OPTION_CHOICE:
		while (k->choice(words))
			words++;
		*oom_plan_field(p, k) = (int64_t)(draw(x) % words);
		break;
	case OOM_OPTION_COUNT:
		*oom_plan_field(p, k) = (int64_t)(draw(x) % 3 ? k->min + (double)(draw(x) % 9) : k->def);
		break;
	default:
		if (k->offset == offsetof(struct oom_plan, compute_capability))
			p->compute_capability = cards[draw(x) % (sizeof(cards) / sizeof(cards[0]))];
	}
}

static size_t knobs(void)
{
	size_t n = 0;

	while (oom_knob_at(n))
		n++;
	return n;
}

/* A plan that breaks no rule, some knobs away from the default. */
static struct oom_plan sound_plan(uint64_t *x)
{
	const size_t n = knobs();
	struct oom_plan p = oom_plan_default();

	for (int i = 0; i < 150; i++) {
		const struct oom_plan before = p;

		redraw(&p, oom_knob_at(draw(x) % n), x);
		if (oom_plan_broken(&p, NULL))
			p = before;
	}
	return p;
}

static void sizes_are_these_five(void **state)
{
	static const char *const sizes[] = {"micro-batch", "grad-accum", "seq-len", "optimizer", "compute-capability"};
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_true(oom_is_size(oom_knob_find(sizes[i])->offset));
	for (size_t i = 0; oom_knob_at(i); i++)
		n += oom_is_size(oom_knob_at(i)->offset);
	assert_int_equal(n, sizeof(sizes) / sizeof(sizes[0]));
}

/* FP8 units came with compute capability 8.9; a global batch holds the micro-batch; a step after every backward
 * accumulates nothing (rule_list.h). */
static void rules_that_sizes_break(void **state)
{
	static const struct {
		const char *plan, *sizes;
		bool holds;
	} rows[] = {
		{"precision=bf16 fp8=tensorwise compute-capability=9", "compute-capability=8.9", true},
		{"precision=bf16 fp8=tensorwise compute-capability=9", "compute-capability=8.6", false},
		{"global-batch=4 micro-batch=2", "micro-batch=4", true},
		{"global-batch=4 micro-batch=2", "micro-batch=5", false},
		{"optimizer-in-backward=true grad-accum=1", "micro-batch=64 seq-len=9", true},
		{"optimizer-in-backward=true grad-accum=1", "grad-accum=2", false},
		{"grad-accum=1", "grad-accum=2", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_open_rules open;

		set(&p, rows[i].plan);
		assert_null(oom_plan_broken(&p, NULL));
		assert_true(oom_rules_left_open(&p, &open));
		assert_true(oom_open_rules_hold(&open, &p));
		set(&p, rows[i].sizes);
		if (oom_open_rules_hold(&open, &p) != rows[i].holds)
			fail_msg("%s, then %s", rows[i].plan, rows[i].sizes);
	}
}

/* What is open is a fraction of all rules, or nothing is saved. */
static void random_plans_with_other_sizes(void **state)
{
	uint64_t x = 88172645463325252u;
	size_t broken = 0, sound = 0, rules = 0;

	(void)state;
	while (oom_rule_at(rules))
		rules++;
	for (int i = 0; i < 1500; i++) {
		const struct oom_plan p = sound_plan(&x);
		struct oom_open_rules open;

		assert_true(oom_rules_left_open(&p, &open));
		assert_true(open.n < rules / 2);
		for (int k = 0; k < 40; k++) {
			struct oom_plan q = p;
			const struct oom_rule *r;

			for (size_t j = 0; oom_knob_at(j); j++)
				if (oom_is_size(oom_knob_at(j)->offset) && draw(&x) % 2)
					redraw(&q, oom_knob_at(j), &x);
			r = oom_plan_broken(&q, NULL);
			if (oom_open_rules_hold(&open, &q) != !r)
				fail_msg("plan %d: %s", i, r ? r->sentence : "a rule is broken that is not");
			*(r ? &broken : &sound) += 1;
		}
	}
	/* neither is rare */
	assert_true(broken > 1000 && sound > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_these_five),
		cmocka_unit_test(rules_that_sizes_break),
		cmocka_unit_test(random_plans_with_other_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
