/* Parameters, and the nodes of autograd's graph: their inputs, what they save, their outputs. */
#include "tape.h"

#include <string.h>

#include "round.h"

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
		if (!oom_tape_grow(t, (void **)&t->params, &t->cap_params, OOM_USUAL_FEW, t->n_params + 1,
			  sizeof(*t->params)))
			return v;
		if (__builtin_mul_overflow(rows ? rows : 1, cols, &elems) || elems >> 52) {
			oom_tape_impossible(t, OOM_ERR_INVALID, "%s.%s has more than 2^52 elements",
				      t->scope, name);
			elems = 0;
		}
		p = &t->params[t->n_params++];
		*p = (struct oom_param){.elems = elems,
					.name = name,
					.scope = t->scope,
					.within = t->selection.within,
					.number = (int32_t)t->selection.layer,
					.part = t->selection.part,
					.flags = flags | (t->frozen ? OOM_P_FROZEN : 0) |
						 (t->selection.shared ? OOM_P_SHARED : 0),
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

void oom_param_first(struct oom_tape *t, struct oom_val p, uint8_t order)
{
	if (p.node <= -2)
		t->params[-2 - p.node].first = order;
}

void oom_params_first(struct oom_tape *t, size_t from, uint8_t order)
{
	for (size_t i = from; i < t->cursor; i++)
		t->params[i].first = order;
}

void oom_buffer(struct oom_tape *t, uint64_t elems, enum oom_dtype dt)
{
	uint64_t n = elems * oom_dtype_bytes(dt);

	if (t->stream != OOM_STREAM_FWD)        /* the evaluation pass meets the same ones again */
		return;
	t->buffer_bytes += n * t->mult;
	t->buffer_rounded += oom_block(n) * t->mult;
}

int32_t oom_node(struct oom_tape *t, uint8_t kind, const char *name)
{
	struct oom_node *n;

	if (!t->grad || t->packing)
		return -1;
	if (!oom_tape_grow(t, (void **)&t->nodes, &t->cap_nodes, OOM_USUAL_NODES, t->n_nodes + 1, sizeof(*t->nodes)))
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

/* A block's second run makes nodes of its own, which die when it is through (torch.utils.checkpoint _checkpoint_without_reentrant_generator
 * keeps what was packed, and no graph). */
static void hold_again(struct oom_tape *t, struct oom_val x)
{
	if (x.sto < 0 || !oom_tape_grow(t, (void **)&t->again.row, &t->again.cap, OOM_USUAL_FEW, t->again.n + 1,
					sizeof(*t->again.row)))
		return;
	t->again.row[t->again.n++] = x.sto;
	oom_ref(t, x.sto);
}

void oom_node_hold(struct oom_tape *t, int32_t node, struct oom_val x)
{
	struct oom_node *n;

	if (t->packing)                         /* a reentrant one runs its block without a graph */
		node = oom_ckpt_reenters(t->plan) ? -1 : t->checkpoint;
	if (!t->grad || t->stopped || node < 0)
		return;
	if (t->recompute && !t->packing && !oom_ckpt_reenters(t->plan)) {
		hold_again(t, x);
		return;
	}
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

void oom_graph_dies(struct oom_tape *t, size_t from)
{
	while (t->n_nodes > from) {
		struct oom_node *n = &t->nodes[--t->n_nodes];

		for (int i = 0; i < n->n_edge; i++)
			if (n->edge[i].to <= -2 && !t->recompute && !t->dry && t->params[-2 - n->edge[i].to].edges)
				t->params[-2 - n->edge[i].to].edges--;
		for (int i = 0; i < n->n_saved; i++)
			oom_unref(t, n->saved[i]);
	}
}

bool oom_tape_ckpt(struct oom_tape *t, const struct oom_ckpt *c)
{
	if (!oom_tape_grow(t, (void **)&t->ckpts, &t->cap_ckpts, OOM_USUAL_FEW, t->n_ckpts + 1, sizeof(*t->ckpts)))
		return false;
	t->ckpts[t->n_ckpts++] = *c;
	return true;
}
