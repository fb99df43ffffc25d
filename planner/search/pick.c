/* From many plans that may fit to the best one and those that nothing dominates.
 *
 * A plan is judged by (changes that are not exact, cost, departures).  For each set of such changes
 * and number of departures, a cell, only the cheapest plan can be the best or undominated.  A plan
 * that costs as much as one that fits in a cell with no other such change and no more departures is
 * dominated, whether it fits or not.  So the cells are gone through from the fewest on, each
 * from its cheapest plan up, until one fits or the rest is dominated: what is not asked for its
 * verdict could not be in the answer.
 *
 * Bytes only decide between plans that are equal in everything else, or where headroom is what is
 * wanted; then the allocated bytes are the lower bound that the plans are taken in order of. */
#include "pick.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void picks_init(struct picks *p)
{
	p->n = 0;
	p->changes = search_inexact_all(p->space);
	for (int s = 0; s < CHANGE_SETS; s++)
		for (int d = 0; d <= SEARCH_DEPARTURES; d++)
			p->own[s][d] = p->beyond[s][d] = INFINITY;
}

void picks_release(struct picks *p)
{
	free(p->v);
}

/* ---- what is dominated ---- */

/* Some plan of this cell fits at this cost. */
static void learn(struct picks *p, unsigned set, unsigned departures, double cost)
{
	if (cost >= p->own[set][departures])
		return;
	p->own[set][departures] = cost;
	/* every set of changes that holds this one: rest counts through those beside it */
	for (unsigned rest = 0, s = set, more = p->changes & ~set; rest <= more && s < CHANGE_SETS;
	     rest = rest == more ? more + 1 : (rest - more) & more, s = set | rest)
		for (unsigned d = departures; d <= SEARCH_DEPARTURES; d++)
			if ((s != set || d != departures) && cost < p->beyond[s][d])
				p->beyond[s][d] = cost;
}

static bool hopeless(const struct picks *p, const struct pick *c)
{
	return c->cost >= p->beyond[c->set][c->departures] ||
	       c->cost > p->own[c->set][c->departures];
}

/* Room for one more: first what has become hopeless goes. */
static bool room(struct picks *p)
{
	struct pick *q;
	size_t n = 0;

	if (p->n < p->cap)
		return true;
	for (size_t i = 0; i < p->n; i++)
		if (!hopeless(p, &p->v[i]))
			p->v[n++] = p->v[i];
	p->n = n;
	if (n < p->cap - p->cap / 4)
		return true;
	q = realloc(p->v, (p->cap * 2 + 256) * sizeof(*q));
	if (!q)
		return false;
	p->v = q;
	p->cap = p->cap * 2 + 256;
	return true;
}

double oom_search_cost(const struct oom_plan *asked, enum oom_objective objective,
		       const struct oom_plan *plan, double seconds_per_sample, int departures)
{
	const double each = objective == OOM_OBJECTIVE_PRICE ? (double)plan->gpus : 1;

	return seconds_per_sample * each * pow(oom_step_time_interval(asked), departures);
}

/* A run that evaluates needs room for that as well, if only for one sample at a time. */
static bool evaluates(const struct picks *p, const struct oom_plan *plan)
{
	struct oom_plan least = *plan;

	least.eval_batch = plan->eval_batch > 1 ? 1 : plan->eval_batch;
	return oom_evaluation_fits(p->ev, p->space->model, &least, p->q->capacity_bytes);
}

enum oom_status picks_add(struct picks *p, const uint16_t value[AXES],
			  const struct oom_plan *plan, const struct oom_eval *e, bool *may_fit)
{
	const enum oom_decision known = oom_decide_on(e, p->q->capacity_bytes, plan);
	const bool headroom = p->q->objective == OOM_OBJECTIVE_HEADROOM;
	struct pick c = {.least_bytes = e->used_bytes - e->reserved_bytes + e->overall_peak,
			 .used_bytes = e->used_bytes,
			 .wanted_bytes = e->wanted_bytes,
			 .micro_batch = plan->micro_batch,
			 .set = (uint8_t)search_inexact(p->space, value),
			 .fits = known == OOM_FITS};

	*may_fit = known != OOM_DOES_NOT_FIT;
	if (!*may_fit)
		return OOM_OK;
	p->out->possible++;
	c.seconds = 1 / oom_step_time(plan, e, p->q->gpu).samples_per_s;
	c.departures = (uint8_t)search_departures(value);
	c.cost = headroom ? (double)c.least_bytes :
			    oom_search_cost(p->space->asked, p->q->objective, plan, c.seconds,
					    c.departures);
	memcpy(c.value, value, sizeof(c.value));
	if (hopeless(p, &c) || !evaluates(p, plan))
		return OOM_OK;
	if (!room(p))
		return oom_error_set(p->err, OOM_ERR_MEMORY, "out of host memory");
	p->v[p->n++] = c;
	if (c.fits && !headroom)
		learn(p, c.set, c.departures, c.cost);
	return OOM_OK;
}

/* ---- which is better ---- */

static int sign(double a, double b)
{
	return a < b ? -1 : a > b;
}

static enum oom_class gravest(unsigned set)
{
	const unsigned classes = search_classes(set);

	return classes >> OOM_SCIENCE & 1   ? OOM_SCIENCE :
	       classes >> OOM_PLACEMENT & 1 ? OOM_PLACEMENT :
	       classes			    ? OOM_NUMERICS :
					      OOM_EXACT;
}

/* All but the bytes, which take a replay. */
static int compare_cheaply(enum oom_objective o, const struct pick *a, const struct pick *b)
{
	const bool few = o == OOM_OBJECTIVE_FEWEST_CHANGES;
	const int by_class = sign(gravest(a->set), gravest(b->set)), by_cost = sign(a->cost, b->cost),
		  by_changes = sign(a->departures, b->departures),
		  by_inexact = sign(__builtin_popcount(a->set), __builtin_popcount(b->set));
	const int first = few ? by_changes : by_cost, second = few ? by_cost : by_changes;

	/* what is not exact is changed as little as may be, whatever that would win */
	if (by_class || by_inexact || first || second)
		return by_class ? by_class : by_inexact ? by_inexact : first ? first : second;
	/* equal in time: fewer, larger micro-steps (playbook M5) */
	return sign((double)b->micro_batch, (double)a->micro_batch);
}

/* Cells one after the other, each in the order in which its plans are taken; equals as they were
 * walked. */
static int in_order(const void *x, const void *y)
{
	const struct pick *a = x, *b = y;

	if (a->set != b->set || a->departures != b->departures)
		return a->set != b->set ? a->set - b->set : a->departures - b->departures;
	if (a->cost < b->cost || a->cost > b->cost)
		return sign(a->cost, b->cost);
	if (a->micro_batch != b->micro_batch)
		return a->micro_batch > b->micro_batch ? -1 : 1;
	if (a->least_bytes != b->least_bytes)
		return a->least_bytes < b->least_bytes ? -1 : 1;
	for (int i = 0; i < AXES; i++)
		if (a->value[i] != b->value[i])
			return a->value[i] < b->value[i] ? -1 : 1;
	return 0;
}

/* ---- verdicts ---- */

static enum oom_status judge(struct picks *p, struct pick *c, unsigned flags)
{
	struct oom_plan plan;
	struct oom_eval e;
	enum oom_status st;

	search_build(p->space, c->value, &plan);
	st = oom_judge(p->ev, p->space->model, &plan, p->q->capacity_bytes, flags, &e, &c->fits,
		       p->err);
	p->out->replayed += !st && e.reserved_replayed;
	c->exact = flags & OOM_EVAL_REPLAY || e.reserved_replayed;
	c->used_bytes = e.used_bytes;
	c->wanted_bytes = e.wanted_bytes;
	if (p->q->objective == OOM_OBJECTIVE_HEADROOM)
		c->cost = (double)c->wanted_bytes;
	return st;
}

static enum oom_status exactly(struct picks *p, struct pick *c)
{
	return c->exact ? OOM_OK : judge(p, c, OOM_EVAL_REPLAY);
}

/* As compare_cheaply; bytes, then time, decide between equals. */
static enum oom_status compare(struct picks *p, struct pick *a, struct pick *b, int *out)
{
	enum oom_status st;

	*out = compare_cheaply(p->q->objective, a, b);
	if (*out)
		return OOM_OK;
	st = exactly(p, a);
	if (!st)
		st = exactly(p, b);
	if (!st)
		*out = a->wanted_bytes != b->wanted_bytes ?
			       (a->wanted_bytes < b->wanted_bytes ? -1 : 1) :
			       sign(a->seconds, b->seconds);
	return st;
}

/* The best plan of a cell, v[0..n) in order; NULL where none fits that is not dominated. */
static enum oom_status best_of_cell(struct picks *p, struct pick *v, size_t n, struct pick **best)
{
	const bool exact = p->q->objective == OOM_OBJECTIVE_HEADROOM;
	const unsigned flags = exact ? OOM_EVAL_REPLAY : OOM_EVAL_VERDICT;

	*best = NULL;
	for (size_t i = 0; i < n && !hopeless(p, &v[i]); i++) {
		struct pick *c = &v[i];
		enum oom_status st = OOM_OK;
		int order = -1;

		/* equal in all but bytes: not if it allocates more than the other uses */
		if (*best && !compare_cheaply(p->q->objective, *best, c)) {
			st = exactly(p, *best);
			if (!st && c->least_bytes > (*best)->wanted_bytes)
				continue;
		} else if (*best && !exact) {
			break;
		}
		if (!st && (exact || !c->fits))
			st = judge(p, c, flags);
		if (st == OOM_ERR_INVALID || (!st && (!c->fits || hopeless(p, c))))
			continue;
		if (!st && *best)
			st = compare(p, c, *best, &order);
		if (st)
			return st;
		if (order < 0)
			*best = c;
		learn(p, c->set, c->departures, c->cost);
	}
	return OOM_OK;
}

/* ---- the answer ---- */

static enum oom_status candidate(struct picks *p, struct pick *c, struct oom_candidate *out)
{
	const enum oom_status st = p->q->verdicts_only ? OOM_OK : exactly(p, c);

	if (st)
		return st;
	search_build(p->space, c->value, &out->plan);
	out->classes = search_classes(c->set);
	out->used_bytes = c->used_bytes;
	out->wanted_bytes = c->wanted_bytes;
	out->exact = c->exact;
	out->cls = gravest(c->set);
	out->seconds_per_sample = c->seconds;
	out->departures = c->departures;
	memcpy(out->value, c->value, sizeof(out->value));
	return OOM_OK;
}

/* The best, then first one of every other set of classes, then the rest, each in order. */
static enum oom_status take(struct picks *p, size_t n)
{
	struct pick *const *front = p->front;
	struct oom_search *o = p->out;
	unsigned sets = 1u << search_classes(front[0]->set);
	enum oom_status st = candidate(p, front[0], &o->best);

	memset(p->used, 0, sizeof(p->used));
	o->found = !st;
	o->n_undominated = n - 1;
	for (int pass = 0; pass < (p->q->best_only ? 0 : 2); pass++)
		for (size_t i = 1; !st && i < n && o->n_alternatives < OOM_ALTERNATIVES; i++) {
			const unsigned bit = 1u << search_classes(front[i]->set);

			if (p->used[i] || (!pass && sets & bit))
				continue;
			p->used[i] = true;
			sets |= bit;
			st = candidate(p, front[i], &o->alternative[o->n_alternatives++]);
		}
	return st;
}

static enum oom_status insert(struct picks *p, size_t *n, struct pick *c)
{
	struct pick **front = p->front;
	size_t at = *n;

	for (; at > 0; at--) {
		int order;
		const enum oom_status st = compare(p, c, front[at - 1], &order);

		if (st)
			return st;
		if (order >= 0)
			break;
		front[at] = front[at - 1];
	}
	front[at] = c;
	++*n;
	return OOM_OK;
}

enum oom_status picks_choose(struct picks *p)
{
	struct pick *best;
	size_t n = 0, end;
	enum oom_status st = OOM_OK;

	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), in_order);
	for (size_t from = 0; !st && from < p->n; from = end) {
		const struct pick *c = &p->v[from];

		for (end = from + 1; end < p->n && p->v[end].set == c->set &&
				     p->v[end].departures == c->departures; end++)
			;
		/* a graver class than that of the best (sets are in the order of their classes):
		 * alternatives alone */
		if (p->q->best_only && n && gravest(c->set) != gravest(p->front[0]->set))
			break;
		st = best_of_cell(p, &p->v[from], end - from, &best);
		if (!st && best)
			st = insert(p, &n, best);
	}
	return st || !n ? st : take(p, n);
}
