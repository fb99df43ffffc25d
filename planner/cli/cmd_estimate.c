/* oomplan estimate: exactly the configuration given. */
#include "check.h"
#include "commands.h"
#include "csvout.h"
#include "page.h"

static void csv(const struct oom_eval *e)
{
	static const char *const names[] = {"phase", "peak_bytes", "end_bytes", NULL};
	struct oom_csv c = {.out = stdout};

	oom_csv_head(&c, names);
	for (int i = 0; i < OOM_PHASES; i++) {
		if (!oom_phase_occurs(e, (enum oom_phase)i))
			continue;               /* answers where none are generated, a run that never evaluates */
		oom_csv_text(&c, oom_phase_column((enum oom_phase)i));
		oom_csv_uint(&c, e->peak[i]);
		oom_csv_uint(&c, e->end[i]);
		oom_csv_end(&c);
	}
}

static int show(const struct oom_job *job, const struct oom_target *t, const struct oom_judged *j)
{
	struct oom_page page;

	if (job->json)
		oom_json_estimate(job, t, j);
	else if (job->csv)
		csv(&j->eval);
	else {
		oom_page_begin(&page);
		oom_report_estimate(job, t, j);
		oom_page_end(&page);
	}
	return j->fits ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT;
}

static int run(struct oom_job *job)
{
	struct oom_error err = {{0}};
	struct oom_evaluator *ev;
	struct oom_target t;
	struct oom_judged j;
	enum oom_status st;
	int code;

	code = oom_check_usage(job);
	if (code)
		return code;
	if (job->check)
		return job->runs ? oom_check_runs(job) : oom_check_one(job);
	if (job->runs)
		return oom_estimate_runs(job);
	code = oom_target_open(job, &t, false);
	if (code)
		return code;
	ev = oom_evaluator_new();       /* what it names is read while the answer is shown */
	st = oom_answer_as_asked(ev, &t.q, &j, &err);
	if (st)
		code = oom_failed(st, &err);
	else
		code = show(job, &t, &j);
	oom_evaluator_free(ev);
	oom_target_close(&t);
	return code;
}

static const struct oom_option options[] = {
	OOM_OPTIONS_TARGET,
	OOM_OPTIONS_FROM,
	OOM_OPTIONS_DATA,
	OOM_OPTIONS_CHECK,
	{.name = "runs",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, runs),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "price every row of a CSV (columns: model and the knobs' names)"},
	{.name = "output",
	 .letter = 'o',
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, output),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .unset = "standard output",
	 .summary = "where the priced rows go"},
	OOM_OPTION_JSON,
	OOM_OPTION_CSV("print CSV, one row per phase"),
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"estimate --model config.json --micro-batch 4 --seq-len 2048 --precision amp-bf16",
	 "the peak of each phase"},
	{"estimate --runs runs.csv --output priced.csv",
	 "every row priced, in pred_ columns beside its own"},
	{NULL, NULL},
};
const struct oom_command oom_command_estimate = {
	.name = "estimate",
	.summary = "price exactly the configuration given, or every row of a runs file",
	.synopsis = "--model FILE [--gpu NAME] [options] [knobs]",
	.options = options,
	.knobs = true,
	.as_given = true,
	.examples = examples,
	.args_size = sizeof(struct oom_job),
	.run = run,
};
