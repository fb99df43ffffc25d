/* oomplan solve: the largest value of a knob that fits. */
#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "oomplan/megatron.h"
#include "page.h"

struct args {
	struct oom_job job;
	int64_t step;
};

/* As asked, and with changes that leave the run as it is. */
struct both {
	const char *knob;
	struct oom_solution asked, exact;
};

/* UINT64_MAX: no plan of it ran. */
static void bytes_or_null(struct oom_json *j, const char *key, uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		oom_json_null(j, key);
	else
		oom_json_uint(j, key, bytes);
}

static void found_json(struct oom_json *j, const struct oom_target *t, const struct oom_solution *s)
{
	oom_json_bool(j, "exists", s->exists);
	if (s->needed_bytes)
		oom_json_uint(j, "needed_bytes", s->needed_bytes);
	else if (s->exists)
		oom_json_int(j, "value", s->value);
	else
		oom_json_null(j, "value");
	oom_json_int(j, "step", s->step);
	oom_json_bool(j, "at_limit", s->at_limit);
	oom_json_text(j, "limit", s->at_limit ? s->limit : "");
	if (s->fewest) {
		static const char *const from[] = {"asked", "rented", "guess"};

		oom_json_int(j, "gpus_per_node", s->node);
		oom_json_text(j, "gpus_per_node_from", from[s->node_from]);
	}
	bytes_or_null(j, "used_bytes", s->eval.used_bytes);
	oom_json_uint(j, "evaluation_used_bytes", s->evaluation_bytes);
	oom_json_text(j, "peak_phase", oom_phase_column(s->eval.peak_phase));
	oom_json_uint(j, "capacity_bytes", t->q.capacity_bytes);
	oom_json_int(j, "neighbour", s->neighbour);
	bytes_or_null(j, "neighbour_bytes", s->neighbour_bytes);
	oom_json_bool(j, "neighbour_evaluates", s->neighbour_evaluates);
	if (t->q.host_ram_bytes)
		oom_json_uint(j, "short_of_host_bytes", s->host_bytes);
}

static void json(const struct oom_job *job, const struct oom_target *t, const struct both *b)
{
	struct oom_json j = {.out = stdout};
	char options[600] = "";

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-solve/1");
	oom_json_text(&j, "knob", b->knob);
	oom_json_text(&j, "precision_default", t->q.precision_note);
	found_json(&j, t, &b->asked);
	/* of GPUs more than their number follows */
	if (b->asked.exists && b->asked.fewest)
		oom_json_text(&j, "changes", oom_plan_options(&t->q.plan, &b->asked.plan, options, sizeof(options)));
	options[0] = 0;
	oom_json_lengths(&j, t);
	if (b->asked.exists)
		oom_json_calibrated(&j, t, &b->asked.plan, &b->asked.eval);
	if (b->exact.tried) {
		oom_json_object(&j, "with_exact_changes");
		found_json(&j, t, &b->exact);
		if (b->exact.exists)
			oom_plan_options(&t->q.plan, &b->exact.plan, options, sizeof(options));
		oom_json_text(&j, "changes", options);
		oom_json_end(&j);
	}
	if (b->asked.exists || b->exact.exists)
		oom_from_json(&j, job, &t->q.plan, b->asked.exists ? &b->asked.plan : &b->exact.plan);
	oom_json_end(&j);
}

static void none(const struct oom_target *t, const char *knob, const struct oom_solution *s)
{
	const bool gpus = s->fewest;
	const uint64_t used = s->eval.used_bytes;

	printf(gpus ? "no number of GPUs fits as asked: " : "no %s fits as asked: ", knob);
	if (used == UINT64_MAX || !used) {
		puts("none that was tried can run");
		return;
	}
	if (s->host_bytes)
		printf("%" PRId64 " already needs %s of host RAM", s->value, oom_gib(s->host_bytes));
	else if (gpus)
		printf("%" PRId64 " of them still use %s each", s->value, oom_gib(used));
	else if (s->evaluation_bytes && used <= oom_budget(t->q.capacity_bytes, &s->plan))
		printf("%" PRId64 ": its evaluation already uses %s", s->value, oom_gib(s->evaluation_bytes));
	else
		printf("%" PRId64 " already uses %s", s->value, oom_gib(used));
	if (s->host_bytes)
		printf(" of %s there (--host-ram)\n", oom_gib(t->q.host_ram_bytes));
	else
		printf(" of %s (margin %.0f %%)\n", oom_gib(t->q.capacity_bytes), 100 * s->plan.margin);
}

/* What limits the answer: the neighbour that does not fit, or the knob's range. */
static void beyond(const struct oom_solution *s)
{
	if (s->at_limit && *s->limit)
		printf("  %" PRId64 " is the end: %s\n", s->value, s->limit);
	else if (s->at_limit)
		puts("  this is the end of the knob's range");
	else if (!s->neighbour)
		puts("  the next value cannot run");
	else if (s->host_bytes)
		printf("  the next value was evaluated too: %" PRId64 ": %s of host RAM, does not fit (--host-ram)\n",
		       s->neighbour, oom_gib(s->host_bytes));
	else if (s->neighbour_bytes == UINT64_MAX)
		printf("  %" PRId64 " does not fit, or cannot run\n", s->neighbour);
	else
		printf("  the next value was evaluated too: %" PRId64 ": %s%s, does not fit\n", s->neighbour,
		       s->neighbour_evaluates ? "the run's evaluation " : "", oom_gib(s->neighbour_bytes));
}

static void as_asked(const struct oom_job *job, const struct oom_target *t, const char *knob,
		     const struct oom_solution *s)
{
	char options[200];

	printf("%s: %" PRId64 "\n", knob, s->value);
	if (job->quiet)
		return;
	printf("  %s it fits: %s used of %s; binding phase %s",
	       s->fewest ? "the fewest with which" : "the largest with which",
	       oom_gib(s->eval.used_bytes), oom_gib(t->q.capacity_bytes),
	       oom_phase_str(s->eval.peak_phase));
	if (s->evaluation_bytes)
		printf("; an evaluation of %" PRId64 " uses %s", s->plan.eval_batch, oom_gib(s->evaluation_bytes));
	putchar('\n');
	if (s->fewest && s->node && s->plan.gpus > 1)
		printf("  in nodes of %" PRId64 " GPUs%s\n", s->node,
		       s->node_from == OOM_NODE_RENTED  ? ", as machines with this card are mostly rented "
							  "(--gpus-per-node)" :
		       s->node_from == OOM_NODE_GUESSED ? ", which is a guess (--gpus-per-node)" :
							  "");
	if (s->step > 1)
		printf("  in steps of %" PRId64 " (--step 1: any value)\n", s->step);
	if (s->plan.engine != t->q.plan.engine)
		printf("  sharded, as more GPUs help nothing else: %s\n",
		       oom_plan_options(&t->q.plan, &s->plan, options, sizeof(options)));
	oom_report_calibrated(t, &s->plan, &s->eval);
	beyond(s);
}

/* Where changes lead further than what was asked. */
static void with_changes(const struct oom_job *job, const struct oom_target *t, const struct both *b)
{
	const struct oom_solution *s = &b->exact;
	char options[600];

	if (!s->tried)
		return;
	if (!s->exists) {
		printf("%s with exact changes: none fits either\n", b->knob);
		return;
	}
	printf("%s with exact changes: %" PRId64 "%s\n", b->knob, s->value,
	       b->asked.exists && s->value == b->asked.value ? ", the same" : "");
	if (job->quiet || (b->asked.exists && s->value == b->asked.value))
		return;
	printf("  %s: %s used\n", oom_plan_options(&t->q.plan, &s->plan, options, sizeof(options)),
	       oom_gib(s->eval.used_bytes));
	beyond(s);
}

static void text(const struct oom_job *job, const struct oom_target *t, const struct both *b)
{
	const struct oom_solution *s = &b->asked;

	if (s->needed_bytes) {
		printf("gpu-memory: %s (peak %s used, margin %.0f %%)\n",
		       oom_gib(s->needed_bytes), oom_gib(s->eval.used_bytes),
		       100 * s->plan.margin);
		return;
	}
	if (s->exists)
		as_asked(job, t, b->knob, s);
	else
		none(t, b->knob, s);
	with_changes(job, t, b);
	if (!job->quiet && (b->asked.exists || b->exact.exists))
		oom_from_changes(job, &t->q.plan, b->asked.exists ? &b->asked.plan : &b->exact.plan);
}

static int show(const struct oom_job *job, const struct oom_target *t, const struct both *b)
{
	const bool prints = oom_emit_prints(job), any = b->asked.exists || b->exact.exists;
	struct oom_page page;

	if (!prints && job->json) {
		json(job, t, b);
	} else if (!prints) {
		oom_page_begin(&page);
		text(job, t, b);
		if (!job->quiet) {
			oom_report_precision(t);
			oom_report_lengths(t);
		}
		oom_page_end(&page);
	}
	return oom_emit_plan(job, b->asked.exists ? &b->asked.plan : &b->exact.plan, t->q.gpu, any,
			     any ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT);
}

static int run(struct oom_job *job)
{
	const int64_t step = ((const struct args *)job)->step;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct both b = {.knob = job->words.items[0]};
	struct oom_error err = {{0}};
	struct oom_target t;
	enum oom_status st;
	int code = oom_emit_check(job);

	if (!code)
		code = oom_target_open(job, &t, strcmp(b.knob, "gpu-memory") != 0);
	if (code) {
		oom_evaluator_free(ev);
		return code;
	}
	st = oom_answer_solve(ev, &t.q, b.knob, step, false, &b.asked, &err);
	if (!st)
		st = oom_answer_solve(ev, &t.q, b.knob, step, true, &b.exact, &err);
	code = st == OOM_ERR_MEMORY || st == OOM_ERR_INTERNAL ? oom_failed(st, &err) :
	       st ? oom_complain(OOM_EXIT_USAGE, "%s", err.text) :
		    show(job, &t, &b);
	oom_target_close(&t);
	oom_evaluator_free(ev);
	return code;
}

static const struct oom_option options[] = {
	OOM_OPTIONS_TARGET,
	OOM_OPTIONS_FROM,
	OOM_OPTIONS_EMIT,
	OOM_OPTIONS_DATA,
	{.name = "step",
	 .kind = OOM_OPTION_COUNT,
	 .offset = offsetof(struct args, step),
	 .metavar = "N",
	 .min = 0,
	 .max = 1048576,
	 .unset = "what a person would try",
	 .summary = "try multiples of N alone: 64 tokens, patches or windows, ranks of 8 and whole nodes "
		    "where nothing is said; 1 tries every value"},
	OOM_OPTION_JSON, OOM_OPTIONS_COMMON, OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"solve seq-len --model Llama-3.1-8B --gpu 4090 --lora-r 16 --qlora --precision bf16-amp --grad-ckpt full --micro-batch 1",
	 "the longest sequence a 24 GB card takes for QLoRA"},
	{"solve gpus --model Llama-2-70B --gpu H100-80G --precision bf16 --grad-ckpt full --micro-batch 1",
	 "how many cards sharding needs"},
	{NULL, NULL},
};
const struct oom_command oom_command_solve = {
	.name = "solve",
	.summary = "the largest micro-batch, seq-len, lora-r, ... or the fewest gpus, or the "
		   "gpu-memory, that fits",
	.synopsis = "KNOB --model FILE --gpu NAME [options] [knobs]",
	.options = options,
	.knobs = true,
	.words = "KNOB",
	.min_words = 1,
	.max_words = 1,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};
