/* Repeated layers, written out one by one.
 *
 * Of a run of equal layers the first, the second and the last are recorded (layers.c), and the second stands for all
 * between the ends.  Its copies differ in whose rows they touch:
 *
 *   - a row that the layer makes, forward or backward, is its own copy's;
 *   - a row of the first layer that the second one frees came from the layer before (its input): from the copy before
 *     that is the row of the second layer which the last one frees in the same way;
 *   - a row of the last layer's backward that the second one's frees (the gradient of its output) came from the layer
 *     behind: from the copy behind that is the row of the second layer's which the first one's frees.
 *
 * The two of a pair are found by their order, and must be of one size; what is not of these kinds is not unrolled. */
#include "unroll.h"

#include <stdlib.h>

#include "unrolling.h"

/* ---- writing ---- */

static inline void put(struct oom_stream *to, int32_t ev)
{
	to->ev[to->n++] = ev;
}

/* The row that copy k of a run means by this one; NOBODY: it cannot be told. */
static int32_t meant(const struct oom_unrolling *w, int32_t row, int32_t run, uint32_t k)
{
	const struct oom_run *r = &w->run[run];
	int32_t own;
	bool before;

	if (w->run_of[row] == run)
		return w->copy[w->base[row] + (int32_t)k];
	own = w->pair[row];
	before = w->unit_of[row] < (int32_t)r->unit0;
	if (own < 0 || w->run_of[row] >= 0 || w->run_of[own] != run)
		return NOBODY;
	if (k == (before ? 0 : r->reps - 1))
		return w->copy[w->base[row]];
	return w->copy[w->base[own] + (int32_t)k + (before ? -1 : 1)];
}

/* What an event outside of the copies means by a repeated layer's row: the forward's is the last copy's, what the
 * backward makes the first one's, in whose order it runs last. */
static int32_t meant_outside(const struct oom_unrolling *w, int32_t row)
{
	const int32_t run = w->run_of[row];
	const bool back = w->from->rows[row].born == OOM_STREAM_BWD;

	return w->copy[w->base[row] + (run < 0 || back ? 0 : (int32_t)w->run[run].reps - 1)];
}

/* One event of a copy (run < 0: of none).  Inline: a replay's tape is some ten thousand of them. */
static inline __attribute__((always_inline)) bool event(struct oom_unrolling *w, struct oom_stream *s, int32_t ev,
							int32_t run, uint32_t k)
{
	const int32_t row = ev >> 2, kind = ev & 3;
	int32_t to;

	if (kind == OOM_EV_ALLOC) {
		const int32_t at = w->base[row] + (run < 0 ? 0 : (int32_t)k);

		to = w->copy[at] = (int32_t)w->to->n_rows++;
		w->to->rows[to] = w->from->rows[row];
		w->to->rows[to].mult = 1;
	} else if (w->base[row] < 0 || kind == OOM_EV_FREE_ALL ||
		   (kind == OOM_EV_GRAD && run < 0 && w->run_of[row] >= 0)) {
		return false;           /* one event for all copies */
	} else {
		to = run < 0 ? meant_outside(w, row) : meant(w, row, run, k);
	}
	if (to < 0)
		return false;
	put(s, to << 2 | kind);
	return true;
}

/* Whether an event beside them gives up a row of the layers before (-1) or behind the copies (1); 0: neither. */
static int side(const struct oom_unrolling *w, const struct oom_run *r, const struct oom_stream *s, size_t at)
{
	const int32_t ev = at < s->n ? s->ev[at] : -1, unit = ev >= 0 ? w->unit_of[ev >> 2] : NOBODY,
		      units = (int32_t)(r->unit1 - r->unit0);

	if (ev < 0 || (ev & 3) != OOM_EV_FREE)
		return 0;
	return unit >= (int32_t)r->unit1 && unit < (int32_t)r->unit1 + units   ? 1 :
	       unit < (int32_t)r->unit0 && unit >= (int32_t)r->unit0 - units ? -1 :
									      0;
}

/* Rows that the copies give up together, copy by copy (casts of weights at the end of a pass), in the order in which
 * the layers beside them do.  Returns where the stream goes on; 0: they cannot be told apart. */
static size_t give_up_all(struct oom_unrolling *w, enum oom_stream_id id, size_t at)
{
	const struct oom_stream *s = &w->from->streams[id];
	const int32_t run = w->run_of[s->ev[at] >> 2];
	size_t end = at;
	int before, behind;

	if (run < 0)
		return 0;
	while (end < s->n && s->ev[end] >= 0 && (s->ev[end] & 3) == OOM_EV_FREE_ALL && w->run_of[s->ev[end] >> 2] == run)
		end++;
	before = at ? side(w, &w->run[run], s, at - 1) : 0;
	behind = side(w, &w->run[run], s, end);
	if (before + behind || !before)
		return 0;
	for (uint32_t k = 0; k < w->run[run].reps; k++) {
		const int32_t copy = (int32_t)(before < 0 ? k : w->run[run].reps - 1 - k);

		for (size_t i = at; i < end; i++)
			put(&w->to->streams[id], w->copy[w->base[s->ev[i] >> 2] + copy] << 2 | OOM_EV_FREE);
	}
	return end;
}

/* What number a unit has in the unrolled tape, in copy k of its run. */
static size_t unit_in(const struct oom_unrolling *w, size_t unit, uint32_t k)
{
	size_t n = unit;

	for (size_t i = 0; i < w->n_runs; i++) {
		const struct oom_run *r = &w->run[i];
		const size_t units = r->unit1 - r->unit0;

		if (unit >= r->unit1)
			n += (r->reps - 1) * units;
		else if (unit >= r->unit0)
			n += k * units;
	}
	return n;
}

/* A repeated region, [at, end) of a stream; copies run backwards in the backward pass. */
static bool region(struct oom_unrolling *w, enum oom_stream_id id, size_t at, size_t end, uint32_t reps)
{
	const struct oom_stream *s = &w->from->streams[id];
	struct oom_stream *const to = &w->to->streams[id];
	int32_t run = NOBODY;

	for (uint32_t i = 0; i < reps; i++) {
		const uint32_t k = id == OOM_STREAM_BWD ? reps - 1 - i : i;

		for (size_t j = at; j < end; j++) {
			const int32_t ev = s->ev[j];

			if (oom_ev_is_unit(ev)) {
				run = oom_run_at(w, oom_ev_unit(ev));
				if (run < 0 || w->run[run].reps != reps)
					return false;
				put(to, -OOM_UNIT_MARK - (int32_t)(2 * unit_in(w, oom_ev_unit(ev), k)) -
						   oom_ev_unit_ends(ev));
			} else if (ev < 0 || run < 0 || !event(w, to, ev, run, k)) {
				return false;
			}
		}
	}
	return true;
}

static bool stream(struct oom_unrolling *w, enum oom_stream_id id)
{
	const struct oom_stream *s = &w->from->streams[id];
	struct oom_stream *const to = &w->to->streams[id];

	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];
		size_t end = i + 1;

		if (ev >= 0 && (ev & 3) == OOM_EV_FREE_ALL) {
			end = give_up_all(w, id, i);
			if (!end)
				return false;
			i = end - 1;
			continue;
		}
		if (ev >= 0) {
			if (!event(w, to, ev, NOBODY, 0))
				return false;
			continue;
		}
		if (oom_ev_is_unit(ev)) {
			put(to, -OOM_UNIT_MARK - (int32_t)(2 * unit_in(w, oom_ev_unit(ev), 0)) -
					   oom_ev_unit_ends(ev));
			continue;
		}
		while (s->ev[end] >= 0 || oom_ev_is_unit(s->ev[end]))
			end++;
		if (!region(w, id, i + 1, end, w->from->reps[(-1 - ev) / 2]))
			return false;
		i = end;
		/* a table of all layers, given up with the last of them */
		if (i + 1 < s->n && s->ev[i + 1] >= 0 && w->from->rows[s->ev[i + 1] >> 2].shared)
			return false;
	}
	return true;
}

/* ---- parameters, units, layers ---- */

static bool parameter(struct oom_unrolling *w, const struct oom_param *p, int32_t run, uint32_t k)
{
	struct oom_param *q = &w->to->params[w->to->n_params++];

	*q = *p;
	if (p->unit)
		q->unit = (uint32_t)unit_in(w, p->unit - 1, k) + 1;
	if (run >= 0)
		q->count = 1;
	if (p->grad < 0)
		return true;
	if (w->base[p->grad] < 0)
		return false;
	q->grad = run < 0 ? meant_outside(w, p->grad) : meant(w, p->grad, run, k);
	return q->grad >= 0 && (run >= 0 || w->run_of[p->grad] < 0);
}

static bool parameters(struct oom_unrolling *w)
{
	const struct oom_tape *t = w->from;

	for (size_t i = 0; i < t->n_params;) {
		const int32_t run = t->params[i].unit ? oom_run_at(w, t->params[i].unit - 1) : NOBODY;
		const struct oom_run *r = run < 0 ? NULL : &w->run[run];
		const size_t end = r ? r->param1 : i + 1;

		/* those of a run lie together, from its begin on; others that stand for several were never run */
		if (r ? i != r->param0 : t->params[i].count > 1)
			return false;
		for (uint32_t k = 0; k < (r ? r->reps : 1); k++)
			for (size_t j = i; j < end; j++)
				if ((t->params[j].unit ? oom_run_at(w, t->params[j].unit - 1) : NOBODY) != run ||
				    !parameter(w, &t->params[j], run, k))
					return false;
		i = end;
	}
	return true;
}

/* Where the parameter's number lies when the copies before it are there. */
static uint32_t param_in(const struct oom_unrolling *w, uint32_t i, size_t unit, uint32_t k)
{
	uint32_t n = i;

	for (size_t j = 0; j < w->n_runs; j++) {
		const struct oom_run *r = &w->run[j];

		if (unit >= r->unit1)
			n += (r->reps - 1) * (r->param1 - r->param0);
		else if (unit >= r->unit0)
			n += k * (r->param1 - r->param0);
	}
	return n;
}

static bool units_and_layers(struct oom_unrolling *w)
{
	const struct oom_tape *t = w->from;

	for (size_t l = 0; l < t->n_layers; l++) {
		const struct oom_layer_rec *rec = &t->layers[l];

		if (rec->layers != (rec->unit1 - rec->unit0) * rec->reps)
			return false;           /* units within units */
		for (uint32_t k = 0; k < rec->reps; k++)
			for (uint32_t u = rec->unit0; u < rec->unit1; u++) {
				const size_t n = unit_in(w, u, k);

				w->to->units[n] = (struct oom_unit){
					.param0 = param_in(w, t->units[u].param0, u, k),
					.param1 = param_in(w, t->units[u].param1, u, k),
					.mult = 1};
				w->to->layers[w->to->n_layers++] = (struct oom_layer_rec){
					.unit0 = (uint32_t)n,
					.unit1 = (uint32_t)n + 1,
					.group = rec->group,
					.reps = 1,
					.layers = 1};
			}
	}
	return w->to->n_layers == w->to->n_units;
}

/* ---- the whole ---- */

static bool write_out(struct oom_unrolling *w)
{
	size_t units, params;

	w->status = oom_unrolling_room(w, &units, &params);
	if (w->status)
		return false;
	if (!stream(w, OOM_STREAM_FWD) || !stream(w, OOM_STREAM_BWD) || !parameters(w))
		return false;
	w->to->n_units = units;
	return w->to->n_params == params && units_and_layers(w);
}

static bool unroll(struct oom_unrolling *w)
{
	bool done = false;

	if (!oom_find_runs(w))
		return false;
	w->copy = malloc((w->n_copies + 1) * sizeof(*w->copy));
	if (w->copy)
		done = write_out(w);
	else
		w->status = OOM_ERR_MEMORY;
	if (!done)
		oom_tape_release(w->to);
	free(w->copy);
	return done;
}

enum oom_status oom_unroll(const struct oom_tape *from, struct oom_tape *to)
{
	struct oom_unrolling *w = calloc(1, sizeof(*w));
	int32_t *map = malloc((4 * from->n_rows + 1) * sizeof(*map));
	enum oom_status st = OOM_ERR_MEMORY;

	if (w && map) {
		w->from = from;
		w->to = to;
		w->unit_of = map;
		w->run_of = map + from->n_rows;
		w->base = map + 2 * from->n_rows;
		w->pair = map + 3 * from->n_rows;
		st = unroll(w) ? OOM_OK : w->status ? w->status : OOM_ERR_LIMIT;
	}
	free(w);
	free(map);
	return st;
}
