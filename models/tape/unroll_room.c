/* Repeated layers, written out one by one: the room that the long tape takes.  All of it is had before anything is
 * written, so that the copies never grow a table. */
#include <stdlib.h>
#include <string.h>

#include "unrolling.h"

static bool room(struct oom_unrolling *w, size_t ev[2], size_t units, size_t params)
{
	const struct oom_tape *t = w->from;
	struct oom_tape *to = w->to;

	to->rows = malloc((w->n_copies + 1) * sizeof(*to->rows));
	to->refs = malloc((w->n_copies + 1) * sizeof(*to->refs));
	to->cap_rows = w->n_copies + 1;
	to->units = malloc((units + 1) * sizeof(*to->units));
	to->cap_units = units + 1;
	to->layers = malloc((units + 1) * sizeof(*to->layers));
	to->cap_layers = units + 1;
	to->params = malloc((params + 1) * sizeof(*to->params));
	to->cap_params = params + 1;
	for (int k = OOM_STREAM_FWD; k <= OOM_STREAM_BWD; k++) {
		to->streams[k].ev = malloc((ev[k] + 1) * sizeof(*to->streams[k].ev));
		to->streams[k].cap = ev[k] + 1;
	}
	if (t->beside.n) {
		to->beside.params = malloc(t->beside.n * sizeof(*to->beside.params));
		to->beside.cap = t->beside.n;
	}
	return to->rows && to->refs && to->units && to->layers && to->params && to->streams[0].ev &&
	       to->streams[1].ev && (!t->beside.n || to->beside.params);
}

/* Everything but what it owns. */
static void head(const struct oom_tape *from, struct oom_tape *to)
{
	*to = *from;
	to->sums = NULL;
	to->rows = NULL;
	to->refs = NULL;
	to->nodes = NULL;
	to->params = NULL;
	to->ckpts = NULL;
	to->units = NULL;
	to->layers = NULL;
	to->ctx = NULL;
	to->kept.row = to->again.row = NULL;
	to->cached.row = NULL;
	to->routed.row = NULL;
	to->beside.params = NULL;
	for (int i = 0; i < OOM_STREAMS; i++)
		to->streams[i] = (struct oom_stream){0};
	to->n_rows = to->n_params = to->n_nodes = to->n_ckpts = to->n_units = to->n_layers = to->n_ctx = 0;
	to->cap_rows = to->cap_params = to->cap_nodes = to->cap_ckpts = to->cap_units = to->cap_layers = 0;
	to->again.n = to->again.cap = to->kept.n = to->kept.cap = to->cached.n = to->cached.cap = 0;
	to->routed.n = to->routed.cap = 0;
	to->n_reps = 0;
	to->expand = true;
}

/* How much the copies come to. */
static void measure(const struct oom_unrolling *w, size_t ev[2], size_t *units, size_t *params)
{
	const struct oom_tape *t = w->from;

	*units = t->n_units;
	*params = t->n_params;
	for (size_t k = 0; k < w->n_runs; k++) {
		*units += (size_t)(w->run[k].reps - 1) * (w->run[k].unit1 - w->run[k].unit0);
		*params += (size_t)(w->run[k].reps - 1) * (w->run[k].param1 - w->run[k].param0);
	}
	for (int k = OOM_STREAM_FWD; k <= OOM_STREAM_BWD; k++) {
		uint32_t reps = 1;

		ev[k] = 0;
		for (size_t i = 0; i < t->streams[k].n; i++) {
			const int32_t e = t->streams[k].ev[i];

			/* at most: outside of the copies, what is given up for all of them */
			ev[k] += e >= 0 && (e & 3) == OOM_EV_FREE_ALL ? t->rows[e >> 2].mult : reps;
			if (e < 0 && !oom_ev_is_unit(e))
				reps = (-1 - e) & 1 ? 1 : t->reps[(-1 - e) / 2];
		}
	}
}

enum oom_status oom_unrolling_room(struct oom_unrolling *w, size_t *units, size_t *params)
{
	size_t ev[2];

	measure(w, ev, units, params);
	head(w->from, w->to);
	if (!room(w, ev, *units, *params))
		return OOM_ERR_MEMORY;
	if (w->from->beside.n)
		memcpy(w->to->beside.params, w->from->beside.params,
		       w->from->beside.n * sizeof(*w->to->beside.params));
	return OOM_OK;
}
