/* Exact search: the combinations of the free knobs are priced, the best is kept, and what nothing
 * dominates.
 *
 * A plan is judged by (classes of change, cost, departures).  For each set of classes and number of
 * departures only the cheapest plan can be the best or undominated, so a small table of those is
 * all that is kept; the front is read from it at the end.  What is not priced changes neither:
 *
 *   - the same plan reached with more departures (search_axes.c);
 *   - expandable segments where the plan fits without them: they change neither time nor class, so
 *   they are dominated by
 *     the plan without (unless headroom itself is what is wanted);
 *   - Megatron's larger micro-batches where a smaller one of the same layout does not fit: a pass
 *   leaves bytes in proportion to
 *     the micro-batch b, and passes in flight x b = min(pipeline stages x b, the step's batch a
 *     rank sees) does not fall with b.
 *     (Interleaved schedules are not that simple: all are priced.  Nor is accumulation
 *     elsewhere: it keeps gradients.) */
#include <stdio.h>
#include <string.h>

#include "step/allocator.h"
#include "replay.h"
#include "search_axes.h"

enum { CLASS_SETS = 8 };                /* numerics, placement, science: exact is none of them */
enum { REPLAYS = 12 };

struct seeker {
	struct search_space space;
	struct oom_evaluator *ev;
	const struct oom_model *model;
	uint64_t capacity;
	/* plans whose reserved bytes are known better than by the estimate */
	struct {
		struct oom_plan plan;
		uint64_t used_bytes;
	} replayed[REPLAYS];
	size_t n_replayed;
	/* Megatron: the least micro-batch a layout (with and without sp) has no room for */
	int64_t refused[2 * MAX_LAYOUTS];
	enum oom_objective objective;
	struct oom_candidate table[CLASS_SETS][AXES + 1];
	bool has[CLASS_SETS][AXES + 1];
	struct oom_search *out;
	struct oom_error *err;
};

/* ---- which is better ---- */

static double cost(enum oom_objective o, const struct oom_candidate *c)
{
	switch (o) {
	case OOM_OBJECTIVE_HEADROOM: return (double)c->used_bytes;
	case OOM_OBJECTIVE_PRICE: return c->seconds_per_sample * (double)c->plan.gpus;
	default: return c->seconds_per_sample;
	}
}

static int sign(double a, double b)
{
	return a < b ? -1 : a > b;
}

static int compare(enum oom_objective o, const struct oom_candidate *a,
		   const struct oom_candidate *b)
{
	const bool few = o == OOM_OBJECTIVE_FEWEST_CHANGES;
	const int by_class = sign(a->cls, b->cls),
		  by_kinds = sign(__builtin_popcount(a->classes), __builtin_popcount(b->classes));
	const int by_cost = sign(cost(o, a), cost(o, b)),
		  by_changes = sign(a->departures, b->departures);
	const int first = few ? by_changes : by_cost, second = few ? by_cost : by_changes;

	if (by_class)
		return by_class;
	if (first || second)
		return first ? first : second;
	if (by_kinds)                           /* as dominance has it */
		return by_kinds;
	/* equal by the roofline, which knows no launch overhead: fewer, larger micro-steps (playbook M5) */
	if (a->plan.micro_batch != b->plan.micro_batch)
		return a->plan.micro_batch > b->plan.micro_batch ? -1 : 1;
	if (a->used_bytes != b->used_bytes)
		return a->used_bytes < b->used_bytes ? -1 : 1;
	return sign(a->seconds_per_sample, b->seconds_per_sample);
}

/* a is nowhere worse than b, and somewhere better. */
static bool dominates(enum oom_objective o, const struct oom_candidate *a,
		      const struct oom_candidate *b)
{
	return !(a->classes & ~b->classes) && cost(o, a) <= cost(o, b) &&
	       a->departures <= b->departures &&
	       (a->classes != b->classes || cost(o, a) < cost(o, b) ||
		a->departures < b->departures);
}

static void keep(struct seeker *s, const struct oom_candidate *c)
{
	const unsigned set = c->classes >> 1;
	struct oom_candidate *old = &s->table[set][c->departures];

	s->out->fitting++;
	if (s->has[set][c->departures] && compare(s->objective, old, c) <= 0)
		return;
	*old = *c;
	s->has[set][c->departures] = true;
}

/* ---- pricing ---- */

static uint64_t used_by(const struct seeker *s, const struct oom_plan *p, const struct oom_eval *e)
{
	for (size_t i = 0; i < s->n_replayed; i++)
		if (!memcmp(&s->replayed[i].plan, p, sizeof(*p)))
			return s->replayed[i].used_bytes;
	return e->used_bytes;
}

/* Keeps c if it fits; *yes says whether it did. */
static void judge(struct seeker *s, struct oom_candidate *c, const uint16_t value[AXES],
		  const struct oom_eval *e, bool *yes)
{
	c->used_bytes = used_by(s, &c->plan, e);
	*yes = c->used_bytes <= oom_budget(s->capacity, &c->plan);
	if (!*yes)
		return;
	c->cls = c->classes >> OOM_SCIENCE & 1	 ? OOM_SCIENCE :
		 c->classes >> OOM_PLACEMENT & 1 ? OOM_PLACEMENT :
		 c->classes			 ? OOM_NUMERICS :
						   OOM_EXACT;
	c->departures = 0;
	for (int i = 0; i < AXES; i++)
		c->departures += value[i] != 0;
	memcpy(c->value, value, sizeof(c->value));
	c->seconds_per_sample = 1 / oom_step_time(&c->plan, e, s->space.gpu).samples_per_s;
	keep(s, c);
}

/* One combination, and the same with expandable segments: the allocator changes the reserved
 * bytes alone. */
static enum oom_status price(struct seeker *s, uint16_t value[AXES])
{
	const bool expandable = search_values(&s->space, ALLOCATOR) > 1;
	const bool monotonous = s->space.megatron && s->space.asked->vpp <= 1;
	int64_t *refused = &s->refused[2 * value[LAYOUT] + value[SEQPAR]];
	struct oom_candidate c;
	struct oom_eval e;
	enum oom_status st;
	bool yes;

	value[ALLOCATOR] = 0;
	if (!search_build(&s->space, value, &c.plan, &c.classes))
		return OOM_OK;
	if (monotonous && c.plan.micro_batch >= *refused)
		return OOM_OK;
	st = oom_evaluate(s->ev, s->model, &c.plan, OOM_EVAL_FAST, &e, s->err);
	s->out->evaluated++;
	if (st)
		return st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT ? OOM_OK : st;
	judge(s, &c, value, &e, &yes);
	if (!yes && !expandable)
		*refused = c.plan.micro_batch;
	if (!expandable || (yes && s->objective != OOM_OBJECTIVE_HEADROOM))
		return OOM_OK;
	c.plan.allocator = OOM_ALLOC_EXPANDABLE;
	value[ALLOCATOR] = 1;
	e.reserved_bytes = oom_reserved_estimate(&e, &c.plan);
	oom_overheads(&e, &c.plan);
	s->out->evaluated++;
	judge(s, &c, value, &e, &yes);
	value[ALLOCATOR] = 0;
	if (!yes)
		*refused = c.plan.micro_batch;
	return OOM_OK;
}

static enum oom_status visit(struct seeker *s, int axis, uint16_t value[AXES])
{
	const size_t n = axis < ALLOCATOR ? search_values(&s->space, (enum search_axis)axis) : 0;
	enum oom_status st = OOM_OK;

	if (axis == ALLOCATOR)
		return price(s, value);
	for (size_t k = 0; axis == BATCH && k < 2 * s->space.n_layouts; k++)
		s->refused[k] = INT64_MAX;
	for (size_t k = 0; !st && k < n; k++) {
		value[axis] = (uint16_t)k;
		st = visit(s, axis + 1, value);
	}
	value[axis] = 0;
	return st;
}

/* ---- the answer ---- */

static void take(struct seeker *s, const struct oom_candidate *front[], size_t n)
{
	struct oom_search *o = s->out;
	bool used[CLASS_SETS * (AXES + 1)] = {true};
	unsigned sets = 1u << (front[0]->classes >> 1);

	o->found = true;
	o->best = *front[0];
	o->n_undominated = n - 1;
	/* first one of every other set of classes, then the rest, each in order */
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 1; i < n && o->n_alternatives < OOM_ALTERNATIVES; i++) {
			const unsigned bit = 1u << (front[i]->classes >> 1);

			if (used[i] || (!pass && sets & bit))
				continue;
			used[i] = true;
			sets |= bit;
			o->alternative[o->n_alternatives++] = *front[i];
		}
}

static void answer(struct seeker *s)
{
	const struct oom_candidate *front[CLASS_SETS * (AXES + 1)];
	size_t n = 0;

	for (int a = 0; a < CLASS_SETS * (AXES + 1); a++) {
		const struct oom_candidate *c = &s->table[a / (AXES + 1)][a % (AXES + 1)];
		bool beaten = !s->has[a / (AXES + 1)][a % (AXES + 1)];
		size_t at = n;

		for (int b = 0; !beaten && b < CLASS_SETS * (AXES + 1); b++)
			beaten = s->has[b / (AXES + 1)][b % (AXES + 1)] &&
				 dominates(s->objective, &s->table[b / (AXES + 1)][b % (AXES + 1)],
					   c);
		if (beaten)
			continue;
		for (; at > 0 && compare(s->objective, c, front[at - 1]) < 0; at--)
			front[at] = front[at - 1];
		front[at] = c;
		n++;
	}
	if (n)
		take(s, front, n);
}

static enum oom_status run(struct seeker *s, const struct oom_plan *asked,
			   const struct oom_gpu *gpu, unsigned allow)
{
	enum oom_status st = search_space_init(&s->space, s->model, asked, gpu, allow, s->objective,
					       s->err);
	const size_t lengths = st ? 0 : search_values(&s->space, SEQ);
	uint16_t value[AXES] = {0};

	memset(s->out, 0, sizeof(*s->out));
	memset(s->has, 0, sizeof(s->has));
	for (size_t k = 0; !st && k < lengths && !s->out->found; k++) {
		value[SEQ] = (uint16_t)k;
		st = visit(s, SEQ + 1, value);
		answer(s);
	}
	return st;
}

enum oom_status oom_search(struct oom_evaluator *ev, const struct oom_model *model,
			   const struct oom_plan *asked, uint64_t capacity,
			   const struct oom_gpu *gpu, unsigned allow, enum oom_objective objective,
			   struct oom_search *out, struct oom_error *err)
{
	struct seeker s = {.ev = ev,
			   .model = model,
			   .capacity = capacity,
			   .objective = objective,
			   .out = out,
			   .err = err};

	return run(&s, asked, gpu, allow);
}

static void remember(struct seeker *s, const struct oom_plan *p, uint64_t used_bytes)
{
	s->replayed[s->n_replayed].plan = *p;
	s->replayed[s->n_replayed++].used_bytes = used_bytes;
}

enum oom_status oom_search_plan(struct oom_evaluator *ev, const struct oom_model *model,
				const struct oom_plan *asked, uint64_t capacity,
				const struct oom_gpu *gpu, unsigned allow,
				enum oom_objective objective, struct oom_search *out,
				struct oom_eval *best, struct oom_error *err)
{
	struct seeker s = {.ev = ev,
			   .model = model,
			   .capacity = capacity,
			   .objective = objective,
			   .out = out,
			   .err = err};
	enum oom_status st = oom_evaluate(ev, model, asked, OOM_EVAL_FAST, best, err);

	if (!st && replay_decides(best, oom_budget(capacity, asked)) &&
	    !oom_evaluate(ev, model, asked, OOM_EVAL_REPLAY, best, err))
		remember(&s, asked, best->used_bytes);
	for (;;) {
		st = run(&s, asked, gpu, allow);
		if (!st && out->found)
			st = oom_evaluate(ev, model, &out->best.plan,
					  OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, best, err);
		if (st || !out->found)
			return st;
		if (best->used_bytes <= oom_budget(capacity, &out->best.plan))
			break;
		/* refused: the next best.  After a dozen refusals there is too little room to
		 * promise anything */
		out->found = s.n_replayed < REPLAYS;
		if (!out->found)
			return OOM_OK;
		remember(&s, &out->best.plan, best->used_bytes);
	}
	out->best.used_bytes = best->used_bytes;
	return OOM_OK;
}

static const char *const cannot = "the rest of the plan needs it";

static enum oom_status reason(struct oom_evaluator *ev, const struct search_space *space,
			      const uint16_t value[AXES], uint64_t capacity, struct oom_reason *r,
			      struct oom_error *err)
{
	const struct oom_plan *p = &r->without;
	struct oom_eval e;
	unsigned classes;
	enum oom_status st;

	r->built = search_build(space, value, &r->without, &classes);
	if (!r->built) {
		snprintf(r->note, sizeof(r->note), "%s", cannot);
		return OOM_OK;
	}
	st = oom_evaluate(ev, space->model, p, OOM_EVAL_FAST, &e, err);
	if (st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT) {
		snprintf(r->note, sizeof(r->note), "%.150s", err ? err->text : cannot);
		return OOM_OK;
	}
	r->runs = !st;
	r->used_bytes = e.used_bytes;
	r->fits = !st && e.used_bytes <= oom_budget(capacity, p);
	r->seconds_per_sample = st ? 0 : 1 / oom_step_time(p, &e, space->gpu).samples_per_s;
	return st;
}

enum oom_status oom_search_reasons(struct oom_evaluator *ev, const struct oom_model *model,
				   const struct oom_plan *asked, const struct oom_candidate *c,
				   uint64_t capacity, const struct oom_gpu *gpu, unsigned allow,
				   enum oom_objective objective,
				   struct oom_reason reasons[OOM_SEARCH_AXES], size_t *n,
				   struct oom_error *err)
{
	struct search_space space;
	enum oom_status st = search_space_init(&space, model, asked, gpu, allow, objective, err);

	*n = 0;
	for (int axis = 0; !st && axis < AXES; axis++) {
		struct oom_reason *r = &reasons[*n];
		uint16_t value[AXES];

		if (!c->value[axis])
			continue;
		memset(r, 0, sizeof(*r));
		r->axis = axis;
		++*n;
		memcpy(value, c->value, sizeof(value));
		value[axis] = 0;
		st = reason(ev, &space, value, capacity, r, err);
	}
	return st;
}
