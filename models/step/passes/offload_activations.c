/* Activations in pinned host memory: what a layer keeps for its backward pass leaves when the layer
 * is through, and comes back before that.
 *
 * torchtune/training/_activation_offloading.py, on streams of their own: while a layer computes,
 * what the one before kept is still on its way, and so is what the next backward needs.  One
 * layer's worth, the largest, is therefore taken to be in flight from the forward's begin to the
 * backward's end. */
#include <string.h>

#include "step/pass.h"

/* By layer ([1 + unit]): the sizes of what it keeps, to find the largest; [0]: the answer. */
struct own {
	uint64_t bytes;
	size_t largest;         /* of [0]: 1 + the layer */
	bool known;             /* of [0] */
	/* of [0]: the rows that are in flight; [first, end) */
	int32_t first, end;
};

/* Rows of a layer that the forward leaves for the backward. */
static bool kept_by(const struct oom_rewrite *w, int32_t row, uint32_t unit)
{
	return w->kept && w->kept[row] == unit;         /* once find_largest has asked for it */
}

/* Layers of different kinds are compared at one batch, whatever the plan's: a plan's price must not
 * depend on which batch was asked for first. */
static uint64_t size_of(const struct oom_tape *t, const struct oom_row *r)
{
	enum { SEQUENCES = 1, TOKENS = 2048 };

	return oom_mono_eval(t, r->mono, SEQUENCES, TOKENS, TOKENS) * r->width *
	       oom_dtype_bytes((enum oom_dtype)r->dt);
}

static void find_largest(struct oom_rewrite *w)
{
	const uint32_t *kept = oom_rewrite_kept(w);
	struct own *o = w->own;

	for (size_t row = 0; kept && row < w->from->n_rows; row++)
		if (kept[row])
			o[kept[row]].bytes += size_of(w->from, &w->from->rows[row]);
	for (size_t u = 1; u <= w->from->n_units; u++)
		o->largest = o[u].bytes > (o->largest ? o[o->largest].bytes : 0) ? u : o->largest;
	o->known = true;
}

/* Everything that the layer keeps. */
static void all_kept(struct oom_rewrite *w, size_t unit, enum oom_event_kind kind)
{
	for (size_t row = 0; unit && row < w->from->n_rows; row++)
		if (kept_by(w, (int32_t)row, (uint32_t)unit))
			oom_rewrite_event(w, (int32_t)row, kind);
}

/* One layer's worth, in rows of its own. */
static void take_off(struct oom_rewrite *w)
{
	struct own *o = w->own;

	o->first = (int32_t)w->to->n_rows;
	for (size_t row = 0; o->largest && row < w->from->n_rows; row++)
		if (kept_by(w, (int32_t)row, (uint32_t)o->largest))
			oom_rewrite_event(w, oom_rewrite_copy(w, (int32_t)row), OOM_EV_ALLOC);
	o->end = (int32_t)w->to->n_rows;
}

static void begin(struct oom_rewrite *w)
{
	struct own *o = w->own;

	if (!o->known)
		find_largest(w);
	if (w->stream == OOM_STREAM_FWD)
		take_off(w);
}

static void end(struct oom_rewrite *w)
{
	const struct own *o = w->own;

	for (int32_t row = o->first; w->stream == OOM_STREAM_BWD && row < o->end; row++)
		oom_rewrite_event(w, row, OOM_EV_FREE);
}

static void unit_end(struct oom_rewrite *w, size_t unit)
{
	if (w->stream == OOM_STREAM_FWD)
		all_kept(w, unit + 1, OOM_EV_FREE);
}

/* What is freed within this layer's backward was needed there: back before it begins. */
static void unit_begin(struct oom_rewrite *w, size_t unit)
{
	const struct oom_stream *s = &w->from->streams[OOM_STREAM_BWD];
	bool inside = false;

	for (size_t i = 0; w->stream == OOM_STREAM_BWD && i < s->n; i++) {
		if (oom_ev_is_unit(s->ev[i]) && oom_ev_unit(s->ev[i]) == unit)
			inside = !oom_ev_unit_ends(s->ev[i]);
		else if (inside && s->ev[i] >= 0 && (s->ev[i] & 3) == OOM_EV_FREE &&
			 w->kept && w->kept[s->ev[i] >> 2])
			oom_rewrite_event(w, s->ev[i] >> 2, OOM_EV_ALLOC);
	}
}

static const struct oom_hooks hooks = {
	.begin = begin, .end = end, .unit_begin = unit_begin, .unit_end = unit_end};

static bool applies(const struct oom_plan *p)
{
	return p->offload_activations;
}

const struct oom_pass oom_pass_offload_activations = {
	.name = "offload-activations",
	.cls = OOM_PLACEMENT,
	.summary = "what layers keep for the backward pass waits in pinned host memory",
	.knobs = "offload-activations",
	.source = "torchtune/training/_activation_offloading.py",
	.applies = applies,
	.hooks = &hooks,
	.own_size = sizeof(struct own),
};
