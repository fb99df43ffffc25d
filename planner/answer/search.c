/* What the search finds for a question: judged as estimate judges it, with room for its evaluation, and a search by
 * itself. */
#include <string.h>

#include "parts.h"

/* What the rules are compiled for, beside model and card. */
static bool same_rules(const struct oom_plan *p, const struct oom_plan *q)
{
	return p->task == q->task && p->framework == q->framework &&
	       !memcmp(&p->compute_capability, &q->compute_capability, sizeof(p->compute_capability));
}

struct oom_search_query answer_query(const struct asker *a, const struct oom_plan *asked)
{
	return (struct oom_search_query){.asked = asked,
					 .capacity_bytes = a->q.capacity_bytes,
					 .gpu = a->q.gpu,
					 .allow = a->q.allow,
					 .hold = a->q.hold,
					 .objective = a->q.objective,
					 .compat = same_rules(&a->plan, asked) ? a->compat : NULL};
}

/* A smaller batch of an evaluation changes nothing else: half of it until the card has room.  False: not
 * for one sample. */
bool answer_room_for_evaluation(const struct asker *a, struct oom_plan *p)
{
	while (!oom_evaluation_fits(a->ev, a->q.model, p, a->q.capacity_bytes)) {
		if (p->eval_batch < 2)
			return false;
		p->eval_batch /= 2;
	}
	return true;
}

/* Logits that pile up are in the phases that the ladder and the search look at.  What cures them is the evaluation's
 * batch, which changes nothing about the training: the largest half of it that the asked plan has room for, or one
 * sample. */
void answer_lower_pile(struct asker *a)
{
	if (a->plan.eval_accumulation)
		(void)answer_room_for_evaluation(a, &a->plan);
}

/* What a search found was judged under the margin of another plan: what is composed otherwise may need more. */
static enum oom_status judge_again(const struct asker *a, struct oom_candidate *c, bool *fits)
{
	struct oom_eval e;
	const enum oom_status st = asker_judge(a, &c->plan, &e, fits);

	c->used_bytes = st ? c->used_bytes : e.used_bytes;
	c->wanted_bytes = st ? c->wanted_bytes : e.wanted_bytes;
	return st;
}

enum oom_status answer_drop_refused(const struct asker *a, struct oom_search *s)
{
	enum oom_status st = OOM_OK;
	size_t n = 0;
	bool fits;

	for (size_t i = 0; !st && asker_calibrates(a) && i < s->n_alternatives; i++) {
		st = judge_again(a, &s->alternative[i], &fits);
		if (!st && fits)
			s->alternative[n++] = s->alternative[i];
	}
	if (asker_calibrates(a))
		s->n_alternatives = n;
	return st;
}

/* The first of the alternatives where the best is refused. */
enum oom_status answer_accepted(const struct asker *a, struct oom_search *s)
{
	enum oom_status st = OOM_OK;
	bool fits = true;

	if (s->found && asker_calibrates(a))
		st = judge_again(a, &s->best, &fits);
	if (st || fits)
		return st;
	s->found = s->n_alternatives > 0;
	if (s->found) {
		s->best = s->alternative[0];
		s->n_alternatives--;
		memmove(&s->alternative[0], &s->alternative[1], s->n_alternatives * sizeof(s->best));
	}
	return OOM_OK;
}

/* The margin worked with is the calibration's; plans have the one they were asked with. */
void answer_restore_margin(const struct asker *a, struct oom_search *s)
{
	const double margin = a->q.plan.margin;

	s->best.plan.margin = margin;
	for (size_t i = 0; i < OOM_ALTERNATIVES; i++)
		s->alternative[i].plan.margin = margin;
	for (size_t i = 0; i < OOM_SEARCH_AXES; i++)
		s->reason[i].without.margin = margin;
}

/* What has no room for its evaluation is left out: the best of what is left takes the best's place. */
static void evaluates_too(const struct asker *a, struct oom_search *s)
{
	size_t n = 0, kept = 0;
	bool best = s->found && answer_room_for_evaluation(a, &s->best.plan);

	if (!s->found || a->q.plan.evaluates != OOM_EVALUATES_YES)
		return;
	for (; n < s->n_alternatives; n++) {
		if (!answer_room_for_evaluation(a, &s->alternative[n].plan))
			continue;
		if (best)
			s->alternative[kept++] = s->alternative[n];
		else
			s->best = s->alternative[n];
		best = true;
	}
	s->found = best;
	s->n_alternatives = kept;
}

static enum oom_status search_alone(struct asker *a, struct oom_search *out)
{
	struct oom_search_query q = answer_query(a, &a->plan);
	struct oom_eval e;
	enum oom_status st;

	q.verdicts_only = a->q.verdicts_only;
	answer_lower_pile(a);
	asker_take_margin(a);
	do {
		st = oom_search(a->ev, a->q.model, &q, out, a->err);
		if (!st && out->found && asker_calibrates(a))
			st = asker_price(a, &out->best.plan, &e);
		a->margins.calibration = st || !out->found ? NULL : asker_calibration(a, &out->best.plan);
	} while (!st && out->found && margins_again(&a->margins, &a->plan, &e));
	if (!st)
		st = answer_drop_refused(a, out);
	if (!st)
		st = answer_accepted(a, out);
	if (!st)
		evaluates_too(a, out);
	if (!st && !a->q.brief)
		st = oom_search_reasons(a->ev, a->q.model, &q, out, a->err);
	answer_restore_margin(a, out);
	return st;
}

enum oom_status oom_answer_search(struct oom_evaluator *ev, const struct oom_question *q,
				  struct oom_search *out, struct oom_error *err)
{
	struct asker a;
	enum oom_status st = asker_start(&a, ev, q, err);

	if (!st && !a.q.capacity_bytes)
		st = oom_error_set(err, OOM_ERR_INVALID, "%s", ASKER_NO_CARD);
	if (!st)
		st = search_alone(&a, out);
	return asker_finish(&a, st);
}
