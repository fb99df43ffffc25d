/* Events and storages: a row is born with its first reference and freed with its last; what selective
 * checkpointing keeps. */
#include "tape.h"

#include "round.h"

static void emit(struct oom_tape *t, int32_t code)
{
	struct oom_stream *s = &t->streams[t->stream];

	if (!oom_tape_grow(t, (void **)&s->ev, &s->cap, OOM_USUAL_ROWS, s->n + 1, sizeof(*s->ev)))
		return;
	s->ev[s->n++] = code;
}

void oom_tape_event(struct oom_tape *t, int32_t row, enum oom_event_kind kind)
{
	emit(t, row << 2 | (int32_t)kind);
}

void oom_tape_mark(struct oom_tape *t, size_t rep, bool end)
{
	emit(t, -1 - (int32_t)(2 * rep) - (end ? 1 : 0));
	if (!end)
		return;
	t->repeating = false;
	while (t->n_late)
		emit(t, t->late[--t->n_late] << 2 | OOM_EV_FREE);
}

bool oom_tape_repeat(struct oom_tape *t, uint32_t reps, size_t *rep)
{
	if (t->n_reps == OOM_MAX_RUNS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "more than %d repeated runs of layers in one model",
			      OOM_MAX_RUNS);
		return false;
	}
	*rep = t->n_reps++;
	t->reps[*rep] = reps;
	oom_tape_mark(t, *rep, false);
	t->repeating = true;
	return true;
}

void oom_tape_mark_unit(struct oom_tape *t, size_t unit, bool end)
{
	emit(t, -OOM_UNIT_MARK - (int32_t)(2 * unit) - (end ? 1 : 0));
}

bool oom_tape_layers(struct oom_tape *t, const struct oom_layer_rec *r)
{
	if (!oom_tape_grow(t, (void **)&t->layers, &t->cap_layers, OOM_USUAL_FEW, t->n_layers + 1, sizeof(*t->layers)))
		return false;
	t->layers[t->n_layers++] = *r;
	return true;
}

/* The training forward makes the units, the evaluation meets them again in the same order; one that it
 * alone has is none.  Layers of a model beside the trained one are no units: engines gather and reduce
 * nothing of them. */
size_t oom_unit_begin(struct oom_tape *t)
{
	size_t u;

	if (t->beside.running)
		return t->unit;
	u = t->unit++;
	if (t->stream != OOM_STREAM_FWD && u >= t->n_units)
		return SIZE_MAX;
	if (t->stream == OOM_STREAM_FWD) {
		if (!oom_tape_grow(t, (void **)&t->units, &t->cap_units, OOM_USUAL_FEW, u + 1, sizeof(*t->units)))
			return u;
		t->n_units = u + 1;
		t->units[u] = (struct oom_unit){.node0 = (int32_t)t->n_nodes,
						.param0 = (uint32_t)t->cursor,
						.mult = t->mult};
	}
	oom_tape_mark_unit(t, u, false);
	return u;
}

void oom_unit_end(struct oom_tape *t, size_t u)
{
	if (t->beside.running || u == SIZE_MAX)
		return;
	if (t->stream == OOM_STREAM_FWD && u < t->n_units) {
		t->units[u].node1 = (int32_t)t->n_nodes;
		t->units[u].param1 = (uint32_t)t->cursor;
	}
	oom_tape_mark_unit(t, u, true);
}

struct oom_val oom_new(struct oom_tape *t, const char *name, uint16_t mono, struct oom_dim width,
		       enum oom_dtype dt)
{
	struct oom_val v = {.sto = -1,
			    .node = -1,
			    .mono = mono,
			    .width = width.n,
			    .text = width.text,
			    .dt = (uint8_t)dt};
	struct oom_row *r;
	size_t cap_refs = t->cap_rows;

	if (t->stopped || !width.n)
		return v;
	if (t->n_rows == OOM_MAX_ROWS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "more than 2^29 tensors in one step");
		return v;
	}
	if (!oom_tape_grow(t, (void **)&t->refs, &cap_refs, OOM_USUAL_ROWS, t->n_rows + 1, sizeof(*t->refs)) ||
	    !oom_tape_grow(t, (void **)&t->rows, &t->cap_rows, OOM_USUAL_ROWS, t->n_rows + 1, sizeof(*t->rows)))
		return v;
	r = &t->rows[t->n_rows];
	*r = (struct oom_row){.width = width.n,
			      .name = name,
			      .scope = t->scope,
			      .text = width.text,
			      .mono = mono,
			      .group = t->group,
			      .mult = t->mult,
			      .node = (int32_t)t->n_nodes,
			      .dt = (uint8_t)dt,
			      .born = (uint8_t)t->stream,
			      .backward = t->in_bwd,
			      .cat = t->in_bwd && t->recompute && t->grad ? OOM_CAT_RECOMPUTE :
									    OOM_CAT_TEMP};
	if (width.n == t->vocab && t->vocab && mono != OOM_MONO_ONE)
		r->cat = OOM_CAT_LOGITS;
	t->refs[t->n_rows] = 1;
	v.sto = (int32_t)t->n_rows++;
	emit(t, v.sto << 2 | OOM_EV_ALLOC);
	return v;
}

struct oom_val oom_new_like(struct oom_tape *t, const char *name, struct oom_val x,
			    enum oom_dtype dt)
{
	struct oom_val v = oom_new(t, name, x.mono, (struct oom_dim){x.width, x.text}, dt);

	v.perm = x.perm;
	return v;
}

void oom_ref(struct oom_tape *t, int32_t sto)
{
	if (sto < 0)
		return;
	if (t->refs[sto] <= 0)
		oom_tape_fail(t, OOM_ERR_LIMIT, "%s.%s is used after it was given up",
			      t->rows[sto].scope, t->rows[sto].name);
	t->refs[sto]++;
}

void oom_unref(struct oom_tape *t, int32_t sto)
{
	const struct oom_row *r;

	if (sto < 0)
		return;
	r = &t->rows[sto];
	if (t->refs[sto] <= 0) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "%s.%s is given up twice", r->scope, r->name);
		return;
	}
	if (--t->refs[sto])
		return;
	/* A table that all layers share dies once, with the last of the repeated ones: the layer before
	 * them may not need it (under adapters on values alone the first layer's queries and keys
	 * need no gradient). */
	if (t->repeating && r->shared && t->n_late < OOM_MAX_HELD) {
		t->late[t->n_late++] = sto;
		return;
	}
	/* A row of the middle layer that outlives its layers dies once for all the layers it
	 * stands for. */
	emit(t,
	     sto << 2 | (r->mult > 1 && !(t->in_layer && t->group == r->group) ? OOM_EV_FREE_ALL :
										 OOM_EV_FREE));
}

void oom_drop(struct oom_tape *t, struct oom_val x)
{
	oom_unref(t, x.sto);
}

void oom_done(struct oom_tape *t, struct oom_val x)
{
	if (!x.kept)
		oom_unref(t, x.sto);
}

static bool is_gradient(const struct oom_tape *t, int32_t row)
{
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].grad == row)
			return true;
	return false;
}

int32_t oom_tape_held(const struct oom_tape *t, int32_t from)
{
	for (int32_t i = from; i < (int32_t)t->n_rows; i++)
		if (t->refs[i] && !is_gradient(t, i))
			return i;
	return -1;
}

struct oom_val oom_share(struct oom_tape *t, struct oom_val x)
{
	oom_ref(t, x.sto);
	x.kept = false;
	return x;
}

struct oom_val oom_scratch_hold(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
				enum oom_dtype dt)
{
	return oom_new(t, name, mono, (struct oom_dim){width, NULL}, dt);
}

void oom_scratch(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
		 enum oom_dtype dt)
{
	oom_drop(t, oom_scratch_hold(t, name, mono, width, dt));
}

/* ---- selective checkpointing ---- */

/* torch.utils.checkpoint.create_selective_checkpoint_contexts: the outputs of listed operators wait in
 * the order in which they were made, and are handed out in a recomputation instead of being computed. */
static bool keeps(const struct oom_tape *t, enum oom_kept_of kind)
{
	switch ((enum oom_checkpointing)t->plan->grad_ckpt) {
	case OOM_CKPT_SELECTIVE: return true;
	case OOM_CKPT_SELECTIVE_ATTENTION: return kind == OOM_KEPT_ATTENTION;
	case OOM_CKPT_SELECTIVE_OP: return kind == OOM_KEPT_ATTENTION || !(t->kept.products % 2);
	case OOM_CKPT_NONE: case OOM_CKPT_FULL: break;
	}
	return false;
}

bool oom_has_kept(const struct oom_tape *t, enum oom_kept_of kind)
{
	return t->recompute && !t->packing && !t->dry && !t->stopped && keeps(t, kind) &&
	       t->kept.at < t->kept.end;
}

struct oom_val oom_new_kept(struct oom_tape *t, enum oom_kept_of kind, const char *name, uint16_t mono,
			    struct oom_dim width, enum oom_dtype dt)
{
	const bool keep = keeps(t, kind), there = oom_has_kept(t, kind) && width.n;
	struct oom_val v;

	t->kept.products += kind == OOM_KEPT_PRODUCT;
	if (there)
		return (struct oom_val){.sto = t->kept.row[t->kept.at++],
					.node = -1,
					.mono = mono,
					.width = width.n,
					.text = width.text,
					.dt = (uint8_t)dt};
	v = oom_new(t, name, mono, width, dt);
	if (!t->packing || t->dry || v.sto < 0 || !keep ||
	    !oom_tape_grow(t, (void **)&t->kept.row, &t->kept.cap, OOM_USUAL_FEW, t->kept.n + 1, sizeof(*t->kept.row)))
		return v;
	oom_ref(t, v.sto);
	t->kept.row[t->kept.n++] = v.sto;
	return v;
}

void oom_drop_kept(struct oom_tape *t)
{
	while (t->kept.at < t->kept.end)
		oom_unref(t, t->kept.row[t->kept.at++]);
}
