/* oomplan solve: the largest value of a knob that fits. */
#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "oomplan/megatron.h"

static void json(const struct oom_target *t, const char *knob, const struct oom_solution *s)
{
	struct oom_json j = {.out = stdout};

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-solve/1");
	oom_json_text(&j, "knob", knob);
	oom_json_bool(&j, "exists", s->exists);
	if (s->needed_bytes)
		oom_json_uint(&j, "needed_bytes", s->needed_bytes);
	else if (s->exists)
		oom_json_int(&j, "value", s->value);
	else
		oom_json_null(&j, "value");
	oom_json_bool(&j, "at_limit", s->at_limit);
	oom_json_uint(&j, "used_bytes", s->eval.used_bytes);
	oom_json_text(&j, "peak_phase", oom_phase_column(s->eval.peak_phase));
	oom_json_uint(&j, "capacity_bytes", t->q.capacity_bytes);
	oom_json_uint(&j, "neighbour_bytes", s->neighbour_bytes);
	oom_json_lengths(&j, t);
	if (s->exists)
		oom_json_calibrated(&j, t, &s->eval);
	oom_json_end(&j);
}

static void text(const struct oom_job *job, const struct oom_target *t, const char *knob,
		 const struct oom_solution *s)
{
	const bool fewest = !strcmp(knob, "gpus");
	char options[200];

	if (s->needed_bytes) {
		printf("gpu-memory: %s (peak %s used, margin %.0f %%)\n",
		       oom_gib(s->needed_bytes), oom_gib(s->eval.used_bytes),
		       100 * s->plan.margin);
		return;
	}
	if (!s->exists) {
		printf("no %s fits: the smallest already uses %s of %s (margin %.0f %%)\n", knob,
		       s->eval.used_bytes == UINT64_MAX ? "more than there is" :
							  oom_gib(s->eval.used_bytes),
		       oom_gib(t->q.capacity_bytes),
		       100 * s->plan.margin);
		return;
	}
	printf("%s: %" PRId64 "\n", knob, s->value);
	if (job->quiet)
		return;
	printf("  %s it fits: %s used of %s; binding phase %s\n",
	       fewest ? "the fewest with which" : "the largest with which",
	       oom_gib(s->eval.used_bytes), oom_gib(t->q.capacity_bytes),
	       oom_phase_str(s->eval.peak_phase));
	if (s->plan.engine != t->q.plan.engine)
		printf("  sharded, as more GPUs help nothing else: %s\n",
		       oom_plan_options(&t->q.plan, &s->plan, options, sizeof(options)));
	oom_report_calibrated(t, &s->eval);
	if (s->at_limit)
		printf("  this is the end of the knob's range\n");
	else if (s->neighbour_bytes == UINT64_MAX)
		printf("  the next value cannot run\n");
	else
		printf("  the next value was evaluated too: %s, does not fit\n",
		       oom_gib(s->neighbour_bytes));
}

static int show(const struct oom_job *job, const struct oom_target *t, const char *knob,
		const struct oom_solution *s)
{
	const bool prints = oom_emit_prints(job);
	struct oom_plan plan = s->plan;

	if (!prints && job->json)
		json(t, knob, s);
	else if (!prints)
		text(job, t, knob, s);
	if (!prints && !job->json && !job->quiet)
		oom_report_lengths(t);
	oom_megatron_say_split(t->model, &plan);
	return oom_emit_plan(job, &plan, s->exists, s->exists ? OOM_EXIT_FITS : OOM_EXIT_DOES_NOT_FIT);
}

static int run(struct oom_job *job)
{
	const char *knob = job->words.items[0];
	struct oom_error err = {{0}};
	struct oom_solution s;
	struct oom_target t;
	enum oom_status st;
	int code = oom_emit_check(job);

	if (!code)
		code = oom_target_open(job, &t, strcmp(knob, "gpu-memory") != 0);

	if (code)
		return code;
	st = oom_answer_solve(NULL, &t.q, knob, &s, &err);
	code = st == OOM_ERR_MEMORY || st == OOM_ERR_INTERNAL ? oom_failed(st, &err) :
	       st ? oom_complain(OOM_EXIT_USAGE, "%s", err.text) :
		    show(job, &t, knob, &s);
	oom_target_close(&t);
	return code;
}

static const struct oom_option options[] = {
	OOM_OPTIONS_TARGET,
	OOM_OPTIONS_FROM,
	OOM_OPTIONS_EMIT,
	OOM_OPTIONS_DATA, OOM_OPTION_JSON, OOM_OPTIONS_COMMON, OOM_OPTIONS_END,
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
	.args_size = sizeof(struct oom_job),
	.run = run,
};
