/* Predicted against measured: every visible row of the oracle's peaks.csv, priced through the
 * public runs interface.
 *
 *     accuracy LIMITS.csv PEAKS.csv RUNS_DIR
 *
 * Prints the error table the README quotes and fails when a quantile passes its limit.  Rows whose
 * structure is approximated (their model type is not modelled yet) are counted apart: they announce
 * themselves, and are no part of the promise.  Exit 77 (skipped) where the measured rows are
 * absent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csv_rows.h"
#include "oomplan/runs.h"

enum { MAX_ROWS = 4096, QUANTITIES = 11 };
static const char *const quantity[QUANTITIES] = {
	"after_load", "eval_fwd_peak", "fwd1_peak", "bwd1_peak", "opt1_peak", "fwd2_peak", "bwd2_peak", "opt2_peak",
	"overall_peak", "reserved_native", "reserved_expandable"};
static const char *const exact[] = {"total_params", "trainable_params",	     "param_bytes",
				    "grad_bytes",   "optimizer_state_bytes", "buffer_bytes",
				    "input_bytes"};
enum { EXACT = sizeof(exact) / sizeof(exact[0]) };

static struct {
	double err[QUANTITIES][MAX_ROWS];
	char id[MAX_ROWS][64];
	size_t n, warned, failed, wrong[EXACT];
} all;

static double cell(const struct oom_csv_row *row, const char *prefix, const char *name)
{
	char full[64];
	const char *s;

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	s = oom_csv_cell(row, full);
	return s && *s ? strtod(s, NULL) : NAN;
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	const char *bad = oom_csv_cell(row, "pred_error"),
		   *warning = oom_csv_cell(row, "pred_warning");

	(void)ctx;
	(void)err;
	if (*bad || *warning) {
		all.failed += *bad != 0;
		all.warned += !*bad;
		if (*bad)
			printf("not priced: %s: %s\n", oom_csv_cell(row, "id"), bad);
		return OOM_OK;
	}
	if (all.n == MAX_ROWS)
		return OOM_OK;
	snprintf(all.id[all.n], sizeof(all.id[0]), "%s", oom_csv_cell(row, "id"));
	for (int q = 0; q < QUANTITIES; q++)
		all.err[q][all.n] = cell(row, "pred_", quantity[q]) / cell(row, "", quantity[q]) -
				    1;
	for (int q = 0; q < EXACT; q++)
		if (cell(row, "pred_", exact[q]) != cell(row, "", exact[q])) {
			all.wrong[q]++;
			printf("not exact: %s %s: %.0f, measured %.0f\n", all.id[all.n], exact[q],
			       cell(row, "pred_", exact[q]), cell(row, "", exact[q]));
		}
	all.n++;
	return OOM_OK;
}

static int by_size(const void *a, const void *b)
{
	const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);

	return (x > y) - (x < y);
}

static int failures;

/* One line of limits: quantity, median, p95, worst, share under-predicted by more than 2 %. */
static enum oom_status check(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	const char *name = oom_csv_cell(row, "quantity");
	double v[MAX_ROWS], median, p90, p95, worst, under = 0;
	size_t n = 0, same = 0, bad = 0;
	int q = 0;

	(void)ctx;
	while (q < QUANTITIES && strcmp(quantity[q], name))
		q++;
	if (q == QUANTITIES)
		return oom_error_set(err, OOM_ERR_INVALID, "%s:%zu: no quantity %s", row->file,
				     row->line, name);
	for (size_t i = 0; i < all.n; i++)
		if (isfinite(all.err[q][i])) {
			v[n++] = all.err[q][i];
			under += all.err[q][i] < -0.02;
			same += all.err[q][i] == 0;
		}
	if (!n)
		return OOM_OK;
	qsort(v, n, sizeof(v[0]), by_size);
	median = 100 * fabs(v[n / 2]);
	p90 = 100 * fabs(v[(size_t)((double)n * 0.90)]);
	p95 = 100 * fabs(v[(size_t)((double)n * 0.95)]);
	worst = 100 * fabs(v[n - 1]);
	under = 100 * under / (double)n;
	bad = (median > cell(row, "", "median_pct")) + (p95 > cell(row, "", "p95_pct")) +
	      (worst > cell(row, "", "worst_pct")) + (under > cell(row, "", "under2_pct"));
	printf("| %-19s | %4zu | %4.0f %% | %6.3f | %6.3f | %6.3f | %7.3f | %5.1f |%s\n", name, n,
	       100.0 * (double)same / (double)n, median, p90, p95, worst, under,
	       bad ? "  <- over its limit" : "");
	failures += bad != 0;
	return OOM_OK;
}

static void worst_rows(void)
{
	bool shown[MAX_ROWS] = {false};

	printf("\nthe ten worst rows by overall peak:\n");
	for (int k = 0; k < 10; k++) {
		size_t at = MAX_ROWS;

		for (size_t i = 0; i < all.n; i++)
			if (!shown[i] &&
			    (at == MAX_ROWS || fabs(all.err[8][i]) > fabs(all.err[8][at])))
				at = i;
		if (at == MAX_ROWS)
			return;
		shown[at] = true;
		printf("  %+7.3f %%  %s\n", 100 * all.err[8][at], all.id[at]);
	}
}

int main(int argc, char **argv)
{
	struct oom_runs_report rep;
	struct oom_error err = {{0}};
	FILE *out;
	char *text = NULL;
	size_t size = 0;

	if (argc != 4 || access(argv[2], R_OK)) {
		printf("measured rows absent: skipped\n");
		return 77;
	}
	out = open_memstream(&text, &size);
	if (oom_runs_price(argv[2], argv[3], out, &rep, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	fclose(out);
	if (oom_csv_parse(text, size, "priced rows", take, NULL, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	printf("%zu rows priced, %zu with an approximated structure (announced), %zu not "
	       "priced\n\n",
	       all.n, all.warned, all.failed);
	printf("| quantity            | rows | exact  | median | p90    | p95    | worst   | under "
	       "by > 2 %% |\n"
	       "|---------------------|------|--------|--------|--------|--------|---------|------|"
	       "\n");
	if (oom_csv_read(argv[1], check, NULL, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	worst_rows();
	for (int q = 0; q < EXACT; q++)
		if (all.wrong[q]) {
			printf("%s differs in %zu rows\n", exact[q], all.wrong[q]);
			failures += q < 2;      /* parameter counts are exact or the test fails */
		}
	free(text);
	printf("\n%d passed, %d failed\n", QUANTITIES - failures, failures);
	return failures != 0;   /* rows that are not priced say so themselves */
}
