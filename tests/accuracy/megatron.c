/* Predicted against measured: Megatron launches on real GPUs, priced through the public runs
 * interface.
 *
 *     megatron_accuracy LIMITS.csv FOLDER
 *
 * golden.csv: NVIDIA/Megatron-LM functional tests, primary rows; every configuration group
 * weighs the same (its rows are near-twins), by the median of its rows' errors.
 * simumax.csv: SimuMax's published measurements, distinct runs.  Beside ours stand
 * Megatron's own formula and SimuMax's estimate on the same rows.  Exit 77 without the rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input/csv_rows.h"
#include "oomplan/runs.h"

enum { MAX_ROWS = 2048, MAX_GROUPS = 512, ALLOC = 0, PEAK, PEER, GIB, SIMU, RESERVED, SERIES };
static const char *const names[SERIES] = {"alloc_last", "peak_max", "peer_peak_max", "simumax",
					  "peer_simumax",  "reserved"};

static struct {
	double err[SERIES][MAX_ROWS];
	char group[MAX_ROWS][16];
	size_t n[SERIES], failed, params_wrong;
} all;

static double cell(const struct oom_csv_row *row, const char *name)
{
	const char *s = oom_csv_cell(row, name);

	return s && *s ? strtod(s, NULL) : NAN;
}

static void add(int series, double err, const char *group)
{
	if (isnan(err) || all.n[series] == MAX_ROWS)
		return;
	if (series == ALLOC)
		snprintf(all.group[all.n[series]], sizeof(all.group[0]), "%s", group);
	all.err[series][all.n[series]++] = fabs(err);
}

static enum oom_status golden(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	const char *group = oom_csv_cell(row, "config_group");

	(void)ctx;
	(void)err;
	if (strcmp(oom_csv_cell(row, "primary"), "1"))
		return OOM_OK;
	if (*oom_csv_cell(row, "pred_error")) {
		printf("not priced: %s: %s\n", oom_csv_cell(row, "id"),
		       oom_csv_cell(row, "pred_error"));
		all.failed++;
		return OOM_OK;
	}
	if (*oom_csv_cell(row, "last_rank_params") &&
	    cell(row, "last_rank_params") != cell(row, "pred_last_rank_params"))
		all.params_wrong++;
	add(ALLOC, cell(row, "pred_alloc_last") / cell(row, "alloc_last") - 1, group);
	add(PEAK, cell(row, "pred_peak_max") / cell(row, "peak_max") - 1, group);
	add(PEER, cell(row, "peer_error"), group);
	return OOM_OK;
}

static enum oom_status simumax(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	(void)ctx;
	(void)err;
	if (!strcmp(oom_csv_cell(row, "gpu"), "B200") &&
	    strcmp(oom_csv_cell(row, "distinct_measurement"), "1"))
		return OOM_OK;
	if (*oom_csv_cell(row, "pred_error")) {
		printf("not priced: %s: %s\n", oom_csv_cell(row, "id"),
		       oom_csv_cell(row, "pred_error"));
		all.failed++;
		return OOM_OK;
	}
	add(GIB, cell(row, "pred_measured_gib") / cell(row, "measured_gib") - 1, "");
	add(RESERVED, cell(row, "pred_measured_reserved_gib") / cell(row, "measured_reserved_gib") - 1, "");
	/* an A100 value is SimuMax's own estimate turned back: only B200 rows can judge it */
	if (!strcmp(oom_csv_cell(row, "gpu"), "B200"))
		add(SIMU, cell(row, "simumax_gib") / cell(row, "measured_gib") - 1, "");
	return OOM_OK;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *v, size_t n, double q)
{
	qsort(v, n, sizeof(*v), by_size);
	return n ? 100 * v[(size_t)fmin(q * (double)n, (double)(n - 1))] : NAN;
}

/* One error a configuration group: the median of its rows. */
static size_t by_group(int series, double out[MAX_GROUPS])
{
	size_t n = 0;

	for (size_t i = 0; i < all.n[series] && n < MAX_GROUPS; i++) {
		double v[MAX_ROWS];
		size_t k = 0, first = i;

		for (size_t j = 0; j < all.n[series]; j++) {
			if (strcmp(all.group[i], all.group[j]))
				continue;
			first = j < first ? j : first;
			v[k++] = all.err[series][j];
		}
		if (first == i)
			out[n++] = quantile(v, k, 0.5) / 100;
	}
	return n;
}

static enum oom_status check(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	int *bad = ctx;

	(void)err;
	for (int s = 0; s < SERIES; s++) {
		double v[MAX_GROUPS];
		size_t n;

		if (strcmp(oom_csv_cell(row, "quantity"), names[s]))
			continue;
		n = s <= PEER ? by_group(s, v) : all.n[s];
		if (s > PEER)
			memcpy(v, all.err[s], n * sizeof(*v));
		if (!(quantile(v, n, 0.5) <= cell(row, "median_pct")) ||
		    !(quantile(v, n, 0.95) <= cell(row, "p95_pct"))) {
			printf("%s passes its limit\n", names[s]);
			++*bad;
		}
	}
	return OOM_OK;
}

static enum oom_status price(const char *folder, const char *file, oom_csv_fn fn,
			     struct oom_error *err)
{
	char path[1024], out[] = "/tmp/megatron-XXXXXX";
	struct oom_runs_report rep;
	FILE *f;
	enum oom_status st;
	const int fd = mkstemp(out);

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		return oom_error_set(err, OOM_ERR_IO, "no temporary file");
	st = oom_runs_price(path, NULL, f, &rep, err);
	fclose(f);
	if (!st)
		st = oom_csv_read(out, fn, NULL, err);
	unlink(out);
	return st;
}

int main(int argc, char **argv)
{
	struct oom_error err = {{0}};
	char probe[1024];
	int bad = 0;

	if (argc != 3)
		return 2;
	snprintf(probe, sizeof(probe), "%s/golden.csv", argv[2]);
	if (access(probe, R_OK)) {
		printf("skipped: no measured rows at %s\n", argv[2]);
		return 77;
	}
	if (price(argv[2], "golden.csv", golden, &err) ||
	    price(argv[2], "simumax.csv", simumax, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	printf("%zu launches, %zu not priced, parameters of the rank wrong on %zu\n", all.n[PEAK],
	       all.failed, all.params_wrong);
	printf("\n| quantity      | rows | median %% | p95 %%  | worst %% "
	       "|\n|---------------|------|----------|--------|---------|\n");
	for (int s = 0; s < SERIES; s++) {
		double v[MAX_GROUPS];
		size_t n = s <= PEER ? by_group(s, v) : all.n[s];

		if (s > PEER)
			memcpy(v, all.err[s], n * sizeof(*v));
		printf("| %-13s | %4zu | %8.2f | %6.2f | %7.2f |\n", names[s], n,
		       quantile(v, n, 0.5), quantile(v, n, 0.95), quantile(v, n, 1));
	}
	if (oom_csv_read(argv[1], check, &bad, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	bad += all.failed != 0 || all.params_wrong != 0;
	printf(bad ? "FAILED\n" : "all within limits\n");
	return bad != 0;
}
