/* Steps that ran on an H100, row by row: what was allocated and reserved there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "oomplan/runs.h"

/* data/h100.csv: measured by tests/tools/measure_steps.py on one H100 80GB HBM3 (driver 580.159.04, torch 2.11.0+cu130,
 * transformers 5.17.0, bitsandbytes 0.50.2.dev0, peft 0.20.1.dev0); FSDP's as rank 0 of a process group that sends nothing,
 * DDP's with one rank, which has the buckets that several have.  The limits are a little above what was reached when the
 * rows were new.  What is known to be off: reserved bytes of FSDP1, which is too low by up to a tenth; T5 in pure bf16
 * (+12 %); cuDNN's workspaces of ViT's patches (-2 %); compiled FSDP (-2 %). */
static const struct limit {
	const char *group;
	enum oom_measure measure;
	size_t n;
	double median, p95;             /* of |predicted / measured - 1| */
} limits[] = {
	{"one GPU", OOM_MEASURE_ALLOCATED, 60, 0.0002, 0.008},
	{"one GPU", OOM_MEASURE_RESERVED, 60, 0.002, 0.1},
	{"DDP", OOM_MEASURE_ALLOCATED, 4, 0.0002, 0.002},
	{"DDP", OOM_MEASURE_RESERVED, 4, 0.003, 0.06},
	{"FSDP2", OOM_MEASURE_ALLOCATED, 12, 0.0002, 0.002},
	{"FSDP2", OOM_MEASURE_RESERVED, 6, 0.01, 0.03},
	{"FSDP1", OOM_MEASURE_ALLOCATED, 14, 0.0005, 0.01},
	{"FSDP1", OOM_MEASURE_RESERVED, 10, 0.07, 0.12},
	{"compiled", OOM_MEASURE_ALLOCATED, 3, 0.03, 0.03},
};

static const struct oom_run_error *of(const struct oom_runs_report *r, const struct limit *l)
{
	for (size_t i = 0; i < r->n_errors; i++)
		if (r->error[i].measure == l->measure && !strcmp(r->error[i].group, l->group))
			return &r->error[i];
	fail_msg("no rows of %s", l->group);
	return NULL;
}

static void measured_on_an_h100(void **state)
{
	struct oom_runs_report report;
	struct oom_error err = {{0}};
	FILE *out = fopen("/dev/null", "w");

	(void)state;
	assert_non_null(out);
	if (oom_runs_price(OOM_SOURCE_ROOT "/data/h100.csv", NULL, out, &report, &err))
		fail_msg("%s", err.text);
	fclose(out);
	assert_int_equal(report.failed, 0);
	assert_string_equal(report.unknown_columns, "");
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		const struct oom_run_error *e = of(&report, &limits[i]);

		assert_int_equal(e->n, limits[i].n);
		if (e->median > limits[i].median || e->p95 > limits[i].p95)
			fail_msg("%s: median %.5f, p95 %.5f", e->group, e->median, e->p95);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(measured_on_an_h100)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
