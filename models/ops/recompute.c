/* Checkpointed blocks in the backward pass: they run again, and their nodes after that. */
#include <string.h>

#include "backward.h"

/* Runs a checkpointed block again, recording its nodes; what it returns is the caller's. */
static struct oom_val run_again(struct oom_tape *t, const struct oom_ckpt *c, bool dry)
{
	const struct oom_tally tally = t->sums->tally;
	const size_t unit = t->unit;
	const bool spread_mask = t->spread_mask;
	struct oom_val y;

	t->cursor = c->param0;
	t->unit = c->unit0;                     /* the layers of a stage are those of the forward */
	t->spread_mask = c->spread_mask;        /* and its attention is, whatever mask was made since */
	t->packs = 0;
	t->pack_limit = oom_ckpt_reenters(t->plan) ? UINT32_MAX : c->packs;
	t->grad = true;
	t->recompute = true;
	t->dry = t->stopped = dry;
	t->kept.products = 0;
	/* a dry run's tensors are known by their nodes, whose numbers those of another block's have had */
	oom_twins_reset(t);
	oom_amp_enter(t);
	y = oom_layer_run(t, c);
	oom_amp_leave(t);
	t->unit = unit;
	t->spread_mask = spread_mask;
	t->stopped = t->dry = false;
	t->grad = false;
	if (dry)                                /* nothing was computed */
		t->sums->tally = tally;
	oom_drop(t, t->side);
	t->side = oom_none();
	return y;
}

static struct oom_val block_again(struct oom_tape *t, const struct oom_ckpt *c, bool dry)
{
	const struct oom_val y = run_again(t, c, dry);

	oom_drop(t, y);
	return y;
}

/* The gradient that has come to a checkpoint, taken from it. */
static struct grad incoming(struct oom_tape *t, int32_t index)
{
	struct oom_node *n = &t->nodes[index];
	const struct grad g = {.sto = n->grad[0],
			       .mono = n->mono,
			       .width = n->width,
			       .dt = n->dt,
			       .perm = n->gperm[0],
			       .given = n->has[0]};

	n->grad[0] = -1;
	return g;
}

static void push_output(struct oom_tape *t, const struct oom_val *y, struct grad g)
{
	const struct oom_edge e = {
		.to = y->rg ? y->node : -1, .slot = y->slot, .mono = y->mono, .width = y->width, .dt = y->dt};

	oom_push_grad(t, &e, g);
}

/* The gradient that autograd makes for what a reentrant checkpoint returns and nobody uses. */
static struct grad zeros_of(struct oom_tape *t, const struct oom_val *x)
{
	if (oom_is_none(*x))
		return (struct grad){.sto = -1};
	return oom_grad_fresh(t, "zeros", x->mono, x->width, x->dt, false);
}

/* Where the walk was when it came to a block. */
struct place {
	size_t cursor, nodes, ckpts;
	uint32_t packs, limit;
	bool within;                    /* a checkpointed layer of a checkpointed stage */
};

static struct place place_of(const struct oom_tape *t)
{
	return (struct place){t->cursor, t->n_nodes, t->n_ckpts, t->packs, t->pack_limit, t->recompute};
}

/* What the block recorded is gone. */
static void back_to(struct oom_tape *t, const struct place *p)
{
	for (size_t i = p->nodes; i < t->n_nodes; i++)
		if (t->nodes[i].kind == OOM_NODE_CKPT)
			oom_release_node(t, &t->nodes[i]);
	t->cursor = p->cursor;
	t->packs = p->packs;
	t->pack_limit = p->limit;
	t->n_nodes = p->nodes;
	t->n_ckpts = p->ckpts;
	t->recompute = p->within;
}

/* A checkpointed block, use_reentrant=True: it runs again as a whole, and a backward pass of its own
 * walks its graph.  CheckpointFunction.backward (torch/utils/checkpoint.py) names the outputs and
 * the gradients that came until it returns, so that nothing is added into the latter. */
void oom_block_reenter(struct oom_tape *t, int32_t index)
{
	const struct oom_ckpt c = t->ckpts[t->nodes[index].ckpt];
	const struct place here = place_of(t);
	const int32_t mark = (int32_t)here.nodes;
	const struct grad g = incoming(t, index), zeros = zeros_of(t, &c.also);
	struct oom_val y = run_again(t, &c, false);

	if (g.sto >= 0)
		oom_ref(t, g.sto);
	t->recompute = false;                   /* saved tensors are the graph's, as in any backward */
	if (zeros.given) {
		oom_ref(t, zeros.sto);
		push_output(t, &t->also, zeros);
	}
	push_output(t, &y, g);
	oom_run_nodes(t, (int32_t)t->n_nodes - 1, mark);
	oom_drop(t, y);
	if (g.sto >= 0)
		oom_unref(t, g.sto);
	if (zeros.given)
		oom_unref(t, zeros.sto);
	oom_release_node(t, &t->nodes[index]);
	back_to(t, &here);
}

/* The block's input goes; what nodes of its first run hold by themselves stays as long as they do, which the loss holds. */
static void release_input(struct oom_tape *t, struct oom_node *n)
{
	if (!n->n_saved)
		return;
	oom_unref(t, n->saved[0]);
	memmove(n->saved, n->saved + 1, --n->n_saved * sizeof(n->saved[0]));
}

/* A checkpointed block: its last nodes run as far as they need no saved tensor; the first that does
 * sets off the recomputation, after which the graph goes on (torch.utils.checkpoint,
 * use_reentrant=False, early_stop=True). */
void oom_block_recompute(struct oom_tape *t, int32_t index)
{
	const struct oom_ckpt c = t->ckpts[t->nodes[index].ckpt];
	const struct place here = place_of(t);
	const int32_t mark = (int32_t)here.nodes;
	const size_t kept_at = t->kept.at, kept_end = t->kept.end, again = t->again.n;
	struct oom_val y = block_again(t, &c, true);
	int32_t k = (int32_t)t->n_nodes - 1, real = (int32_t)t->n_nodes, saves;

	push_output(t, &y, incoming(t, index));
	while (k >= mark && !t->nodes[k].n_packed)
		oom_run_node(t, k--);
	t->kept.at = c.kept0;
	t->kept.end = c.kept1;
	block_again(t, &c, false);
	while (t->again.n > again)
		oom_unref(t, t->again.row[--t->again.n]);
	if ((int32_t)t->n_nodes - real < k + 1 - mark) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "a recomputed block differs from its forward");
		return;
	}
	for (int32_t i = mark; i <= k; i++) {
		struct oom_node *to = &t->nodes[real + i - mark];
		const struct oom_node *from = &t->nodes[i];

		if (to->kind != from->kind) {
			oom_tape_fail(t, OOM_ERR_LIMIT, "a recomputed block differs from its forward");
			return;
		}
		memcpy(to->has, from->has, sizeof(to->has));
		memcpy(to->grad, from->grad, sizeof(to->grad));
		memcpy(to->gperm, from->gperm, sizeof(to->gperm));
		memcpy(to->ggaps, from->ggaps, sizeof(to->ggaps));
	}
	/* The block's input is the hooks', which the saved tensors hold (_CheckpointFrame): the views
	 * and casts before the first of these do without it. */
	saves = real;
	while (saves < real + k - mark && !t->nodes[saves].n_saved)
		saves++;
	oom_run_nodes(t, real + k - mark, saves);
	oom_drop_kept(t);
	t->kept.at = kept_at;
	t->kept.end = kept_end;
	release_input(t, &t->nodes[index]);
	oom_run_nodes(t, saves - 1, real);
	back_to(t, &here);
}

enum { LARGEST_GRAPH = 1024 };          /* operations of a layer; the known models' have some 200 */

static bool is_held(const struct oom_tape *t, int32_t sto)
{
	for (size_t i = 0; i < (size_t)t->n_held; i++)
		if (t->held[i] == sto)
			return true;
	return false;
}

void oom_hold_graph(struct oom_tape *t, size_t first, struct oom_val x)
{
	bool reached[LARGEST_GRAPH] = {false};
	size_t i = t->n_nodes;

	if (!t->recompute || t->dry || t->stopped || !x.rg || x.node < (int32_t)first || oom_ckpt_reenters(t->plan))
		return;
	if (i - first > LARGEST_GRAPH) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "a layer of more than %d operations hands on what has a graph", LARGEST_GRAPH);
		return;
	}
	reached[(size_t)x.node - first] = true;
	while (i-- > first) {
		const struct oom_node *n = &t->nodes[i];

		if (!reached[i - first])
			continue;
		for (int e = 0; e < n->n_edge; e++)
			if (n->edge[e].to >= (int32_t)first)
				reached[(size_t)n->edge[e].to - first] = true;
		for (int k = 0; k < n->n_saved; k++)
			if (n->saved[k] >= 0 && !is_held(t, n->saved[k])) {
				oom_ref(t, n->saved[k]);
				oom_drop_shared(t, (struct oom_val){.sto = n->saved[k], .node = -1});
			}
	}
}
