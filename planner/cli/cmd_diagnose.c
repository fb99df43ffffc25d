/* oomplan diagnose: what a crash says, and what the plan says about it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "diagnose.h"
#include "page.h"
#include "term.h"

struct args {
	struct oom_job job;
	bool all_messages;
	const char *plot;
};

/* ---- text ---- */

static void answer(const struct oom_crash *c, const struct oom_priced *r)
{
	struct oom_crash_answer a;
	bool begun = r && r->n_changes;

	oom_crash_answer(c, &a);
	/* the first cause's evidence stands beside it */
	for (size_t i = 1; i < a.n_evidence; i++)
		printf("       %s\n", a.evidence[i]);
	oom_priced_text(r);
	oom_priced_do(r);
	for (size_t i = 0; i < a.n_fix; i++) {
		if (oom_priced_says(r, a.fix[i]))
			continue;
		printf("%s %s\n", begun ? "   " : "do:", a.fix[i]);
		begun = true;
	}
	if (a.training && a.rung && oom_cause_info(c->cause[0].cause)->rung)
		printf("    every fix with its cost: oomplan plan --model ...   [rung %d: %s]\n", a.rung, oom_rung_numbered(a.rung)->name);
	if (a.settle)
		printf("to be sure: %s\n", a.settle);
}

static void text(const struct oom_crash *c, const struct oom_priced *r)
{
	struct oom_crash_answer a;
	char words[40], cards[200];

	oom_crash_answer(c, &a);
	printf("%s\n", a.happened);
	printf("%s, %s%s%s", c->framework, c->format, *c->exception ? ", " : "", c->exception);
	if (c->rank >= 0)
		printf(", rank %" PRId64, c->rank);
	printf(" (line %" PRIu64 ")\n", c->line);
	for (int n = 0; n < OOM_CRASH_NUMBERS; n++) {
		snprintf(words, sizeof(words), "%s",
			 oom_crash_number_str((enum oom_crash_number)n));
		*strstr(words, "_bytes") = 0;
		if (c->known[n])
			printf("  %-22s %12s\n", words, oom_gib(c->bytes[n]));
	}
	if (*oom_crash_cards(c, cards, sizeof(cards)))
		printf("  a card of that size: %s\n", cards);
	for (size_t i = 0; i < c->n_processes; i++)
		printf("  process %-14" PRId64 " %12s\n", c->process[i].pid,
		       oom_gib(c->process[i].bytes));
	if (!c->known[OOM_CRASH_TRIED])
		printf("  the text does not give the size of the request\n");
	printf("phase: %s%s%s\n", oom_crash_phase_str(c->phase), *c->phase_evidence ? ", by " : "",
	       c->phase_evidence);
	for (size_t i = 0; i < c->n_causes; i++) {
		const struct oom_cause_info *info = oom_cause_info(c->cause[i].cause);

		printf("%s %s%s%s (%.0f %%): %s   [%s]\n",
		       i ? "  or" : "cause:", oom_paint(i ? OOM_PLAIN : OOM_BAD), info->name,
		       oom_paint(OOM_PLAIN), 100 * c->cause[i].confidence, c->cause[i].evidence,
		       info->source);
	}
	answer(c, r);
}

/* What the log says about the run before it. */
static void run_text(const struct oom_crash_log *log, bool steps)
{
	const struct oom_crash_run *const r = &log->run;

	if (log->ranks > 1)
		printf("ranks: %" PRIu64 " died, one crash; rank %" PRId64 " was first (line %" PRIu64 ")%s\n", log->ranks,
		       log->first_rank, log->first_rank_line,
		       log->ranks_differ ? "; they asked for different sizes: their batches or shards differ" :
		       log->first_rank_tried ? "; all asked for about the same" : "");
	if (steps && r->last_step > r->first_step) {
		printf("run: steps %" PRId64 " to %" PRId64, r->first_step, r->last_step);
		if (r->of_steps)
			printf(" of %" PRId64, r->of_steps);
		if (r->has_loss)
			printf(", loss %.4g to %.4g", r->first_loss, r->last_loss);
		printf("\n");
	}
	if (r->memory_samples > 1 && r->memory_in_bytes)
		printf("     %s %.2f to %.2f GiB, %+.2f MiB per step (%" PRIu64 " samples)\n", r->memory_key,
		       r->memory_first / 1073741824, r->memory_last / 1073741824, r->memory_slope / 1048576,
		       r->memory_samples);
	else if (r->memory_samples > 1)
		printf("     %s %.4g to %.4g, %+.3g a step (%" PRIu64 " samples)\n", r->memory_key, r->memory_first,
		       r->memory_last, r->memory_slope, r->memory_samples);
	if (r->longest)
		printf("     the longest batch named: %" PRId64 " tokens at step %" PRId64 "\n", r->longest, r->longest_step);
	if (r->evaluations || r->savings)
		printf("     begun before: %" PRIu64 " evaluations, %" PRIu64 " savings\n", r->evaluations, r->savings);
	if (r->resumed)
		printf("     resumed from a checkpoint, %" PRIu64 " steps before%s\n", r->steps_since_resume,
		       r->steps_since_resume < 3 ? ": a copy of the loaded states may still be on the card "
						   "(torch.load(map_location=\"cpu\"))" :
						   "");
}

struct output {
	const struct oom_job *job;
	bool all_messages;
	const char *file;
	const struct oom_priced *priced;        /* the run that the text gives; NULL: none that can be priced */
	struct oom_json json;
	bool begun;
};

/* --all: every message as it is met, so that a log of any length takes no memory. */
static void each(void *ctx, const struct oom_crash *c)
{
	struct output *o = ctx;
	struct oom_crash noted = *c;

	if (c->strength < 2)
		return;
	oom_crash_note_cards(&noted);
	if (!o->job->json) {
		text(&noted, NULL);
		putchar('\n');
		return;
	}
	if (!o->begun) {
		oom_json_object(&o->json, NULL);
		oom_json_text(&o->json, "schema", "oomplan-diagnose/1");
		oom_json_array(&o->json, "all");
		o->begun = true;
	}
	oom_json_object(&o->json, NULL);
	oom_crash_json(&o->json, &noted, o->file, 1);
	oom_json_end(&o->json);
}

static void last_json(struct output *o, const struct oom_crash *c, const struct oom_crash_log *log,
		      const struct oom_comparison *m, const struct oom_patch *patch)
{
	if (o->begun) {
		oom_json_end(&o->json);
	} else {
		oom_json_object(&o->json, NULL);
		oom_json_text(&o->json, "schema", "oomplan-diagnose/1");
	}
	/* a kill without an allocator's message is one all the same */
	oom_crash_json(&o->json, c, o->file, log->messages ? log->messages : 1);
	oom_json_bool(&o->json, "allocated_rises", log->rising);
	oom_run_json(&o->json, log);
	if (m)
		oom_compare_json(&o->json, m, patch);
	if (o->priced)
		oom_priced_json(&o->json, o->priced);
	oom_json_end(&o->json);
}

/* The host's memory is not what a change of the card's plan is looked for. */
static bool on_card(const struct oom_crash *c)
{
	return !c->n_causes || c->cause[0].cause != OOM_CAUSE_HOST_RAM;
}

/* What a program counts that serves, loads or saves is no step of a run. */
static bool counts_steps(enum oom_crash_work work)
{
	return work == OOM_WORK_TRAINING || work == OOM_WORK_EVAL || work == OOM_WORK_COLLECTIVE || work == OOM_WORK_UNKNOWN ||
	       work == OOM_WORK_DATA;
}

/* m: beside the plan, NULL without a model; patch: NULL where there is none. */
static void show(struct output *o, const struct oom_target *t, const struct oom_crash *c,
		 const struct oom_crash_log *log, const struct oom_comparison *m, const struct oom_patch *patch)
{
	struct oom_page page;

	if (o->job->json) {
		last_json(o, c, log, m, patch);
		return;
	}
	oom_page_begin(&page);
	if (o->all_messages)
		printf("the one that counts:\n");
	text(c, o->priced);
	run_text(log, counts_steps(oom_crash_work(c)));
	if (log->rising)
		printf("allocated rises from message to message: see oomplan explain M20\n");
	if (m)
		oom_compare_text(o->job, t, c, m);
	oom_page_end(&page);            /* a patch's lines stay whole */
	if (m && o->job->reading && m->searched && !m->asked.fits_gpu && on_card(c))
		oom_patch_text(m, patch, patch != NULL);
}

/* --emit: the files' own smallest change where a patch is asked for and there is one, else the cheapest plan. */
static int emit(const struct oom_job *job, const struct oom_target *t, const struct oom_comparison *m,
		const struct oom_patch *patch, int code)
{
	const struct oom_search *const s = patch && oom_emit_patches(job) ? &patch->search : &m->search;
	struct oom_job asked = *job;

	if (!job->emit.n)
		return code;
	if (!m->searched)
		return oom_complain(OOM_EXIT_USAGE, "--emit: how large is the card? --gpu NAME or --gpu-memory SIZE");
	/* what settling filled in is no change of the files */
	asked.plan = m->asked.plan;
	return oom_emit_plan(&asked, &s->best.plan, t->q.gpu, s->found, code);
}

/* Priced: what is shown and written of it. */
static int answer_beside(const struct oom_job *job, struct output *o, const struct oom_target *t,
			 const struct oom_crash *c, const struct oom_crash_log *log, const struct oom_comparison *m)
{
	struct oom_patch *patch = calloc(1, sizeof(*patch));
	const bool found = patch && oom_patch_find(job, t, m, patch);
	int code;

	if (!oom_emit_prints(job))
		show(o, t, c, log, m, found ? patch : NULL);
	code = emit(job, t, m, found ? patch : NULL, 0);
	if (patch)
		oom_emitted_release(&patch->diff);
	free(patch);
	return code;
}

static int compare(struct oom_job *job, struct output *o, struct oom_crash *c,
		   const struct oom_crash_log *log)
{
	struct oom_comparison *m = calloc(1, sizeof(*m));
	struct oom_error err = {{0}};
	struct oom_target t;
	int code = oom_target_open(job, &t, false);
	bool priced = false;

	t.q.allow = 0;
	t.q.brief = false;
	if (!code) {
		priced = m && !oom_compare(NULL, &t.q, c, m, &err);
		if (!priced)
			code = oom_complain(OOM_EXIT_INPUT, "%s", m ? err.text : "out of host memory");
	}
	if (priced)
		oom_crash_of_plan(c, &job->plan);
	/* what the message says stands without a plan */
	if (priced)
		code = answer_beside(job, o, &t, c, log, m);
	else if (!oom_emit_prints(job))
		show(o, &t, c, log, NULL, NULL);
	oom_target_close(&t);
	free(m);
	return code;
}

/* A pipe can be read once, and is looked at before it is: it becomes standard input, where what was looked at is put
 * back.  One that nobody writes to is an error after two seconds. */
static int take_pipe(const char **path)
{
	struct pollfd p = {.fd = -1, .events = POLLIN};
	struct stat is;
	ssize_t got = -1;
	char first;
	int ready;

	if (!strcmp(*path, "-") || stat(*path, &is) || !S_ISFIFO(is.st_mode))
		return 0;
	p.fd = open(*path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	do
		ready = p.fd < 0 ? -1 : poll(&p, 1, 2000);
	while (p.fd >= 0 && ready < 0 && errno == EINTR);
	if (!ready)
		got = read(p.fd, &first, 1);
	if (!got || ready < 0 || fcntl(p.fd, F_SETFL, fcntl(p.fd, F_GETFL) & ~O_NONBLOCK) < 0 || dup2(p.fd, 0) < 0)
		return oom_complain(OOM_EXIT_INPUT, "%s: %s", *path, got ? strerror(errno) : "a pipe that nobody writes to");
	close(p.fd);
	if (got > 0)
		ungetc((unsigned char)first, stdin);
	*path = "-";
	return 0;
}

/* Beside the plan that is given; without one, beside the run that the text itself gives. */
static int explain(struct oom_job *job, struct output *o, struct oom_crash *c, const struct oom_crash_log *log,
		   const struct oom_crash_text *kept)
{
	struct output beside = *o;
	struct oom_priced priced;
	struct oom_error err = {{0}};

	oom_crash_note_cards(c);
	if (job->emit.n && !job->model && !job->reading)
		return oom_complain(OOM_EXIT_USAGE, "--emit: of which model? --model config.json, or --from FILE");
	if (job->model || job->reading)
		return compare(job, o, c, log);
	if (!oom_crash_price(kept, c, &priced, &err))
		beside.priced = &priced;
	oom_priced_settle(&priced, c);
	show(&beside, NULL, c, log, NULL, NULL);
	return 0;
}

static int run(struct oom_job *job)
{
	const struct args *args = (const struct args *)job;
	const char *path = job->words.n ? job->words.items[0] : "-";
	struct output o = {.job = job, .all_messages = args->all_messages, .file = path, .json = {.out = stdout}};
	struct oom_error err = {{0}};
	struct oom_crash_log log;
	struct oom_crash c;
	struct oom_crash_text *kept;
	int code = oom_emit_check(job);

	if (!code)
		code = take_pipe(&path);
	if (code)
		return code;
	if (oom_path_is_snapshot(path))
		return oom_diagnose_snapshot(job, path, args->plot);
	if (args->plot)
		return oom_complain(OOM_EXIT_USAGE, "--plot draws a memory snapshot, and %s is none", path);
	kept = malloc(sizeof(*kept));
	if (!kept)
		return oom_complain(OOM_EXIT_INPUT, "out of host memory");
	if (oom_crash_read_keeping(path, o.all_messages ? each : NULL, &o, &c, &log, kept, &err))
		code = oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	else
		code = explain(job, &o, &c, &log, kept);
	free(kept);
	return code;
}

static const struct oom_option options[] = {
	OOM_OPTIONS_TARGET,
	{.name = "host-ram",
	 .kind = OOM_OPTION_SIZE,
	 .offset = offsetof(struct oom_job, host_ram),
	 .metavar = "SIZE",
	 .summary = "host memory of a node, such as 64GiB: for what was killed, beside what the plan needs there"},
	{.name = "plot",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, plot),
	 .metavar = "FILE.svg",
	 .hint = OOM_HINT_FILE,
	 .summary = "draw who held a snapshot's memory over its events, with a model the predicted peak over it; - draws in characters"},
	{.name = "all",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, all_messages),
	 .summary = "every message of the log, not only the one that counts"},
	OOM_OPTIONS_FROM,
	OOM_OPTIONS_EMIT,
	OOM_OPTION_JSON,
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"diagnose train.log", "the last out-of-memory error in a log: numbers, phase, causes"},
	{"diagnose crash.txt --model config.json --micro-batch 64",
	 "which tensor of the plan the failing request was, and the cheapest plan that would have fitted"},
	{"diagnose snapshot.pickle --plot timeline.svg", "who held the memory, event by event"},
	{"diagnose snapshot.pickle --model config.json",
	 "a file of torch.cuda.memory._dump_snapshot: who held the memory at its peak, beside the prediction"},
	{NULL, NULL},
};
const struct oom_command oom_command_diagnose = {
	.name = "diagnose",
	.summary = "decode an out-of-memory message, traceback or log, or a memory snapshot",
	.synopsis = "[FILE] [--model FILE] [options] [knobs]",
	.options = options,
	.knobs = true,
	.words = "FILE",
	.max_words = 1,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};
