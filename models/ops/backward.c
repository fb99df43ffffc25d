/* The backward pass: nodes in reverse order of creation, as autograd's engine takes them.
 *
 * One node (torch/csrc/autograd/engine.cpp, call_function and evaluate_function):
 *   1. the derivative makes a gradient for every edge that needs one; inputs and saved tensors are
 *   alive meanwhile;
 *   2. the incoming gradient and the saved tensors are released;
 *   3. each gradient is reduced to its edge's shape and cast to its type (validate_outputs);
 *   4. it goes into the next node's buffer: stored, or added in place to what is there.  A
 *   parameter's gradient is
 *      taken over as .grad (AccumulateGrad), or added to the one that exists. */
#include <string.h>

#include "backward.h"
#include "tape/round.h"
#include "tape/sums.h"

/* ---- a parameter's gradient ---- */

static void take_over(struct oom_tape *t, struct oom_param *p, const struct grad *g)
{
	p->grad = g->sto;
	p->grad_view = g->gaps;
	t->rows[g->sto].cat = OOM_CAT_GRAD;
	t->rows[g->sto].name = p->name;
	t->rows[g->sto].scope = p->scope;
}

/* A second gradient of a weight whose first one is a view (can_accumulate_inplace of
 * torch/csrc/autograd/input_buffer.cpp): both live beside their sum. */
static void sum_apart(struct oom_tape *t, struct oom_param *p, const struct grad *g)
{
	const struct grad sum = oom_grad_fresh(t, "grad sum", g->mono, g->width, g->dt, false);

	if (sum.sto < 0)
		return;
	t->rows[p->grad].cat = t->rows[sum.sto].cat;
	t->rows[p->grad].name = "gradient of one use";
	oom_unref(t, p->grad);
	take_over(t, p, &sum);
}

static void accumulate_grad(struct oom_tape *t, int32_t param, struct grad g)
{
	struct oom_param *p = &t->params[param];
	bool another;           /* parameter's gradient lies in the same storage, of which both are views */

	if (g.sto < 0)
		return;
	p->got++;
	/* tied weights: the second gradient is added and dies */
	if (p->grad >= 0) {
		if (p->grad_view)
			sum_apart(t, p, &g);
		oom_unref(t, g.sto);
		if (p->got == p->edges)
			oom_tape_event(t, p->grad, OOM_EV_GRAD);
		return;
	}
	/* shared with another branch, or laid out otherwise than the weight (convolutions, adapters
	 * of embeddings): AccumulateGrad clones it */
	if ((t->refs[g.sto] > 1 && !g.own) || (g.perm && (p->mid || p->flags & OOM_P_LORA))) {
		struct grad c = oom_grad_fresh(t, "grad clone", g.mono, g.width, g.dt, false);

		oom_unref(t, g.sto);
		g = c;
	}
	another = t->rows[g.sto].cat == OOM_CAT_GRAD;
	take_over(t, p, &g);
	/* a tied weight's waits in the engine's buffer for the others; a storage is added up or given up once (DeiT's two
	 * tokens in a batch of one: expand() and cat() hand slices of one gradient on) */
	if (p->got >= p->edges && !another)
		oom_tape_event(t, g.sto, OOM_EV_GRAD);
}

/* Gradients whose other half never came: on no path from the loss. */
static void settle(struct oom_tape *t)
{
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].grad >= 0 && t->params[i].got < t->params[i].edges)
			oom_tape_event(t, t->params[i].grad, OOM_EV_GRAD);
}

/* ---- into the next buffer ---- */

void oom_push_grad(struct oom_tape *t, const struct oom_edge *e, struct grad g)
{
	struct oom_node *to;

	if (!g.given)
		return;
	if (e->to == -1) {
		oom_unref(t, g.sto);
		return;
	}
	if (e->to <= -2) {
		accumulate_grad(t, -2 - e->to, g);
		return;
	}
	to = &t->nodes[e->to];
	if (!to->has[e->slot]) {
		to->has[e->slot] = true;
		to->grad[e->slot] = g.sto;
		to->gperm[e->slot] = g.perm;
		to->ggaps[e->slot] = g.gaps;
		return;
	}
	/* not ours alone, a view or with gaps (can_accumulate_inplace of
	 * torch/csrc/autograd/input_buffer.cpp): out of place */
	if (to->grad[e->slot] >= 0 &&
	    (to->ggaps[e->slot] || t->refs[to->grad[e->slot]] > 1)) {
		struct grad c = oom_grad_fresh(t, "grad sum", e->mono, e->width, e->dt, g.perm);

		oom_unref(t, to->grad[e->slot]);
		to->grad[e->slot] = c.sto;
		to->ggaps[e->slot] = false;
	}
	oom_unref(t, g.sto);
}

/* A kernel that sums rows in several parts has a buffer for them (tape/sums.h). */
static struct oom_val sum_buffer(struct oom_tape *t, const struct oom_edge *e, struct grad g)
{
	struct oom_val parts;

	if (!t->plan->sum_buffers || t->plan->compile || e->mono != OOM_MONO_ONE || g.width != e->width ||
	    !oom_sum_divides(g.width))
		return oom_none();
	parts = oom_scratch_hold(t, "parts of a sum", oom_len_sum_parts(t, g.mono, oom_sum_fills(g.width)),
				 OOM_SUM_THREADS * g.width, OOM_F32);
	if (parts.sto >= 0 && !t->stopped)
		t->rows[parts.sto].inside = true;
	return parts;
}

static struct grad validated(struct oom_tape *t, const struct oom_edge *e, struct grad g)
{
	if (!g.given)
		return g;
	if (g.mono != e->mono || g.width != e->width) {
		struct grad r = oom_grad_fresh(t, "sum", e->mono, e->width, g.dt, false);

		oom_drop(t, sum_buffer(t, e, g));
		oom_unref(t, g.sto);
		g = r;
	}
	if (g.dt != e->dt) {
		struct grad r = oom_grad_fresh(t, "_to_copy", e->mono, e->width, e->dt, g.perm);

		oom_unref(t, g.sto);
		g = r;
	}
	return g;
}

void oom_release_saved(struct oom_tape *t, const struct oom_node *n)
{
	for (int s = 0; s < n->n_saved; s++)
		oom_unref(t, n->saved[s]);
}

void oom_release_node(struct oom_tape *t, struct oom_node *n)
{
	oom_release_saved(t, n);
	n->n_saved = 0;
}

/* Masks and tables the checkpointed blocks of one stack held: gone with its first layer's graph.
 *  node -1: all. */
static void drop_held(struct oom_tape *t, int32_t node)
{
	size_t left = 0;

	for (size_t i = 0; i < t->n_held; i++)
		if (node < 0 || t->held_node[i] == node) {
			oom_unref(t, t->held[i]);
		} else {
			t->held_node[left] = t->held_node[i];
			t->held[left++] = t->held[i];
		}
	t->n_held = left;
}

/* A leaf of the graph holds its gradient, and AccumulateGrad the leaf: both live as long as the nodes of the graph,
 * which the loss holds.  A decoder's embeddings wait through the whole backward pass of an encoder. */
static void drop_leaves(struct oom_tape *t)
{
	for (size_t i = 0; i < t->n_nodes; i++) {
		struct oom_node *n = &t->nodes[i];

		if (n->kind == OOM_NODE_CKPT)
			oom_release_node(t, n);
		if (n->kind != OOM_NODE_LEAF || !n->n_saved)
			continue;
		oom_release_saved(t, n);
		if (n->has[0])
			oom_unref(t, n->grad[0]);
	}
}

void oom_run_node(struct oom_tape *t, int32_t i)
{
	struct oom_node *n = &t->nodes[i], copy;
	oom_derivative_fn *derivative;
	struct grad g[OOM_MAX_EDGES];
	bool any = false;

	if (n->kind == OOM_NODE_LEAF && n->n_saved)
		return;
	for (int s = 0; s < n->n_out; s++)
		any |= n->has[s];
	memset(g, 0, sizeof(g));
	/* not on the path from the loss: dies with the graph */
	if (!any) {
		oom_release_node(t, n);
		if (n->kind == OOM_NODE_CKPT)
			for (uint32_t k = t->ckpts[n->ckpt].kept0; k < t->ckpts[n->ckpt].kept1; k++)
				oom_unref(t, t->kept.row[k]);
		return;
	}
	if (n->kind == OOM_NODE_CKPT) {
		if (oom_ckpt_reenters(t->plan)) {
			/* what its function was given belongs to the node, which lives as long as the loss */
			oom_block_reenter(t, i);
			return;
		}
		oom_block_recompute(t, i);
		drop_held(t, i);
		return;
	}
	copy = *n;
	t->scope = copy.scope;
	derivative = oom_derivative_of((enum oom_node_kind)copy.kind);
	if (derivative)
		derivative(t, &copy, g);
	/* torch/csrc/autograd/engine.cpp: call_function holds the incoming gradients until
	 * validate_outputs is through, and evaluate_function calls release_variables only then.
	 * What a checkpoint recomputed is unpacked once and dies with the derivative's own
	 * locals (torch/utils/checkpoint.py, unpack_hook). */
	if (t->recompute)
		oom_release_saved(t, &copy);
	for (int e = 0; e < copy.n_edge; e++)
		if (oom_needs_grad(&copy, e))
			g[e] = validated(t, &copy.edge[e], g[e]);
	for (int s = 0; s < copy.n_out; s++)
		if (copy.has[s])
			oom_unref(t, copy.grad[s]);
	if (!t->recompute)
		oom_release_saved(t, &copy);
	for (int e = 0; e < copy.n_edge; e++)
		if (oom_needs_grad(&copy, e))
			oom_push_grad(t, &copy.edge[e], g[e]);
		else if (g[e].given) /* a kernel makes all its gradients, asked for or not */
			oom_unref(t, g[e].sto);
}

void oom_run_nodes(struct oom_tape *t, int32_t from, int32_t to)
{
	for (int32_t i = from; i >= to && !t->status; i--)
		oom_run_node(t, i);
}

void oom_backward(struct oom_tape *t, struct oom_val loss)
{
	int32_t at = (int32_t)t->n_nodes - 1, root = -1;

	t->stream = OOM_STREAM_BWD;
	t->in_bwd = true;
	t->grad = false;
	if (loss.node >= 0 && loss.rg) {                   /* the root gradient: ones_like(loss) */
		struct oom_val one = oom_new(t, "grad of loss", OOM_MONO_ONE, D(1), OOM_F32);

		t->nodes[loss.node].has[loss.slot] = true;
		t->nodes[loss.node].grad[loss.slot] = root = one.sto;
		/* torch.autograd.backward's own tuple of them lives until it returns */
		oom_ref(t, root);
	}
	for (size_t l = t->n_layers; l-- > 0 && !t->status;) {
		const struct oom_layer_rec r = t->layers[l];
		size_t rep = 0;

		oom_run_nodes(t, at, r.node1);
		t->group = r.group;
		t->mult = r.reps;
		t->in_layer = true;
		if (r.reps > 1 && !oom_tape_repeat(t, r.reps, &rep))
			return;
		for (size_t u = r.unit1; u-- > r.unit0;) {
			oom_tape_mark_unit(t, u, false);
			oom_run_nodes(t, t->units[u].node1 - 1, t->units[u].node0);
			oom_tape_mark_unit(t, u, true);
		}
		if (r.reps > 1)
			oom_tape_mark(t, rep, true);
		t->in_layer = false;
		t->group = 0;
		t->mult = 1;
		at = r.node0 - 1;
	}
	if (t->n_layers && !oom_ckpt_reenters(t->plan))
		drop_held(t, -1);
	oom_run_nodes(t, at, 0);
	drop_held(t, -1);
	if (t->returned_zeros)
		oom_unref(t, t->returned_zeros - 1);
	t->returned_zeros = 0;
	settle(t);
	drop_leaves(t);
	t->in_bwd = false;
	t->grad = true;
	oom_unref(t, root);
	oom_drop(t, loss);
}
