/* The walk that rewrites streams: every event is copied, and the hooks add theirs. */
#include "step/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "tape/room.h"

enum { FIRST = 256, ADDED = 64 };       /* places that an array begins with; rows that most passes need no more than */

static bool stream_room(struct oom_rewrite *w, size_t more)
{
	struct oom_stream *s = &w->to->streams[w->stream];

	if (!oom_room((void **)&s->ev, &s->cap, FIRST, s->n + more, sizeof(*s->ev)))
		w->status = OOM_ERR_MEMORY;
	return !w->status;
}

static inline void put(struct oom_rewrite *w, int32_t code)
{
	struct oom_stream *s = &w->to->streams[w->stream];

	if (s->n < s->cap || stream_room(w, 1))
		s->ev[s->n++] = code;
}

/* Rows are those of the tape that was rewritten until one is added. */
static bool own_rows(struct oom_tape *t)
{
	struct oom_row *own;

	if (t->cap_rows)
		return true;
	own = malloc((t->n_rows + ADDED) * sizeof(*own));
	if (!own)
		return false;
	memcpy(own, t->rows, t->n_rows * sizeof(*own));
	t->rows = own;
	t->cap_rows = t->n_rows + ADDED;
	return true;
}

int32_t oom_rewrite_row(struct oom_rewrite *w, const char *name, uint64_t bytes, enum oom_cat cat,
			enum oom_share share)
{
	struct oom_tape *t = w->to;

	if (!own_rows(t) || !oom_room((void **)&t->rows, &t->cap_rows, FIRST, t->n_rows + 1, sizeof(*t->rows))) {
		w->status = OOM_ERR_MEMORY;
		return -1;
	}
	t->rows[t->n_rows] = (struct oom_row){.width = bytes,
					      .name = name,
					      .scope = "",
					      .mono = OOM_MONO_ONE,
					      .mult = 1,
					      .dt = OOM_U8,
					      .cat = (uint8_t)cat,
					      .born = (uint8_t)w->stream,
					      .share = (uint8_t)share};
	return (int32_t)t->n_rows++;
}

int32_t oom_rewrite_copy(struct oom_rewrite *w, int32_t row)
{
	const struct oom_row *r = &w->from->rows[row];
	const int32_t copy = oom_rewrite_row(w, r->name, r->width, (enum oom_cat)r->cat,
					     (enum oom_share)r->share);

	if (copy >= 0) {
		w->to->rows[copy] = *r;
		w->to->rows[copy].mult = 1;
	}
	return copy;
}

void oom_rewrite_event(struct oom_rewrite *w, int32_t row, enum oom_event_kind kind)
{
	if (row >= 0)
		put(w, row << 2 | (int32_t)kind);
}

/* Where a layer begins or ends: what the pass does there lies within the layer. */
static void mark(struct oom_rewrite *w, const struct oom_hooks *h, int32_t ev)
{
	const size_t u = oom_ev_unit(ev);

	w->unit = (int64_t)u;
	if (oom_ev_unit_ends(ev)) {
		if (h->unit_end)
			h->unit_end(w, u);
		put(w, ev);
		w->unit = -1;
		return;
	}
	put(w, ev);
	if (h->unit_begin)
		h->unit_begin(w, u);
}

/* Where the stream's layers begin. */
static size_t first_layer(const struct oom_stream *s)
{
	size_t k = 0;

	while (k < s->n && s->ev[k] >= 0)
		k++;
	return k;
}

/* How many events there are from here to `until` that no hook is called at. */
static size_t plain(const struct oom_stream *s, size_t from, size_t until, unsigned hooked)
{
	size_t k = from;

	while (k < s->n && k != until && (s->ev[k] >= 0 ? !(hooked >> (s->ev[k] & 3) & 1) : !oom_ev_is_unit(s->ev[k])))
		k++;
	return k - from;
}

static void copy_stream(struct oom_rewrite *w, const struct oom_hooks *h, const struct oom_stream *s)
{
	const unsigned hooked = (h->grad ? 1u << OOM_EV_GRAD : 0) | (h->freed ? 1u << OOM_EV_FREE : 0);
	struct oom_stream *to = &w->to->streams[w->stream];
	size_t layers = h->layers ? first_layer(s) : SIZE_MAX;

	/* most of what comes is a copy */
	if (!stream_room(w, s->n + s->n / 8))
		return;
	for (size_t k = 0; k < s->n && !w->status; k++) {
		const size_t n = plain(s, k, layers, hooked);
		const int32_t ev = k + n < s->n ? s->ev[k + n] : 0;

		if (n && stream_room(w, n)) {
			memcpy(to->ev + to->n, s->ev + k, n * sizeof(*s->ev));
			to->n += n;
		}
		k += n;
		if (k == layers) {
			h->layers(w);
			layers = SIZE_MAX;
			k--;
			continue;
		}
		if (k == s->n || w->status)
			break;
		if (oom_ev_is_unit(ev))
			mark(w, h, ev);
		else if ((ev & 3) == OOM_EV_GRAD)
			h->grad(w, ev >> 2);
		else if (h->freed(w, ev >> 2))
			put(w, ev);
	}
}

/* ---- what passes ask about rows ---- */

/* Which layer's parameter each gradient row belongs to. */
static bool map_grads(struct oom_rewrite *w)
{
	w->unit_of_grad = calloc(w->from->n_rows + 1, sizeof(*w->unit_of_grad));
	for (size_t i = 0; w->unit_of_grad && i < w->from->n_params; i++)
		if (w->from->params[i].grad >= 0)
			w->unit_of_grad[w->from->params[i].grad] = w->from->params[i].unit;
	return w->unit_of_grad;
}

/* What each layer leaves for the backward pass: born in it, and alive when the forward ends or freed
 * in a later layer's place only by the backward.  Rows that die for all their layers at once belong
 * to none. */
static void map_kept(struct oom_rewrite *w)
{
	const struct oom_stream *f = &w->from->streams[OOM_STREAM_FWD],
				*b = &w->from->streams[OOM_STREAM_BWD];
	uint32_t unit = 0;

	w->kept = calloc(w->from->n_rows + 1, sizeof(*w->kept));
	for (size_t i = 0; w->kept && i < f->n; i++) {
		const int32_t ev = f->ev[i];

		if (oom_ev_is_unit(ev))
			unit = oom_ev_unit_ends(ev) ? 0 : (uint32_t)oom_ev_unit(ev) + 1;
		else if (ev >= 0)
			w->kept[ev >> 2] = (ev & 3) == OOM_EV_ALLOC ? unit : 0;
	}
	unit = 0;
	for (size_t i = 0; w->kept && i < b->n; i++) {
		const int32_t ev = b->ev[i];

		if (oom_ev_is_unit(ev))
			unit = !oom_ev_unit_ends(ev);
		else if (ev >= 0 && (ev & 3) != OOM_EV_ALLOC && (!unit || (ev & 3) != OOM_EV_FREE))
			w->kept[ev >> 2] = 0;
	}
}

/* What the forward makes behind the layers: a fused loss's gradient among it. */
static void map_late(struct oom_rewrite *w)
{
	const struct oom_stream *f = &w->from->streams[OOM_STREAM_FWD];
	bool behind = false;

	w->late = calloc(w->from->n_rows + 1, sizeof(*w->late));
	for (size_t i = 0; w->late && i < f->n; i++) {
		const int32_t ev = f->ev[i];

		if (oom_ev_is_unit(ev))
			behind = oom_ev_unit_ends(ev) && oom_ev_unit(ev) + 1 == w->from->n_units;
		else if (ev >= 0 && (ev & 3) == OOM_EV_ALLOC)
			w->late[ev >> 2] = behind;
	}
}

/* Rows that one layer's backward makes and another's frees. */
static void map_handed(struct oom_rewrite *w)
{
	const struct oom_stream *s = &w->from->streams[OOM_STREAM_BWD];
	uint32_t unit = 0;

	w->handed = calloc(w->from->n_rows + 1, sizeof(*w->handed));
	for (size_t i = 0; w->handed && i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (oom_ev_is_unit(ev))
			unit = oom_ev_unit_ends(ev) ? 0 : (uint32_t)oom_ev_unit(ev) + 1;
		else if (ev >= 0 && (ev & 3) == OOM_EV_ALLOC)
			w->handed[ev >> 2] = unit;
		else if (ev >= 0 && w->handed[ev >> 2] == unit)
			w->handed[ev >> 2] = 0;
	}
}

uint32_t *oom_rewrite_kept(struct oom_rewrite *w)
{
	if (!w->kept && !w->status)
		map_kept(w);
	w->status = w->kept ? w->status : OOM_ERR_MEMORY;
	return w->kept;
}

bool *oom_rewrite_late(struct oom_rewrite *w)
{
	if (!w->late && !w->status)
		map_late(w);
	w->status = w->late ? w->status : OOM_ERR_MEMORY;
	return w->late;
}

uint32_t *oom_rewrite_handed(struct oom_rewrite *w)
{
	if (!w->handed && !w->status)
		map_handed(w);
	w->status = w->handed ? w->status : OOM_ERR_MEMORY;
	return w->handed;
}

/* ---- the walk ---- */

enum oom_status oom_rewrite(const struct oom_tape *from, struct oom_tape *to,
			    const struct oom_plan *plan, const struct oom_hooks *h, size_t own)
{
	struct oom_rewrite w = {.from = from, .to = to, .plan = plan, .unit = -1};

	*to = *from;
	to->sums = NULL;
	to->cap_rows = 0;
	to->ctx = NULL;
	for (int i = 0; i < OOM_STREAMS; i++)
		to->streams[i] = (struct oom_stream){0};
	w.own = calloc(1, own ? own : 1);
	if (!w.own || !map_grads(&w))
		w.status = OOM_ERR_MEMORY;
	for (int i = 0; i < OOM_STREAMS && !w.status; i++) {
		const struct oom_stream *s = &from->streams[i];

		w.stream = (enum oom_stream_id)i;
		if (h->begin)
			h->begin(&w);
		copy_stream(&w, h, s);
		if (h->end)
			h->end(&w);
	}
	free(w.own);
	free(w.unit_of_grad);
	free(w.kept);
	free(w.late);
	free(w.handed);
	if (w.status)
		oom_rewrite_release(to);
	return w.status;
}

void oom_rewrite_release(struct oom_tape *to)
{
	if (to->cap_rows)
		free(to->rows);
	for (int i = 0; i < OOM_STREAMS; i++)
		free(to->streams[i].ev);
	memset(to, 0, sizeof(*to));
}
