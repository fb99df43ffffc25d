/* oomplan plan: fits or not, and the ladder until it does. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "commands.h"
#include "csvout.h"
#include "oomplan/megatron.h"
#include "out.h"
#include "page.h"
#include "plot.h"

struct args {
	struct oom_job job;
	int objective;
	const char *plot;
};

static void csv(const struct oom_ladder *l)
{
	static const char *const outcomes[] = {"not_needed", "taken", "no_help", "not_applicable",
					       "offered",    "given_back", "refused"};
	static const char *const names[] = {"rung",         "name",        "class", "outcome",
					    "before_bytes", "after_bytes", "fits",  NULL};
	struct oom_csv c = {.out = stdout};

	oom_csv_head(&c, names);
	for (int i = 0; i < OOM_RUNGS; i++) {
		oom_csv_uint(&c, (uint64_t)i + 1);
		oom_csv_text(&c, oom_rung_at((size_t)i)->name);
		oom_csv_text(&c, oom_class_str(oom_rung_at((size_t)i)->cls));
		oom_csv_text(&c, outcomes[l->rung[i].outcome]);
		oom_csv_uint(&c, l->rung[i].before_bytes);
		oom_csv_uint(&c, l->rung[i].after_bytes);
		oom_csv_uint(&c, l->rung[i].fits);
		oom_csv_end(&c);
	}
}

/* The anatomy of the plan: into the file, or in characters behind the report. */
static enum oom_status draw(const char *plot, struct oom_evaluator *ev, const struct oom_target *t,
			    const struct oom_judged *j, struct oom_error *err)
{
	struct oom_anatomy a;
	struct oom_out out;
	enum oom_status st = oom_answer_anatomy(ev, t->model, j, &a, err);

	if (st)
		return st;
	if (!strcmp(plot, "-")) {
		oom_plot_text(stdout, t, &j->eval, &a);
		return OOM_OK;
	}
	st = oom_out_open(&out, plot, err);
	if (st)
		return st;
	oom_plot_svg(out.file, t, j, &a);
	return oom_out_close(&out, err);
}

static int show(const struct oom_job *job, const struct oom_target *t, const struct oom_answer *a)
{
	struct oom_plan plan = a->best.plan;
	struct oom_page page;

	if (oom_emit_prints(job))
		;
	else if (job->json)
		oom_json_plan(job, t, a);
	else if (job->csv)
		csv(&a->ladder);
	else {
		oom_page_begin(&page);
		oom_report_plan(job, t, a);
		oom_page_end(&page);
	}
	oom_megatron_say_split(t->model, &plan);
	return oom_emit_plan(job, &plan, t->q.gpu, a->best.fits,
			     a->best.fits ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT);
}

static int run(struct oom_job *job)
{
	const struct args *args = (const struct args *)job;
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_target t = {.model = NULL};
	enum oom_status st;
	int code = oom_check_usage(job);

	if (!code && job->check) {
		free(a);
		oom_evaluator_free(ev);
		return oom_check_one(job);
	}
	if (!code)
		code = oom_emit_check(job);
	if (!code)
		code = oom_target_open(job, &t, true);
	t.q.objective = (enum oom_objective)args->objective;
	if (!code && (!a || !ev))
		code = oom_complain(OOM_EXIT_INPUT, "out of host memory");
	else if (!code && (st = oom_answer(ev, &t.q, a, &err)))
		code = oom_failed(st, &err);
	else if (!code) {
		code = show(job, &t, a);
		st = args->plot ? draw(args->plot, ev, &t, &a->best, &err) : OOM_OK;
		if (st)
			code = oom_failed(st, &err);
	}
	free(a);
	oom_evaluator_free(ev);
	oom_target_close(&t);
	return code;
}

static const struct oom_option options[] = {
	OOM_OPTIONS_TARGET,
	OOM_OPTIONS_FROM,
	OOM_OPTIONS_EMIT,
	OOM_OPTIONS_DATA,
	OOM_OPTIONS_CHECK,
	{.name = "allow",
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct oom_job, allow),
	 .metavar = "WORDS",
	 .choice = oom_allow_choice,
	 .summary = "fixes that change the science, joined by commas"},
	{.name = "prefer",
	 .kind = OOM_OPTION_CHOICE,
	 .offset = offsetof(struct args, objective),
	 .metavar = "WORD",
	 .choice = oom_objective_choice,
	 .unset = "time",
	 .summary = "what the search prefers after the class of the changes; price: GPU-seconds per "
		    "sample, fewer GPUs allowed",
	 .aliases = OOM_PREFER_ALIASES},
	{.name = "plot",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, plot),
	 .metavar = "FILE.svg",
	 .hint = OOM_HINT_FILE,
	 .summary = "draw who fills the card in each phase of the plan; - draws in characters"},
	{.name = "ladder",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct oom_job, ladder),
	 .summary = "every rung of the ladder, with its cost, setting and source"},
	OOM_OPTION_JSON,
	OOM_OPTION_CSV("print CSV, one row per rung"),
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"--model config.json --gpu A100-40G", "does it fit, and what to change until it does"},
	{"plan --model Llama-3.1-8B --gpu 4090 --precision amp-bf16 --global-batch 64 --allow lora",
	 "a bundled model on a small card, adapters allowed, 64 sequences per step whatever the "
	 "micro-batch"},
	{NULL, NULL},
};
const struct oom_command oom_command_plan = {
	.name = "plan",
	.summary =
		"does it fit, and the cheapest fixes in order until it does (the default command)",
	.synopsis = "--model FILE --gpu NAME [options] [knobs]",
	.options = options,
	.knobs = true,
	.as_given = true,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};
