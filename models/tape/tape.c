/* Recording: rows, references, nodes, parameters.  See tape.h for what a tape is, layers.c for
 * stacks of layers. */
#include "tape.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "round.h"

void oom_tape_fail(struct oom_tape *t, enum oom_status status, const char *fmt, ...)
{
	va_list ap;

	if (t->status)
		return;
	t->status = status;
	va_start(ap, fmt);
	vsnprintf(t->err.text, sizeof(t->err.text), fmt, ap);
	va_end(ap);
}

/* ---- memory: every array grows by doubling and is kept for the next recording ---- */

static bool grow(struct oom_tape *t, void **p, size_t *cap, size_t need, size_t size)
{
	/* a usual tape: untouched pages cost nothing, a copy does */
	size_t want = *cap ? *cap : 1024;
	void *q;

	if (need <= *cap)
		return true;
	while (want < need)
		want *= 2;
	q = realloc(*p, want * size);
	if (!q) {
		oom_tape_fail(t, OOM_ERR_MEMORY, "out of host memory");
		return false;
	}
	*p = q;
	*cap = want;
	return true;
}

void oom_tape_release(struct oom_tape *t)
{
	if (!t)
		return;
	free(t->rows);
	free(t->refs);
	free(t->nodes);
	free(t->ctx);
	free(t->params);
	free(t->beside.params);
	free(t->kept.row);
	free(t->ckpts);
	free(t->units);
	free(t->layers);
	for (int i = 0; i < OOM_STREAMS; i++)
		free(t->streams[i].ev);
	memset(t, 0, sizeof(*t));
}

void oom_tape_reset(struct oom_tape *t, const struct oom_arch *arch, const struct oom_plan *plan)
{
	t->arch = arch;
	t->plan = plan;
	t->status = OOM_OK;
	t->err.text[0] = 0;
	t->n_rows = t->n_nodes = t->n_params = t->n_ckpts = t->cursor = t->n_ctx = t->n_held = 0;
	t->stack_node = -1;
	t->n_units = t->unit = 0;
	t->n_layers = t->n_reps = t->n_late = 0;
	t->repeating = false;
	oom_selection_reset(t);
	for (int i = 0; i < OOM_STREAMS; i++)
		t->streams[i].n = 0;
	memset(&t->tally, 0, sizeof(t->tally));
	memset(&t->alone, 0, sizeof(t->alone));
	memset(&t->work, 0, sizeof(t->work));
	memset(t->flops_fwd, 0, sizeof(t->flops_fwd));
	memset(t->flops_again, 0, sizeof(t->flops_again));
	t->buffer_bytes = t->buffer_rounded = t->input_bytes = t->input_rounded = 0;
	t->grad = t->train = true;
	t->warning = NULL;
	t->side = oom_none();
	t->n_outputs = 0;
	t->kept.n = t->kept.at = t->kept.end = 0;
	t->no_labels = false;
	t->logits_at = -1;
	t->m_logits = OOM_MONO_ONE;
	t->beside = (struct oom_beside){.params = t->beside.params, .cap = t->beside.cap};
	t->in_bwd = t->recompute = t->stopped = t->packing = t->in_layer = t->dry = t->approximate =
		t->frozen = t->fused = t->depth_asked = false;
	t->shift = OOM_SHIFT_LABELS;
	t->merge = NULL;
	t->pixels = 0;
	t->amp = false;
	t->leaf = (struct oom_leaf){.x = oom_none(), .copy = oom_none()};
	t->adapter = (struct oom_embedding_adapter){.a = oom_none()};
	t->shared_in = t->shared_out = 0;
	t->amp_region = t->amp_seq = 0;
	t->packs = t->pack_limit = 0;
	t->group = t->n_groups = 0;
	t->mult = 1;
	t->scope = "";
	t->vocab = 0;
	t->stream = OOM_STREAM_FWD;
	oom_sizes_reset(t);
}

/* ---- work ---- */

static void count(struct oom_tape *t, uint16_t mono, double flops, double tiles, enum oom_dtype dt)
{
	t->tally.flops[mono] += flops * t->mult;
	t->tally.rated[dt == OOM_F32 || dt == OOM_F64][mono] += flops * tiles * t->mult;
}

void oom_tape_flops(struct oom_tape *t, uint16_t mono, double flops, enum oom_dtype dt)
{
	count(t, mono, flops, 1, dt);
}

/* A tile of a product is at least 64 wide, filled or not (CUTLASS threadblock shapes): an adapter of
 * rank 16 works as long as one of rank 64.
 *
 * Tensor cores load whole 128-byte lines: sides that are no multiples of 64 elements of 16 bits take
 * longer, odd ones the most (NVIDIA, Deep Learning Performance, "Matrix multiplication background",
 * tensor core requirements; Anthony et al. 2024, arXiv:2401.14489, section V).  The factors are estimated: a
 * vocabulary of 50,304 for 50,257 makes GPT-2 124M a fifth to a quarter faster (nanoGPT), whose head is
 * three tenths of its products. */
#define TILE 64

double oom_product_tiles(uint64_t in, uint64_t out, enum oom_dtype dt)
{
	static const struct {
		uint64_t by;
		double times;
	} aligned[] = {{64, 1}, {32, 1.05}, {16, 1.15}, {8, 1.3}, {1, 1.8}};
	const uint64_t thin = in && in < out ? in : out;
	size_t i = 0;

	if (!thin)
		return 1;
	if (thin < TILE)
		return (double)TILE / (double)thin;
	if (dt == OOM_F32 || dt == OOM_F64)
		return 1;
	while (in % aligned[i].by || out % aligned[i].by)
		i++;
	return aligned[i].times;
}

/* What it reads of x and writes is in the rows (time/work.c). */
void oom_tape_product(struct oom_tape *t, struct oom_val x, uint64_t in, uint64_t out)
{
	count(t, x.mono, 2.0 * (double)x.width * (double)out,
	      oom_product_tiles(in, out, (enum oom_dtype)x.dt), (enum oom_dtype)x.dt);
	t->tally.weights_read += (double)in * (double)out *
				 oom_dtype_bytes((enum oom_dtype)x.dt) * t->mult;
}

/* ---- events and storages ---- */

static void emit(struct oom_tape *t, int32_t code)
{
	struct oom_stream *s = &t->streams[t->stream];

	if (!grow(t, (void **)&s->ev, &s->cap, s->n + 1, sizeof(*s->ev)))
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
	if (!grow(t, (void **)&t->layers, &t->cap_layers, t->n_layers + 1, sizeof(*t->layers)))
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
		if (!grow(t, (void **)&t->units, &t->cap_units, u + 1, sizeof(*t->units)))
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
	if (!grow(t, (void **)&t->refs, &cap_refs, t->n_rows + 1, sizeof(*t->refs)) ||
	    !grow(t, (void **)&t->rows, &t->cap_rows, t->n_rows + 1, sizeof(*t->rows)))
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
	struct oom_val v;

	if (oom_has_kept(t, kind) && width.n)
		return (struct oom_val){.sto = t->kept.row[t->kept.at++],
					.node = -1,
					.mono = mono,
					.width = width.n,
					.text = width.text,
					.dt = (uint8_t)dt};
	v = oom_new(t, name, mono, width, dt);
	if (!t->packing || t->dry || v.sto < 0 || !keeps(t, kind) ||
	    !grow(t, (void **)&t->kept.row, &t->kept.cap, t->kept.n + 1, sizeof(*t->kept.row)))
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

/* ---- parameters ---- */

void oom_tape_beside(struct oom_tape *t, bool on)
{
	struct oom_beside *o = &t->beside;
	struct oom_param *const params = t->params;
	const size_t n = t->n_params, cap = t->cap_params, cursor = t->cursor;

	t->params = o->params;
	t->n_params = o->n;
	t->cap_params = o->cap;
	t->cursor = o->cursor;
	o->params = params;
	o->n = n;
	o->cap = cap;
	o->cursor = cursor;
	o->running = on;
}

struct oom_val oom_param(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols,
			 uint32_t flags)
{
	struct oom_param *p;
	struct oom_val v = {.sto = -1, .mono = OOM_MONO_ONE};
	uint64_t elems;

	if (t->cursor == t->n_params) {
		if (!grow(t, (void **)&t->params, &t->cap_params, t->n_params + 1,
			  sizeof(*t->params)))
			return v;
		if (__builtin_mul_overflow(rows ? rows : 1, cols, &elems) || elems >> 52) {
			oom_tape_fail(t, OOM_ERR_INVALID, "%s.%s has more than 2^52 elements",
				      t->scope, name);
			elems = 0;
		}
		p = &t->params[t->n_params++];
		*p = (struct oom_param){.elems = elems,
					.name = name,
					.scope = t->scope,
					.flags = flags | (t->frozen ? OOM_P_FROZEN : 0),
					.rows = (uint32_t)rows,
					.cols = (uint32_t)cols,
					.count = t->mult,
					.in_layer = t->group != 0,
					.unit = t->in_layer ? (uint32_t)t->unit : 0,
					.grad = -1,
					.amp = -1};
		oom_param_policy(t, p);
		oom_select(t, p);
	}
	p = &t->params[t->cursor];
	v.width = p->elems;
	v.dt = p->dt;
	v.node = -2 - (int32_t)t->cursor++;
	v.rg = p->trainable && t->grad;
	return v;
}

void oom_param_stacked(struct oom_tape *t, struct oom_val p, uint64_t mid)
{
	if (p.node <= -2)
		t->params[-2 - p.node].mid = (uint32_t)mid;
}

void oom_buffer(struct oom_tape *t, uint64_t elems, enum oom_dtype dt)
{
	uint64_t n = elems * oom_dtype_bytes(dt);

	if (t->stream != OOM_STREAM_FWD)        /* the evaluation pass meets the same ones again */
		return;
	t->buffer_bytes += n * t->mult;
	t->buffer_rounded += oom_block(n) * t->mult;
}

/* ---- nodes ---- */

int32_t oom_node(struct oom_tape *t, uint8_t kind, const char *name)
{
	struct oom_node *n;

	if (!t->grad || t->packing)
		return -1;
	if (!grow(t, (void **)&t->nodes, &t->cap_nodes, t->n_nodes + 1, sizeof(*t->nodes)))
		return -1;
	n = &t->nodes[t->n_nodes];
	memset(n, 0, sizeof(*n));
	n->kind = kind;
	n->name = name;
	n->scope = t->scope;
	return (int32_t)t->n_nodes++;
}

void oom_node_edge(struct oom_tape *t, int32_t node, struct oom_val x)
{
	struct oom_node *n;

	if (node < 0)
		return;
	n = &t->nodes[node];
	if (n->n_edge == OOM_MAX_EDGES) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "%s.%s has more than %d inputs", n->scope, n->name,
			      OOM_MAX_EDGES);
		return;
	}
	n->edge[n->n_edge++] = (struct oom_edge){.to = x.rg ? x.node : -1,
						 .slot = x.slot,
						 .width = x.width,
						 .mono = x.mono,
						 .dt = x.dt};
	if (x.rg && x.node <= -2 && !t->recompute && !t->dry &&
	    t->params[-2 - x.node].edges < UINT16_MAX)
		t->params[-2 - x.node].edges++;
}

void oom_node_hold(struct oom_tape *t, int32_t node, struct oom_val x)
{
	struct oom_node *n;

	if (t->packing)
		node = t->checkpoint;
	if (!t->grad || t->stopped || node < 0)
		return;
	n = &t->nodes[node];
	for (int i = 0; i < n->n_saved; i++)
		if (n->saved[i] == x.sto)
			return;
	if (n->n_saved == OOM_MAX_SAVED) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "%s.%s holds more than %d tensors", n->scope, n->name,
			      OOM_MAX_SAVED);
		return;
	}
	n->saved[n->n_saved++] = x.sto;
	oom_ref(t, x.sto);
}

void oom_node_save(struct oom_tape *t, int32_t node, struct oom_val x)
{
	if (!t->grad)
		return;
	/* non-reentrant checkpoint, first forward: only counted */
	if (t->packing) {
		t->packs++;
		return;
	}
	if (t->dry && node >= 0)
		t->nodes[node].n_packed++;
	if (t->stopped)
		return;
	if (node >= 0) {
		struct oom_node *n = &t->nodes[node];

		if (n->n_saved == OOM_MAX_SAVED) {
			oom_tape_fail(t, OOM_ERR_LIMIT, "%s.%s saves more than %d tensors",
				      n->scope, n->name, OOM_MAX_SAVED);
			return;
		}
		n->saved[n->n_saved++] = x.sto;
		oom_ref(t, x.sto);
	}
	/* torch.utils.checkpoint, early_stop: recomputation ends with the last tensor that is
	 * needed */
	if (t->recompute && ++t->packs == t->pack_limit)
		t->stopped = true;
}

struct oom_val oom_node_out(struct oom_tape *t, int32_t node, uint8_t slot, struct oom_val x)
{
	if (slot >= OOM_MAX_OUTS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "%s: an operation with more than %d outputs",
			      t->scope, OOM_MAX_OUTS);
		slot = 0;
	}
	x.rg = t->grad;
	x.slot = slot;
	x.node = node;
	if (node >= 0) {
		struct oom_node *n = &t->nodes[node];

		if (!slot) {
			n->mono = x.mono;
			n->width = x.width;
			n->dt = x.dt;
		}
		if (n->n_out <= slot)
			n->n_out = (uint8_t)(slot + 1);
	}
	return x;
}

bool oom_tape_ckpt(struct oom_tape *t, const struct oom_ckpt *c)
{
	if (!grow(t, (void **)&t->ckpts, &t->cap_ckpts, t->n_ckpts + 1, sizeof(*t->ckpts)))
		return false;
	t->ckpts[t->n_ckpts++] = *c;
	return true;
}
