/* Errors of a runs file against what was measured, by group and quantity. */
#include "errors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct error {
	char group[OOM_RUN_GROUP];
	uint8_t measure;
	double share;                   /* predicted / measured - 1 */
};

bool oom_run_errors_add(struct oom_run_errors *e, const char *group, enum oom_measure m, double predicted,
			double measured)
{
	struct error *to;

	if (!(measured > 0) || !(predicted > 0))
		return true;
	if (e->n == e->cap) {
		const size_t cap = e->cap * 2 + 64;
		void *q = realloc(e->items, cap * sizeof(*e->items));

		if (!q)
			return false;
		e->items = q;
		e->cap = cap;
	}
	to = &e->items[e->n++];
	snprintf(to->group, sizeof(to->group), "%s", group);
	to->measure = (uint8_t)m;
	to->share = predicted / measured - 1;
	return true;
}

void oom_run_errors_release(struct oom_run_errors *e)
{
	free(e->items);
	memset(e, 0, sizeof(*e));
}

static int by_group(const void *a, const void *b)
{
	const struct error *x = a, *y = b;
	const int c = strcmp(x->group, y->group);

	if (c || x->measure != y->measure)
		return c ? c : x->measure - y->measure;
	return (fabs(x->share) > fabs(y->share)) - (fabs(x->share) < fabs(y->share));
}

/* The first that so many are not above: nearest rank. */
static double rank(const struct error *x, size_t n, double level)
{
	const size_t k = (size_t)ceil(level * (double)n);

	return fabs(x[k ? k - 1 : 0].share);
}

size_t oom_run_errors_sum(struct oom_run_errors *e, struct oom_run_error *out, size_t room)
{
	size_t used = 0;

	if (e->n)
		qsort(e->items, e->n, sizeof(*e->items), by_group);
	for (size_t i = 0, n; i < e->n && used < room; i += n) {
		const struct error *x = &e->items[i];
		struct oom_run_error *to = &out[used++];
		size_t under = 0;

		for (n = 0; i + n < e->n && !strcmp(x[n].group, x->group) && x[n].measure == x->measure; n++)
			under += x[n].share < -0.05;
		snprintf(to->group, sizeof(to->group), "%s", x->group);
		to->measure = (enum oom_measure)x->measure;
		to->n = n;
		to->median = rank(x, n, 0.5);
		to->p95 = rank(x, n, 0.95);
		to->under = (double)under / (double)n;
	}
	return used;
}
