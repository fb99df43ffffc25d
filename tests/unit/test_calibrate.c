/* Calibration on synthetic runs: planted overheads come back within their own intervals, and
 * intervals cover what they say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/calibrate.h"

#define GIB 1073741824.0

static uint64_t seed = 88172645463325252u;

static double uniform(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (double)(seed >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform());
}

/* measured = 1.06 x predicted + 0.8 GiB, 2 % spread; every tenth an outlier of +40 %. */
static double measured(double predicted)
{
	return (1.06 + 0.02 * normal()) * predicted + 0.8 * GIB;
}

static void test_planted(void **state)
{
	struct oom_calibration_row r[200];
	struct oom_calibration c;
	struct oom_error err = {{0}};

	(void)state;
	for (int i = 0; i < 200; i++) {
		r[i].predicted = (2 + 78 * uniform()) * GIB;
		r[i].measured = measured(r[i].predicted) * (i % 10 == 0 ? 1.4 : 1);
	}
	assert_int_equal(oom_calibrate(&c, r, 200, &err), OOM_OK);
	assert_true(c.offset_fitted);
	assert_true(fabs(c.scale - 1.06) < 3 * c.scale_se);
	assert_true(fabs(c.offset_bytes - 0.8 * GIB) < 3 * c.offset_se);
	assert_true(c.n_outliers >= 18 && c.n_outliers <= 24);
	/* 43.2 GiB are expected; an outlier of 60.5 would not fit 60, and a tenth of the runs
	 * are such */
	assert_true(oom_calibrated_fits(&c, 40 * GIB, 50 * GIB) > 0.88 &&
		    oom_calibrated_fits(&c, 40 * GIB, 50 * GIB) < 0.93);
	assert_true(oom_calibrated_bound(&c, 40 * GIB, 0.85) < 46 * GIB);
	assert_true(oom_calibrated_bound(&c, 40 * GIB, 0.99) > 60 * GIB);
	assert_true(oom_calibrated_fits(&c, 40 * GIB, 40 * GIB) < 0.01);
}

static void test_coverage(void **state)
{
	int inside = 0, all = 0;

	(void)state;
	for (int k = 0; k < 1000; k++) {
		struct oom_calibration_row r[40];
		struct oom_calibration c;
		struct oom_error err = {{0}};

		for (int i = 0; i < 40; i++) {
			r[i].predicted = (2 + 78 * uniform()) * GIB;
			r[i].measured = measured(r[i].predicted);
		}
		assert_int_equal(oom_calibrate(&c, r, 40, &err), OOM_OK);
		for (int i = 0; i < 10; i++) {
			const double x = (2 + 78 * uniform()) * GIB, y = measured(x);

			inside += y > oom_calibrated_bound(&c, x, 0.025) &&
				  y < oom_calibrated_bound(&c, x, 0.975);
			all++;
		}
	}
	assert_true((double)inside / all > 0.93);
	assert_true((double)inside / all < 0.97);
}

/* 95 % intervals of what was planted, and of a run that is no outlier, over 1000 fits to 40 runs of
 * which each is wild with one in ten: within 93 to 97 %. */
static void test_coverage_outliers(void **state)
{
	int scale = 0, offset = 0, inside = 0;

	(void)state;
	for (int k = 0; k < 1000; k++) {
		struct oom_calibration_row r[40];
		struct oom_calibration c;
		const double x = (2 + 78 * uniform()) * GIB, y = measured(x);
		/* Student's 97.5 % quantile of 35 degrees of freedom, about what is left */
		const double t = 2.03;

		for (int i = 0; i < 40; i++) {
			r[i].predicted = (2 + 78 * uniform()) * GIB;
			r[i].measured = measured(r[i].predicted) * (uniform() < 0.1 ? 1.4 : 1);
		}
		assert_int_equal(oom_calibrate(&c, r, 40, NULL), OOM_OK);
		scale += fabs(c.scale - 1.06) < t * c.scale_se;
		offset += fabs(c.offset_bytes - 0.8 * GIB) < t * c.offset_se;
		inside += y > oom_calibrated_interval(&c, x, 0.025) &&
			  y < oom_calibrated_interval(&c, x, 0.975);
	}
	assert_in_range(scale, 930, 970);
	assert_in_range(offset, 930, 970);
	assert_in_range(inside, 930, 970);
}

/* Of runs with wild ones among them, a twentieth passes the bound of 95 %: 200 fits of 100 runs,
 * 20 new ones each. */
static void test_bound(void **state)
{
	int passed = 0;

	(void)state;
	for (int k = 0; k < 200; k++) {
		struct oom_calibration_row r[100];
		struct oom_calibration c;

		for (int i = 0; i < 100; i++) {
			r[i].predicted = (2 + 78 * uniform()) * GIB;
			r[i].measured = measured(r[i].predicted) *
					(uniform() < 0.1 ? 1.1 - 0.2 * log(uniform() + 1e-9) : 1);
		}
		assert_int_equal(oom_calibrate(&c, r, 100, NULL), OOM_OK);
		for (int i = 0; i < 20; i++) {
			const double x = (2 + 78 * uniform()) * GIB;

			passed += measured(x) * (uniform() < 0.1 ?
							 1.1 - 0.2 * log(uniform() + 1e-9) :
							 1) >
				  oom_calibrated_bound(&c, x, 0.95);
		}
	}
	assert_in_range(passed, 120, 280);      /* of 4000: 3 to 7 % */
}

static void test_not_identifiable(void **state)
{
	struct oom_calibration_row r[6];
	struct oom_calibration c;
	struct oom_error err = {{0}};

	(void)state;
	for (int i = 0; i < 6; i++)
		r[i] = (struct oom_calibration_row){.predicted = (10 + 0.1 * i) * GIB,
						    .measured = (11 + 0.11 * i) * GIB};
	assert_int_equal(oom_calibrate(&c, r, 6, &err), OOM_OK);
	assert_false(c.offset_fitted);
	assert_true(c.offset_bytes == 0 && fabs(c.scale - 1.1) < 1e-6);
	assert_int_equal(oom_calibrate(&c, r, 2, &err), OOM_ERR_INVALID);
	r[0].measured = -1;
	assert_int_equal(oom_calibrate(&c, r, 6, &err), OOM_ERR_INVALID);
}

static void test_files(void **state)
{
	struct oom_calibration a, b;
	struct oom_error err = {{0}};
	char path[] = "/tmp/cal-XXXXXX", text[800];
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(oom_calibration_default(&a, &err), OOM_OK);
	oom_calibration_write(&a, text);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	assert_int_equal(oom_calibration_read(&b, path, &err), OOM_OK);
	assert_true(a.scale == b.scale && a.sigma == b.sigma && a.cov == b.cov);
	{
		FILE *f = fopen(path, "w");

		fputs("scale 1.0\nscael 2\n", f);
		fclose(f);
	}
	assert_int_equal(oom_calibration_read(&b, path, &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, ":2:"));
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted),
					   cmocka_unit_test(test_coverage),
					   cmocka_unit_test(test_coverage_outliers),
					   cmocka_unit_test(test_bound),
					   cmocka_unit_test(test_not_identifiable),
					   cmocka_unit_test(test_files)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
