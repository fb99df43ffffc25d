/* oomplan sweep: a grid in, a table out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "commands.h"
#include "plot.h"
#include "sweep_out.h"
#include "term.h"

#define FORMATS(X) \
	X(FORMAT_CSV, "csv", "comma-separated values") \
	X(FORMAT_JSONL, "jsonl", "a JSON object per line")
enum { FORMATS(OOM_WORD_ID) };
OOM_WORD_LIST(static, format_choice, FORMATS)

struct args {
	struct oom_job job;
	struct oom_list axes, models, gpus, where;
	const char *columns, *output, *shard, *heatmap;
	int format, objective;
	int64_t threads;
	bool plan_each, resume, keep_partial;
	char cards[4000];               /* of --gpu, where it says how many of each */
};

/* "--gpu 8xH100,8xA100-80G": as many of every card, which then go by their names alone; an exit code. */
static int count_cards(struct args *a)
{
	struct oom_job *job = &a->job;
	char words[sizeof(a->cards)] = "", *save = NULL;
	struct oom_gpu_count first = {{0}, 0, 0};
	size_t n = 0, at = 0, counted = 0, cards = 0;

	for (size_t i = 0; i < a->gpus.n && n < sizeof(words); i++)
		n += (size_t)snprintf(words + n, sizeof(words) - n, "%s%s", i ? "," : "", a->gpus.items[i]);
	if (n >= sizeof(words))
		return 0;               /* too long is said where the axis is made */
	for (char *w = strtok_r(words, ",", &save); w; w = strtok_r(NULL, ",", &save), cards++) {
		struct oom_gpu_count c;
		const bool is = oom_gpu_counted(w, &c);

		first = !cards && is ? c : first;
		if (is ? cards != counted || c.gpus != first.gpus || c.nodes != first.nodes : counted)
			return oom_complain(OOM_EXIT_USAGE,
					    "--gpu: not as many GPUs of every card: the axis gpus, or a list (--from) "
					    "with the columns gpu and gpus, says how many");
		counted += is;
		at += (size_t)snprintf(a->cards + at, sizeof(a->cards) - at, "%s%s", cards ? "," : "", is ? c.name : w);
		job->gpu = w;
		if (is && oom_job_count_gpus(job))
			return OOM_EXIT_USAGE;
	}
	job->gpu = NULL;
	if (counted)
		a->gpus = (struct oom_list){.items = {a->cards}, .n = 1};
	return 0;
}

/* "2/8" */
static int read_shard(const char *shard, struct oom_sweep_options *o)
{
	char *end;

	if (!shard)
		return 0;
	o->shard = strtoull(shard, &end, 10);
	if (*end == '/')
		o->shards = strtoull(end + 1, &end, 10);
	if (*end || *shard == '-' || !o->shard || o->shard > o->shards)
		return oom_complain(OOM_EXIT_USAGE, "--shard %s: expected I/N with 1 <= I <= N",
				    shard);
	return 0;
}

/* --model a --model b is an axis of its own, outermost; so is --gpu. */
static enum oom_status joined(struct oom_sweep *s, const char *name, const struct oom_list *words,
			      struct oom_error *err)
{
	char text[4096];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s=", name);

	if (!words->n)
		return OOM_OK;
	for (size_t i = 0; i < words->n && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? "," : "",
				      words->items[i]);
	if (n >= sizeof(text))
		return oom_error_set(err, OOM_ERR_LIMIT, "%s: the names are too long together",
				     name);
	return oom_sweep_axis(s, text, err);
}

static enum oom_status build(const struct args *a, struct oom_sweep *s, struct oom_error *err)
{
	const struct oom_list located = {.items = {a->job.located}, .n = 1};
	enum oom_status st = a->job.gpus_file ? oom_sweep_cards(s, a->job.gpus_file, err) : OOM_OK;

	oom_sweep_capacity(s, a->job.gpu_memory.text ? a->job.gpu_memory.bytes : 0);
	if (!st)
		st = joined(s, "model", a->models.n || !*a->job.located ? &a->models : &located, err);
	for (size_t i = 0; !st && i < a->job.from.n; i++) {
		if (!oom_from_is_points(a->job.from.items[i]))
			continue;
		st = oom_sweep_points(s, a->job.from.items[i], err);
		/* what a file says wrong is bad input, not bad usage */
		st = st == OOM_ERR_INVALID ? OOM_ERR_PARSE : st;
	}
	for (size_t i = 0; !st && i < a->axes.n; i++)
		st = oom_sweep_axis(s, a->axes.items[i], err);
	if (!st)
		st = joined(s, "gpu", &a->gpus, err);
	for (size_t i = 0; !st && i < a->where.n; i++)
		st = oom_sweep_where(s, a->where.items[i], err);
	return st ? st : oom_sweep_columns(s, a->columns, err);
}

/* "x,y" and the file behind it. */
static enum oom_status draw(const char *heatmap, struct oom_sweep *s, const struct oom_sweep_options *o,
			    const char *path, struct oom_error *err)
{
	const char *comma = strchr(heatmap, ',');
	char x[60];

	if (!comma || comma == heatmap || !comma[1] || comma - heatmap >= (ptrdiff_t)sizeof(x))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "--heatmap %.100s: expected two axes, as in "
				     "micro-batch,seq-len",
				     heatmap);
	snprintf(x, sizeof(x), "%.*s", (int)(comma - heatmap), heatmap);
	return oom_heatmap(s, o, x, comma + 1, path, err);
}

int oom_sweep_code(enum oom_status st)
{
	return st == OOM_ERR_INTERNAL ? OOM_EXIT_INTERNAL :
	       st == OOM_ERR_MEMORY || st == OOM_ERR_IO || st == OOM_ERR_PARSE ? OOM_EXIT_INPUT :
										 OOM_EXIT_USAGE;
}

/* A condition about fitting, and no card that anything could fit on: no row would meet it. */
static bool fits_on_nothing(const struct args *a)
{
	bool asked = false;

	for (size_t i = 0; i < a->where.n; i++)
		asked |= !strcmp(a->where.items[i], "fits") || !strcmp(a->where.items[i], "!fits");
	for (size_t i = 0; i < a->axes.n; i++)
		asked &= strncmp(a->axes.items[i], "gpu=", 4) != 0;
	return asked && !a->gpus.n && !a->job.from.n && !a->job.gpu_memory.text;
}

/* What goes together on the command line: an exit code, 0 = fine. */
static int usage(const struct args *a)
{
	const struct oom_job *job = &a->job;
	const int code = oom_check_usage(job);

	if (code)
		return code;
	if (fits_on_nothing(a))
		return oom_complain(OOM_EXIT_USAGE, "--where fits: on which card? --gpu NAME or --gpu-memory SIZE");
	if (job->check && (a->plan_each || a->where.n || a->heatmap || a->output || a->shard || a->columns))
		return oom_complain(OOM_EXIT_USAGE,
				    "--check judges every cell as asked: it goes with none of --plan-each, "
				    "--where, --columns, --heatmap, --shard and -o");
	if ((a->resume || a->keep_partial) && (!a->output || !strcmp(a->output, "-")))
		return oom_complain(OOM_EXIT_USAGE, "--%s needs a file: -o FILE",
				    a->resume ? "resume" : "keep-partial");
	if (job->words.n && !a->heatmap)
		return oom_complain(OOM_EXIT_USAGE,
				    "\"%s\": a file behind the options is for --heatmap; the table "
				    "goes to -o FILE",
				    job->words.items[0]);
	return 0;
}

/* The picture and the table of a sweep that is built. */
static int print(const struct args *a, struct oom_sweep *s, const struct oom_sweep_options *o)
{
	const struct oom_job *job = &a->job;
	const struct oom_sweep_table table = {.output = a->output,
					      .keep = a->resume || a->keep_partial,
					      .resume = a->resume,
					      .show = a->output && !job->quiet && oom_term_is_tty()};
	const struct oom_sweep_unpriced *unpriced = o->unpriced;
	struct oom_error err = {{0}};
	uint64_t rows = 0;
	enum oom_status st = OOM_OK;
	int code = 0;

	if (a->heatmap)
		st = draw(a->heatmap, s, o, job->words.n ? job->words.items[0] : NULL, &err);
	/* with a picture a table is written where one is asked for */
	if (!st && (!a->heatmap || a->output))
		st = oom_sweep_write(&table, s, o, &rows, &err);
	if (st)
		code = oom_complain(oom_sweep_code(st), "%s", err.text);
	else if (unpriced->cells == oom_sweep_cells(s))
		code = oom_complain(OOM_EXIT_INPUT, "no cell has a price: %s", unpriced->why.text);
	else if (unpriced->cells && a->where.n)
		oom_complain(0, "%" PRIu64 " cells have no price and are left out; the first: %s",
			     unpriced->cells, unpriced->why.text);
	if (!code && a->output && !job->quiet)
		oom_complain(0, "%" PRIu64 " rows of %" PRIu64 " cells", rows, oom_sweep_cells(s));
	return code;
}

static int run(struct oom_job *job)
{
	const struct args *a = (const struct args *)job;
	struct oom_sweep_unpriced unpriced = {0};
	struct oom_sweep_options o = {.jsonl = a->format == FORMAT_JSONL,
				      .plan_each = a->plan_each,
				      .threads = (int)a->threads,
				      .unpriced = &unpriced,
				      .objective = (enum oom_objective)a->objective,
				      .allow = oom_allowed(&job->allow)};
	struct oom_error err = {{0}};
	struct oom_sweep *s;
	enum oom_status st;
	int code = read_shard(a->shard, &o);

	if (!code)
		code = usage(a);
	if (!code)
		code = count_cards((struct args *)job);
	if (!code && job->reading && !a->models.n)
		code = oom_from_model(job);
	if (code)
		return code;
	s = oom_sweep_new(&job->plan);
	if (!s)
		return oom_complain(OOM_EXIT_INPUT, "out of host memory");
	st = build(a, s, &err);
	if (!st && !oom_sweep_has(s, "model"))
		st = oom_error_set(&err, OOM_ERR_INVALID,
				   "which model? --model config.json, more than once if you like");
	if (st)
		code = oom_complain(oom_sweep_code(st), "%s", err.text);
	else
		code = job->check ? oom_sweep_gate(job, s, &o) : print(a, s, &o);
	oom_sweep_free(s);
	return code;
}

static const struct oom_option options[] = {
	{.name = "model",
	 .letter = 'm',
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct args, models),
	 .metavar = "FILE",
	 .hint = OOM_HINT_MODEL,
	 .aliases = OOM_MODEL_ALIASES,
	 .summary = "a config.json, a folder or a bundled name; repeat for several"},
	{.name = "gpu",
	 .letter = 'g',
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct args, gpus),
	 .metavar = "NAME",
	 .hint = OOM_HINT_GPU,
	 .summary = "a card, or @all; repeat for several"},
	OOM_OPTIONS_CARD,
	{.name = "axis",
	 .letter = 'a',
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct args, axes),
	 .metavar = "NAME=VALUES",
	 .summary = "values of a knob: 1,2,8 or 1..64 or 1..64x2 or 512..8192+512 or @all; the "
		    "last axis runs fastest"},
	{.name = "where",
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct args, where),
	 .metavar = "CONDITION",
	 .summary = "write rows that meet it: fits, !fits, or a column and a number as in "
		    "used_bytes<4e10"},
	{.name = "columns",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, columns),
	 .metavar = "NAMES",
	 .summary = "columns in this order: axes, knobs, fits, used_bytes, ... (oomplan list "
		    "columns)"},
	{.name = "format",
	 .kind = OOM_OPTION_CHOICE,
	 .offset = offsetof(struct args, format),
	 .metavar = "WORD",
	 .choice = format_choice,
	 .unset = "csv",
	 .summary = "CSV with a header, or JSON lines"},
	{.name = "plan-each",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, plan_each),
	 .summary = "the cheapest plan that fits for every cell (as oomplan plan searches it) "
		    "instead of its price as it is"},
	{.name = "prefer",
	 .kind = OOM_OPTION_CHOICE,
	 .offset = offsetof(struct args, objective),
	 .metavar = "WORD",
	 .choice = oom_objective_choice,
	 .unset = "time",
	 .summary = "what --plan-each prefers after the class of the changes",
	 .aliases = OOM_PREFER_ALIASES},
	{.name = "allow",
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct oom_job, allow),
	 .metavar = "WORDS",
	 .choice = oom_allow_choice,
	 .summary = "changes of the science that --plan-each may make, joined by commas"},
	{.name = "from",
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct oom_job, from),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "a CSV list of points (columns are knobs, gpu, model) instead of a grid, or "
		    "outermost of one; or a run's own YAML or JSON (see oomplan read), whose knobs hold "
		    "where no axis says otherwise"},
	{.name = "framework",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, framework),
	 .metavar = "NAME",
	 .unset = "recognised by its keys",
	 .summary = "whose files --from names"},
	{.name = "models-dir",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, models_dir),
	 .metavar = "DIR",
	 .hint = OOM_HINT_DIR,
	 .unset = "the local hub cache",
	 .summary = "where the config.json of models that --from names by hub id lie"},
	{.name = "shard",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, shard),
	 .metavar = "I/N",
	 .summary = "only part I of N; the parts joined in order are the whole file"},
	{.name = "heatmap",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, heatmap),
	 .metavar = "X,Y",
	 .summary = "draw two axes as a map of what fits, into FILE.svg behind the options, or in "
		    "characters without one"},
	{.name = "threads",
	 .kind = OOM_OPTION_COUNT,
	 .offset = offsetof(struct args, threads),
	 .metavar = "N",
	 .min = 0,
	 .max = 64,
	 .unset = "0",
	 .summary = "threads (0: one per processor); the output is the same"},
	{.name = "output",
	 .letter = 'o',
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, output),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "where the table goes (standard output)"},
	{.name = "keep-partial",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, keep_partial),
	 .summary = "keep what is written when the sweep is ended, in FILE.partial"},
	{.name = "resume",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, resume),
	 .summary = "continue FILE.partial of the same sweep where there is one; implies "
		    "--keep-partial"},
	OOM_OPTIONS_CHECK,
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"sweep --model Llama-3.1-8B --axis micro-batch=1..64x2 --axis seq-len=512..8192x2 --gpu @all --where fits -o fits.csv",
	 "every card, batch and length that fits"},
	{"sweep --model Llama-3.1-8B --gpu @all --axis seq-len=2048,8192 --plan-each --columns gpu,seq-len,fits,class,changes,seconds_per_sample",
	 "what it takes on every card"},
	{"sweep --model Qwen2.5-7B --gpu H100-80G --precision bf16 --axis micro-batch=1..8 --axis seq-len=1024..16384x2 --heatmap micro-batch,seq-len map.svg",
	 "a map of what fits"},
	{NULL, NULL},
};
const struct oom_command oom_command_sweep = {
	.name = "sweep",
	.summary = "a table over a grid of models, cards and knobs",
	.synopsis = "--model FILE... --axis NAME=VALUES... [--gpu NAME...] [options] [knobs]",
	.options = options,
	.knobs = true,
	.points = true,
	.words = "FILE.svg",
	.max_words = 1,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};
