/* One question has one answer: the library's calls, tables and the commands' output are held against what
 * estimate says of the same plan on the same card. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cjson/cJSON.h>

#include "agree.h"

const char *oomplan;

/* ---- what estimate says ---- */

struct oom_question agree_asked(const struct subject *s, const struct question *q)
{
	struct oom_question o = oom_question_default();

	o.model = s->model;
	o.gpu = q->gpu;
	question_plan(q, s, &o.plan);
	return o;
}

/* The same with a confidence, in some questions: runs of one's own judge, or readings of each plan's kind. */
static void be_sure(struct oom_question *o, uint64_t luck, const struct oom_calibration *c)
{
	o->by_kind = luck % 3 == 1;
	o->calibration = luck % 3 == 2 ? c : NULL;
	o->confidence = luck % 3 ? 0.5 + (double)(luck / 3 % 49) / 100 : 0;
}

bool agree_estimate(const struct subject *s, struct oom_question *o, struct oom_judged *out)
{
	struct oom_error err = {""};

	oom_question_settle(o);
	return !oom_answer_as_asked(s->ev, o, out, &err);
}

enum finding agree_same(const char *who, uint64_t used, bool fits, const struct oom_judged *truth,
			 char *words, size_t size)
{
	if (used == truth->eval.used_bytes && fits == truth->fits_gpu)
		return HOLDS;
	snprintf(words, size, "%s says %llu bytes used, fits %d; estimate %llu, fits %d", who,
		 (unsigned long long)used, fits, (unsigned long long)truth->eval.used_bytes,
		 truth->fits_gpu);
	return BROKEN;
}

/* The same question about another plan. */
static enum finding same_plan(const struct subject *s, const struct oom_question *o, const char *who,
			      const struct oom_plan *p, uint64_t used, bool fits, char *words, size_t size)
{
	struct oom_question other = *o;
	struct oom_judged j;

	other.plan = *p;
	if (agree_estimate(s, &other, &j))
		return agree_same(who, used, fits, &j, words, size);
	snprintf(words, size, "%s gives a plan that estimate refuses", who);
	return BROKEN;
}

/* ---- the library's other calls ---- */

static enum finding judge(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_question o = agree_asked(s, q);
	struct oom_error err = {""};
	struct oom_judged truth;
	struct oom_eval e;
	bool fits, replayed;

	if (!agree_estimate(s, &o, &truth) ||
	    oom_judge(s->ev, s->model, &truth.plan, o.capacity_bytes, 0, &e, &fits, &err) ||
	    oom_judge(s->ev, s->model, &truth.plan, o.capacity_bytes, OOM_EVAL_REPLAY, &e, &replayed,
		      &err))
		return SILENT;
	if (fits != replayed) {
		snprintf(words, size, "judge says fits %d by bounds, %d by replay", fits, replayed);
		return BROKEN;
	}
	/* the judge speaks of the step; the run's evaluation is asked for apart */
	fits = fits && oom_evaluation_fits(s->ev, s->model, &truth.plan, o.capacity_bytes);
	return agree_same("judge", e.used_bytes, fits, &truth, words, size);
}

static enum finding searched(const struct subject *s, const struct oom_question *o,
			     const struct oom_search *found, char *words, size_t size)
{
	for (size_t i = 0; found->found && i <= found->n_alternatives; i++) {
		const struct oom_candidate *c = i ? &found->alternative[i - 1] : &found->best;

		if (same_plan(s, o, i ? "an alternative" : "the search", &c->plan, c->used_bytes, true,
			      words, size) == BROKEN)
			return BROKEN;
	}
	for (size_t i = 0; i < found->n_reasons; i++) {
		const struct oom_reason *r = &found->reason[i];

		if (r->runs && same_plan(s, o, "a reason", &r->without, r->used_bytes, r->fits, words,
					 size) == BROKEN)
			return BROKEN;
	}
	return HOLDS;
}

static enum finding planned(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_question o = agree_asked(s, q);
	struct oom_answer *a = malloc(sizeof(*a));
	struct oom_error err = {""};
	struct oom_calibration c;
	struct oom_judged truth;
	enum finding found = SILENT;

	if (!oom_calibration_default(&c, &err))
		be_sure(&o, q->luck, &c);
	if (a && agree_estimate(s, &o, &truth) && !oom_answer(s->ev, &o, a, &err)) {
		found = agree_same("plan, as asked", a->as_asked.eval.used_bytes, a->as_asked.fits_gpu, &truth,
			     words, size);
		if (found == HOLDS)
			found = same_plan(s, &o, "the ladder", &a->ladder.plan, a->ladder.eval.used_bytes,
					  a->ladder.fits, words, size);
		if (found == HOLDS)
			found = same_plan(s, &o, "plan", &a->best.plan, a->best.eval.used_bytes,
					  a->best.fits_gpu, words, size);
		if (found == HOLDS && a->searched)
			found = searched(s, &o, &a->search, words, size);
	}
	free(a);
	return found;
}

/* A solution is a plan that estimate says fits, with exact changes and under a calibration as well. */
static enum finding solved_by(const struct subject *s, const struct question *q, char *words, size_t size)
{
	static const char *const knobs[] = {"seq-len", "micro-batch", "num-layers", "gpus", "lora-r"};
	const char *knob = knobs[q->luck % 5];
	struct oom_question o = agree_asked(s, q);
	struct oom_calibration c;
	struct oom_error err = {""};
	struct oom_solution found;

	if (oom_calibration_default(&c, &err))
		return SILENT;
	oom_question_settle(&o);
	be_sure(&o, q->luck / 5, &c);
	if (oom_answer_solve(s->ev, &o, knob, 0, q->luck / 15 % 2, &found, &err) || !found.tried || !found.exists)
		return SILENT;
	return same_plan(s, &o, knob, &found.plan, found.eval.used_bytes, true, words, size);
}

static enum finding solved(const struct subject *s, const struct question *q, char *words, size_t size)
{
	static const char *const knobs[] = {"micro-batch", "seq-len", "gpus", "lora-r", "num-layers"};
	const char *knob = knobs[q->luck % 5];
	struct oom_question o = agree_asked(s, q);
	struct oom_error err = {""};
	struct oom_solution found;
	struct oom_judged truth;
	struct oom_plan p;

	oom_question_settle(&o);
	if (oom_answer_solve(s->ev, &o, knob, 0, false, &found, &err) || !found.exists)
		return SILENT;
	if (same_plan(s, &o, knob, &found.plan, found.eval.used_bytes, true, words, size) == BROKEN)
		return BROKEN;
	if (found.at_limit || found.neighbour_bytes == UINT64_MAX || o.plan.global_batch)
		return HOLDS;
	p = found.plan;
	*oom_plan_field(&p, oom_knob_find(knob)) = found.neighbour;
	if (oom_same_word(knob, "gpus")) {
		p.nodes = p.gpus_per_node = 0;
		oom_plan_settle(&p);
		return HOLDS;           /* nodes follow, in solve's own way */
	}
	o.plan = p;
	if (!agree_estimate(s, &o, &truth)) {
		snprintf(words, size, "the solution's neighbour is a plan that estimate refuses");
		return BROKEN;
	}
	/* where the step fits and the run's evaluation does not, that is what solve tells */
	if (found.neighbour_evaluates && !truth.fits_gpu && !truth.eval_fits &&
	    truth.eval_used_bytes == found.neighbour_bytes)
		return HOLDS;
	return agree_same("the solution's neighbour", found.neighbour_bytes, false, &truth, words, size);
}

/* ---- commands ---- */

/* Runs the program; its output is the caller's to free, its status 0 to 255. */
static char *run(const char *arguments, int *status)
{
	char command[4000], *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length), *in;
	int c;

	snprintf(command, sizeof(command), "%s %s 2>/dev/null", oomplan, arguments);
	in = popen(command, "r");
	if (!in || !out) {
		perror(command);
		exit(1);
	}
	while ((c = getc(in)) != EOF)
		putc(c, out);
	c = pclose(in);
	*status = WIFEXITED(c) ? WEXITSTATUS(c) : 255;
	fclose(out);
	return text;
}

static double number(const cJSON *json, const char *object, const char *key)
{
	const cJSON *o = object ? cJSON_GetObjectItem(json, object) : json;
	const cJSON *n = cJSON_GetObjectItem(o, key);

	return cJSON_IsNumber(n) ? n->valuedouble : -1;
}

static void command_of(const struct subject *s, const struct question *q, const char *what, char *buf,
		       size_t size)
{
	struct subject named = *s;
	char options[1600];

	memcpy(named.name, s->path, sizeof(named.name));
	snprintf(buf, size, "%s %s", what, question_options(q, &named, options, sizeof(options)));
}

/* estimate and plan: what they print, what they return, and the library. */
static enum finding commands(const struct subject *s, const struct question *q, char *words, size_t size)
{
	struct oom_question o = agree_asked(s, q);
	struct oom_judged truth;
	enum finding found = HOLDS;
	char line[2000], *text;
	int json_status, text_status;
	cJSON *json;
	double used;

	if (!agree_estimate(s, &o, &truth))
		return SILENT;
	command_of(s, q, "estimate --json", line, sizeof(line));
	text = run(line, &json_status);
	json = cJSON_Parse(text);
	used = number(json, "estimate", "used_bytes");
	if (used != (double)truth.eval.used_bytes || json_status != !truth.fits) {
		snprintf(words, size, "estimate --json: %.0f used, exit %d; the library %llu, fits %d: %.120s",
			 used, json_status, (unsigned long long)truth.eval.used_bytes, truth.fits, text);
		found = BROKEN;
	}
	cJSON_Delete(json);
	free(text);
	command_of(s, q, "estimate --quiet", line, sizeof(line));
	text = run(line, &text_status);
	if (found == HOLDS && text_status != json_status) {
		snprintf(words, size, "estimate: exit %d, with --json %d: %.200s", text_status, json_status,
			 text);
		found = BROKEN;
	}
	free(text);
	return found;
}

const struct law agreements[] = {
	{"judge says what estimate says", judge, 2},
	{"plan, ladder, search and reasons say what estimate says", planned, 16},
	{"solve's answer fits and its neighbour does not", solved, 4},
	{"solve with exact changes, and by a calibration, fits", solved_by, 16},
	{"sweep says what estimate says", agree_swept, 4},
	{"sweep asks each card whether it has bf16", agree_swept_by_card, 8},
	{"a runs file says what estimate says", agree_listed, 4},
	{"the command says what the library says", commands, 16},
	{NULL, NULL, 0},
};
