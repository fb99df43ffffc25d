/* Steps that ran on an H100, row by row: what was allocated and reserved there. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "oomplan/runs.h"

/* data/h100.csv: measured by tests/tools/measure_steps.py on one H100 80GB HBM3 (driver 580.159.04, torch 2.11.0+cu130,
 * transformers 5.17.0, bitsandbytes 0.50.2.dev0, peft 0.20.1.dev0); FSDP's as rank 0 of a process group that sends nothing,
 * DDP's with one rank, which has the buckets that several have.  The limits are a little above what was reached when the
 * rows were new.  The program empties the cache once the model is there (empty_cache) and quantises one weight after the other
 * without the segment that transformers 5 takes beforehand (quantised_load).  What is known to be off:
 * compiled FSDP (-2 %), and of compiled steps one with checkpoints at full depth (-5 %), two layers of ViT (-4 %: a buffer in
 * which inductor benchmarks kernels) and T5's (+5 %). */
static const struct limit {
	const char *group;
	enum oom_measure measure;
	size_t n;
	double median, p95;             /* of |predicted / measured - 1| */
} limits[] = {
	{"one GPU", OOM_MEASURE_ALLOCATED, 80, 0.0001, 0.002},
	{"one GPU", OOM_MEASURE_RESERVED, 80, 0.0001, 0.02},
	{"DDP", OOM_MEASURE_ALLOCATED, 4, 0.0002, 0.002},
	{"DDP", OOM_MEASURE_RESERVED, 4, 0.003, 0.06},
	{"FSDP2", OOM_MEASURE_ALLOCATED, 12, 0.0002, 0.002},
	{"FSDP2", OOM_MEASURE_RESERVED, 6, 0.01, 0.03},
	{"FSDP1", OOM_MEASURE_ALLOCATED, 14, 0.0005, 0.01},
	{"FSDP1", OOM_MEASURE_RESERVED, 10, 0.005, 0.02},
	{"compiled", OOM_MEASURE_ALLOCATED, 9, 0.006, 0.055},
	/* few tokens and a tied table, which adds up in fp32 at the end of the backward pass: 11 to 18 % too low before */
	{"compiled, two layers", OOM_MEASURE_ALLOCATED, 10, 0.005, 0.07},
	{NULL, OOM_MEASURE_ALLOCATED, 0, 0, 0},
};

/* data/h100_sharded.csv: measured on another such card, DeepSpeed 0.19.6 (its configuration read by a
 * stand-in for pydantic) and FSDP as rank 0 of a process group that sends nothing, torch's AdamW as DeepSpeed's client
 * optimizer (foreach off, hence adamw-loop).  Known to be off: reserved bytes of GPT-2
 * under ZeRO-2, 15 % too high. */
static const struct limit limits_sharded[] = {
	{"ZeRO-1", OOM_MEASURE_ALLOCATED, 3, 0.0002, 0.001},
	{"ZeRO-1", OOM_MEASURE_RESERVED, 3, 0.002, 0.003},
	{"ZeRO-2", OOM_MEASURE_ALLOCATED, 9, 0.0002, 0.003},
	{"ZeRO-2", OOM_MEASURE_RESERVED, 9, 0.004, 0.16},
	{"ZeRO-3", OOM_MEASURE_ALLOCATED, 11, 0.001, 0.003},
	{"ZeRO-3", OOM_MEASURE_RESERVED, 11, 0.004, 0.03},
	{"FSDP1 adapters", OOM_MEASURE_ALLOCATED, 5, 0.001, 0.025},
	{"FSDP1 adapters", OOM_MEASURE_RESERVED, 5, 0.012, 0.08},
	{"FSDP2 adapters", OOM_MEASURE_ALLOCATED, 3, 0.002, 0.002},
	{"FSDP2 adapters", OOM_MEASURE_RESERVED, 3, 0.04, 0.12},
	{"FSDP1", OOM_MEASURE_ALLOCATED, 5, 0.0005, 0.0005},
	{"FSDP1", OOM_MEASURE_RESERVED, 5, 0.005, 0.03},
	{"FSDP2", OOM_MEASURE_ALLOCATED, 3, 0.0005, 0.008},
	{"FSDP2", OOM_MEASURE_RESERVED, 3, 0.01, 0.02},
	{NULL, OOM_MEASURE_ALLOCATED, 0, 0, 0},
};

/* data/h100_techniques.csv: drawn by draw_techniques.py (seed 271127, and of the real Trainer 281127), run on the second card by
 * measure_trainer.py's loops with the device in place of its emulation, and priced before anything was changed for them:
 * 16 of 48 were then off by more than 0.3 %.  What is known to be off: Doge's mask under prompt tuning (-9 %),
 * MRA (announced), Granite MoE's experts (+4 %).
 * The second draw (seed 815401) and the runs of draw_runs.py (815402; both of 2026-11-27, a third such card) were priced before
 * anything was changed: 33 techniques 0.01 % off in the median, one by more than 0.3 % (smoothed losses, +24 %), none too low by
 * more; 13 drawn steps 0.09 %.  Left out are types whose defaults the release has changed or whose depth is several numbers.
 * Off, and in no group's limit: Granite MoE with adapters in fp16 (+24 %), Mamba without its kernels (announced, +32 %); of reserved bytes Bamba's
 * selective checkpoints (+11 %), RWKV (-4 %), Qwen 3 with Adagrad (+25 %), Granite with Adafactor (-14 %).
 * The third draw (815403, and runs of the second that had not got through) was priced when what the second showed was mended:
 * 0.01 % off in the median, TrOCR's decoder with adapters +7 %, ViT MSN that steps in its backward pass -3 % of 0.2 GB.  The fourth draw (815404, a fourth
 * such card; 36 of 90 got through without bitsandbytes and flash-attn) was priced before anything was changed for it: 0.02 % off in the
 * median and 0.5 % at most; of reserved bytes Persimmon and umT5 +10 %. */
static const struct limit limits_techniques[] = {
	{"techniques", OOM_MEASURE_ALLOCATED, 48, 0.0003, 0.04},
	{"techniques", OOM_MEASURE_RESERVED, 48, 0.0015, 0.09},
	{"techniques, second draw", OOM_MEASURE_ALLOCATED, 33, 0.0002, 0.003},
	{"techniques, second draw", OOM_MEASURE_RESERVED, 33, 0.0005, 0.12},
	{"techniques, third draw", OOM_MEASURE_ALLOCATED, 49, 0.0002, 0.04},
	{"techniques, third draw", OOM_MEASURE_RESERVED, 49, 0.0005, 0.06},
	{"techniques, fourth draw", OOM_MEASURE_ALLOCATED, 36, 0.0003, 0.0055},
	{"techniques, fourth draw", OOM_MEASURE_RESERVED, 36, 0.0005, 0.1},
	{"drawn", OOM_MEASURE_ALLOCATED, 11, 0.001, 0.015},
	{"drawn", OOM_MEASURE_RESERVED, 11, 0.009, 0.15},
	{NULL, OOM_MEASURE_ALLOCATED, 0, 0, 0},
};

static const struct oom_run_error *of(const struct oom_runs_report *r, const struct limit *l)
{
	for (size_t i = 0; i < r->n_errors; i++)
		if (r->error[i].measure == l->measure && !strcmp(r->error[i].group, l->group))
			return &r->error[i];
	fail_msg("no rows of %s", l->group);
	return NULL;
}

static struct oom_runs_report priced(const char *path)
{
	struct oom_runs_report report;
	struct oom_error err = {{0}};
	FILE *out = fopen("/dev/null", "w");

	assert_non_null(out);
	if (oom_runs_price(path, OOM_SOURCE_ROOT "/data", out, &report, &err))
		fail_msg("%s", err.text);
	fclose(out);
	assert_int_equal(report.failed, 0);
	assert_string_equal(report.unknown_columns, "");
	return report;
}

static void within(const char *path, const struct limit *l)
{
	const struct oom_runs_report report = priced(path);

	for (; l->group; l++) {
		const struct oom_run_error *e = of(&report, l);

		assert_int_equal(e->n, l->n);
		if (e->median > l->median || e->p95 > l->p95)
			fail_msg("%s: median %.5f, p95 %.5f", e->group, e->median, e->p95);
	}
}

static void measured_on_an_h100(void **state)
{
	(void)state;
	within(OOM_SOURCE_ROOT "/data/h100.csv", limits);
	within(OOM_SOURCE_ROOT "/data/h100_sharded.csv", limits_sharded);
	within(OOM_SOURCE_ROOT "/data/h100_techniques.csv", limits_techniques);
}

/* ---- cuBLAS's workspaces ---- */

static bool is_one_of(const char *line, const char *const *ids)
{
	for (; *ids; ids++)
		if (!strncmp(line, *ids, strlen(*ids)) && line[strlen(*ids)] == ',')
			return true;
	return false;
}

/* Of the table the rows of these ids, priced with workspaces in the allocator or without any. */
static struct oom_runs_report some_rows(const char *const *ids, bool workspaces)
{
	char path[] = "/tmp/h100_rows_XXXXXX", line[1024];
	FILE *in = fopen(OOM_SOURCE_ROOT "/data/h100.csv", "r"), *some = fdopen(mkstemp(path), "w");
	struct oom_runs_report report;

	assert_non_null(in);
	assert_non_null(some);
	for (bool head = true; fgets(line, sizeof(line), in); head = false) {
		line[strcspn(line, "\n")] = '\0';
		if (head || is_one_of(line, ids))
			fprintf(some, "%s,%s\n", line, head ? "cublas_workspaces" : workspaces ? "1" : "0");
	}
	fclose(in);
	fclose(some);
	report = priced(path);
	unlink(path);
	return report;
}

/* 32 MiB each, from the caching allocator: the one of the backward's thread lies in the middle of what the first step has
 * cached, which then does not serve the second.  These rows lose more by that than the 64 MiB themselves. */
static void workspaces_cost_more_than_they_take(void **state)
{
	static const char *const ids[] = {"llama-sgd", "llama-adafactor", "llama-mha-padding", "llama-qlora",
					  "qwen2-tied-bigvocab", NULL};
	static const struct limit limit = {"one GPU", OOM_MEASURE_RESERVED, 5, 0, 0};
	struct oom_runs_report report = some_rows(ids, true);

	(void)state;
	assert_int_equal(of(&report, &limit)->n, limit.n);
	assert_true(of(&report, &limit)->p95 < 0.025);
	report = some_rows(ids, false);
	assert_true(of(&report, &limit)->median > 0.1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(measured_on_an_h100),
		cmocka_unit_test(workspaces_cost_more_than_they_take),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
