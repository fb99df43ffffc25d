/* oomplan diagnose: what a crash says, and what the plan says about it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "oomplan/diagnose.h"
#include "term.h"

static bool all_messages;

static const char *size_text(uint64_t bytes)
{
	static char buf[6][32];
	static int i;

	i = (i + 1) % 6;
	return oom_format_bytes(bytes, buf[i], sizeof(buf[i]));
}

/* ---- which row of the ledger the failing request is ---- */

struct match {
	uint64_t tried, slack;
	struct oom_ledger_row row;
	double distance;
};

static void nearer(void *ctx, const struct oom_ledger_row *r)
{
	struct match *m = ctx;
	const double d = fabs((double)r->bytes - (double)m->tried);

	if (d > (double)m->slack || d >= m->distance)
		return;
	m->row = *r;
	m->distance = d;
}

static void compare(struct oom_job *job, const struct oom_crash *c)
{
	struct match m = {.tried = c->bytes[OOM_CRASH_TRIED], .distance = INFINITY};
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_target t;
	struct oom_ladder l;
	struct oom_eval e;

	if (!ev || oom_target_open(job, &t, false)) {
		oom_evaluator_free(ev);
		return;
	}
	if (!t.capacity && c->known[OOM_CRASH_TOTAL])
		t.capacity = c->bytes[OOM_CRASH_TOTAL];
	/* PyTorch rounds large requests up to 2 MiB before it asks the driver */
	m.slack = m.tried / 100 > (2 << 20) ? m.tried / 100 : 2 << 20;
	if (oom_evaluate(ev, t.model, &job->plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &e, &err)) {
		oom_complain(0, "%s", err.text);
	} else {
		printf("\nthe plan for these knobs: peak %s used, %s allocated (%s)\n", size_text(e.used_bytes), size_text(e.overall_peak),
		       oom_phase_str(e.peak_phase));
		if (c->known[OOM_CRASH_ALLOCATED])
			printf("  allocated at the crash: %s\n", size_text(c->bytes[OOM_CRASH_ALLOCATED]));
		if (c->known[OOM_CRASH_TRIED] && !oom_ledger_each(ev, t.model, &job->plan, nearer, &m, &err) && !isinf(m.distance))
			printf("  the request looks like %s %s: %s = %s\n", *m.row.scope ? m.row.scope : "-", m.row.name, m.row.formula,
			       m.row.numbers);
		else if (c->known[OOM_CRASH_TRIED])
			printf("  no row of this plan has the size of the request: other knobs, or another batch\n");
		if (t.capacity && !oom_ladder_plan(ev, t.model, &job->plan, t.capacity, 0, &l, &err))
			printf("  %s\n", !l.fits ? "no rung below the science makes it fit" : l.start_fits ? "it should have fitted" :
			       "it would have fitted with the ladder's fixes: oomplan plan");
	}
	oom_target_close(&t);
	oom_evaluator_free(ev);
}

/* ---- text ---- */

static void text(const struct oom_crash *c)
{
	char words[40];

	printf("%s, %s%s%s", c->framework, c->format, *c->exception ? ", " : "", c->exception);
	if (c->rank >= 0)
		printf(", rank %" PRId64, c->rank);
	printf(" (line %" PRIu64 ")\n", c->line);
	for (int n = 0; n < OOM_CRASH_NUMBERS; n++) {
		snprintf(words, sizeof(words), "%s", oom_crash_number_str((enum oom_crash_number)n));
		*strstr(words, "_bytes") = 0;
		if (c->known[n])
			printf("  %-22s %12s\n", words, size_text(c->bytes[n]));
	}
	for (size_t i = 0; i < c->n_processes; i++)
		printf("  process %-14" PRId64 " %12s\n", c->process[i].pid, size_text(c->process[i].bytes));
	if (!c->known[OOM_CRASH_TRIED])
		printf("  the text does not give the size of the request\n");
	if (c->phase_confidence > 0 && c->phase_confidence < 0.5)
		printf("phase: the text does not tell; %s? (%s)\n", oom_crash_phase_str(c->phase), c->phase_evidence);
	else
		printf("phase: %s%s%s\n", oom_crash_phase_str(c->phase), *c->phase_evidence ? ", by " : "", c->phase_evidence);
	for (size_t i = 0; i < c->n_causes; i++) {
		const struct oom_cause_info *info = oom_cause_info(c->cause[i].cause);

		printf("%s %s%s%s (%.0f %%): %s\n", i ? "  or" : "cause:", oom_paint(i ? OOM_PLAIN : OOM_BAD), info->name,
		       oom_paint(OOM_PLAIN), 100 * c->cause[i].confidence, c->cause[i].evidence);
		printf("       %s\n       do: %s", info->meaning, info->remedy);
		if (info->rung)
			printf("   [rung %d: %s]", info->rung, oom_rung_at((size_t)info->rung - 1)->name);
		printf("   [%s]\n", info->source);
	}
}

static void each(void *ctx, const struct oom_crash *c)
{
	(void)ctx;
	if (all_messages && c->strength >= 2) {
		text(c);
		putchar('\n');
	}
}

/* ---- JSON ---- */

static void json(const struct oom_crash *c, const struct oom_crash_log *log)
{
	struct oom_json j = {.out = stdout};
	char pids[400] = "";
	size_t n = 0;

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-diagnose/1");
	oom_json_text(&j, "framework", c->framework);
	oom_json_text(&j, "format", c->format);
	oom_json_text(&j, "exception", *c->exception ? c->exception : NULL);
	if (c->rank >= 0)
		oom_json_int(&j, "rank", c->rank);
	else
		oom_json_null(&j, "rank");
	oom_json_uint(&j, "messages", log->messages);
	oom_json_uint(&j, "line", c->line);
	if (c->gpu_index >= 0)
		oom_json_int(&j, "gpu_index", c->gpu_index);
	else
		oom_json_null(&j, "gpu_index");
	for (int k = 0; k < OOM_CRASH_NUMBERS; k++) {
		char words[40];

		if (c->known[k])
			oom_json_uint(&j, oom_crash_number_str((enum oom_crash_number)k), c->bytes[k]);
		else
			oom_json_null(&j, oom_crash_number_str((enum oom_crash_number)k));
		/* as printed: "tried_text" beside "tried_bytes" */
		snprintf(words, sizeof(words), "%s", oom_crash_number_str((enum oom_crash_number)k));
		memcpy(strstr(words, "_bytes"), "_text", 6);
		oom_json_text(&j, words, c->known[k] && *c->text[k] ? c->text[k] : NULL);
	}
	for (size_t i = 0; i < c->n_processes && n < sizeof(pids); i++)
		n += (size_t)snprintf(pids + n, sizeof(pids) - n, "%s%" PRId64 ":%" PRIu64, i ? ";" : "", c->process[i].pid,
				      c->process[i].bytes);
	oom_json_text(&j, "other_processes", *pids ? pids : NULL);
	oom_json_text(&j, "phase", oom_crash_phase_str(c->phase));
	oom_json_real(&j, "phase_confidence", c->phase_confidence);
	oom_json_text(&j, "traceback", c->traceback ? "yes" : "no");
	oom_json_text(&j, "phase_evidence", *c->phase_evidence ? c->phase_evidence : NULL);
	oom_json_text(&j, "cause", c->n_causes ? oom_cause_info(c->cause[0].cause)->name : "unknown");
	oom_json_array(&j, "causes");
	for (size_t i = 0; i < c->n_causes; i++) {
		oom_json_object(&j, NULL);
		oom_json_text(&j, "cause", oom_cause_info(c->cause[i].cause)->name);
		oom_json_real(&j, "confidence", c->cause[i].confidence);
		oom_json_text(&j, "evidence", c->cause[i].evidence);
		oom_json_text(&j, "remedy", oom_cause_info(c->cause[i].cause)->remedy);
		oom_json_int(&j, "rung", oom_cause_info(c->cause[i].cause)->rung);
		oom_json_end(&j);
	}
	oom_json_end(&j);
	oom_json_end(&j);
}

static int run(struct oom_job *job)
{
	const char *path = job->words.n ? job->words.items[0] : "-";
	struct oom_error err = {{0}};
	struct oom_crash_log log;
	struct oom_crash c;

	if (oom_crash_read(path, each, NULL, &c, &log, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	if (job->json) {
		json(&c, &log);
		return OOM_EXIT_FITS;
	}
	if (all_messages)
		printf("the one that counts:\n");
	text(&c);
	if (log.rising)
		printf("allocated rises from message to message: see oomplan explain M20\n");
	if (job->model)
		compare(job, &c);
	return OOM_EXIT_FITS;
}

static const struct oom_option options[] = {
	OOM_OPTIONS_TARGET,
	{.name = "all",
	 .kind = OOM_OPTION_FLAG,
	 .target = &all_messages,
	 .summary = "every message of the log, not only the one that counts"},
	OOM_OPTION_JSON,
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"diagnose train.log", "the last out-of-memory error in a log: numbers, phase, causes"},
	{"diagnose crash.txt --model config.json --micro-batch 64",
	 "which tensor of the plan the failing request was"},
	{NULL, NULL},
};
const struct oom_command oom_command_diagnose = {
	.name = "diagnose",
	.summary = "decode an out-of-memory message, traceback or log",
	.synopsis = "[FILE] [--model FILE] [options] [knobs]",
	.options = options,
	.knobs = true,
	.words = "FILE",
	.max_words = 1,
	.examples = examples,
	.run = run,
};
