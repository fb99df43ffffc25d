/* The order in which offers are looked at. */
#include <stdlib.h>

#include "finder.h"

static int by_turn(const void *x, const void *y)
{
	const struct finder_turn *a = x, *b = y;

	if (a->generation < b->generation || a->generation > b->generation)
		return a->generation < b->generation ? -1 : 1;
	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	if (a->room != b->room)
		return a->room > b->room ? -1 : 1;
	if (a->gpu != b->gpu)
		return a->gpu < b->gpu ? -1 : 1;
	return a->offer < b->offer ? -1 : a->offer > b->offer;
}

struct finder_turn *finder_turns(const struct oom_offers *offers)
{
	struct finder_turn *t = malloc((offers->n + 1) * sizeof(*t));

	for (size_t i = 0; t && i < offers->n; i++) {
		const struct oom_offer *o = &offers->items[i];

		t[i] = (struct finder_turn){offers->gpus.items[o->gpu].compute_capability, o->gpu_count,
					   offers->gpus.items[o->gpu].capacity_bytes, o->gpu, o};
	}
	if (t)
		qsort(t, offers->n, sizeof(*t), by_turn);
	return t;
}
