/* oomplan sweep: a grid in, a table out. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "oomplan/sweep.h"
#include "out.h"
#include "term.h"

static const char *const format_words[] = {"csv", "jsonl", NULL};
static struct oom_list axes, models, gpus, where;
static const char *columns, *output, *shard;
static int format;
static int64_t threads;
static bool plan_each;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void progress(void *ctx, uint64_t done, uint64_t all)
{
	const double seconds = now() - *(const double *)ctx, rate = seconds > 0 ? (double)done / seconds : 0;

	fprintf(stderr, "\r%3.0f %%  %.2f M rows/s  %.0f s left ", 100 * (double)done / (double)all, rate / 1e6,
		rate > 0 ? (double)(all - done) / rate : 0);
	if (done == all)
		fputc('\n', stderr);
}

/* "2/8" */
static int read_shard(struct oom_sweep_options *o)
{
	char *end;

	if (!shard)
		return 0;
	o->shard = strtoull(shard, &end, 10);
	if (*end == '/')
		o->shards = strtoull(end + 1, &end, 10);
	if (*end || !o->shard || o->shard > o->shards)
		return oom_complain(OOM_EXIT_USAGE, "--shard %s: expected I/N with 1 <= I <= N", shard);
	return 0;
}

/* --model a --model b is an axis of its own, outermost; so is --gpu. */
static enum oom_status joined(struct oom_sweep *s, const char *name, const struct oom_list *words, struct oom_error *err)
{
	char text[4096];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s=", name);

	if (!words->n)
		return OOM_OK;
	for (size_t i = 0; i < words->n && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? "," : "", words->items[i]);
	if (n >= sizeof(text))
		return oom_error_set(err, OOM_ERR_LIMIT, "%s: the names are too long together", name);
	return oom_sweep_axis(s, text, err);
}

static enum oom_status build(struct oom_sweep *s, struct oom_error *err)
{
	enum oom_status st = joined(s, "model", &models, err);

	for (size_t i = 0; !st && i < axes.n; i++)
		st = oom_sweep_axis(s, axes.items[i], err);
	if (!st)
		st = joined(s, "gpu", &gpus, err);
	for (size_t i = 0; !st && i < where.n; i++)
		st = oom_sweep_where(s, where.items[i], err);
	return st ? st : oom_sweep_columns(s, columns, err);
}

static int run(struct oom_job *job)
{
	double start = now();
	struct oom_sweep_options o = {.jsonl = format == 1, .plan_each = plan_each, .threads = (int)threads, .ctx = &start};
	struct oom_sweep *s;
	struct oom_error err = {{0}};
	struct oom_out out;
	uint64_t rows = 0;
	enum oom_status st;
	int code = read_shard(&o);

	if (code)
		return code;
	if (!models.n)
		return oom_complain(OOM_EXIT_USAGE, "which model? --model config.json, more than once if you like");
	s = oom_sweep_new(&job->plan);
	if (!s)
		return oom_complain(OOM_EXIT_INPUT, "out of host memory");
	if (output && !job->quiet && oom_term_is_tty())
		o.progress = progress;
	st = build(s, &err);
	if (st) {
		oom_sweep_free(s);
		return oom_complain(st == OOM_ERR_MEMORY || st == OOM_ERR_IO ? OOM_EXIT_INPUT : OOM_EXIT_USAGE, "%s", err.text);
	}
	st = oom_out_open(&out, output, &err);
	if (!st) {
		st = oom_sweep_run(s, &o, out.file, &rows, &err);
		if (st)
			oom_out_discard(&out);
		else
			st = oom_out_close(&out, &err);
	}
	if (st)
		code = oom_complain(st == OOM_ERR_LIMIT ? OOM_EXIT_USAGE : OOM_EXIT_INPUT, "%s", err.text);
	else if (output && !job->quiet)
		oom_complain(0, "%" PRIu64 " rows of %" PRIu64 " cells", rows, oom_sweep_cells(s));
	oom_sweep_free(s);
	return code;
}

static const struct oom_option options[] = {
	{.name = "model", .letter = 'm', .kind = OOM_OPTION_LIST, .target = &models, .metavar = "FILE", .hint = OOM_HINT_MODEL,
	 .summary = "a config.json, a folder or a bundled name; repeat for several"},
	{.name = "gpu", .letter = 'g', .kind = OOM_OPTION_LIST, .target = &gpus, .metavar = "NAME", .hint = OOM_HINT_GPU,
	 .summary = "a card, or @all; repeat for several"},
	{.name = "axis", .letter = 'a', .kind = OOM_OPTION_LIST, .target = &axes, .metavar = "NAME=VALUES",
	 .summary = "values of a knob: 1,2,8 or 1..64 or 1..64x2 or 512..8192+512 or @all; the last axis runs fastest"},
	{.name = "where", .kind = OOM_OPTION_LIST, .target = &where, .metavar = "CONDITION",
	 .summary = "write rows that meet it: fits, !fits, or a column and a number as in used_bytes<4e10"},
	{.name = "columns", .kind = OOM_OPTION_TEXT, .target = &columns, .metavar = "NAMES",
	 .summary = "columns in this order: axes, knobs, fits, used_bytes, ... (oomplan list columns)"},
	{.name = "format", .kind = OOM_OPTION_CHOICE, .target = &format, .metavar = "WORD", .choices = format_words, .def = "csv",
	 .summary = "CSV with a header, or JSON lines"},
	{.name = "plan-each", .kind = OOM_OPTION_FLAG, .target = &plan_each,
	 .summary = "climb the ladder in every cell instead of pricing it as it is"},
	{.name = "shard", .kind = OOM_OPTION_TEXT, .target = &shard, .metavar = "I/N",
	 .summary = "only part I of N; the parts joined in order are the whole file"},
	{.name = "threads", .kind = OOM_OPTION_COUNT, .target = &threads, .metavar = "N", .min = 0, .max = 64, .def = "0",
	 .summary = "threads (0: one a processor); the output is the same"},
	{.name = "output", .letter = 'o', .kind = OOM_OPTION_TEXT, .target = &output, .metavar = "FILE", .hint = OOM_HINT_FILE,
	 .summary = "where the table goes (standard output)"},
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"sweep --model Llama-3.1-8B --axis micro-batch=1..64x2 --axis seq-len=512..8192x2 --gpu @all --where fits -o fits.csv",
	 "every card, batch and length that fits"},
	{NULL, NULL},
};
const struct oom_command oom_command_sweep = {
	.name = "sweep",
	.summary = "a table over a grid of models, cards and knobs",
	.synopsis = "--model FILE... --axis NAME=VALUES... [--gpu NAME...] [options] [knobs]",
	.options = options,
	.knobs = true,
	.examples = examples,
	.run = run,
};
