/* Predicted against measured: every row of tables as the oracle's peaks.csv, priced through the
 * public runs interface.
 *
 *     accuracy LIMITS.csv TABLE.csv RUNS_DIR [TABLE.csv RUNS_DIR ...]
 *
 * Prints the error tables the README quotes and fails when a quantile passes the limit its table has
 * under its name.  Rows whose structure is approximated (their model type is not modelled yet) are
 * counted apart: they announce themselves, and are no part of the promise.  A table that is absent
 * is left out; exit 77 (skipped) where all are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input/csv_rows.h"
#include "oomplan/runs.h"

enum { MAX_ROWS = 4096, QUANTITIES = 11, OVERALL = 8 };
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
	/* of the composition at the peak: the bucket that is off by most, and by how much */
	const char *off[MAX_ROWS];
	double off_by[MAX_ROWS];
	size_t n, warned, failed, wrong[EXACT];
	char name[64];                  /* of the table */
} all;

static double cell(const struct oom_csv_row *row, const char *prefix, const char *name)
{
	char full[64];
	const char *s;

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	s = oom_csv_cell(row, full);
	return s && *s ? strtod(s, NULL) : NAN;
}

/* Which bucket of the composition differs most. */
static void find_bucket(const struct oom_csv_row *row, size_t at)
{
	all.off[at] = "";
	all.off_by[at] = 0;
	for (int b = 0; b < OOM_BUCKETS; b++) {
		const char *name = oom_bucket_column((enum oom_bucket)b);
		const double by = cell(row, "pred_", name) - cell(row, "", name);

		if (fabs(by) > fabs(all.off_by[at])) {
			all.off[at] = name;
			all.off_by[at] = by;
		}
	}
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
		/* a cell that is empty, or a column that is absent, was not measured */
		if (!isnan(cell(row, "", exact[q])) &&
		    cell(row, "pred_", exact[q]) != cell(row, "", exact[q])) {
			all.wrong[q]++;
			printf("not exact: %s %s: %.0f, measured %.0f\n", all.id[all.n], exact[q],
			       cell(row, "pred_", exact[q]), cell(row, "", exact[q]));
		}
	find_bucket(row, all.n++);
	return OOM_OK;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b)
{
	const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);

	return (x > y) - (x < y);
}

static int failures;

struct quantiles {
	size_t n, same;
	double median, p90, p95, worst;         /* absolute, percent */
	double lowest, middle, highest;         /* signed, percent */
	double under;                           /* share of rows under by more than 2 %, percent */
};

static double at(const double *v, size_t n, double share)
{
	return 100 * v[(size_t)((double)n * share)];
}

static struct quantiles quantiles_of(const double *err, size_t rows)
{
	static double v[MAX_ROWS];
	struct quantiles k = {0};

	for (size_t i = 0; i < rows; i++)
		if (isfinite(err[i])) {
			v[k.n++] = err[i];
			k.under += err[i] < -0.02;
			k.same += err[i] == 0;
		}
	if (!k.n)
		return k;
	qsort(v, k.n, sizeof(v[0]), by_value);
	k.lowest = 100 * v[0];
	k.middle = at(v, k.n, 0.5);
	k.highest = 100 * v[k.n - 1];
	qsort(v, k.n, sizeof(v[0]), by_size);
	k.median = fabs(at(v, k.n, 0.5));
	k.p90 = fabs(at(v, k.n, 0.90));
	k.p95 = fabs(at(v, k.n, 0.95));
	k.worst = fabs(100 * v[k.n - 1]);
	k.under *= 100 / (double)k.n;
	return k;
}

/* One line of limits: a quantity and the most that each of its quantiles may be. */
static enum oom_status check(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	const char *name = oom_csv_cell(row, "quantity");
	struct quantiles k;
	int q = 0, bad;

	(void)ctx;
	if (strcmp(oom_csv_cell(row, "table"), all.name))
		return OOM_OK;
	while (q < QUANTITIES && strcmp(quantity[q], name))
		q++;
	if (q == QUANTITIES)
		return oom_error_set(err, OOM_ERR_INVALID, "%s:%zu: no quantity %s", row->file,
				     row->line, name);
	k = quantiles_of(all.err[q], all.n);
	if (!k.n)
		return OOM_OK;
	bad = (k.median > cell(row, "", "median_pct")) + (k.p90 > cell(row, "", "p90_pct")) +
	      (k.p95 > cell(row, "", "p95_pct")) + (k.worst > cell(row, "", "worst_pct")) +
	      (k.under > cell(row, "", "under2_pct"));
	printf("| %-19s | %4zu | %4.0f %% | %6.3f | %6.3f | %6.3f | %7.3f | %+7.3f | %+6.3f | "
	       "%+7.3f | %5.1f |%s\n",
	       name, k.n, 100.0 * (double)k.same / (double)k.n, k.median, k.p90, k.p95, k.worst,
	       k.lowest, k.middle, k.highest, k.under, bad ? "  <- over its limit" : "");
	failures += bad != 0;
	return OOM_OK;
}

/* The phase in which a row is off by most. */
static int worst_phase(size_t row)
{
	int w = 0;

	for (int q = 1; q <= OVERALL; q++)
		if (fabs(all.err[q][row]) > fabs(all.err[w][row]))
			w = q;
	return w;
}

static void worst_rows(void)
{
	static bool shown[MAX_ROWS];

	memset(shown, 0, sizeof(shown));
	printf("\nthe ten worst rows, by the phase they are worst in:\n");
	for (int k = 0; k < 10; k++) {
		size_t at = MAX_ROWS;
		double worst = 0;

		for (size_t i = 0; i < all.n; i++) {
			const double e = fabs(all.err[worst_phase(i)][i]);

			if (!shown[i] && e > worst) {
				at = i;
				worst = e;
			}
		}
		if (at == MAX_ROWS)
			return;
		shown[at] = true;
		printf("  %+9.5f %%  %-14s %-40s %s%s", 100 * all.err[worst_phase(at)][at],
		       quantity[worst_phase(at)], all.id[at],
		       *all.off[at] ? "; at the overall peak most in " : "", all.off[at]);
		if (*all.off[at])
			printf(" (%+.3f MiB)", all.off_by[at] / 1048576);
		putchar('\n');
	}
}

/* Rows that are exact in every phase, and in what they count. */
static size_t exact_rows(void)
{
	size_t n = 0;

	for (size_t i = 0; i < all.n; i++)
		n += all.err[worst_phase(i)][i] == 0;
	return n;
}

/* PEAKS of "dir/PEAKS.csv". */
static void name_table(const char *path)
{
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

	memset(&all, 0, sizeof(all));
	snprintf(all.name, sizeof(all.name), "%.*s", (int)strcspn(base, "."), base);
}

static enum oom_status price(const char *table, const char *runs, struct oom_error *err)
{
	struct oom_runs_report rep;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	enum oom_status st;

	if (!out)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of memory");
	st = oom_runs_price(table, runs, out, &rep, err);
	fclose(out);
	if (!st)
		st = oom_csv_parse(text, size, "priced rows", take, NULL, err);
	free(text);
	return st;
}

static enum oom_status compare(const char *limits, const char *table, const char *runs,
			       struct oom_error *err)
{
	enum oom_status st;

	name_table(table);
	st = price(table, runs, err);
	if (st)
		return st;
	printf("%s: %zu rows priced, %zu with an approximated structure (announced), %zu not "
	       "priced; %zu exact in every phase\n\n",
	       all.name, all.n, all.warned, all.failed, exact_rows());
	printf("| quantity            | rows | exact  | median | p90    | p95    | worst   | lowest  "
	       "| middle | highest | under by > 2 %% |\n"
	       "|---------------------|------|--------|--------|--------|--------|---------|---------"
	       "|--------|---------|-------|\n");
	st = oom_csv_read(limits, check, NULL, err);
	if (st)
		return st;
	worst_rows();
	for (int q = 0; q < EXACT; q++)
		if (all.wrong[q]) {
			printf("%s differs in %zu rows\n", exact[q], all.wrong[q]);
			failures += q < 2;      /* parameter counts are exact or the test fails */
		}
	failures += all.failed != 0;    /* a table that cannot be read has no error at all */
	putchar('\n');
	return OOM_OK;
}

int main(int argc, char **argv)
{
	struct oom_error err = {{0}};
	int tables = 0;

	for (int i = 2; i + 1 < argc; i += 2) {
		if (access(argv[i], R_OK)) {
			printf("%s: absent, left out\n", argv[i]);
			continue;
		}
		tables++;
		if (compare(argv[1], argv[i], argv[i + 1], &err)) {
			printf("%s\n", err.text);
			return 1;
		}
	}
	if (!tables) {
		printf("measured rows absent: skipped\n");
		return 77;
	}
	printf("%d passed, %d failed\n", tables * QUANTITIES - failures, failures);
	return failures != 0;
}
