/* The climb.
 *
 * A rung is judged by pricing the plan with and without it; it is never credited with a declared
 * saving.  One that does not lower the peak is left out.  Once the plan fits, it is tried without each of
 * them, and the micro-batch is raised again towards the one asked for, as far as it goes. */
#include "oomplan/ladder.h"

#include <stdio.h>
#include <string.h>

#include "moves.h"
#include "oomplan/rules.h"

struct climb {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	uint64_t capacity;
	unsigned allow;
	struct oom_compat compat;
	struct oom_compat_set excused;  /* rules that the plan breaks before the climb */
	struct oom_ladder *l;
	struct oom_error *err;
	bool late;              /* a price that only the next plan would be compared with is not asked for */
};

/* Whether the plan can be launched as it is priced; else why not, for the rung's note. */
static bool runs(const struct climb *c, const struct oom_plan *p, char note[200])
{
	struct oom_compat_set broken;
	struct oom_compat_rule r;

	if (oom_compat_allows(&c->compat, p, &c->l->runs, &c->excused))
		return true;
	broken = oom_compat_broken(&c->compat, p, &c->l->runs);
	for (size_t i = 0; oom_compat_next(&broken, &i); i++)
		if (oom_compat_has(&c->compat.binding, i) && !oom_compat_has(&c->excused, i) &&
		    oom_compat_rule_at(i, &r)) {
			snprintf(note, 200, "%s: %.150s", oom_compat_verdict_str(r.verdict),
				 r.happens);
			break;
		}
	return false;
}

/* A plan and its price. */
struct step {
	struct oom_plan plan;
	struct oom_eval eval;
	bool fits;
};

/* With OOM_EVAL_VERDICT the replay, where one must decide, begins on the card itself: what dies there is not played
 * on an endless one too, and what never fills it has its exact price already. */
static enum oom_status judge(const struct climb *c, struct step *s, unsigned flags)
{
	const enum oom_status st = oom_judge(c->ev, c->model, &s->plan, c->capacity, flags,
					     &s->eval, &s->fits, c->err);

	c->l->replayed += !st && s->eval.reserved_replayed;
	return st;
}

/* The price that is reported: replayed, unless the verdict took that already. */
static enum oom_status judge_exactly(const struct climb *c, struct step *s)
{
	return s->eval.reserved_replayed ? OOM_OK : judge(c, s, OOM_EVAL_REPLAY);
}

/* Who is alive at the peak of a plan that was judged exactly: the replay is not repeated. */
static enum oom_status describe(const struct climb *c, const struct oom_plan *p, struct oom_eval *e)
{
	const struct oom_eval exact = *e;
	const enum oom_status st = oom_evaluate(c->ev, c->model, p, OOM_EVAL_BUCKETS, e, c->err);

	e->reserved_bytes = exact.reserved_bytes;
	e->reserved_replayed = exact.reserved_replayed;
	e->used_bytes = exact.used_bytes;
	e->wanted_bytes = exact.wanted_bytes;
	e->retries = exact.retries;
	e->died = exact.died;
	return st;
}

/* The first step of a rung that fits; else the one that comes nearest.  *any: the rung has steps;
 * *found: one of them runs.  A step that this model cannot run ends the rung; one that no framework
 * runs is passed over. */
static enum oom_status best_step(const struct climb *c, const struct oom_rung *r, struct step *best,
				 bool *any, bool *found, char note[200])
{
	struct oom_plan stepped = c->l->plan;
	struct step next;

	*any = *found = false;
	while (!(*found && best->fits) && r->apply(&stepped, c->model)) {
		enum oom_status st;

		oom_plan_relax(&stepped);       /* of what the engine before had */
		oom_engine_respell(&stepped);
		next.plan = stepped;
		/* what becomes another run is priced as that */
		if (!runs(c, &next.plan, note) && oom_compat_mend(&c->compat, &next.plan))
			oom_plan_relax(&next.plan);
		if (!runs(c, &next.plan, note))
			continue;
		st = judge(c, &next, OOM_EVAL_VERDICT);
		*any = true;
		if (st == OOM_ERR_INVALID) {
			snprintf(note, 200, "%.190s", c->err ? c->err->text : "");
			break;
		}
		if (st)
			return st;
		if (!*found || next.fits ||
		    next.eval.used_bytes_estimated < best->eval.used_bytes_estimated)
			*best = next;
		*found = true;
	}
	return OOM_OK;
}

static void take(struct oom_ladder *l, const struct step *s)
{
	l->plan = s->plan;
	l->eval = s->eval;
	l->fits = s->fits;
}

static enum oom_status climb_rung(const struct climb *c, const struct oom_rung *r,
				  struct oom_rung_result *res)
{
	const bool may = !r->allow || c->allow & r->allow;
	struct oom_ladder *l = c->l;
	struct step best;
	bool any, found, helped;
	enum oom_status st = best_step(c, r, &best, &any, &found, res->note);
	const bool refused = !any && *res->note;

	if (!st && found)
		st = judge_exactly(c, &best);
	if (st)
		return st;
	helped = found && best.eval.used_bytes < l->eval.used_bytes;
	res->before_bytes = l->eval.used_bytes;
	res->after_bytes = helped ? best.eval.used_bytes : res->before_bytes;
	res->fits = helped && best.fits;
	res->outcome = refused ? OOM_RUNG_REFUSED :
		       !any    ? OOM_RUNG_NOT_APPLICABLE :
		       !helped ? OOM_RUNG_NO_HELP :
		       may     ? OOM_RUNG_TAKEN :
				 OOM_RUNG_OFFERED;
	if (res->outcome == OOM_RUNG_TAKEN)
		take(l, &best);
	return OOM_OK;
}

/* One GPU cannot shard: how many would do with everything sharded, as a remark. */
static void how_many_gpus(const struct climb *c, struct oom_rung_result *res)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)c->l->plan.engine);
	struct step s = {.plan = c->l->plan};

	s.plan.engine = e->shards_as;
	s.plan.zero_stage = e->shards_to;
	oom_plan_relax(&s.plan);
	for (s.plan.gpus = 2; s.plan.gpus <= 1024; s.plan.gpus *= 2)
		if (!judge(c, &s, OOM_EVAL_VERDICT) && s.fits) {
			snprintf(res->note, sizeof(res->note),
				 "would fit on %lld such GPUs with ZeRO-%lld (a guess)",
				 (long long)s.plan.gpus, (long long)s.plan.zero_stage);
			return;
		}
	snprintf(res->note, sizeof(res->note),
		 "no number of such GPUs up to 1024 makes it fit by sharding alone");
}

/* The largest micro-batch up to the asked one that still fits, a divisor of the per-GPU batch. */
static enum oom_status raise_micro_batch(const struct climb *c)
{
	struct oom_ladder *l = c->l;
	const int64_t per_gpu = l->plan.micro_batch * l->plan.grad_accum;
	struct step s = {.plan = l->plan};
	enum oom_status st = OOM_OK;

	for (int64_t b = l->runs.micro_batch; b > l->plan.micro_batch; b--) {
		if (per_gpu % b)
			continue;
		s.plan.micro_batch = b;
		s.plan.grad_accum = per_gpu / b;
		if (!oom_compat_allows(&c->compat, &s.plan, &l->runs, &c->excused))
			continue;
		st = judge(c, &s, OOM_EVAL_VERDICT);
		if (st)
			return st == OOM_ERR_INVALID ? OOM_OK : st;
		if (!s.fits)
			continue;
		if (!c->late)
			st = judge_exactly(c, &s);
		if (!st)
			take(l, &s);
		return st;
	}
	return OOM_OK;
}

void oom_plan_settle_batch(struct oom_plan *p, char note[300])
{
	const int64_t ranks = oom_plan_data_parallel(p);
	int64_t per_gpu, b = p->micro_batch;

	note[0] = 0;
	if (!p->global_batch)
		return;
	per_gpu = p->global_batch / ranks;
	if (per_gpu < 1)
		per_gpu = 1;
	if (b > per_gpu)
		b = per_gpu;
	while (per_gpu % b)
		b--;
	if (b != p->micro_batch || per_gpu * ranks != p->global_batch)
		snprintf(note, 300,
			 "global batch %lld over %lld data-parallel rank%s: micro-batch %lld x "
			 "accumulation %lld%s",
			 (long long)p->global_batch, (long long)ranks, ranks > 1 ? "s" : "",
			 (long long)b, (long long)(per_gpu / b),
			 per_gpu * ranks != p->global_batch ? " (the nearest that divides)" : "");
	p->micro_batch = b;
	p->grad_accum = per_gpu / b;
}

void oom_plan_settle_for(struct oom_plan *p, const struct oom_model *model, char note[300])
{
	if (oom_model_task(model) == OOM_TASK_IMAGE_CLS)
		p->seq_len = 0;
	if ((oom_plan_adapted(p) || oom_plan_quantised(p)) && !*p->lora_targets)
		snprintf(p->lora_targets, sizeof(p->lora_targets), "%s",
			 oom_plan_lora_targets(p, model));
	oom_model_settle_base(model, p);
	oom_model_settle_precision(model, p, NULL);
	oom_engine_respell(p);
	note[0] = 0;
	/* a micro-batch above the global one is refused by the rules, not mended */
	if (p->micro_batch <= p->global_batch)
		oom_plan_settle_batch(p, note);
}

/* If what was asked for does not run, the climb begins from what would. */
static enum oom_status mend(struct climb *c)
{
	struct oom_ladder *l = c->l;
	struct step s = {.plan = l->start};
	enum oom_status st = OOM_OK;

	l->runs = l->start;
	l->mended = oom_compat_mend(&c->compat, &s.plan);
	oom_plan_relax(&s.plan);
	if (l->mended)
		st = judge(c, &s, OOM_EVAL_REPLAY);
	if (st)
		return st;
	if (l->mended) {
		l->runs = s.plan;
		take(l, &s);
	}
	c->excused = oom_compat_broken(&c->compat, &l->runs, &l->start);
	return OOM_OK;
}

/* The plan with the rung's knobs as they were asked; false where something else hangs on them. */
static bool undone(const struct oom_rung *r, const struct oom_ladder *l, struct oom_plan *p)
{
	if (!r->knobs[0])
		return false;
	*p = l->plan;
	for (size_t i = 0; i < sizeof(r->knobs) / sizeof(r->knobs[0]) && r->knobs[i]; i++) {
		const size_t at = oom_knob_find(r->knobs[i])->offset;

		memcpy((char *)p + at, (const char *)&l->runs + at, sizeof(int64_t));
	}
	oom_plan_relax(p);
	return !oom_plan_broken(p, NULL);
}

/* A rung that left nothing of itself in the plan. */
static void mark_raised(struct oom_ladder *l)
{
	for (size_t i = 0; i < OOM_RUNGS && l->plan.micro_batch == l->runs.micro_batch; i++)
		if (oom_rung_at(i)->apply == move_to_smaller_batch &&
		    l->rung[i].outcome == OOM_RUNG_TAKEN)
			l->rung[i].outcome = OOM_RUNG_GIVEN_BACK;
}

/* Takes the plan without a rung where that fits, too. */
static enum oom_status try_without(const struct climb *c, size_t i)
{
	struct oom_ladder *l = c->l;
	struct step s;
	enum oom_status st;

	if (!undone(oom_rung_at(i), l, &s.plan) ||
	    !oom_compat_allows(&c->compat, &s.plan, &l->runs, &c->excused))
		return OOM_OK;
	st = judge(c, &s, OOM_EVAL_VERDICT);
	if (!st && s.fits && !c->late)
		st = judge_exactly(c, &s);
	if (!st && s.fits) {
		take(l, &s);
		l->rung[i].outcome = OOM_RUNG_GIVEN_BACK;
	}
	return st == OOM_ERR_INVALID ? OOM_OK : st;
}

/* Rungs are taken in order, each for what it saves by itself: one may be needless beside those above
 * it.  The gravest are tried first. */
static enum oom_status give_back(const struct climb *c)
{
	enum oom_status st = OOM_OK;

	for (int cls = OOM_SCIENCE; cls >= OOM_EXACT; cls--)
		for (size_t i = OOM_RUNGS; !st && i-- > 0;)
			if ((int)oom_rung_at(i)->cls == cls &&
			    c->l->rung[i].outcome == OOM_RUNG_TAKEN)
				st = try_without(c, i);
	return st;
}

/* Down again from a plan that fits, as far as one does.  Of the plans on the way only the last has its price in the
 * answer; should that not fit, against its bounds (oom_decide), each is priced before it is taken. */
static enum oom_status descend(struct climb *c)
{
	const struct oom_ladder top = *c->l;
	struct step s;
	enum oom_status st = OOM_OK;

	for (c->late = true;; c->late = false) {
		*c->l = top;
		st = give_back(c);
		if (!st)
			st = raise_micro_batch(c);
		if (st || !c->late)
			return st;
		s = (struct step){c->l->plan, c->l->eval, c->l->fits};
		st = judge_exactly(c, &s);
		if (st == OOM_ERR_MEMORY)
			return st;
		if (!st && s.fits) {
			take(c->l, &s);
			return OOM_OK;
		}
	}
}

enum oom_status oom_ladder_climb(struct oom_evaluator *ev, const struct oom_model *model,
				 const struct oom_plan *start, const struct oom_gpu *gpu,
				 uint64_t capacity, unsigned allow, struct oom_ladder *l,
				 struct oom_error *err)
{
	struct climb c = {.ev = ev, .model = model, .capacity = capacity, .allow = allow, .l = l,
			  .err = err};
	struct step s = {.plan = *start};
	enum oom_status st = oom_compat_init(&c.compat, model, start, gpu, err);

	if (st)
		return st;
	memset(l, 0, sizeof(*l));
	oom_plan_settle_batch(&s.plan, l->note);
	l->start = s.plan;
	l->effective_batch = s.plan.micro_batch * s.plan.grad_accum *
			     oom_plan_data_parallel(&s.plan);
	st = judge(&c, &s, OOM_EVAL_REPLAY);
	if (!st)
		st = describe(&c, &s.plan, &s.eval);
	if (st)
		return st;
	take(l, &s);
	l->start_fits = s.fits;
	l->start_eval = s.eval;
	st = mend(&c);
	for (size_t i = 0; !st && i < OOM_RUNGS; i++) {
		const struct oom_rung *r = oom_rung_at(i);

		if (l->fits) {
			l->rung[i].before_bytes = l->rung[i].after_bytes = l->eval.used_bytes;
			l->rung[i].fits = true;
			continue;
		}
		st = climb_rung(&c, r, &l->rung[i]);
		if (!st && r->more_gpus && l->plan.gpus == 1)
			how_many_gpus(&c, &l->rung[i]);
	}
	if (!st && l->fits && !l->start_fits)
		st = descend(&c);
	if (l->fits && !l->start_fits)
		mark_raised(l);
	return st || (l->start_fits && !l->mended) ? st : describe(&c, &l->plan, &l->eval);
}
