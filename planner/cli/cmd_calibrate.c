/* oomplan calibrate: one's own runs into a calibration. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "csvout.h"
#include "json.h"
#include "oomplan/calibrate.h"
#include "out.h"
#include "page.h"
#include "term.h"

struct args {
	struct oom_job job;
	const char *output;
	bool report;
};

struct rows {
	struct oom_calibration_row *items;
	size_t n, skipped;
};

/* ---- text ---- */

static const char *text_in(enum oom_term t, double v, char buf[32])
{
	if (isnan(v))
		snprintf(buf, 32, "unknown");
	else if (oom_term_is_bytes(t))
		snprintf(buf, 32, "%.0f MiB", v / 1048576);
	else
		snprintf(buf, 32, "%.4f", v);
	return buf;
}
/* Valid to the end of the block it stands in. */
#define text_of(t, v) text_in((t), (v), (char[32]){0})

/* "a, b and c" of the terms in the mask. */
static void names_of(unsigned with)
{
	int left = 0;

	for (int k = 0; k < OOM_TERMS; k++)
		left += with >> k & 1;
	for (int k = 0; k < OOM_TERMS; k++)
		if (with >> k & 1) {
			printf("%s%s", oom_term_name((enum oom_term)k),
			       left > 2 ? ", " : left == 2 ? " and " : "");
			left--;
		}
}

static void why(enum oom_term t, const struct oom_overhead *o)
{
	switch (o->state) {
	case OOM_TERM_FITTED: printf("fitted"); break;
	case OOM_TERM_SHARED:
		printf("one scale with ");
		names_of(o->with);
		printf(": these runs do not tell them apart");
		break;
	case OOM_TERM_UNMEASURED:
		printf("not identifiable: %s", t == OOM_TERM_FRAGMENTATION ?
						       "no three runs measured allocated and reserved" :
					       t < OOM_TERM_FRAGMENTATION ?
						       "too few runs" :
						       "no three runs measured nvidia-smi and reserved");
		break;
	case OOM_TERM_ABSENT:
		printf("not identifiable: %s", t == OOM_TERM_NCCL ?
						       "no run had more than one GPU" :
						       "no run has any of it at its peak");
		break;
	case OOM_TERM_COLLINEAR:
		printf("not identifiable: not told apart from ");
		names_of(o->with);
		break;
	}
}

static void term(const struct oom_calibration *c, enum oom_term t)
{
	const struct oom_overhead *o = &c->term[t];
	const double half = oom_term_half_width(c, t, 0.95);
	char interval[80] = "default";

	if (o->state <= OOM_TERM_SHARED)
		snprintf(interval, sizeof(interval), "%s to %s", text_of(t, o->value - half),
			 text_of(t, o->value + half));
	printf("  %-13s  %9s  %-22s  ", oom_term_name(t),
	       oom_term_is_bytes(t) && o->state > OOM_TERM_SHARED ? "predicted" :
								   text_of(t, o->value),
	       interval);
	if (o->state <= OOM_TERM_SHARED)
		printf("%9s  ", oom_term_is_bytes(t) && !(o->def > 0) && !isnan(o->def) ?
					"on top" :
					text_of(t, o->def));
	else
		printf("%9s  ", "");
	why(t, o);
	putchar('\n');
}

static void spreads(const struct oom_calibration *c)
{
	printf("spread of one run:");
	for (int m = 0; m < OOM_MEASURES; m++) {
		const struct oom_spread *s = &c->spread[m];

		printf("%s %s ", m ? "," : "", oom_measure_str((enum oom_measure)m));
		if (!s->n)
			printf("not measured");
		else if (s->bytes > 0)
			printf("%.0f MiB (%zu runs)", s->bytes / 1048576, s->n);
		else
			printf("%.2f %% (%zu runs)", 100 * s->share, s->n);
	}
	putchar('\n');
	if (c->tail_share > 0)
		printf("  runs that take more than the noise explains are counted as %.1f %% of all: "
		       "beyond %+.1f %%, by another %.1f %% on average\n",
		       100 * c->tail_share, 100 * c->tail_from,
		       100 * c->tail_scale / (1 - c->tail_shape));
}

static void outliers(const struct rows *r)
{
	enum { SHOWN = 10 };
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++) {
		const struct oom_calibration_row *row = &r->items[i];

		if (!row->outlier || ++n > SHOWN)
			continue;
		printf("  outlier: line %zu%s%s:", row->line, *row->name ? ", " : "",
		       oom_shown(row->name));
		for (int m = 0; m < OOM_MEASURES; m++)
			if (row->measured[m] > 0)
				printf(" %s %.2f GiB (%+.1f %%)%s",
				       oom_measure_str((enum oom_measure)m),
				       row->measured[m] / 1073741824, 100 * row->residual[m],
				       row->outlier >> m & 1 ? "*" : "");
		putchar('\n');
	}
	if (n)
		printf("  %zu of %zu runs are outliers%s: * is what was set aside, (%%) is against "
		       "the fit; --csv lists every run\n",
		       n, r->n, n > SHOWN ? ", ten shown" : "");
}

static void show(const struct oom_calibration *c, const struct rows *r)
{
	printf("fitted to %zu runs", r->n);
	if (r->skipped)
		printf(" (%zu rows left out: not priced, or not measured)", r->skipped);
	printf("\n  %-13s  %9s  %-22s  %9s\n", "term", "value", "95 % interval", "default");
	for (int k = 0; k < OOM_TERMS; k++)
		term(c, (enum oom_term)k);
	spreads(c);
	outliers(r);
}

/* ---- tables ---- */

static void residuals(const struct oom_calibration *c, const struct rows *r)
{
	static const char *const names[] = {"line",	"name",	    "figure",	"expected",
					    "measured", "residual", "outlier",	NULL};
	struct oom_csv out = {.out = stdout};

	oom_csv_head(&out, names);
	for (size_t i = 0; i < r->n; i++)
		for (int m = 0; m < OOM_MEASURES; m++) {
			const struct oom_calibration_row *row = &r->items[i];
			char text[32];

			if (!(row->measured[m] > 0))
				continue;
			oom_csv_uint(&out, row->line);
			oom_csv_text(&out, row->name);
			oom_csv_text(&out, oom_measure_str((enum oom_measure)m));
			oom_csv_uint(&out, (uint64_t)oom_calibrated(c, &row->predicted,
								    (enum oom_measure)m));
			oom_csv_uint(&out, (uint64_t)row->measured[m]);
			snprintf(text, sizeof(text), "%.6f",
				 fabs(row->residual[m]) < 5e-7 ? 0 : row->residual[m]);
			oom_csv_text(&out, text);
			oom_csv_uint(&out, row->outlier >> m & 1);
			oom_csv_end(&out);
		}
}

struct false_fits {
	bool known;
	double at95, at99;
};

static void false_fits(struct oom_json *j, const struct false_fits *f)
{
	if (!f->known)
		return;
	if (j) {
		oom_json_real(j, "false_fit_rate_95", f->at95);
		oom_json_real(j, "false_fit_rate_99", f->at99);
	} else if (isnan(f->at95)) {
		puts("false fits: too few runs to leave a tenth of them out");
	} else {
		printf("false fits, cross-validated: %.1f %% at a confidence of 95 %%, %.1f %% at "
		       "99 %%\n",
		       100 * f->at95, 100 * f->at99);
	}
}

/* report: with how often it would have been wrong. */
static void json(const struct oom_calibration *c, const struct rows *r,
		 const struct false_fits *f)
{
	struct oom_json j = {.out = stdout};

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-calibration/1");
	oom_json_uint(&j, "runs", r->n);
	oom_json_uint(&j, "skipped_rows", r->skipped);
	oom_json_terms(&j, c);
	oom_json_array(&j, "spread");
	for (int m = 0; m < OOM_MEASURES; m++) {
		oom_json_object(&j, NULL);
		oom_json_text(&j, "figure", oom_measure_str((enum oom_measure)m));
		oom_json_uint(&j, "runs", c->spread[m].n);
		oom_json_uint(&j, "outliers", c->spread[m].n_outliers);
		oom_json_real(&j, "share", c->spread[m].share);
		oom_json_real(&j, "bytes", c->spread[m].bytes);
		oom_json_end(&j);
	}
	oom_json_end(&j);
	oom_json_array(&j, "outliers");
	for (size_t i = 0; i < r->n; i++) {
		if (!r->items[i].outlier)
			continue;
		oom_json_object(&j, NULL);
		oom_json_uint(&j, "line", r->items[i].line);
		oom_json_text(&j, "name", r->items[i].name);
		for (int m = 0; m < OOM_MEASURES; m++)
			if (r->items[i].outlier >> m & 1)
				oom_json_real(&j, oom_measure_str((enum oom_measure)m),
					      r->items[i].residual[m]);
		oom_json_end(&j);
	}
	oom_json_end(&j);
	false_fits(&j, f);
	oom_json_end(&j);
}

/* ---- the command ---- */

static enum oom_status write(const char *output, const struct oom_calibration *c,
			     struct oom_error *err)
{
	struct oom_out out;
	char text[OOM_CALIBRATION_TEXT];
	enum oom_status st = oom_out_open(&out, output, err);

	if (st)
		return st;
	oom_calibration_write(c, text);
	fputs(text, out.file);
	return oom_out_close(&out, err);
}

static int run(struct oom_job *job)
{
	const struct args *a = (const struct args *)job;
	const char *file = job->words.n ? job->words.items[0] : NULL;
	struct oom_calibration c, shipped = {.n = 0};
	const struct oom_calibration *def = file ? &shipped : NULL;
	struct oom_error err = {{0}};
	struct false_fits rates = {0};
	struct rows r = {0};
	enum oom_status st = OOM_OK;
	struct oom_page page;

	if (!file && !a->report)
		return oom_complain(OOM_EXIT_USAGE,
				    "which measurements? a CSV, or --report for the shipped ones");
	if (file)
		st = oom_calibration_default(&shipped, &err);
	if (!st)
		st = file ? oom_calibration_rows(file, job->models_dir, &r.items, &r.n, &r.skipped,
						 &err) :
			    oom_calibration_shipped(&r.items, &r.n, &err);
	if (!st && oom_calibrate(&c, r.items, r.n, def, &err)) {
		free(r.items);
		return oom_complain(OOM_EXIT_INPUT, "%s: %s", file ? file : "measured.csv",
				    err.text);
	}
	if (!st && a->report && !job->csv) {
		st = oom_false_fit_rate(&rates.at95, r.items, r.n, def, 0.95);
		if (!st)
			st = oom_false_fit_rate(&rates.at99, r.items, r.n, def, 0.99);
		rates.known = true;
		if (st)
			oom_error_set(&err, st, "%s", oom_status_str(st));
	}
	if (!st) {
		if (job->json)
			json(&c, &r, &rates);
		else if (job->csv)
			residuals(&c, &r);
		else {
			oom_page_begin(&page);
			show(&c, &r);
			false_fits(NULL, &rates);
			oom_page_end(&page);
		}
		if (a->output)
			st = write(a->output, &c, &err);
	}
	free(r.items);
	return st ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : OOM_EXIT_FITS;
}

static const struct oom_option options[] = {
	{.name = "output",
	 .letter = 'o',
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, output),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "where the calibration goes, for --calibration"},
	{.name = "models-dir",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, models_dir),
	 .metavar = "DIR",
	 .hint = OOM_HINT_DIR,
	 .unset = "beside the CSV",
	 .summary = "where the model files of runs lie that are not priced yet"},
	{.name = "report",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, report),
	 .summary = "how often \"it fits\" was wrong, cross-validated; without a file, on the "
		    "shipped rows"},
	OOM_OPTION_JSON,
	OOM_OPTION_CSV("print every measurement with its residual"),
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"calibrate runs.csv -o my.cal",
	 "a runs file (model and knobs) with the columns that were measured of allocated, "
	 "reserved, nvidia_smi: bytes, or 12.5GiB"},
	{"plan --model Llama-3.2-1B --gpu A100-40G --calibration my.cal --confidence 0.99",
	 "what fits with 99 %, by one's own runs"},
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
	.args_size = sizeof(struct args),
	.run = run,
};
