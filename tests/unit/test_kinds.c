/* Readings of real cards by kind of run: intervals, odds and bounds agree with data/residuals.csv and
 * with each other. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "../../data/embedded.h"
#include "oomplan/calibrate.h"

#define GIB 1073741824.0

static const struct oom_parts one = {.part = {20 * GIB, 10 * GIB, 2 * GIB},
				     .reserved = 36 * GIB,
				     .context = 0.5 * GIB,
				     .workspace = 16.25 * 1048576,
				     .split = true,
				     .overheads = true};

static struct oom_plan plan_of(enum oom_engine_id engine, int64_t gpus, int64_t zero, int64_t lora)
{
	struct oom_plan p = oom_plan_default();

	p.engine = engine;
	p.gpus = gpus;
	p.zero_stage = zero;
	p.lora_r = lora;
	return p;
}

/* A cell of the table: of a kind and quantity, the column. */
static double cell(const char *kind, const char *measure, int column)
{
	const struct oom_embedded *f = oom_embedded_find("residuals.csv");
	char start[80];
	const char *at;

	snprintf(start, sizeof(start), "\n%s,%s,", kind, measure);
	at = strstr((const char *)f->bytes, start);
	assert_non_null(at);
	for (at++; column--; at++)
		at += strcspn(at, ",");
	return strtod(at, NULL);
}

static void kinds_are_told_apart(void **state)
{
	static const struct {
		enum oom_engine_id engine;
		int64_t gpus, zero, lora;
		const char *kind;
		bool known;
	} cases[] = {{OOM_ENGINE_HF, 1, 0, 0, "one-gpu full", true},
		     {OOM_ENGINE_HF, 1, 0, 8, "one-gpu adapters", true},
		     {OOM_ENGINE_FSDP1, 4, 3, 8, "fsdp adapters", true},
		     {OOM_ENGINE_FSDP2, 8, 3, 0, "fsdp full", true},
		     {OOM_ENGINE_FSDP1, 2, 0, 8, "copies adapters", false},
		     {OOM_ENGINE_DEEPSPEED, 8, 2, 0, "zero full", false},
		     {OOM_ENGINE_DEEPSPEED, 1, 3, 0, "one-gpu full", true},
		     {OOM_ENGINE_MEGATRON, 8, 0, 0, "megatron", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = plan_of(cases[i].engine, cases[i].gpus, cases[i].zero, cases[i].lora);
		struct oom_calibration c = {.n = 77};
		const char *kind = NULL;

		assert_int_equal(oom_calibration_of_kind(&c, &p, &kind), cases[i].known);
		assert_string_equal(kind, cases[i].kind);
		if (!cases[i].known)
			assert_int_equal(c.n, 77);
	}
}

static void intervals_are_the_tables(void **state)
{
	const struct oom_plan p = plan_of(OOM_ENGINE_FSDP1, 4, 3, 8);
	struct oom_calibration c;
	const char *kind;
	double used = one.reserved + one.context + one.workspace;

	(void)state;
	assert_true(oom_calibration_of_kind(&c, &p, &kind));
	/* columns: kind, measure, n, sources, of, 0.5, 1, 2.5, 5, 10, 25, 50, ... */
	assert_true(fabs(oom_calibrated(&c, &one, OOM_MEASURE_USED) / used - cell(kind, "nvidia_smi", 11)) < 1e-6);
	assert_true(fabs(oom_calibrated_interval(&c, &one, OOM_MEASURE_USED, 0.025) / used -
			 cell(kind, "nvidia_smi", 7)) < 1e-6);
	assert_true(fabs(oom_calibrated_interval(&c, &one, OOM_MEASURE_USED, 0.975) / used -
			 cell(kind, "nvidia_smi", 15)) < 1e-6);
	/* allocated bytes have the workspaces in them */
	assert_true(fabs(oom_calibrated(&c, &one, OOM_MEASURE_ALLOCATED) / (32 * GIB + one.workspace) -
			 cell(kind, "allocated", 11)) < 1e-6);
	assert_int_equal(c.real[OOM_MEASURE_USED].n, (size_t)cell(kind, "nvidia_smi", 4));
}

static void odds_and_bounds_agree(void **state)
{
	const struct oom_plan p = plan_of(OOM_ENGINE_HF, 1, 0, 8);
	struct oom_calibration c;
	const char *kind;
	double before = 0;

	(void)state;
	assert_true(oom_calibration_of_kind(&c, &p, &kind));
	for (double level = 0.5; level < 0.9999; level += 0.0071) {
		const double bound = oom_calibrated_bound(&c, &one, OOM_MEASURE_USED, level);
		const double odds = oom_calibrated_fits(&c, &one, OOM_MEASURE_USED, bound);

		assert_true(bound > before);
		before = bound;
		/* the odds claim no more than so many readings show */
		assert_true(odds <= level + 1e-6);
		if (level < 1 - 1.0 / (double)c.n)
			assert_true(fabs(odds - level) < 1e-6);
	}
	/* on a card far too large and far too small nothing is left of the doubt */
	assert_true(oom_calibrated_fits(&c, &one, OOM_MEASURE_USED, 100 * GIB) > 0.999);
	assert_true(oom_calibrated_fits(&c, &one, OOM_MEASURE_USED, 10 * GIB) < 0.001);
	/* the margin under which the plain verdict is the same */
	{
		const double capacity = 40 * GIB, m = oom_calibrated_margin(&c, &one, capacity, 0.95, 0);
		const double used = one.reserved + one.context + one.workspace;

		assert_int_equal(used <= capacity * (1 - m),
				 oom_calibrated_bound(&c, &one, OOM_MEASURE_USED, 0.95) <= capacity);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_are_told_apart),
					   cmocka_unit_test(intervals_are_the_tables),
					   cmocka_unit_test(odds_and_bounds_agree)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
