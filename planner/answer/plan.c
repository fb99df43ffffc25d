/* From a question to its plan: ladder, search (search.c), calibration and evaluation in one. */
#include <string.h>

#include "parts.h"

/* What a round comes to. */
struct end {
	struct oom_plan plan;
	struct oom_eval eval;
	bool in_budget;                 /* by the margin that is worked with */
	bool as_reported;               /* as estimate judges it */
};

/* What was asked fits: then it is the plan, and what the search would rather have is an alternative. */
static void prefer_asked(const struct asker *a, struct oom_answer *out)
{
	struct oom_search *s = &out->search;
	const struct oom_eval *e = &out->ladder.start_eval;

	if (out->from != OOM_FROM_ASKED || !s->found || !s->best.departures)
		return;
	if (s->n_alternatives < OOM_ALTERNATIVES)
		s->n_alternatives++;
	memmove(&s->alternative[1], &s->alternative[0],
		(s->n_alternatives - 1) * sizeof(s->alternative[0]));
	s->alternative[0] = s->best;
	s->best = (struct oom_candidate){
		.plan = out->ladder.start,
		.used_bytes = e->used_bytes,
		.wanted_bytes = e->wanted_bytes,
		.exact = true,
		.seconds_per_sample = 1 / oom_step_time(&out->ladder.start, e, a->q.gpu).samples_per_s};
	/* nothing is twice on the page */
	for (size_t i = 0; i < s->n_alternatives; i++)
		if (!s->alternative[i].departures) {
			memmove(&s->alternative[i], &s->alternative[i + 1],
				(--s->n_alternatives - i) * sizeof(s->alternative[0]));
			break;
		}
}

/* As much of what was asked as the plan that was found has room for. */
static bool raise_pile(const struct asker *a, struct oom_plan *p)
{
	const int64_t lowered = p->eval_batch;

	if (!p->eval_accumulation || a->plan.eval_batch == a->q.plan.eval_batch)
		return false;
	p->eval_batch = a->q.plan.eval_batch;
	if (!answer_room_for_evaluation(a, p))
		p->eval_batch = lowered;
	return p->eval_batch != lowered;
}

static bool can_evaluate(const struct asker *a, const struct oom_plan *plan)
{
	struct oom_plan p = *plan;

	return answer_room_for_evaluation(a, &p);
}

/* The ladder takes its ten rungs in order; the search knows more changes and all their
 * combinations: its plan is the answer where what was asked is none. */
static enum oom_status look(struct asker *a, struct oom_answer *out, struct end *end)
{
	struct oom_ladder *l = &out->ladder;
	struct oom_search_query q;
	enum oom_status st = oom_ladder_climb(a->ev, a->q.model, &a->plan, a->q.gpu,
					      a->q.capacity_bytes, a->q.allow, l, a->err);

	if (st)
		return st;
	out->replayed += l->replayed;
	*end = (struct end){l->plan, l->eval, l->fits, l->fits};
	out->from = l->start_fits && !l->mended && can_evaluate(a, &l->start) ? OOM_FROM_ASKED :
										 OOM_FROM_LADDER;
	/* the verdict alone needs no search where what was asked is the answer */
	out->searched = out->from != OOM_FROM_ASKED || !a->q.brief;
	if (!out->searched)
		return OOM_OK;
	q = answer_query(a, &l->start);
	st = oom_search(a->ev, a->q.model, &q, &out->search, a->err);
	out->replayed += st ? 0 : out->search.replayed;
	if (!st)
		prefer_asked(a, out);
	if (st || out->from == OOM_FROM_ASKED || !out->search.found)
		return st;
	out->from = OOM_FROM_SEARCH;
	end->plan = out->search.best.plan;
	st = oom_judge(a->ev, a->q.model, &end->plan, a->q.capacity_bytes,
		       OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &end->eval, &end->in_budget, a->err);
	out->replayed += !st && end->eval.reserved_replayed;
	return st;
}

/* What is refused under the margin that is reported is not the answer: the search's next is, or where the ladder ends. */
static enum oom_status accept(const struct asker *a, struct oom_answer *out, struct end *end)
{
	const struct oom_ladder *l = &out->ladder;
	enum oom_status st = OOM_OK;

	if (!out->searched || !asker_calibrates(a))
		return OOM_OK;
	st = answer_drop_refused(a, &out->search);
	if (!st)
		st = answer_accepted(a, &out->search);
	if (st || end->as_reported)
		return st;
	if (out->search.found) {
		out->from = OOM_FROM_SEARCH;
		end->plan = out->search.best.plan;
	} else if (out->from == OOM_FROM_SEARCH) {
		out->from = OOM_FROM_LADDER;
		end->plan = l->plan;
	}
	return asker_judge(a, &end->plan, &end->eval, &end->as_reported);
}

static enum oom_status judge_reasons(const struct asker *a, struct oom_search *s)
{
	enum oom_status st = OOM_OK;

	for (size_t i = 0; !st && asker_calibrates(a) && i < s->n_reasons; i++) {
		struct oom_reason *r = &s->reason[i];
		struct oom_eval e;

		if (!r->runs)
			continue;
		st = asker_judge(a, &r->without, &e, &r->fits);
		r->used_bytes = st ? r->used_bytes : e.used_bytes;
	}
	return st;
}

static enum oom_status why(const struct asker *a, struct oom_answer *out)
{
	const struct oom_search_query q = answer_query(a, &out->ladder.start);
	const size_t before = out->search.replayed;
	enum oom_status st = OOM_OK;

	if (out->searched && out->search.found && !a->q.brief)
		st = oom_search_reasons(a->ev, a->q.model, &q, &out->search, a->err);
	if (!st && out->searched)
		st = judge_reasons(a, &out->search);
	out->replayed += out->search.replayed - before;
	return st;
}

/* A plan is reported with the margin it was asked with, under which a full card may give back other
 * segments than under the calibration's. */
static enum oom_status as_reported(const struct asker *a, struct end *end)
{
	struct oom_plan p = end->plan;

	end->as_reported = end->in_budget;
	return asker_calibrates(a) ? asker_judge(a, &p, &end->eval, &end->as_reported) : OOM_OK;
}

/* What was asked and where the ladder ends, which were judged under the margin that is worked with. */
static enum oom_status judge_ladder(const struct asker *a, struct oom_ladder *l, struct oom_judged *as_asked)
{
	struct end start = {l->start, l->start_eval, l->start_fits, false},
		   top = {l->plan, l->eval, l->fits, false};
	const bool lowered = a->plan.eval_batch != a->q.plan.eval_batch;
	enum oom_status st;

	l->start.eval_batch = start.plan.eval_batch = a->q.plan.eval_batch;
	st = lowered ? asker_judge(a, &start.plan, &start.eval, &start.as_reported) : as_reported(a, &start);
	l->start_fits = l->start_fits && (!lowered || start.as_reported);
	if (!st)
		st = as_reported(a, &top);
	if (st)
		return st;
	l->eval = top.eval;
	l->fits = top.as_reported;
	asker_judged(a, &l->start, &start.eval, start.as_reported, as_asked);
	l->start.margin = l->plan.margin = a->q.plan.margin;
	return OOM_OK;
}

/* How many changes lead to the answer. */
static int changes(const struct oom_answer *a)
{
	int n = a->ladder.mended;

	if (a->from == OOM_FROM_SEARCH)
		return n + a->search.best.departures;
	for (size_t i = 0; a->from == OOM_FROM_LADDER && i < OOM_RUNGS; i++)
		n += a->ladder.rung[i].outcome == OOM_RUNG_TAKEN;
	return n;
}

/* What made the asked plan run is a change, and so is a smaller batch of the evaluation. */
static bool evaluates_as_well(const struct asker *a, int mended, struct oom_candidate *c)
{
	const bool room = answer_room_for_evaluation(a, &c->plan);

	c->departures += mended + (c->plan.eval_batch != a->q.plan.eval_batch);
	return room;
}

/* The ladder and the search look at training steps; what they found evaluates as well. */
static void with_evaluation(const struct asker *a, struct oom_answer *out)
{
	struct oom_search *s = &out->search;
	size_t kept = 0;

	out->ladder.fits = out->ladder.fits && answer_room_for_evaluation(a, &out->ladder.plan);
	s->found = s->found && evaluates_as_well(a, out->ladder.mended, &s->best);
	for (size_t i = 0; s->found && i < s->n_alternatives; i++)
		if (evaluates_as_well(a, out->ladder.mended, &s->alternative[i]))
			s->alternative[kept++] = s->alternative[i];
	s->n_alternatives = kept;
	for (size_t i = 0; i < s->n_reasons; i++)
		s->reason[i].fits = s->reason[i].fits && answer_room_for_evaluation(a, &s->reason[i].without);
}

static enum oom_status answer(struct asker *a, struct oom_answer *out)
{
	struct end end;
	enum oom_status st;

	answer_lower_pile(a);
	asker_take_margin(a);
	do {
		st = look(a, out, &end);
		if (!st)
			st = as_reported(a, &end);
		if (st)
			return st;
		a->margins.calibration = asker_calibration(a, &end.plan);
	} while (end.as_reported != end.in_budget && margins_again(&a->margins, &a->plan, &end.eval));
	st = accept(a, out, &end);
	if (!st)
		st = why(a, out);
	if (!st)
		st = judge_ladder(a, &out->ladder, &out->as_asked);
	if (st)
		return st;
	out->asked = a->q;
	end.plan.margin = a->q.plan.margin;
	if (raise_pile(a, &end.plan))
		st = asker_judge(a, &end.plan, &end.eval, &end.as_reported);
	if (st)
		return st;
	if (out->from == OOM_FROM_ASKED && end.plan.eval_batch != out->ladder.start.eval_batch)
		out->from = OOM_FROM_LADDER;
	asker_judged(a, &end.plan, &end.eval, end.as_reported, &out->best);
	out->changes = changes(out);
	if (!out->best.eval_fits && end.plan.evaluates == OOM_EVALUATES_YES && end.plan.eval_batch > 1) {
		(void)answer_room_for_evaluation(a, &end.plan);        /* judged next, whichever it is */
		/* logits that pile up are in the plan's own phases */
		st = end.plan.eval_accumulation ? asker_judge(a, &end.plan, &end.eval, &end.as_reported) : OOM_OK;
		if (st)
			return st;
		asker_judged(a, &end.plan, &end.eval, end.as_reported, &out->best);
		if (out->from == OOM_FROM_ASKED)
			out->from = OOM_FROM_LADDER;
	}
	out->changes += end.plan.eval_batch != out->ladder.start.eval_batch;
	if (out->search.found)
		out->search.best.plan.eval_batch = end.plan.eval_batch;
	/* a pile of another height than the search's is in the figures as well */
	if (out->search.found && out->from == OOM_FROM_SEARCH && end.plan.eval_accumulation) {
		out->search.best.used_bytes = out->best.eval.used_bytes;
		out->search.best.wanted_bytes = out->best.eval.wanted_bytes;
	}
	with_evaluation(a, out);
	out->ladder_broken = oom_compat_broken(a->compat, &out->ladder.plan, &a->plan);
	answer_restore_margin(a, &out->search);
	return answer_elsewhere(a, out);
}

enum oom_status oom_answer(struct oom_evaluator *ev, const struct oom_question *q,
			   struct oom_answer *out, struct oom_error *err)
{
	struct asker a;
	enum oom_status st = asker_start(&a, ev, q, err);

	if (!st && !a.q.capacity_bytes)
		st = oom_error_set(err, OOM_ERR_INVALID, "%s", ASKER_NO_CARD);
	memset(out, 0, sizeof(*out));
	if (!st)
		st = answer(&a, out);
	return asker_finish(&a, st);
}
