/* Stacks of layers: equal ones are recorded once and repeated; a checkpointed one is recorded by
 * what it keeps and run again in the backward pass. */
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "tape.h"

struct oom_val oom_layer_run(struct oom_tape *t, const struct oom_ckpt *c)
{
	const int64_t outer = t->selection.layer;
	const char *outside = t->selection.outside;
	struct oom_val y;

	t->selection.layer = c->layer;
	t->selection.outside = t->scope;
	t->also = oom_none();
	y = c->fn(t, c->ctx, c->layer, oom_keep(c->x));
	t->selection.layer = outer;
	t->scope = t->selection.outside;        /* whatever module it left: the next layer has one of that name, too */
	t->selection.outside = outside;
	return y.kept ? oom_share(t, y) : y;
}

void oom_block_returns(struct oom_tape *t, struct oom_val x)
{
	t->also = x;
}

/* Of a stack the layers n, 2 n, ... are checkpointed (torchtitan distributed/activation_checkpoint.py,
 * selective_ac_option; torchtune training/_activation_checkpointing.py apply_selective_activation_checkpointing). */
static uint32_t every(const struct oom_tape *t)
{
	return t->plan->grad_ckpt != OOM_CKPT_NONE && t->plan->ckpt_every > 1 ?
		       (uint32_t)t->plan->ckpt_every :
		       1;
}

/* One layer: plain, or behind a non-reentrant checkpoint. */
static struct oom_val one_layer(struct oom_tape *t, uint32_t i, oom_block_fn fn, const void *ctx,
				struct oom_val x)
{
	struct oom_ckpt c = {
		.fn = fn, .ctx = ctx, .layer = i, .param0 = (uint32_t)t->cursor,
		.unit0 = (uint32_t)t->unit, .spread_mask = t->spread_mask, .x = x};
	struct oom_val y;
	uint32_t packs;
	int32_t node;

	if (t->plan->grad_ckpt == OOM_CKPT_NONE || !t->grad || !t->train || (i + 1) % every(t)) {
		y = oom_layer_run(t, &c);
		oom_done(t, x);
		return y;
	}
	/* within a checkpoint: only the inner one's input is the outer one's to keep */
	if (t->packing) {
		packs = ++t->packs;
		y = oom_layer_run(t, &c);
		t->packs = packs;
		oom_done(t, x);
		return y;
	}
	node = oom_node(t, OOM_NODE_CKPT, "checkpoint");
	oom_node_edge(t, node, x);
	oom_node_save(t, node, x);
	packs = t->packs;                       /* of the checkpoint being recomputed, if any */
	t->checkpoint = node;
	t->packing = true;
	c.kept0 = (uint32_t)t->kept.n;
	t->kept.products = 0;
	t->packs = 0;
	y = oom_layer_run(t, &c);
	t->packing = false;
	c.also = t->also;
	c.packs = t->packs;
	c.kept1 = (uint32_t)t->kept.n;
	t->packs = packs;
	oom_done(t, x);
	if (node < 0)                           /* out of memory: the status says so */
		return y;
	if (!y.rg) {                            /* frozen, and nothing before it trains */
		while (t->nodes[node].n_saved)
			oom_unref(t, t->nodes[node].saved[--t->nodes[node].n_saved]);
		t->n_nodes = (size_t)node;
		return y;
	}
	t->nodes[node].ckpt = (uint32_t)t->n_ckpts;
	if (!oom_tape_ckpt(t, &c))
		return y;
	return oom_node_out(t, node, 0, y);
}

/* Layers [first, first + period) recorded once, standing for reps repetitions. */
static struct oom_val record(struct oom_tape *t, uint32_t first, uint32_t period, uint32_t reps,
			     uint16_t group, oom_block_fn fn, const void *ctx, struct oom_val x)
{
	const bool repeat = reps > 1, listed = t->stream == OOM_STREAM_FWD && t->grad;
	const int32_t node0 = (int32_t)t->n_nodes;
	const size_t unit0 = t->unit;
	size_t rep = 0;

	if (listed && !t->expand && t->n_layers == OOM_MAX_RUNS) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "more than %d runs of unlike layers in one model",
			      OOM_MAX_RUNS);
		return x;
	}
	t->group = group;
	t->mult = (uint16_t)reps;
	t->in_layer = true;
	if (repeat && !oom_tape_repeat(t, reps, &rep))
		return x;
	for (uint32_t i = 0; i < period && !t->status; i++) {
		const size_t u = oom_unit_begin(t);

		x = one_layer(t, first + i, fn, ctx, x);
		oom_unit_end(t, u);
	}
	if (repeat)
		oom_tape_mark(t, rep, true);
	t->in_layer = false;
	t->group = 0;
	t->mult = 1;
	if (listed)
		oom_tape_layers(t, &(struct oom_layer_rec){.node0 = node0,
							   .node1 = (int32_t)t->n_nodes,
							   .unit0 = (uint32_t)unit0,
							   .unit1 = (uint32_t)t->unit,
							   .group = group,
							   .reps = (uint16_t)reps,
							   .layers = period * reps});
	return x;
}

/* The longest pattern of layers looked for (Jamba repeats eight); stacks with a longer one are
 * recorded run by run. */
enum { MAX_PERIOD = 12 };

/* The smallest period p <= MAX_PERIOD, a multiple of `unit`, with kind[i] == kind[i + p] everywhere, or 0. */
static uint32_t period_of(const uint8_t *kind, uint32_t n, uint32_t unit)
{
	for (uint32_t p = unit; p <= MAX_PERIOD && p <= n; p += unit) {
		uint32_t i = p;

		while (i < n && kind[i] == kind[i - p])
			i++;
		if (i == n)
			return p;
	}
	return 0;
}

static struct oom_val run_of(struct oom_tape *t, uint32_t first, uint32_t n, uint32_t p,
			     oom_block_fn fn, const void *ctx, struct oom_val x)
{
	uint32_t m = n / p, i = first;
	uint16_t group = ++t->n_groups;

	if (t->expand || t->selection.each || m <= 3) {
		for (; i < first + n && !t->status; i++)
			x = record(t, i, 1, 1, group, fn, ctx, x);
		return x;
	}
	/* The first two are recorded apart: the second is the first whose predecessor is a layer
	 * of its kind. */
	x = record(t, i, p, 1, group, fn, ctx, x);
	x = record(t, i + p, p, m - 2, group, fn, ctx, x);
	x = record(t, i + (m - 1) * p, p, 1, group, fn, ctx, x);
	for (i = first + m * p; i < first + n && !t->status; i++)
		x = record(t, i, 1, 1, group, fn, ctx, x);
	return x;
}

/* The checkpoint whose recomputation is the last to need x: the first layer of the stack run last, or
 * of an earlier one that had x already (the same mask in every cycle, a first layer by itself). */
static int32_t first_checkpoint(const struct oom_tape *t, struct oom_val x)
{
	for (int32_t i = t->rows[x.sto].node; i < t->stack_node; i++)
		if (t->nodes[i].kind == OOM_NODE_CKPT)
			return i;
	return t->stack_node;
}

/* Whether no checkpoint has x: those of frozen layers that nothing before trains have no saved tensor, whose hooks would
 * hold what the layer was given (torch/utils/checkpoint.py _checkpoint_hook). */
static bool unheld(const struct oom_tape *t, struct oom_val x)
{
	size_t i = t->rows[x.sto].node > 0 ? (size_t)t->rows[x.sto].node : 0;

	while (i < t->n_nodes && t->nodes[i].kind != OOM_NODE_CKPT)
		i++;
	return i >= t->n_nodes && !t->packing && !t->recompute;
}

void oom_drop_shared(struct oom_tape *t, struct oom_val x)
{
	if (x.sto >= 0)
		t->rows[x.sto].shared = true;
	if (t->plan->grad_ckpt == OOM_CKPT_NONE || !t->grad || x.sto < 0 || unheld(t, x)) {
		oom_drop(t, x);
		return;
	}
	if (t->n_held == OOM_MAX_HELD) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "layers that share more than %d tensors",
			      OOM_MAX_HELD);
		oom_drop(t, x);
		return;
	}
	t->held_node[t->n_held] = first_checkpoint(t, x);
	t->held[t->n_held++] = x.sto;
}

void *oom_layer_ctx(struct oom_tape *t, const void *ctx, size_t size)
{
	if (size > OOM_CTX_BYTES || t->n_ctx == OOM_MAX_CTX) {
		oom_tape_fail(t, OOM_ERR_LIMIT,
			      "more than %d stacks of layers in one model, or %d bytes to tell one",
			      OOM_MAX_CTX, OOM_CTX_BYTES);
		return NULL;
	}
	if (!t->ctx)
		t->ctx = malloc(OOM_MAX_CTX * sizeof(*t->ctx));
	if (!t->ctx) {
		oom_tape_fail(t, OOM_ERR_MEMORY, "out of host memory");
		return NULL;
	}
	memcpy(t->ctx[t->n_ctx], ctx, size);
	return t->ctx[t->n_ctx++];
}

struct oom_val oom_layer_alone(struct oom_tape *t, uint32_t i, oom_block_fn fn, const void *ctx,
			       struct oom_val x)
{
	if (!ctx || t->status)
		return x;
	/* of a stage that is checkpointed, in the evaluation as in the training pass */
	if (t->packing || t->recompute ||
	    (!t->train && t->in_layer && t->plan->grad_ckpt != OOM_CKPT_NONE))
		return one_layer(t, i, fn, ctx, x);
	/* nobody's first layer: held until the last of them */
	t->stack_node = -1;
	return record(t, i, 1, 1, ++t->n_groups, fn, ctx, x);
}

/* Layers [first, first + n) of the stack, by what they have in common. */
static struct oom_val stretch(struct oom_tape *t, uint32_t first, uint32_t n, const uint8_t *kind,
			      oom_block_fn fn, const void *ctx, struct oom_val x)
{
	const uint32_t p = kind ? period_of(kind + first, n, every(t)) : every(t),
		       end = first + n;
	uint32_t i = first;

	if (p)
		return n ? run_of(t, first, n, p, fn, ctx, x) : x;
	while (i < end && !t->status) {         /* no common period: runs of equal layers */
		uint32_t j = i + 1;

		while (j < end && kind[j] == kind[i])
			j++;
		x = run_of(t, i, j - i, every(t), fn, ctx, x);
		i = j;
	}
	return x;
}

/* The first n layers of a decoder, behind all of which but perhaps the last something is done to what they return: their
 * own result has a name until the next one's is there. */
static struct oom_val first_of(struct oom_tape *t, const struct oom_behind *behind, uint32_t n, const uint8_t *kind,
			       oom_block_fn fn, const void *ctx, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val returned = oom_none();

	for (uint32_t i = 0; i < n && !t->status; i++) {
		x = stretch(t, i, 1, kind, fn, ctx, x);
		oom_forget(&f, returned);
		if (i == behind->n)
			break;
		returned = oom_name(&f, x);
		x = behind->fn(t, behind->ctx, i, returned);
	}
	return oom_leave(&f, x);
}

struct oom_val oom_layers_sized(struct oom_tape *t, uint32_t n, const uint8_t *kind,
				oom_block_fn fn, const void *ctx, size_t ctx_size, struct oom_val x)
{
	const uint32_t limit = t->expand ? OOM_MAX_EXPANDED : OOM_MAX_STACK,
		       last = t->plan->train_last < n ? (uint32_t)t->plan->train_last : 0;
	struct oom_selection *s = &t->selection;
	const struct oom_behind behind = t->behind;
	uint32_t i = 0;

	if (n > limit) {
		oom_tape_impossible(t, OOM_ERR_LIMIT, "%u layers: more than %u (num_hidden_layers, encoder_layers, decoder_layers)",
			      n, limit);
		return x;
	}
	ctx = oom_layer_ctx(t, ctx, ctx_size);
	if (!ctx)
		return x;
	if (!t->packing && !t->recompute) {
		t->stack_node = (int32_t)t->n_nodes;
		s->stack = s->stacks[s->part]++;
		s->depth = n;
	}
	t->behind = (struct oom_behind){.n = 0};
	if (behind.n) {
		i = behind.n < n ? behind.n + 1 : n;
		x = first_of(t, &behind, i, kind, fn, ctx, x);
	}
	/* those that train are not like those that do not */
	if (last && i < n - last) {
		x = stretch(t, i, n - last - i, kind, fn, ctx, x);
		i = n - last;
	}
	if (i < n)
		x = stretch(t, i, n - i, kind, fn, ctx, x);
	if (behind.over)
		behind.over(t, behind.ctx);
	return x;
}
