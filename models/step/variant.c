/* Variants: made by the passes, walked or compiled. */
#include "step/variant.h"

#include <stdlib.h>
#include <string.h>

#include "step/pass.h"
#include "step/program.h"
#include "tape/room.h"
#include "tape/round.h"

/* Evaluations after which the compiled form has paid for its making (tests/bench: compiling costs
 * as much as some forty walks; of thirds twenty). */
enum { WORTH = 48, WORTH_CUT = 24 };

/* ---- making ---- */

static enum oom_status rewrite(struct oom_variant *v, const struct oom_tape *from,
			       const struct oom_plan *p)
{
	for (size_t i = 0; oom_pass_at(i); i++) {
		const struct oom_pass *pass = oom_pass_at(i);
		struct oom_tape *next;
		enum oom_status st;

		if (!(v->shape >> OOM_SHAPE_BITS * i & ((1 << OOM_SHAPE_BITS) - 1)))
			continue;
		next = malloc(sizeof(*next));
		if (!next)
			return OOM_ERR_MEMORY;
		st = oom_rewrite(v->tape, next, p, pass->hooks,
				 pass->own_size * (from->n_units + 1));
		if (st) {
			free(next);
			return st;
		}
		if (v->own && next->rows == v->own->rows) {     /* they go on with the next */
			next->cap_rows = v->own->cap_rows;
			v->own->cap_rows = 0;
		}
		if (v->own)
			oom_rewrite_release(v->own);
		free(v->own);
		v->tape = v->own = next;
	}
	return OOM_OK;
}

/* Which added rows are alive when the forward ends. */
static enum oom_status count_left(struct oom_variant *v, size_t first)
{
	const struct oom_tape *t = v->tape;
	const struct oom_stream *s = &t->streams[OOM_STREAM_FWD];
	int64_t *n = calloc(t->n_rows - first + 1, sizeof(*n)), reps = 1;

	v->left = malloc((t->n_rows - first + 1) * sizeof(*v->left));
	v->n_left = 0;
	for (size_t i = 0; n && i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0)
			reps = (-1 - ev) & 1 ? 1 : t->reps[(-1 - ev) / 2];
		else if ((size_t)(ev >> 2) >= first)
			n[(size_t)(ev >> 2) - first] += (ev & 3) == OOM_EV_ALLOC ? reps : -reps;
	}
	for (size_t i = first; n && v->left && i < t->n_rows; i++)
		if (n[i - first]) {
			v->left[v->n_left].row = (int32_t)i;
			v->left[v->n_left++].n = n[i - first];
		}
	free(n);
	return n && v->left ? OOM_OK : OOM_ERR_MEMORY;
}

void oom_variant_release(struct oom_variant *v)
{
	if (v->own)
		oom_rewrite_release(v->own);
	free(v->own);
	oom_compiled_release(&v->fast);
	oom_compiled_release(&v->cut_fast);
	free(v->left);
	memset(v, 0, sizeof(*v));
}

/* An empty place, else the one that was asked for longest ago. */
static struct oom_variant **place_for(struct program *g, struct oom_variant **oldest)
{
	for (size_t i = 0; i < OOM_VARIANTS && (!*oldest || (*oldest)->used); i++)
		if (!g->variant[i])
			return &g->variant[i];
	return oldest;
}

/* An empty variant in that place; NULL: out of host memory. */
static struct oom_variant *variant_in(struct oom_evaluator *ev, struct oom_variant **place)
{
	if (!*place)
		return *place = calloc(1, sizeof(**place));
	oom_before_forget(ev, NULL, *place);
	oom_variant_release(*place);
	return *place;
}

enum oom_status oom_variant_for(struct oom_evaluator *ev, struct program *g,
				const struct oom_plan *p, struct oom_variant **out,
				struct oom_error *err)
{
	const uint64_t shape = oom_shape_of(p);
	struct oom_variant **place = &g->variant[0], *v;
	enum oom_status st = OOM_OK;

	for (size_t i = 0; i < OOM_VARIANTS && g->variant[i]; i++) {
		struct oom_variant *w = g->variant[i];

		if (w->tape && w->shape == shape) {
			w->used = ++ev->clock;
			*out = w;
			return OOM_OK;
		}
		place = w->used < (*place)->used ? &g->variant[i] : place;
	}
	v = variant_in(ev, place_for(g, place));
	if (!v)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	v->shape = shape;
	v->tape = &g->tape;
	v->used = ++ev->clock;
	if (shape) {
		st = rewrite(v, &g->tape, p);
		if (!st)
			st = count_left(v, g->tape.n_rows);
	}
	if (st) {
		oom_variant_release(v);
		return oom_error_set(err, st, "out of host memory");
	}
	*out = v;
	return OOM_OK;
}

/* ---- spans ---- */

static bool same_batch(const struct oom_batch *a, const struct oom_batch *b)
{
	return a->b == b->b && a->s == b->s && a->t == b->t && a->ranks.n == b->ranks.n &&
	       a->ranks.pad == b->ranks.pad && a->ranks.bucket == b->ranks.bucket &&
	       a->ranks.edges == b->ranks.edges;
}

/* Brings back what one of the last batches was read to; false: it is none of them. */
static bool spanned_before(struct oom_variant *v, const struct oom_batch *at)
{
	const size_t n = v->n_kept < OOM_BATCHES_KEPT ? v->n_kept : OOM_BATCHES_KEPT;

	for (size_t i = 0; i < n; i++) {
		if (!same_batch(&v->kept[i].at, at))
			continue;
		memcpy(v->span, v->kept[i].span, sizeof(v->span));
		v->spanned = true;
		v->at = *at;
		return true;
	}
	return false;
}

static void keep_spans(struct oom_variant *v)
{
	struct oom_spanned *k = &v->kept[v->n_kept++ % OOM_BATCHES_KEPT];

	k->at = v->at;
	memcpy(k->span, v->span, sizeof(k->span));
}

enum oom_status oom_variant_spans(struct oom_evaluator *ev, struct oom_variant *v,
				  const struct oom_batch *at, struct oom_error *err)
{
	const struct oom_tape *t = v->tape;
	enum oom_status st;

	if ((v->spanned && same_batch(&v->at, at)) || spanned_before(v, at))
		return OOM_OK;
	v->spanned = false;
	if (++v->evaluations == WORTH && oom_compile(&v->fast, t, false) == OOM_ERR_MEMORY)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!v->fast.ready || !oom_compiled_spans(&v->fast, t, at, OOM_ROW_LIMIT, v->span)) {
		st = oom_row_sizes(ev, t, at, err);
		if (st)
			return st;
		v->span[OOM_PASS_FWD] = oom_walk(t, OOM_STREAM_FWD, ev->size, false);
		_Static_assert(OOM_PASS_BWD_ACC == OOM_PASS_BWD + 1, "both are walked at once");
		oom_walk_both(t, OOM_STREAM_BWD, ev->size, &v->span[OOM_PASS_BWD]);
		v->span[OOM_PASS_EVAL] = oom_walk(t, OOM_STREAM_EVAL, ev->size, false);
	}
	v->spanned = true;
	v->at = *at;
	keep_spans(v);
	return OOM_OK;
}

static void count_layers(struct oom_variant *v)
{
	v->layers = 0;
	for (size_t i = 0; i < v->tape->n_layers; i++)
		v->layers += v->tape->layers[i].layers;
	v->layers = v->layers ? v->layers : 1;
}

enum oom_status oom_variant_thirds(struct oom_evaluator *ev, struct oom_variant *v,
				   const struct oom_batch *at, struct oom_error *err)
{
	const struct oom_tape *t = v->tape;
	struct oom_span part[OOM_PASSES * 3];
	enum oom_status st;

	if (v->cut && same_batch(&v->cut_at, at))
		return OOM_OK;
	v->cut = false;
	count_layers(v);
	if (++v->cuts == WORTH_CUT && oom_compile(&v->cut_fast, t, true) == OOM_ERR_MEMORY)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (v->cut_fast.ready && oom_compiled_spans(&v->cut_fast, t, at, OOM_ROW_LIMIT, part)) {
		for (int p = 0; p < OOM_PASSES; p++)
			for (int k = 0; k < 3; k++)
				v->third[p][k] = oom_one_layer(part[p * 3 + k].net,
							       part[p * 3 + k].peak,
							       k == 1 ? v->layers : 1);
	} else {
		st = oom_row_sizes(ev, t, at, err);
		if (st)
			return st;
		for (int p = 0; p < OOM_PASSES; p++)
			oom_walk_thirds(t, oom_stream_of((enum oom_pass_id)p), ev->size,
					p == OOM_PASS_BWD_ACC, v->layers, v->third[p]);
	}
	v->cut = true;
	v->cut_at = *at;
	return OOM_OK;
}

int64_t oom_variant_left(const struct oom_variant *v, struct oom_ranks ranks)
{
	int64_t sum = 0;

	for (size_t i = 0; i < v->n_left; i++) {
		const struct oom_row *r = &v->tape->rows[v->left[i].row];
		const uint64_t bytes = oom_shared_bytes(r->width, (enum oom_share)r->share, ranks);

		sum += v->left[i].n * (int64_t)oom_block(bytes);
	}
	return sum;
}

static bool found_floor(const struct oom_variant *v, struct oom_ranks ranks, uint64_t *floor)
{
	const size_t n = v->n_floors < OOM_FLOORS_KEPT ? v->n_floors : OOM_FLOORS_KEPT;

	for (size_t i = 0; i < n; i++) {
		const struct oom_floor *k = &v->floor[i];

		if (k->of.n == ranks.n && k->of.pad == ranks.pad && k->of.bucket == ranks.bucket) {
			*floor = k->bytes;
			return true;
		}
	}
	return false;
}

enum oom_status oom_variant_floor(struct oom_evaluator *ev, struct oom_variant *v, struct oom_ranks ranks,
				  uint64_t *floor, struct oom_error *err)
{
	const struct oom_tape *t = v->tape;
	struct oom_span fwd, bwd;
	struct oom_floor *kept;

	*floor = 0;
	/* without rows of its own a variant sends nothing */
	if (t != v->own || !t->cap_rows || found_floor(v, ranks, floor))
		return OOM_OK;
	if (!oom_room((void **)&ev->comm, &ev->cap_comm, 1024, t->n_rows, sizeof(*ev->comm)))
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; i < t->n_rows; i++)
		ev->comm[i] = t->rows[i].cat == OOM_CAT_COMM ?
				      oom_shared_bytes(t->rows[i].width, (enum oom_share)t->rows[i].share, ranks) :
				      0;
	fwd = oom_walk(t, OOM_STREAM_FWD, ev->comm, false);
	bwd = oom_walk(t, OOM_STREAM_BWD, ev->comm, false);
	*floor = (uint64_t)(fwd.peak > fwd.net + bwd.peak ? fwd.peak : fwd.net + bwd.peak);
	kept = &v->floor[v->n_floors++ % OOM_FLOORS_KEPT];
	kept->of = ranks;
	kept->bytes = *floor;
	return OOM_OK;
}
