/* Inverse questions, by doubling and bisection.
 *
 * Values are gone through in the steps that a person would take: 64 tokens, a patch or a window, whole
 * nodes, ranks of 8.  What is smaller than one step is looked for in steps of one.
 *
 * What the allocator reserves does not always rise with a knob (segments of 2 and 20 MiB), so neither
 * does the verdict fall only once.  The bisection keeps what it was told: its lower end was judged
 * to fit, its upper end not to.  They end as neighbours, whatever lies beyond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/engine.h"
#include "oomplan/host.h"
#include "oomplan/rules.h"
#include "parts.h"

/* Between lo, which fits, and hi, which does not or cannot run: values that fit are below those
 * that do not. */
static enum oom_status bisect(const struct solver *s, int64_t *lo, int64_t hi)
{
	while (hi - *lo > 1) {
		int64_t mid = *lo + (hi - *lo) / 2;
		const int64_t from = mid;
		struct oom_eval e;
		bool yes, ran;
		const enum oom_status st = solver_next(s, &mid, hi - 1, &e, &yes, &ran);

		if (st)
			return st;
		if (yes)
			*lo = mid;
		else
			/* nothing from here to mid runs, and mid does not fit */
			hi = from;
	}
	return OOM_OK;
}

/* The plan of the value, as it is reported. */
static enum oom_status describe(const struct solver *s, int64_t steps, struct oom_solution *out)
{
	enum oom_status st;
	bool yes;

	out->value = solver_value(s, steps);
	out->step = s->step;
	st = solver_price(s, steps, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &out->eval, &yes, &out->plan);
	out->evaluation_bytes = st || out->plan.evaluates != OOM_EVALUATES_YES ?
					0 :
					oom_evaluation_bytes(s->ev, s->model, &out->plan);
	if (!st && !yes && out->eval.used_bytes <= oom_budget(s->q->capacity_bytes, &out->plan))
		out->host_bytes = solver_host_short(s, &out->plan, &out->eval);
	return st;
}

/* The next value, which does not fit.  With changes there is no one plan of it. */
static enum oom_status look_beyond(const struct solver *s, int64_t steps, bool ran, struct oom_solution *out)
{
	struct oom_eval e;
	struct oom_plan p;
	bool yes;
	enum oom_status st = OOM_OK;

	out->neighbour = ran ? solver_value(s, steps) : 0;
	out->neighbour_bytes = UINT64_MAX;
	out->neighbour_evaluates = false;
	if (!ran || s->found)
		return st;
	st = solver_price(s, steps, OOM_EVAL_REPLAY, &e, &yes, &p);
	out->neighbour_bytes = e.used_bytes;
	/* where it is the host or the evaluation that has no room, that */
	if (st || e.used_bytes > oom_budget(s->q->capacity_bytes, &p))
		return st;
	out->neighbour_evaluates = !oom_evaluation_fits(s->ev, s->model, &p, s->q->capacity_bytes);
	out->host_bytes = out->neighbour_evaluates ? 0 : solver_host_short(s, &p, &e);
	if (out->neighbour_evaluates)
		out->neighbour_bytes = oom_evaluation_bytes(s->ev, s->model, &p);
	return st;
}

static enum oom_status largest(const struct solver *s, int64_t top, struct oom_solution *out)
{
	int64_t lo = s->step == 1 && s->knob->min > 0 ? (int64_t)s->knob->min : 1, hi;
	struct oom_eval e;
	bool yes, ran;
	enum oom_status st = solver_next(s, &lo, top, &e, &yes, &ran);

	out->exists = yes;
	hi = lo;
	if (st || !yes)
		return st ? st : describe(s, lo, out);
	while (yes && hi < top) {
		lo = hi;
		hi = hi > top / 2 ? top : hi * 2;
		st = solver_next(s, &hi, top, &e, &yes, &ran);
		if (st)
			return st;
	}
	if (yes)
		lo = hi;
	st = bisect(s, &lo, hi);
	if (st)
		return st;
	out->at_limit = lo == top;
	st = describe(s, lo, out);
	if (!st && !out->at_limit) {
		int64_t next = lo + 1;

		st = solver_next(s, &next, top, &e, &yes, &ran);
		if (!st)
			st = look_beyond(s, next, ran, out);
	}
	return st;
}

/* In steps, and where not even one of them fits, below it. */
static enum oom_status largest_in_steps(struct solver *s, struct oom_solution *out)
{
	const int64_t step = s->step;
	enum oom_status st = OOM_ERR_INVALID;
	struct oom_solution below;

	if (s->most / step)
		st = largest(s, s->most / step, out);
	if (s->most / step && (st || out->exists || step == 1))
		return st;
	s->step = 1;
	below = *out;
	st = largest(s, step < s->most ? step : s->most, &below);
	/* where nothing below one step runs at all, the first step is what does not fit */
	if (!st && (below.exists || below.eval.used_bytes != UINT64_MAX || s->most < step))
		*out = below;
	return st;
}

/* OOM_ERR_INVALID: two values are the same run, so that there is no largest. */
static enum oom_status has_effect(const struct solver *s)
{
	struct oom_eval one = {0}, two = {0};   /* of what does not run, price says no more than that */
	struct oom_plan p;
	bool yes;
	enum oom_status st = solver_price(s, 8, OOM_EVAL_FAST, &one, &yes, &p);

	if (!st)
		st = solver_price(s, 16, OOM_EVAL_FAST, &two, &yes, &p);
	if (st || one.used_bytes == UINT64_MAX || two.used_bytes == UINT64_MAX ||
	    one.overall_peak != two.overall_peak)
		return st;
	return oom_error_set(s->err, OOM_ERR_INVALID, "%s has no effect on a model of type %s%s", s->knob->name,
			     oom_model_type(s->model),
			     oom_model_shape(s->model).image_size && !s->plan.images ? " without --images" : "");
}

/* Where the values end: at the knob's own range, or before it where a person would. */
static void set_range(struct solver *s, const struct solved *what, struct oom_solution *out)
{
	const char *why = "";
	const int64_t most = what->most && !s->q->whole_range ? what->most(s->model, s->q->plan, &why) : 0;

	s->most = (int64_t)s->knob->max;
	out->limit = "";
	if (most && most < s->most) {
		s->most = most;
		out->limit = why;
	}
}

static enum oom_status fewest_gpus(const struct solver *s, struct oom_solution *out)
{
	enum { MOST = 65536 };
	const int64_t top = s->nodes ? MOST / s->node : s->node ? s->node - 1 + MOST / s->node : MOST;
	int64_t hi = 1, lo = 0, ran = 1;
	struct oom_eval e;
	bool yes = false;
	enum oom_status st = OOM_OK;

	for (;;) {
		st = solver_fits(s, hi, &e, &yes);
		if (st || yes)
			break;
		if (e.used_bytes != UINT64_MAX)
			ran = hi;
		lo = hi;
		if (hi == top)
			break;
		hi = hi > top / 2 ? top : hi * 2;
	}
	out->exists = yes;
	if (st || !yes)
		return st ? st : describe(s, ran, out);
	while (hi - lo > 1) {
		const int64_t mid = lo + (hi - lo) / 2;

		st = solver_fits(s, mid, &e, &yes);
		if (st)
			return st;
		if (yes)
			hi = mid;
		else
			lo = mid;
	}
	out->at_limit = hi == 1;
	st = describe(s, hi, out);
	if (!st && hi > 1)
		st = look_beyond(s, hi - 1, true, out);
	return st;
}

static enum oom_status memory(struct solver *s, struct oom_solution *out)
{
	const enum oom_status st = oom_evaluate(s->ev, s->model, &s->plan,
						OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &out->eval, s->err);
	uint64_t most = out->eval.used_bytes;

	if (!st && s->plan.evaluates == OOM_EVALUATES_YES) {
		const uint64_t evaluation = oom_evaluation_bytes(s->ev, s->model, &s->plan);

		most = evaluation > most ? evaluation : most;
	}
	out->exists = !st;
	out->plan = s->plan;
	out->needed_bytes = (uint64_t)((double)most / (1 - s->plan.margin)) + 1;
	return st;
}

static enum oom_status solve(struct solver *s, const struct solved *what, struct oom_solution *out)
{
	const struct oom_solve_query *q = s->q;
	const bool global = what->batch && what->by;
	enum oom_status st;

	s->knob = oom_knob_find(what->by ? what->by : what->knob);
	if (global)
		s->plan.global_batch = 0;
	s->plain_batch = what->batch;
	s->step = q->step ? q->step : what->step ? what->step(s->model, q->plan) : 1;
	out->fewest = what->fewest;
	if (what->fewest && (what->nodes || !q->step)) {
		st = solved_node(q, out, s->err);
		if (st)
			return st;
		s->node = out->node;
	} else {
		s->node = 0;
	}
	s->nodes = what->nodes;
	if (what->evaluates)
		s->plan.evaluates = OOM_EVALUATES_YES;
	st = oom_plan_check_open(q->plan, s->knob, s->err);
	if (st)
		return st;
	set_range(s, what, out);
	if (what->may_idle && !s->found)
		st = has_effect(s);
	if (st)
		return st;
	st = what->fewest ? fewest_gpus(s, out) : largest_in_steps(s, out);
	if (!st && out->exists && global)
		out->value *= q->plan->grad_accum * oom_plan_data_parallel(q->plan);
	if (s->nodes) {
		out->value /= s->node;
		out->neighbour /= s->node;
	}
	return st;
}

enum oom_status oom_solve(struct oom_evaluator *ev, const struct oom_model *model,
			  const struct oom_solve_query *q, struct oom_solution *out,
			  struct oom_error *err)
{
	struct solver s = {.ev = ev, .model = model, .plan = *q->plan, .q = q, .err = err};
	const struct solved *what;
	enum oom_status st;

	memset(out, 0, sizeof(*out));
	out->limit = "";
	st = solved_find(q->knob, &what, err);
	if (st)
		return st;
	out->tried = !q->exact_changes ||
		     (!what->no_changes && !oom_engine_at((size_t)q->plan->engine)->degrees);
	if (!out->tried)
		return OOM_OK;
	if (!strcmp(what->knob, "gpu-memory"))
		return memory(&s, out);
	if (q->exact_changes) {
		s.found = malloc(sizeof(*s.found));
		if (!s.found)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	}
	st = solve(&s, what, out);
	free(s.found);
	if (oom_evaluator_starved(ev) && !st)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	return st;
}
