/* How many machines of an offer: as many as were asked for, or as few as suffice. */
#include <math.h>
#include <stdlib.h>

#include "finder.h"
#include "offers_parts.h"

static bool fits(const struct oom_box *b)
{
	return b->shortage == OOM_BOX_FITS && !b->needs_science;
}

static bool does(const struct oom_box *b)
{
	return fits(b) && !b->late;
}

/* A number of nodes that fits is a point of the quote. */
static enum oom_status point(struct finder *f, const struct oom_box *b)
{
	struct oom_boxes *out = f->out;

	if (!fits(b) || !(f->q->tokens > 0))
		return OOM_OK;
	if (out->n_points == out->cap_points) {
		void *q = realloc(out->points, (out->cap_points * 2 + 64) * sizeof(*out->points));

		if (!q)
			return oom_error_set(f->err, OOM_ERR_MEMORY, "out of host memory");
		out->points = q;
		out->cap_points = out->cap_points * 2 + 64;
	}
	out->points[out->n_points++] = *b;
	return OOM_OK;
}

/* How many to try after n: if it fits and is late, as many as the days ask for if the network between nodes took no
 * time; otherwise twice as many.  0: it is late with all of them. */
static int64_t next_nodes(const struct finder *f, const struct oom_box *b, int64_t n, int64_t most)
{
	const double asked = fits(b) ? ceil((double)b->nodes * b->days / f->q->deadline_days) :
				       fmin(2 * (double)n, (double)most);

	return asked > (double)most ? 0 : asked > (double)n ? (int64_t)asked : n + 1;
}

/* The number of nodes that comes nearest to the deadline if none meets it: all of them, unless fewer are as early. */
static enum oom_status nearest_nodes(struct finder *f, const struct oom_offer *o, int64_t most, struct oom_box *b)
{
	struct oom_box all;
	enum oom_status st;

	if (!fits(b) || b->nodes >= most)
		return OOM_OK;
	st = finder_with_nodes(f, o, most, &all);
	if (!st)
		st = point(f, &all);
	if (!st && fits(&all) && all.days < b->days)
		*b = all;
	return st;
}

/* The cards are too small for it, or nothing lays it out over them. */
static bool short_of_cards(const struct oom_box *b)
{
	return b->shortage == OOM_BOX_VRAM || b->shortage == OOM_BOX_LAYOUT;
}

/* Whether it fits on no number of machines, and if so the box of the most: more of them divide what is held further, so
 * that the most decide; and the most of the powers of two, which leave tensor and pipeline ranks to choose from.  Half of
 * a quote's time would go into looking for it on each number between, on cards that are too small for any. */
static enum oom_status never_fits(struct finder *f, const struct oom_offer *o, int64_t most, struct oom_box *b,
				  bool *never)
{
	int64_t even = 1;
	struct oom_box all;
	enum oom_status st = finder_with_nodes(f, o, most, &all);

	while (even * 2 <= most)
		even *= 2;
	*never = !st && short_of_cards(&all);
	if (*never && even < most) {
		struct oom_box some;

		st = finder_with_nodes(f, o, even, &some);
		*never = !st && short_of_cards(&some);
	}
	if (*never)
		*b = all;
	return st;
}

/* More nodes only if fewer do not suffice: doubled until the plan fits, then the fewest between that number and the last
 * that did not; more if that is late. */
static enum oom_status fewest_nodes(struct finder *f, const struct oom_offer *o, int64_t most,
				    struct oom_box *b)
{
	int64_t low = 0, high = 1;
	struct oom_box next;
	bool never = false;
	enum oom_status st = finder_with_nodes(f, o, 1, b);

	if (!st)
		st = point(f, b);
	if (!st && short_of_cards(b) && most > 2)
		st = never_fits(f, o, most, b, &never);
	if (st || never)
		return st;
	while (!st && !does(b) && high < most) {
		const int64_t next_high = next_nodes(f, b, high, most);

		if (!next_high)
			break;
		low = high;
		high = next_high;
		/* a number that the days named is the fewest already */
		if (fits(b))
			low = high - 1;
		st = finder_with_nodes(f, o, high, &next);
		if (!st && (!fits(b) || (fits(&next) && next.days < b->days)))
			*b = next;
		if (!st)
			st = point(f, &next);
	}
	if (!st && !does(b))
		return nearest_nodes(f, o, most, b);
	while (!st && does(b) && high - low > 1) {
		const int64_t mid = low + (high - low) / 2;
		struct oom_box fewer;

		st = finder_with_nodes(f, o, mid, &fewer);
		if (!st && does(&fewer)) {
			*b = fewer;
			high = mid;
			st = point(f, b);
		} else {
			low = mid;
		}
	}
	return st;
}

/* The chosen plan itself on more nodes: whether that could be on the front of days against dollars. */
static enum oom_status guess(struct finder *f, const struct oom_box *chosen, int64_t nodes)
{
	const struct oom_offer *o = chosen->offer;
	struct group *g = &f->group[f->last];
	struct oom_plan p = chosen->plan->plan;
	struct oom_box b = *chosen;
	struct oom_step_time t;
	struct oom_gpu linked;
	struct oom_eval e;
	enum oom_status st;
	const struct oom_gpu *card = finder_as_linked(f, g, &linked);

	p.nodes = nodes;
	p.gpus = nodes * o->gpu_count;
	if (finder_batch_is_small(f, p.gpus))
		return OOM_OK;
	finder_lay_batch(f, &p);
	st = oom_evaluate(f->ev, f->model, &p, OOM_EVAL_FAST, &e, NULL);
	if (st == OOM_ERR_MEMORY)
		return oom_error_set(f->err, st, "out of host memory");
	if (st)         /* no such layout */
		return OOM_OK;
	t = oom_step_time(&p, &e, card);
	b.usd_h *= (double)nodes / (double)b.nodes;
	b.nodes = nodes;
	b.batch = p.micro_batch * p.grad_accum * oom_plan_data_parallel(&p);
	b.tokens_per_s = t.samples_per_s * oom_step_tokens(&p);
	oom_box_quote(card, f->q, &t, &b);
	b.guessed = true;
	return point(f, &b);
}

static enum oom_status beyond(struct finder *f, int64_t most, const struct oom_box *chosen)
{
	enum oom_status st = OOM_OK;

	if (!(f->q->tokens > 0) || !fits(chosen) || isnan(chosen->usd))
		return OOM_OK;
	for (int64_t n = chosen->nodes * 2; !st && n <= most; n *= 2)
		st = guess(f, chosen, n);
	return st;
}

enum oom_status finder_settle_points(struct finder *f)
{
	struct oom_boxes *out = f->out;
	enum oom_status st;
	size_t kept = 0, n;

	oom_boxes_only_answers(out);
	n = out->n_points;
	st = oom_boxes_front(out->points, n, f->err);
	for (size_t i = 0; !st && i < n; i++) {
		const struct oom_box p = out->points[i];
		struct oom_box b;

		if (!p.guessed || !p.pareto)
			continue;
		st = finder_with_nodes(f, p.offer, p.nodes, &b);
		if (!st)
			st = point(f, &b);
	}
	for (size_t i = 0; i < out->n_points; i++)
		if (!out->points[i].guessed)
			out->points[kept++] = out->points[i];
	out->n_points = kept;
	return st;
}

enum oom_status finder_one_offer(struct finder *f, const struct oom_offer *o, struct oom_box *b)
{
	const bool clusters = o->clusters;
	int64_t most = clusters && f->q->max_nodes > 1 ? f->q->max_nodes : 1;
	enum oom_status st;

	if (f->q->nodes > 1 && !clusters) {
		*b = finder_blank(f, o, f->q->nodes, NAN);
		b->shortage = OOM_BOX_FABRIC;
		return OOM_OK;
	}
	if (f->q->nodes > 0) {
		st = finder_with_nodes(f, o, f->q->nodes, b);
		return st ? st : point(f, b);
	}
	/* a step of few sequences is not divided among more ranks */
	while (most > 1 && finder_batch_is_small(f, most * o->gpu_count))
		most--;
	st = fewest_nodes(f, o, most, b);
	return st ? st : beyond(f, most, b);
}
