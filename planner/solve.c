/* Inverse questions, by doubling and bisection.
 *
 * What the allocator reserves does not always rise with a knob (segments of 2 and 20 MiB), so neither
 * does the verdict fall only once.  The bisection keeps what it was told: its lower end was judged
 * to fit, its upper end not to.  They end as neighbours, whatever lies beyond. */
#include <stdio.h>
#include <string.h>

#include "moves.h"
#include "oomplan/rules.h"
#include "oomplan/search.h"

struct solver {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	const struct oom_plan *plan;
	const struct oom_option *knob;
	uint64_t capacity;
	struct oom_error *err;
};

/* *whole: the value is one, which of micro-batches under a global batch only its divisors are. */
static struct oom_plan plan_with(const struct solver *s, int64_t value, bool *whole)
{
	struct oom_plan p = *s->plan;
	char note[300];

	*oom_plan_field(&p, s->knob) = value;
	/* adapters that nobody had asked for get the family's targets, as for every command */
	if (oom_plan_adapted(&p) && !*p.lora_targets)
		snprintf(p.lora_targets, sizeof(p.lora_targets), "%s",
			 oom_model_lora_targets(s->model));
	if (value <= p.global_batch && oom_plan_field(&p, s->knob) == &p.micro_batch)
		oom_plan_settle_batch(&p, note);
	*whole = *oom_plan_field(&p, s->knob) == value;
	if (!strcmp(s->knob->name, "gpus") && shard_for_many(&p))
		oom_plan_relax(&p);
	/* more GPUs see a global batch in fewer micro-steps, as whoever asks for them is told */
	if (p.global_batch && oom_plan_field(&p, s->knob) != &p.micro_batch)
		oom_plan_settle_batch(&p, note);
	return p;
}

/* Does the plan fit with this value?  A value the model cannot run with does not. */
static enum oom_status price(const struct solver *s, int64_t value, unsigned flags,
			     struct oom_eval *e, bool *yes)
{
	bool whole;
	const struct oom_plan p = plan_with(s, value, &whole);
	const enum oom_status st = whole ? oom_judge(s->ev, s->model, &p, s->capacity, flags, e,
						     yes, s->err) :
					   OOM_ERR_INVALID;

	*yes = *yes && whole;
	if (st)
		e->used_bytes = UINT64_MAX;
	return st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT ? OOM_OK : st;
}

static enum oom_status fits(const struct solver *s, int64_t value, struct oom_eval *e, bool *yes)
{
	return price(s, value, OOM_EVAL_FAST, e, yes);
}

/* Not every value runs (an image's side may have to be a multiple of the patch): *value moves up to
 * the next that does, within `most` and as far as such steps reach.  *ran is false when there is
 * none. */
static enum oom_status next_that_runs(const struct solver *s, int64_t *value, int64_t most,
				      struct oom_eval *e, bool *yes, bool *ran)
{
	enum { STEPS = 64 };
	enum oom_status st = OOM_OK;

	*ran = *yes = false;
	for (int64_t v = *value; !st && v <= most && v - *value < STEPS; v++) {
		st = fits(s, v, e, yes);
		if (!st && e->used_bytes != UINT64_MAX) {
			*ran = true;
			*value = v;
			return OOM_OK;
		}
	}
	return st;
}

/* Between lo, which fits, and hi, which does not or cannot run: values that fit are below those
 * that do not. */
static enum oom_status bisect(const struct solver *s, int64_t *lo, int64_t hi)
{
	while (hi - *lo > 1) {
		int64_t mid = *lo + (hi - *lo) / 2;
		const int64_t from = mid;
		struct oom_eval e;
		bool yes, ran;
		const enum oom_status st = next_that_runs(s, &mid, hi - 1, &e, &yes, &ran);

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
static enum oom_status describe(const struct solver *s, struct oom_solution *out)
{
	bool yes;

	out->plan = plan_with(s, out->value, &yes);
	return price(s, out->value, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &out->eval, &yes);
}

static enum oom_status largest(const struct solver *s, struct oom_solution *out)
{
	const int64_t top = (int64_t)s->knob->max;
	int64_t lo = (int64_t)s->knob->min > 0 ? (int64_t)s->knob->min : 1, hi;
	struct oom_eval e;
	bool yes, ran;
	enum oom_status st = next_that_runs(s, &lo, top, &e, &yes, &ran);

	out->exists = yes;
	out->value = hi = lo;
	if (st || !yes)
		return st ? st : describe(s, out);
	while (yes && hi < top) {
		lo = hi;
		hi = hi > top / 2 ? top : hi * 2;
		st = next_that_runs(s, &hi, top, &e, &yes, &ran);
		if (st)
			return st;
	}
	if (yes)
		lo = hi;
	st = bisect(s, &lo, hi);
	if (st)
		return st;
	out->value = lo;
	out->at_limit = lo == top;
	st = describe(s, out);
	if (!st && !out->at_limit) {
		int64_t next = lo + 1;

		st = next_that_runs(s, &next, top, &e, &yes, &ran);
		if (!st && ran)
			st = price(s, next, OOM_EVAL_REPLAY, &e, &yes);
		out->neighbour = ran ? next : 0;
		out->neighbour_bytes = ran ? e.used_bytes : UINT64_MAX;
	}
	return st;
}

static enum oom_status fewest_gpus(const struct solver *s, struct oom_solution *out)
{
	int64_t hi = 1, lo = 0;
	struct oom_eval e;
	bool yes = false;
	enum oom_status st = OOM_OK;

	for (; hi <= 65536; hi *= 2) {
		st = fits(s, hi, &e, &yes);
		if (st || yes)
			break;
		lo = hi;
	}
	out->exists = yes;
	out->value = yes ? hi : lo;
	if (st || !yes)
		return st ? st : describe(s, out);
	while (hi - lo > 1) {
		const int64_t mid = lo + (hi - lo) / 2;

		st = fits(s, mid, &e, &yes);
		if (st)
			return st;
		if (yes)
			hi = mid;
		else
			lo = mid;
	}
	out->value = hi;
	out->at_limit = hi == 1;
	st = describe(s, out);
	if (!st && hi > 1) {
		st = price(s, hi - 1, OOM_EVAL_REPLAY, &e, &yes);
		out->neighbour = hi - 1;
		out->neighbour_bytes = e.used_bytes;
	}
	return st;
}

enum oom_status oom_solve(struct oom_evaluator *ev, const struct oom_model *model,
			  const struct oom_plan *plan, const char *knob, uint64_t capacity,
			  struct oom_solution *out, struct oom_error *err)
{
	static const char *const can[] = {"micro-batch", "seq-len",	      "tgt-len",
					  "image-size",	 "num-layers",	      "lora-r",
					  "grad-accum",	 "global-batch",      "gpus",
					  "gpu-memory",	 "eval-accumulation", NULL};
	struct oom_plan any = *plan;
	struct solver s = {ev, model, &any, NULL, capacity, err};
	const char *near;
	bool known = false;
	enum oom_status st;

	memset(out, 0, sizeof(*out));
	if (!strcmp(knob, "layers"))
		knob = "num-layers";
	if (!strcmp(knob, "lora-rank"))
		knob = "lora-r";
	for (size_t i = 0; can[i]; i++)
		known |= !strcmp(can[i], knob);
	near = oom_nearest(knob, can);
	if (!known)
		return oom_error_set(err, OOM_ERR_INVALID, "cannot solve for \"%s\"%s%s%s", knob,
				     near ? " (did you mean \"" : "", near ? near : "",
				     near ? "\"?)" : "");
	if (!strcmp(knob, "gpu-memory")) {
		st = oom_evaluate(ev, model, plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &out->eval,
				  err);
		out->exists = !st;
		out->plan = *plan;
		out->needed_bytes = (uint64_t)((double)out->eval.used_bytes / (1 - plan->margin)) +
				    1;
		return st;
	}
	/* the global batch costs nothing beyond the micro-batch it is cut into: the micro-batch
	 * is what is solved for */
	s.knob = oom_knob_find(!strcmp(knob, "global-batch") ? "micro-batch" : knob);
	if (!strcmp(knob, "global-batch"))
		any.global_batch = 0;
	st = oom_plan_check_open(plan, s.knob, err);
	if (!st)
		st = strcmp(knob, "gpus") ? largest(&s, out) : fewest_gpus(&s, out);
	if (!st && out->exists && !strcmp(knob, "global-batch"))
		out->value *= plan->grad_accum * oom_plan_data_parallel(plan);
	return st;
}
