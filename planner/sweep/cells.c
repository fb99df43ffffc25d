/* From a cell's number to a plan, and its price. */
#include <stdlib.h>
#include <string.h>

#include "oomplan/rules.h"
#include "sweep.h"

/* Value k of a variable.  Cells come in order: mostly the run of the last one serves. */
static int64_t value_of(const struct sweep_var *v, uint64_t k, size_t *last)
{
	size_t lo = 0, hi = v->n_values;

	if (v->point)
		return v->point[k];
	if (*last < hi && v->values[*last].from <= k &&
	    (*last + 1 == hi || k < v->values[*last + 1].from))
		lo = *last;
	else if (*last + 1 < hi && v->values[*last + 1].from == k)
		lo = *last + 1;
	else
		while (hi - lo > 1) {
			const size_t mid = lo + (hi - lo) / 2;

			if (v->values[mid].from <= k)
				lo = mid;
			else
				hi = mid;
		}
	*last = lo;
	return v->values[lo].start + (int64_t)(k - v->values[lo].from) * v->values[lo].step;
}

static void set_knob(struct sweep_worker *w, const struct oom_option *k, int64_t value)
{
	struct sweep_cell *c = &w->cell;

	if (k->offset == offsetof(struct oom_plan, compute_capability))
		memcpy(&w->capability, &value, sizeof(value));
	else if (k->kind == OOM_OPTION_NAMES)
		oom_plan_set(&c->plan, k, w->s->text[value], NULL);
	else
		memcpy((char *)&c->plan + k->offset, &value, sizeof(value));
	if (k->offset == offsetof(struct oom_plan, gpus))
		w->gpus = value;
	if (k->offset == offsetof(struct oom_plan, nodes))
		w->nodes = value;
	if (k->offset == offsetof(struct oom_plan, zero_stage)) {
		w->zero = value;
		c->plan.zero_said = 1;
	}
	if (k->offset == offsetof(struct oom_plan, precision)) {
		w->precision = value;
		c->plan.precision_by_card = 0;  /* nothing is left to the card */
	}
}

bool sweep_knob_is_plain(const struct oom_option *k)
{
	return k->kind != OOM_OPTION_NAMES && k->offset != offsetof(struct oom_plan, compute_capability) &&
	       k->offset != offsetof(struct oom_plan, gpus) &&
	       k->offset != offsetof(struct oom_plan, nodes) &&
	       k->offset != offsetof(struct oom_plan, zero_stage) &&
	       k->offset != offsetof(struct oom_plan, precision);
}

static void set_axis(struct sweep_worker *w, size_t i)
{
	const struct sweep_axis *a = &w->s->axis[i];
	struct sweep_cell *c = &w->cell;

	for (size_t j = 0; j < a->n_vars; j++) {
		const int64_t v = value_of(&a->var[j], c->at[i], &w->run[i]);

		switch (a->var[j].kind) {
		case SWEEP_GPU: c->gpu = &w->s->card[v]; break;
		case SWEEP_MODEL:
			c->named = &w->s->model[v];
			c->model = c->named->made;
			w->moved = true;
			w->near = false;
			break;
		case SWEEP_KNOB:
			if (a->var[j].plain)
				memcpy((char *)&c->plan + a->var[j].knob->offset, &v, sizeof(v));
			else
				set_knob(w, a->var[j].knob, v);
			w->moved = true;
			w->near = w->near && a->var[j].near;
			break;
		}
	}
	w->stale |= 1u << i;
}

/* The card's capability counts where none was asked for; GPUs and nodes follow from each other, and the
 * precision from model and engine, or from the card. */
static void settle(struct sweep_worker *w)
{
	struct sweep_cell *c = &w->cell;
	const double now = w->capability > 0 ? w->capability :
			   c->gpu	     ? c->gpu->compute_capability :
					       0;

	if (now < c->plan.compute_capability || now > c->plan.compute_capability) {
		c->plan.compute_capability = now;
		w->moved = true;
		w->near = w->near && !c->plan.precision_by_card;
	}
	if (w->near)                    /* neither model, engine nor GPUs have changed */
		return;
	c->plan.gpus = w->gpus;
	c->plan.nodes = w->nodes;
	c->plan.zero_stage = w->zero;
	oom_plan_settle(&c->plan);
	c->plan.precision = w->precision;
	if (c->model)
		oom_model_settle_precision(c->model, &c->plan, NULL);
	oom_engine_respell(&c->plan);   /* goes by the name that estimate has for it */
}

/* Cell number n: the last axis runs fastest. */
void sweep_seek(struct sweep_worker *w, uint64_t n)
{
	struct oom_sweep *s = w->s;

	w->near = false;
	w->cell.plan = s->base;
	w->capability = s->base.compute_capability;
	w->gpus = s->base.gpus;
	w->nodes = s->base.nodes;
	w->precision = s->base.precision;
	w->zero = s->base.zero_stage;
	for (size_t i = s->n_axes; i-- > 0;) {
		w->cell.at[i] = n % s->axis[i].n;
		n /= s->axis[i].n;
		set_axis(w, i);
	}
	settle(w);
	w->stale |= SWEEP_SEEK;
	w->moved = true;
}

void sweep_step(struct sweep_worker *w)
{
	struct oom_sweep *s = w->s;

	for (size_t i = s->n_axes; i-- > 0;) {
		w->cell.at[i] = w->cell.at[i] + 1 < s->axis[i].n ? w->cell.at[i] + 1 : 0;
		set_axis(w, i);
		if (w->cell.at[i])
			break;
	}
	settle(w);
}

/* The plan with what follows from the model, as every command prices it; mostly it is as it is. */
static const struct oom_plan *settled(struct sweep_cell *c)
{
	const struct oom_plan *p = &c->plan;
	char note[300];

	if (!p->global_batch && (!oom_plan_adapted(p) || *p->lora_targets) &&
	    oom_model_task(c->model) != OOM_TASK_IMAGE_CLS)
		return p;
	c->settled = *p;
	oom_plan_settle_for(&c->settled, c->model, note);
	return &c->settled;
}

/* The cheapest plan that fits; where there is none, what was asked is described. */
static enum oom_status search(struct sweep_worker *w, const struct oom_sweep_options *o)
{
	struct sweep_cell *c = &w->cell;
	const struct oom_plan *asked = settled(c);
	const struct oom_search_query q = {.asked = &c->settled,
					   .capacity_bytes = c->capacity,
					   .gpu = c->gpu,
					   .allow = o->allow,
					   .objective = o->objective,
					   .best_only = true,
					   .verdicts_only = w->s->need != SWEEP_BYTES};
	enum oom_status st;
	bool yes;

	if (asked != &c->settled)
		c->settled = *asked;
	oom_engine_respell(&c->settled);
	st = oom_search(w->ev, c->model, &q, &c->found, &c->err);
	c->searched = true;
	c->asked = q.asked;
	c->answer = !st && c->found.found ? &c->found.best.plan : c->asked;
	if (!st)
		st = oom_judge(w->ev, c->model, c->answer, q.capacity_bytes,
			       w->s->need == SWEEP_BYTES ? OOM_EVAL_REPLAY : OOM_EVAL_FAST, &c->eval,
			       &yes, &c->err);
	return st;
}

/* Many cards share a plan's price, and its replay where one of them needs it; but not what it comes to
 * on a card that is full. */
static bool fits(struct sweep_worker *w, uint64_t capacity, unsigned flags)
{
	struct sweep_cell *c = &w->cell;
	const enum oom_decision known = oom_decide_on(&c->eval, capacity, c->asked);
	bool yes;

	/* the bytes asked for are the step's on this card, also where a rollout engine cannot wake up beside it */
	switch (flags & OOM_EVAL_REPLAY ? oom_decide(&c->eval, oom_budget(capacity, c->asked)) : known) {
	case OOM_DOES_NOT_FIT: return false;
	case OOM_FITS:
		if (!c->eval.later_bytes)
			return known != OOM_DOES_NOT_FIT;
		break;                          /* what the card has room for of it is the card's own */
	case OOM_UNDECIDED: break;
	}
	w->last_status = oom_judge(w->ev, c->model, c->asked, capacity, flags, &c->eval, &yes, &c->err);
	w->moved = c->eval.wanted_bytes != c->eval.used_bytes || c->eval.later_bytes;
	return yes;
}

static void price(struct sweep_worker *w, uint64_t capacity)
{
	struct sweep_cell *c = &w->cell;
	const unsigned flags = w->s->need == SWEEP_BYTES ? OOM_EVAL_REPLAY : OOM_EVAL_FAST;

	if (w->moved) {
		/* what follows from the model does not hang on knobs that are near, but for the batch */
		c->asked = w->near && c->asked == &c->plan ? c->asked : settled(c);
		w->last_status = oom_evaluate(w->ev, c->model, c->asked,
					      flags | (w->near ? OOM_EVAL_NEAR : 0), &c->eval, &c->err);
		/* a verdict may ask further questions */
		w->near = w->s->need == SWEEP_PRICE;
	}
	w->moved = false;
	c->fits = !w->last_status && capacity && w->s->need != SWEEP_PRICE && fits(w, capacity, flags) &&
		  oom_evaluation_fits(w->ev, c->model, c->asked, capacity);
	c->status = w->last_status;             /* of the verdict's replay, too */
	c->ok = !w->last_status;
	c->answer = c->asked;
}

/* The phase of an evaluation is that of its own batch, between steps, as estimate has it.  Where logits pile up it
 * already is. */
static void evaluation(struct sweep_worker *w)
{
	struct sweep_cell *c = &w->cell;

	if (!c->ok || c->answer->eval_accumulation)
		return;
	c->eval.peak[OOM_PHASE_EVAL] = oom_evaluation_of(w->ev, c->model, c->answer).allocated_bytes;
	w->near = false;                /* another question was asked */
}

static void price_cell(struct sweep_worker *w, const struct oom_sweep_options *o)
{
	struct sweep_cell *c = &w->cell;
	const uint64_t capacity = w->s->capacity ? w->s->capacity : c->gpu ? c->gpu->capacity_bytes : 0;

	c->capacity = capacity;
	c->answer = &c->plan;
	c->searched = false;
	if (!c->model) {
		c->ok = c->fits = false;
		c->status = OOM_ERR_INVALID;
		oom_error_set(&c->err, OOM_ERR_INVALID, "%s",
			      c->named ? c->named->refused.text : "no model");
		return;
	}
	if (o->plan_each && capacity) {
		c->status = search(w, o);
		c->ok = !c->status;
		c->fits = c->ok && c->found.found &&
			  oom_evaluation_fits(w->ev, c->model, c->answer, capacity);
		return;
	}
	price(w, capacity);
}

void sweep_price(struct sweep_worker *w, const struct oom_sweep_options *o)
{
	struct sweep_cell *c = &w->cell;

	price_cell(w, o);
	if (w->s->evaluations)
		evaluation(w);
	if (oom_evaluator_starved(w->ev)) {
		c->ok = c->fits = false;
		c->status = oom_error_set(&c->err, OOM_ERR_MEMORY, "out of host memory");
		w->moved = true;
	}
}

bool sweep_worker_init(struct sweep_worker *w, struct oom_sweep *s)
{
	memset(w, 0, sizeof(*w));
	w->s = s;
	w->ev = oom_evaluator_new();
	sweep_row_init(&w->row, s);
	return w->ev;
}

void sweep_worker_release(struct sweep_worker *w)
{
	oom_evaluator_free(w->ev);
}
