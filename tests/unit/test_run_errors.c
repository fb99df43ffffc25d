/* Errors of runs files: medians and quantiles by nearest rank, worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "runs/errors.h"

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-12;
}

static void groups_are_summed_apart(void **state)
{
	struct oom_run_errors e = {0};
	struct oom_run_error out[4];

	(void)state;
	/* errors of 0, -10, +20 and -50 %: by size 0, 10, 20, 50 */
	assert_true(oom_run_errors_add(&e, "b", OOM_MEASURE_USED, 120, 100));
	assert_true(oom_run_errors_add(&e, "b", OOM_MEASURE_USED, 90, 100));
	assert_true(oom_run_errors_add(&e, "a", OOM_MEASURE_USED, 96, 100));
	assert_true(oom_run_errors_add(&e, "b", OOM_MEASURE_USED, 100, 100));
	assert_true(oom_run_errors_add(&e, "b", OOM_MEASURE_ALLOCATED, 94, 100));
	assert_true(oom_run_errors_add(&e, "b", OOM_MEASURE_USED, 50, 100));
	/* not measured, not predicted */
	assert_true(oom_run_errors_add(&e, "c", OOM_MEASURE_USED, 50, 0));
	assert_true(oom_run_errors_add(&e, "c", OOM_MEASURE_USED, 0, 50));
	assert_int_equal(oom_run_errors_sum(&e, out, 4), 3);
	assert_string_equal(out[0].group, "a");
	assert_int_equal(out[0].n, 1);
	assert_true(near(out[0].median, 0.04) && near(out[0].p95, 0.04) && near(out[0].under, 0));
	assert_string_equal(out[1].group, "b");
	assert_int_equal(out[1].measure, OOM_MEASURE_ALLOCATED);
	assert_true(near(out[1].median, 0.06) && near(out[1].under, 1));
	assert_int_equal(out[2].measure, OOM_MEASURE_USED);
	assert_int_equal(out[2].n, 4);
	assert_true(near(out[2].median, 0.1) && near(out[2].p95, 0.5) && near(out[2].under, 0.5));
	/* no room for all of them */
	assert_int_equal(oom_run_errors_sum(&e, out, 1), 1);
	oom_run_errors_release(&e);
	assert_int_equal(oom_run_errors_sum(&e, out, 4), 0);
	oom_run_errors_release(&e);
}

/* 20 errors of 1 to 20 %: the median is the 10th, the 95 % quantile the 19th; a long name is cut. */
static void ranks(void **state)
{
	struct oom_run_errors e = {0};
	struct oom_run_error out;
	char name[100];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	for (int i = 20; i; i--)
		assert_true(oom_run_errors_add(&e, name, OOM_MEASURE_RESERVED, 100 + i, 100));
	assert_int_equal(oom_run_errors_sum(&e, &out, 1), 1);
	assert_int_equal(strlen(out.group), OOM_RUN_GROUP - 1);
	assert_true(near(out.median, 0.1) && near(out.p95, 0.19) && near(out.under, 0));
	oom_run_errors_release(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(groups_are_summed_apart),
					   cmocka_unit_test(ranks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
