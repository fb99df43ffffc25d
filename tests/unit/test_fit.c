/* The regression behind calibrations: Student's table, spreads and lines worked out by hand, outliers that are set aside,
 * columns that cannot be told apart. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "calibrate/parts.h"

static bool near(double a, double b, double within)
{
	return fabs(a - b) <= within;
}

/* Abramowitz and Stegun, Handbook of Mathematical Functions (1964), table 26.10: two-sided probabilities. */
static void students_table(void **state)
{
	static const struct {
		double level, dof, t;
	} cases[] = {
		{0.9, 1, 3.078}, {0.95, 1, 6.314}, {0.975, 1, 12.706}, {0.995, 1, 63.657}, {0.95, 2, 2.920},
		{0.975, 2, 4.303}, {0.975, 5, 2.571}, {0.975, 10, 2.228}, {0.995, 10, 3.169}, {0.95, 30, 1.697},
		{0.975, 120, 1.980}, {0.995, 120, 2.617},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const double t = oom_t_quantile(cases[i].level, cases[i].dof);

		if (!near(t, cases[i].t, 0.0006))
			fail_msg("%g with %g: %.4f", cases[i].level, cases[i].dof, t);
		assert_true(near(oom_t_below(t, cases[i].dof), cases[i].level, 1e-9));
		/* it is symmetric */
		assert_true(near(oom_t_quantile(1 - cases[i].level, cases[i].dof), -t, 1e-9));
	}
	assert_true(near(oom_t_quantile(0.5, 7), 0, 1e-12));
	assert_true(near(oom_t_quantile(0.975, 1e9), 1.95996, 1e-4));     /* the normal distribution's */
}

/* 1.4826 times the median of the absolute residuals (Rousseeuw and Leroy 1987, chapter 1). */
static void spreads(void **state)
{
	static const struct {
		double residual[5];
		size_t n;
		double spread;
	} cases[] = {
		{{0}, 0, 0}, {{3}, 1, 1.4826 * 3}, {{-3}, 1, 1.4826 * 3}, {{1, -2, 3}, 3, 1.4826 * 2},
		{{1, 1, 1, 1, 1000}, 5, 1.4826}, {{0, 0, 0, 5, 9}, 5, 0},
	};
	double room[5];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_true(near(oom_fit_spread(cases[i].residual, cases[i].n, room), cases[i].spread, 1e-12));
}

/* y = 2 + 3 x with residuals 1, -1, -1, 1 around it, which no line fits better: the least squares are the line itself.
 * sigma^2 = 4 / (4 - 2), the slope's variance sigma^2 / sum (x - mean)^2 = 2 / 5. */
static void a_line_by_hand(void **state)
{
	static const double x[] = {1, 0, 1, 1, 1, 2, 1, 3}, y[] = {3, 4, 7, 12};
	struct oom_fit f;
	struct oom_error err = {{0}};
	double residual[4];
	bool outlier[4];

	(void)state;
	assert_int_equal(oom_fit_robust(&f, x, y, 4, 2, false, residual, outlier, &err), OOM_OK);
	assert_int_equal(f.n_outliers, 0);
	assert_true(near(f.b[0], 2, 1e-9) && near(f.b[1], 3, 1e-9));
	assert_true(near(f.sigma, sqrt(2), 1e-9));
	assert_true(f.dof == 2);
	assert_true(near(f.cov[1][1], 0.4, 1e-9));
	assert_true(near(f.cov[0][1], f.cov[1][0], 1e-12));
	assert_true(near(residual[0], 1, 1e-9) && near(residual[1], -1, 1e-9));
}

/* Runs gone wild change nothing: the line is that of the others, and they are named. */
static void wild_ones_are_set_aside(void **state)
{
	double x[2 * 20], y[20], residual[20];
	bool outlier[20];
	struct oom_error err = {{0}};
	struct oom_fit f;

	(void)state;
	for (int wild = 0; wild <= 5; wild++) {
		for (int i = 0; i < 20; i++) {
			x[2 * i] = 1;
			x[2 * i + 1] = i;
			y[i] = 5 + 0.5 * i + (i % 2 ? 0.01 : -0.01) + (i % 4 == 1 && i / 4 < wild ? 100 : 0);
		}
		assert_int_equal(oom_fit_robust(&f, x, y, 20, 2, false, residual, outlier, &err), OOM_OK);
		assert_int_equal(f.n_outliers, wild);
		assert_true(near(f.b[0], 5, 0.02) && near(f.b[1], 0.5, 0.002));
		for (int i = 0; i < 20; i++)
			assert_int_equal(outlier[i], i % 4 == 1 && i / 4 < wild);
		assert_true(f.dof == 20 - wild - 2);
	}
}

/* Points on one line have no spread; a hundredth of a percent is no outlier there. */
static void a_perfect_line(void **state)
{
	double x[2 * 8], y[8], residual[8];
	bool outlier[8];
	struct oom_error err = {{0}};
	struct oom_fit f;

	(void)state;
	for (int i = 0; i < 8; i++) {
		x[2 * i] = 1;
		x[2 * i + 1] = i;
		y[i] = 1 + i;
	}
	y[3] += OOM_FIT_NOTHING / 2;
	assert_int_equal(oom_fit_robust(&f, x, y, 8, 2, false, residual, outlier, &err), OOM_OK);
	assert_int_equal(f.n_outliers, 0);
	assert_true(near(f.b[1], 1, 1e-4));
}

/* Belsley, Kuh and Welsch (1980), section 3.2: orthogonal columns have a condition index of 1; of columns that are nearly
 * one, the weakest direction is the variance of both. */
static void columns_that_move_together(void **state)
{
	static const double orthogonal[] = {1, 1, 1, -1, 1, 1, 1, -1};
	double nearly[2 * 50], index, share[OOM_TERMS];

	(void)state;
	assert_int_equal(oom_fit_condition(orthogonal, 4, 2, &index, share, NULL), OOM_OK);
	assert_true(near(index, 1, 1e-9));
	for (int i = 0; i < 50; i++) {
		nearly[2 * i] = 1 + i;
		nearly[2 * i + 1] = 1 + i + (i % 2 ? 1e-3 : -1e-3);
	}
	assert_int_equal(oom_fit_condition(nearly, 50, 2, &index, share, NULL), OOM_OK);
	assert_true(index > 1000);
	assert_true(share[0] > 0.99 && share[1] > 0.99);
	/* scale is nothing: columns are brought to length one */
	for (int i = 0; i < 4; i++)
		nearly[2 * i] = 1e9 * orthogonal[2 * i], nearly[2 * i + 1] = 1e-9 * orthogonal[2 * i + 1];
	assert_int_equal(oom_fit_condition(nearly, 4, 2, &index, share, NULL), OOM_OK);
	assert_true(near(index, 1, 1e-6));
	/* a column of nothing has no direction at all */
	for (int i = 0; i < 4; i++)
		nearly[2 * i + 1] = 0;
	assert_int_equal(oom_fit_condition(nearly, 4, 2, &index, share, NULL), OOM_OK);
	assert_true(index > 1e6);
}

/* Sizes of a row's figures, uncalibrated: parts, reserved, and what comes on top of both on a card. */
static void predictions(void **state)
{
	struct oom_parts p = {.part = {100, 20, 3}, .reserved = 130, .workspace = 7, .context = 50, .nccl = 11};

	(void)state;
	assert_true(oom_predicted(&p, OOM_MEASURE_ALLOCATED) == 123);
	assert_true(oom_predicted(&p, OOM_MEASURE_RESERVED) == 130);
	assert_true(oom_predicted(&p, OOM_MEASURE_USED) == 187);
	p.many = true;
	assert_true(oom_predicted(&p, OOM_MEASURE_USED) == 198);
}

/* Ratios of readings: between two levels on the line over normal scores, and back. */
static void ratios(void **state)
{
	struct oom_ratios r = {.n = 1000};
	struct oom_ratios none = {.n = 0};

	(void)state;
	for (int i = 0; i < OOM_RATIOS; i++)
		r.at[i] = 0.9 + 0.02 * i;
	assert_true(near(oom_ratio_at(&r, 0.5), 1.02, 1e-9));   /* the middle one of thirteen */
	assert_true(near(oom_ratio_at(&r, 0.25), 1.0, 1e-9));
	assert_true(oom_ratio_at(&r, 0.6) > 1.02 && oom_ratio_at(&r, 0.6) < 1.04);
	assert_true(oom_ratio_at(&r, 0.999) > oom_ratio_at(&r, 0.995));
	assert_true(isnan(oom_ratio_at(&none, 0.5)));
	for (double level = 0.05; level < 0.95; level += 0.05)
		assert_true(near(oom_ratio_below(&r, oom_ratio_at(&r, level)), level, 1e-3));
	/* beyond every reading there is still the next one */
	assert_true(oom_ratio_below(&r, 100) < 1);
}

/* Each term and figure has a name; the terms a sentence. */
static void words(void **state)
{
	(void)state;
	for (int i = 0; i < OOM_TERMS; i++) {
		assert_true(*oom_term_name((enum oom_term)i) && *oom_term_summary((enum oom_term)i));
		assert_int_equal(oom_term_is_bytes((enum oom_term)i), i >= OOM_TERM_CONTEXT);
		for (int k = 0; k < i; k++) {
			assert_string_not_equal(oom_term_name((enum oom_term)i), oom_term_name((enum oom_term)k));
			assert_string_not_equal(oom_term_summary((enum oom_term)i), oom_term_summary((enum oom_term)k));
		}
	}
	for (int i = 0; i < OOM_MEASURES; i++)
		assert_true(*oom_measure_str((enum oom_measure)i));
	for (int i = OOM_TERM_FITTED; i <= OOM_TERM_COLLINEAR; i++)
		assert_true(*oom_term_state_str((enum oom_term_state)i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(students_table),
		cmocka_unit_test(spreads),
		cmocka_unit_test(a_line_by_hand),
		cmocka_unit_test(wild_ones_are_set_aside),
		cmocka_unit_test(a_perfect_line),
		cmocka_unit_test(columns_that_move_together),
		cmocka_unit_test(predictions),
		cmocka_unit_test(ratios),
		cmocka_unit_test(words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
