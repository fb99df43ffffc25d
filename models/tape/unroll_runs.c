/* What of a tape is repeated, whose every row is, and which of a repeated layer's own rows stands for a neighbour's
 * (unroll.c says what for). */
#include <stdlib.h>

#include "unrolling.h"

/* ---- what there is ---- */

/* The runs, from the marks of the forward; the backward has marks of its own around the same units. */
static bool find_runs(struct oom_unrolling *w)
{
	const struct oom_tape *t = w->from;
	const struct oom_stream *s = &t->streams[OOM_STREAM_FWD];
	struct oom_run *open = NULL;

	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (oom_ev_is_unit(ev)) {
			if (open && !oom_ev_unit_ends(ev))
				open->unit1 = (uint32_t)oom_ev_unit(ev) + 1;
			if (open && open->unit0 == UINT32_MAX)
				open->unit0 = (uint32_t)oom_ev_unit(ev);
		} else if (ev < 0 && !((-1 - ev) & 1)) {
			open = &w->run[w->n_runs++];
			*open = (struct oom_run){.unit0 = UINT32_MAX, .reps = t->reps[(-1 - ev) / 2]};
		} else if (ev < 0) {
			if (!open || open->unit0 == UINT32_MAX)
				return false;   /* of a model beside the trained one */
			open = NULL;
		}
	}
	for (size_t k = 0; k < w->n_runs; k++) {
		w->run[k].param0 = t->units[w->run[k].unit0].param0;
		w->run[k].param1 = t->units[w->run[k].unit1 - 1].param1;
	}
	return !open;
}

int32_t oom_run_at(const struct oom_unrolling *w, size_t unit)
{
	for (size_t k = 0; k < w->n_runs; k++)
		if (unit >= w->run[k].unit0 && unit < w->run[k].unit1)
			return (int32_t)k;
	return NOBODY;
}

/* Whose every row is. */
static bool find_owners(struct oom_unrolling *w)
{
	const struct oom_tape *t = w->from;

	for (size_t i = 0; i < t->n_rows; i++)
		w->unit_of[i] = w->run_of[i] = w->base[i] = w->pair[i] = NOBODY;
	for (int k = OOM_STREAM_FWD; k <= OOM_STREAM_BWD; k++) {
		int32_t unit = NOBODY, run = NOBODY;

		for (size_t i = 0; i < t->streams[k].n; i++) {
			const int32_t ev = t->streams[k].ev[i];

			if (oom_ev_is_unit(ev)) {
				unit = oom_ev_unit_ends(ev) ? NOBODY : (int32_t)oom_ev_unit(ev);
				run = unit < 0 ? NOBODY : oom_run_at(w, (size_t)unit);
			} else if (ev >= 0 && (ev & 3) == OOM_EV_ALLOC) {
				w->unit_of[ev >> 2] = unit;
				w->run_of[ev >> 2] = run;
				w->base[ev >> 2] = (int32_t)w->n_copies;
				w->n_copies += run < 0 ? 1 : w->run[run].reps;
			}
		}
	}
	return w->n_copies < OOM_MAX_ROWS;
}

/* ---- who stands for a neighbour's row ---- */

/* Rows of `born` that units [unit0, unit1) free in a stream, in that order. */
struct handed {
	int32_t *row;
	size_t n;
};

static bool within(const struct oom_unrolling *w, int32_t row, uint32_t unit0, uint32_t unit1, enum oom_stream_id born)
{
	return w->unit_of[row] >= (int32_t)unit0 && w->unit_of[row] < (int32_t)unit1 &&
	       w->from->rows[row].born == born;
}

/* Those of units [from0, from1), born in one stream, that units [to0, to1) free in another. */
static void collect(const struct oom_unrolling *w, struct handed *h, enum oom_stream_id stream, enum oom_stream_id born,
		    uint32_t from0, uint32_t from1, uint32_t to0, uint32_t to1)
{
	const struct oom_stream *s = &w->from->streams[stream];
	bool inside = false;

	h->n = 0;
	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (oom_ev_is_unit(ev))
			inside = !oom_ev_unit_ends(ev) && oom_ev_unit(ev) >= to0 && oom_ev_unit(ev) < to1;
		else if (inside && ev >= 0 && (ev & 3) == OOM_EV_FREE && within(w, ev >> 2, from0, from1, born))
			h->row[h->n++] = ev >> 2;
	}
}

static bool same_size(const struct oom_row *a, const struct oom_row *b)
{
	return a->width == b->width && a->mono == b->mono && a->dt == b->dt && a->stream == b->stream;
}

/* The neighbour's rows that the second layer frees, and the second layer's that the other neighbour frees. */
static bool pair_up(struct oom_unrolling *w, const struct handed *theirs, const struct handed *ours)
{
	if (theirs->n != ours->n)
		return false;
	for (size_t i = 0; i < ours->n; i++) {
		if (!same_size(&w->from->rows[theirs->row[i]], &w->from->rows[ours->row[i]]) ||
		    (w->pair[theirs->row[i]] >= 0 && w->pair[theirs->row[i]] != ours->row[i]))
			return false;
		w->pair[theirs->row[i]] = ours->row[i];
	}
	return true;
}

static bool pair_run(struct oom_unrolling *w, const struct oom_run *r, struct handed *theirs, struct handed *ours)
{
	const uint32_t u = r->unit0, v = r->unit1, n = v - u;

	if (u < n || v + n > w->from->n_units)
		return false;
	for (int k = OOM_STREAM_FWD; k <= OOM_STREAM_BWD; k++) {
		collect(w, theirs, (enum oom_stream_id)k, OOM_STREAM_FWD, u - n, u, u, v);
		collect(w, ours, (enum oom_stream_id)k, OOM_STREAM_FWD, u, v, v, v + n);
		if (!pair_up(w, theirs, ours))
			return false;
	}
	collect(w, theirs, OOM_STREAM_BWD, OOM_STREAM_BWD, v, v + n, u, v);
	collect(w, ours, OOM_STREAM_BWD, OOM_STREAM_BWD, u, v, u - n, u);
	return pair_up(w, theirs, ours);
}

static bool find_pairs(struct oom_unrolling *w)
{
	const size_t n = w->from->n_rows + 1;
	struct handed theirs = {.row = malloc(n * sizeof(int32_t))}, ours = {.row = malloc(n * sizeof(int32_t))};
	bool ok = theirs.row && ours.row;

	if (!ok)
		w->status = OOM_ERR_MEMORY;
	for (size_t k = 0; ok && k < w->n_runs; k++)
		ok = pair_run(w, &w->run[k], &theirs, &ours);
	free(theirs.row);
	free(ours.row);
	return ok;
}

bool oom_find_runs(struct oom_unrolling *w)
{
	return find_runs(w) && find_owners(w) && find_pairs(w);
}
