/* The order of boxes, and which of them nothing beats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "offers_parts.h"

/* How far from what was asked for: days of the deadline, dollars of the budget, whichever is missed by more. */
static double miss_of(const struct oom_box *b, const struct oom_box_query *q)
{
	const double days = b->late ? b->days / q->deadline_days : 0,
		     usd = b->over_budget ? b->usd / q->budget_usd : 0;

	return isnan(usd) ? INFINITY : fmax(days, usd);
}

static double key_of(const struct oom_box *b, const struct oom_box_query *q)
{
	double k;

	switch (q->rank) {
	case OOM_BOX_BY_HOUR: k = b->usd_h; break;
	case OOM_BOX_BY_TIME: k = -b->tokens_per_s; break;
	case OOM_BOX_BY_SCIENCE:
		k = (double)b->plan->cls * 1e9 +
		    (isnan(b->usd_per_mtokens) ? 1e8 : b->usd_per_mtokens);
		break;
	/* what misses the deadline or the budget stands behind what does not (behind), the nearest first */
	default: k = b->late || b->over_budget ? miss_of(b, q) : isnan(b->days) ? b->usd_per_mtokens : b->usd;
	}
	return isnan(k) ? INFINITY : k;
}

/* What stands in the way of a row; the graver, the larger the number: what is missing, a change that must be allowed, no
 * price, a missed deadline or budget, a price that is old. */
static int behind(const struct oom_box *b)
{
	if (b->shortage != OOM_BOX_FITS)
		return 32 * b->shortage;
	return 16 * b->needs_science + 8 * isnan(b->usd_h) + 4 * (b->late || b->over_budget) + 2 * b->stale;
}

static int better(const void *x, const void *y)
{
	const struct oom_box *a = x, *b = y;
	const int fa = behind(a), fb = behind(b);
	const double ka = a->key, kb = b->key;

	if (fa != fb)
		return fa - fb;
	if (a->shortage != OOM_BOX_FITS && a->short_bytes != b->short_bytes)
		return a->short_bytes < b->short_bytes ? -1 : 1;        /* the nearest miss first */
	if (ka != kb)
		return ka < kb ? -1 : 1;
	if (a->usd_h != b->usd_h && !isnan(a->usd_h) && !isnan(b->usd_h))
		return a->usd_h < b->usd_h ? -1 : 1;
	return strcmp(a->offer->instance, b->offer->instance);
}

/* The price of what is compared: the whole training, or one hour. */
static double price_of(const struct oom_box *b)
{
	return isnan(b->days) ? b->usd_h : b->usd;
}

/* The greater, the earlier the run is done.  Days include interruptions, of which more machines have more. */
static double speed_of(const struct oom_box *b)
{
	return isnan(b->days) ? b->tokens_per_s : 1 / b->days;
}

static int by_price_then_speed(const void *x, const void *y)
{
	const struct oom_box *a = *(struct oom_box *const *)x, *b = *(struct oom_box *const *)y;
	const double xa = price_of(a), xb = price_of(b), sa = speed_of(a), sb = speed_of(b);

	if (xa != xb)
		return xa < xb ? -1 : 1;
	return (sa < sb) - (sa > sb);
}

/* What keeps a row from being an answer: an old price, and more so what is late or over the budget. */
static int flaws(const struct oom_box *b)
{
	return 2 * (b->late || b->over_budget) + b->stale;
}

static int fewest_flaws(const struct oom_box *items, size_t n)
{
	int fewest = 4;

	for (size_t i = 0; i < n; i++)
		if (!isnan(items[i].usd_h) && flaws(&items[i]) < fewest)
			fewest = flaws(&items[i]);
	return fewest;
}

/* From the cheapest up, each that is faster than all before it; equals of one on the front are
 * on it, too.  Rows of an old price, late or too dear take part only where there are no better ones. */
enum oom_status oom_boxes_front(struct oom_box *items, size_t n_items, struct oom_error *err)
{
	struct oom_box **sorted = malloc((n_items + 1) * sizeof(*sorted)), *last = NULL;
	const int fewest = fewest_flaws(items, n_items);
	size_t n = 0;

	if (!sorted)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; i < n_items; i++) {
		items[i].pareto = false;
		if (!isnan(items[i].usd_h) && flaws(&items[i]) == fewest)
			sorted[n++] = &items[i];
	}
	qsort(sorted, n, sizeof(*sorted), by_price_then_speed);
	for (size_t i = 0; i < n; i++) {
		struct oom_box *b = sorted[i];

		b->pareto = !last || speed_of(b) > speed_of(last) ||
			    (speed_of(b) >= speed_of(last) && price_of(b) <= price_of(last));
		if (b->pareto)
			last = b;
	}
	free(sorted);
	return OOM_OK;
}

static int by_days(const void *x, const void *y)
{
	const struct oom_box *a = x, *b = y;

	if (a->days != b->days)
		return a->days < b->days ? -1 : 1;
	return (a->usd > b->usd) - (a->usd < b->usd);
}

void oom_boxes_only_answers(struct oom_boxes *out)
{
	const int fewest = fewest_flaws(out->points, out->n_points);
	size_t kept = 0;

	for (size_t i = 0; i < out->n_points; i++)
		if (flaws(&out->points[i]) == fewest)
			out->points[kept++] = out->points[i];
	out->n_points = kept ? kept : out->n_points;
}

static int by_offer(const void *x, const void *y)
{
	const struct oom_box *a = x, *b = y;

	if (a->offer != b->offer)
		return a->offer < b->offer ? -1 : 1;
	return (a->nodes > b->nodes) - (a->nodes < b->nodes);
}

/* A row is on the front if nothing that was tried beats it, be that another number of machines. */
static void mark_rows(struct oom_boxes *out)
{
	qsort(out->points, out->n_points, sizeof(*out->points), by_offer);
	for (size_t i = 0; i < out->fitting; i++) {
		const struct oom_box *p = bsearch(&out->items[i], out->points, out->n_points, sizeof(*p), by_offer);

		out->items[i].pareto = p && p->pareto;
	}
}

enum oom_status oom_boxes_order(struct oom_boxes *out, const struct oom_box_query *q,
				struct oom_error *err)
{
	enum oom_status st = OOM_OK;

	for (size_t i = 0; i < out->n; i++)
		out->items[i].key = key_of(&out->items[i], q);
	qsort(out->items, out->n, sizeof(*out->items), better);
	while (out->fitting < out->n && out->items[out->fitting].shortage == OOM_BOX_FITS &&
	       !out->items[out->fitting].needs_science)
		out->fitting++;
	if (!(q->tokens > 0))
		return oom_boxes_front(out->items, out->fitting, err);
	oom_boxes_only_answers(out);
	st = oom_boxes_front(out->points, out->n_points, err);
	if (!st && out->n_points) {
		mark_rows(out);
		qsort(out->points, out->n_points, sizeof(*out->points), by_days);
	}
	return st;
}
