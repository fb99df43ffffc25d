/* oomplan calibrate: one's own runs into a calibration. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "csvout.h"
#include "oomplan/calibrate.h"
#include "out.h"
#include "term.h"

static const char *output;
static bool report;

static void show(const struct oom_calibration *c, const struct oom_calibration_row *rows, size_t n)
{
	const double gib = 1073741824;
	size_t shown = 0;

	printf("measured = %.4f (+- %.4f) x predicted", c->scale, 2 * c->scale_se);
	if (c->offset_fitted)
		printf(" + %.0f MiB (+- %.0f)", c->offset_bytes / 1048576,
		       2 * c->offset_se / 1048576);
	printf("; spread %.2f %% of one run; %zu runs, %zu outliers set aside\n", 100 * c->sigma,
	       c->n, c->n_outliers);
	if (!c->offset_fitted)
		printf("  not identifiable: the runs are too alike in size to tell an offset "
		       "(context, libraries) from a scale: it stays 0\n");
	if (c->tail_share > 0)
		printf("  %.1f %% of the runs took more than the noise explains: beyond %+.1f %%, "
		       "by another %.1f %% on average; bounds count them\n",
		       100 * c->tail_share, 100 * c->tail_from, 100 * c->tail_mean);
	for (size_t i = 0; i < n && shown < 10; i++)
		if (rows[i].outlier && ++shown)
			printf("  outlier: row %zu%s%s, predicted %.2f GiB, measured %.2f GiB "
			       "(%+.1f %%)\n",
			       i + 1, *rows[i].name ? ", " : "", oom_shown(rows[i].name),
			       rows[i].predicted / gib, rows[i].measured / gib,
			       100 * rows[i].residual);
	if (c->n_outliers > shown)
		printf("  %zu outliers more: --csv lists every row with its residual\n",
		       c->n_outliers - shown);
}

static void residuals(const struct oom_calibration_row *rows, size_t n)
{
	static const char *const names[] = {"row",	"name",	   "predicted", "measured",
					    "residual", "outlier", NULL};
	struct oom_csv c = {.out = stdout};

	oom_csv_head(&c, names);
	for (size_t i = 0; i < n; i++) {
		char text[32];

		oom_csv_uint(&c, i + 1);
		oom_csv_text(&c, rows[i].name);
		oom_csv_uint(&c, (uint64_t)rows[i].predicted);
		oom_csv_uint(&c, (uint64_t)rows[i].measured);
		snprintf(text, sizeof(text), "%.6f", rows[i].residual);
		oom_csv_text(&c, text);
		oom_csv_uint(&c, rows[i].outlier);
		oom_csv_end(&c);
	}
}

static enum oom_status write(const struct oom_calibration *c, struct oom_error *err)
{
	struct oom_out out;
	char text[800];
	enum oom_status st = oom_out_open(&out, output, err);

	if (st)
		return st;
	oom_calibration_write(c, text);
	fputs(text, out.file);
	return oom_out_close(&out, err);
}

static int run(struct oom_job *job)
{
	struct oom_calibration_row *rows = NULL;
	struct oom_error err = {{0}};
	struct oom_calibration c;
	size_t n = 0;
	enum oom_status st;

	if (!job->words.n && !report)
		return oom_complain(OOM_EXIT_USAGE,
				    "which measurements? a CSV, or --report for the shipped ones");
	st = job->words.n ? oom_calibration_rows(job->words.items[0], &rows, &n, &err) :
			    oom_calibration_shipped(&rows, &n, &err);
	if (!st)
		st = oom_calibrate(&c, rows, n, &err);
	if (!st) {
		if (job->csv)
			residuals(rows, n);
		else
			show(&c, rows, n);
		if (report && !job->csv)
			printf("false fits, cross-validated: %.1f %% at a confidence of 95 %%, "
			       "%.1f %% at 99 %%\n",
			       100 * oom_false_fit_rate(rows, n, 0.95),
			       100 * oom_false_fit_rate(rows, n, 0.99));
		if (output)
			st = write(&c, &err);
	}
	free(rows);
	return st ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : OOM_EXIT_FITS;
}

static const struct oom_option options[] = {
	{.name = "output",
	 .letter = 'o',
	 .kind = OOM_OPTION_TEXT,
	 .target = &output,
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "where the calibration goes, for --calibration"},
	{.name = "report",
	 .kind = OOM_OPTION_FLAG,
	 .target = &report,
	 .summary = "how often \"it fits\" was wrong, cross-validated; without a file, on the "
		    "shipped rows"},
	OOM_OPTION_CSV("print every row with its residual"),
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"calibrate measured.csv -o my.cal", "columns predicted and measured, in bytes (or those of estimate --runs)"},
	{"calibrate --report", "how far the shipped default may be trusted"},
	{NULL, NULL},
};
const struct oom_command oom_command_calibrate = {
	.name = "calibrate",
	.summary = "fit overheads to one's own measured runs",
	.synopsis = "[FILE] [options]",
	.options = options,
	.words = "FILE",
	.max_words = 1,
	.examples = examples,
	.run = run,
};
