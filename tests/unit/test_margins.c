/* The margin that a calibration asks for, over a calibration made by hand: runs hold twice the states that are
 * predicted, all else as predicted, and no run strays from that.  What is expected are sums over it, as
 * oomplan/calibrate.h defines the terms:
 *
 *	reserved = (2 x states + activations + transient) x predicted reserved / predicted allocated
 *	used     = reserved + workspaces + context + nccl
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "answer/margins.h"

#define GIB 1073741824.0

static struct oom_calibration twice_the_states(void)
{
	struct oom_calibration c;

	memset(&c, 0, sizeof(c));
	for (int k = 0; k < OOM_TERMS; k++) {
		c.term[k].value = k == OOM_TERM_STATES ? 2 : 1;
		c.term[k].def = 1;
		c.term[k].dof = 100;
	}
	/* bytes, which stand as they are where a file had no prediction of them */
	c.term[OOM_TERM_CONTEXT].value = 1 * GIB;
	c.term[OOM_TERM_NCCL].value = 3 * GIB;
	c.term[OOM_TERM_CONTEXT].def = c.term[OOM_TERM_NCCL].def = NAN;
	for (int m = 0; m < OOM_MEASURES; m++)
		c.spread[m].dof = 100;
	return c;
}

/* GiB of states and of activations; a tenth more is reserved. */
static struct oom_eval run_of(double states, double activations)
{
	struct oom_eval e = {0};

	e.bucket[OOM_BUCKET_PARAMS] = (uint64_t)(states * GIB);
	e.bucket[OOM_BUCKET_SAVED] = (uint64_t)(activations * GIB);
	e.overall_peak = e.bucket[OOM_BUCKET_PARAMS] + e.bucket[OOM_BUCKET_SAVED];
	e.reserved_bytes = (uint64_t)(1.1 * (double)e.overall_peak);
	e.context_bytes = (uint64_t)(0.5 * GIB);
	return e;
}

static void assert_near(double got, double want, double slack)
{
	if (!(fabs(got - want) <= slack))
		fail_msg("%.9g, not %.9g", got, want);
}

/* 10 of states and 10 of the rest: (2 x 10 + 10) x 1.1 + 1 = 34 GiB; with GPUs that communicate 3 more.  Without
 * a confidence, a tenth of the card stays free beside it. */
static void bytes_that_a_card_must_have(void **state)
{
	const struct oom_calibration c = twice_the_states();
	struct margins m = {.calibration = &c, .asked = 0.1, .capacity = 80 * GIB};
	struct oom_eval e = run_of(10, 10);

	(void)state;
	assert_near(margins_need(&m, &e) / GIB, 34 / 0.9, 1e-6);
	m.confidence = 0.95;
	assert_near(margins_need(&m, &e) / GIB, 34, 1e-6);
	e.nccl_bytes = 1;
	assert_near(margins_need(&m, &e) / GIB, 37, 1e-6);
}

/* A run so composed, s times as large, fills a card of 80 GiB where 33 s + 1 = 80 (or 0.9 x 80).  What is
 * predicted of it, 22 s and a context of half a GiB, leaves the rest of the card: that is the margin. */
static void headroom_of_a_composition(void **state)
{
	const struct oom_calibration c = twice_the_states();
	struct margins m = {.calibration = &c, .asked = 0.1, .capacity = 80 * GIB};
	const struct oom_eval e = run_of(10, 10), lean = run_of(0, 20);

	(void)state;
	assert_near(margin_for(&m, &e), 1 - (22 * (72 - 1) / 33.0 + 0.5) / 80, 1e-7);
	m.confidence = 0.95;
	assert_near(margin_for(&m, &e), 1 - (22 * (80 - 1) / 33.0 + 0.5) / 80, 1e-7);
	/* without states only the context is more than predicted */
	assert_near(margin_for(&m, &lean), 0.5 / 80, 1e-7);
}

static void asked_again_until_it_holds(void **state)
{
	const struct oom_calibration c = twice_the_states();
	struct margins m = {.calibration = &c, .confidence = 0.95, .capacity = 80 * GIB};
	const struct oom_eval e = run_of(10, 10);
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.margin = 0;
	assert_true(margins_again(&m, &p, &e));
	assert_near(p.margin, margin_for(&m, &e), 0);
	assert_int_equal(m.round, 1);
	/* what is found with it is composed as before */
	assert_false(margins_again(&m, &p, &e));
	assert_int_equal(m.round, 1);
	/* headroom may fall as well, in the first rounds */
	p.margin = 0.9;
	assert_true(margins_again(&m, &p, &e));
	assert_near(p.margin, margin_for(&m, &e), 0);
}

static void without_a_calibration_the_plan_stands(void **state)
{
	struct margins m = {.confidence = 0.95, .asked = 0.1, .capacity = 80 * GIB};
	const struct oom_eval e = run_of(10, 10);
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.margin = 0.07;
	assert_false(margins_again(&m, &p, &e));
	assert_true(p.margin == 0.07);
}

/* Two compositions that call for one another: four rounds, and then the larger headroom stays. */
static void compositions_that_call_for_one_another(void **state)
{
	const struct oom_calibration c = twice_the_states();
	struct margins m = {.calibration = &c, .confidence = 0.95, .capacity = 80 * GIB};
	const struct oom_eval e[2] = {run_of(5, 15), run_of(15, 5)};
	struct oom_plan p = oom_plan_default();
	int rounds = 0;

	(void)state;
	p.margin = 0;
	assert_true(margin_for(&m, &e[0]) < margin_for(&m, &e[1]));
	while (margins_again(&m, &p, &e[rounds & 1]))
		rounds++;
	assert_int_equal(rounds, 4);
	assert_near(p.margin, margin_for(&m, &e[1]), 0);
}

/* Headroom that grows each time is followed twelve times, no more. */
static void there_is_an_end(void **state)
{
	const struct oom_calibration c = twice_the_states();
	struct margins m = {.calibration = &c, .confidence = 0.95, .capacity = 80 * GIB};
	struct oom_plan p = oom_plan_default();
	int rounds = 0;

	(void)state;
	p.margin = 0;
	for (struct oom_eval e = run_of(1, 19); rounds < 19 && margins_again(&m, &p, &e); rounds++)
		e = run_of(rounds + 2, 18 - rounds);
	assert_int_equal(rounds, 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_that_a_card_must_have),
		cmocka_unit_test(headroom_of_a_composition),
		cmocka_unit_test(asked_again_until_it_holds),
		cmocka_unit_test(without_a_calibration_the_plan_stands),
		cmocka_unit_test(compositions_that_call_for_one_another),
		cmocka_unit_test(there_is_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
