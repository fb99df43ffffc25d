/* A rank's step played through the caching allocator, block by block: the passes in the order of the
 * pipeline's schedule, each layer's tensors as activations.c lists them.
 *
 * What a rank holds throughout (its rows) comes as one block each.  Two steps, as many micro-batches of
 * them as fill the pipeline and a few more: later ones repeat those.  Within a pass a layer's tensors come in
 * the order in which the forward makes them; in the backward the feed-forward's go first, with the gradient of
 * its activation beside them, then the attention's, with that of its scores where they are in memory.  Left
 * out: temporaries of single operations below those, and what the first layers' weights leave in the cache
 * when they are copied into one buffer. */
#include "playing.h"

/* Blocks beyond which a play takes seconds. */
enum { MOST_SLOTS = 4000000 };

/* ---- FSDP2's layers ---- */

/* The next layer is gathered while this one computes: two of the gather's outputs are there at a time. */
static int32_t gather(struct playing *g, int kind)
{
	const struct mg_wrapped *w = &g->f->wrapped;
	int32_t ahead;

	if (!w->there)
		return -1;
	ahead = oom_allocate_on(g->r, (uint64_t)w->gathered[kind], OOM_GATHERS);
	oom_free(g->r, g->ahead);
	g->ahead = ahead;
	return play_put(g, w->gathered[kind]);
}

/* Gradients go into a reduction, whose input stays until the next one's. */
static void reduce_bytes(struct playing *g, double grads, double input)
{
	const int32_t made = play_put(g, grads);

	oom_free(g->r, g->reducing);
	g->reducing = oom_allocate_on(g->r, (uint64_t)input, OOM_REDUCES);
	oom_free(g->r, made);
}

static void reduce(struct playing *g, int kind)
{
	const struct mg_wrapped *w = &g->f->wrapped;

	if (w->there)
		reduce_bytes(g, w->grads[kind], w->reduced[kind]);
}

/* The root's parameters come first and their gradients last. */
static void gather_root(struct playing *g)
{
	const struct mg_wrapped *w = &g->f->wrapped;

	if (w->there && w->root > 0)
		oom_free(g->r, oom_allocate_on(g->r, (uint64_t)(2 * w->root), OOM_GATHERS));
}

static void reduce_root(struct playing *g)
{
	const struct mg_wrapped *w = &g->f->wrapped;

	if (w->there && w->root > 0)
		reduce_bytes(g, w->stays ? 0 : 2 * w->root, 4 * w->root);
}

static void no_more(struct playing *g)
{
	play_drop(g, &g->ahead);
	play_drop(g, &g->reducing);
}

/* ---- passes ---- */

static int32_t *slots(struct playing *g, int64_t micro, int64_t layer)
{
	return g->slot + ((micro % g->micro) * (g->layers + (int64_t)g->f->n_chunks) + layer) * MG_PIECES;
}

/* What a chunk holds beside its layers: at its ends one block, then those of the loss. */
static int32_t *ends(struct playing *g, int64_t micro, size_t c)
{
	return slots(g, micro, g->layers + (int64_t)c);
}

static void put_all(struct playing *g, const struct mg_pieces *p, size_t from, size_t to, int32_t *at)
{
	for (size_t i = from; i < to; i++)
		at[i] = play_put(g, p->bytes[i]);
}

static void drop_all(struct playing *g, size_t from, size_t to, int32_t *at)
{
	for (size_t i = from; i < to; i++)
		play_drop(g, &at[i]);
}

static bool checkpointed(const struct mg_flow *f, int64_t i)
{
	return !f->recomputed || i < f->recomputed;
}

/* Attention or the feed-forward: its input gathered where the sequence is divided, what it keeps, what it
 * will make again (gone at its end), its output. */
static void half(struct playing *g, const struct mg_flow_layer *l, const struct mg_pieces *kept, bool again,
		 size_t from, size_t to, size_t from_again, size_t to_again, int32_t *mine)
{
	int32_t lost[MG_PIECES], whole = play_put(g, l->gathered), out;

	put_all(g, kept, from, to, mine);
	if (again)
		put_all(g, &l->again, from_again, to_again, lost);
	play_drop(g, &whole);
	out = play_put(g, l->gathered > 0 ? l->gathered : l->hidden);
	if (again)
		drop_all(g, from_again, to_again, lost);
	play_drop(g, &out);
}

/* 16-bit logits, which the training loop names until the loss is there, the fp32 copy, its log-softmax, which alone is
 * kept; of divided logits what is above their maximum and its exponential as well (_log_softmax in loss.py). */
static int32_t plain_loss(struct playing *g)
{
	const double n = g->f->plain_loss;
	int32_t low = play_put(g, 2 * n), high = play_put(g, 4 * n), shifted = -1, exponential, kept;

	if (g->f->split_loss) {
		shifted = play_put(g, 4 * n);
		exponential = play_put(g, 4 * n);
		play_drop(g, &exponential);
	}
	kept = play_put(g, 4 * n);
	play_drop(g, &shifted);
	play_drop(g, &high);
	play_drop(g, &low);
	return kept;
}

static void forward(struct playing *g, size_t c, int64_t micro)
{
	const struct mg_flow *f = g->f;

	for (int64_t i = 0; i < play_layers(&f->chunk[c]); i++) {
		const struct mg_flow_layer *l = play_kind(g, c, i);
		const bool part = checkpointed(f, i);
		const struct mg_pieces *kept = part ? &l->kept : &l->again;

		int32_t *mine = slots(g, micro, g->first[c] + i), weights = -1;

		if (!f->wrapped.stays)
			weights = gather(g, i >= f->chunk[c].dense);
		half(g, l, kept, part, 0, kept->mlp, 0, l->again.mlp, mine);
		half(g, l, kept, part, kept->mlp, kept->n, l->again.mlp, l->again.n, mine);
		/* the last one stays gathered: its backward is next */
		if (f->chunk[c].loss && i + 1 == play_layers(&f->chunk[c]))
			ends(g, micro, c)[MG_PIECES - 1] = weights;
		else
			play_drop(g, &weights);
	}
	*ends(g, micro, c) = play_put(g, f->ends[c]);
	for (size_t i = 0; f->chunk[c].loss && i < f->n_loss; i++)
		ends(g, micro, c)[1 + i] = play_put(g, f->loss[i]);
	if (f->chunk[c].loss && f->plain_loss > 0)
		ends(g, micro, c)[1] = plain_loss(g);
}

/* The gradient of the log-softmax, of its input, and that in 16 bit, which the head's backward takes.  Divided logits
 * have one function for both: (grad_input + exp(x)) * grad_output. */
static void plain_loss_back(struct playing *g, int32_t *kept)
{
	const double high = 4 * g->f->plain_loss;
	int32_t out = play_put(g, high), in, low;

	if (g->f->split_loss) {
		int32_t exponential = play_put(g, high), sum = play_put(g, high);

		play_drop(g, &exponential);
		in = play_put(g, high);
		play_drop(g, &sum);
	} else {
		in = play_put(g, high);
	}
	play_drop(g, &out);
	play_drop(g, kept);
	low = play_put(g, 2 * g->f->plain_loss);
	play_drop(g, &in);
	play_drop(g, &low);
}

/* ---- passes, backward ---- */

static void backward(struct playing *g, size_t c, int64_t micro)
{
	const struct mg_flow *f = g->f;
	int32_t again[MG_PIECES], *end = ends(g, micro, c), down, up, whole;
	struct mg_matrices last;

	if (f->chunk[c].loss && f->plain_loss > 0)
		plain_loss_back(g, &end[1]);
	else if (f->chunk[c].loss)
		drop_all(g, 1, 1 + f->n_loss, end);
	down = play_put(g, f->layer[f->chunk[c].moe > 0].hidden);    /* the gradient that comes in */
	for (int64_t i = play_layers(&f->chunk[c]) - 1; i >= 0; i--) {
		const struct mg_flow_layer *l = play_kind(g, c, i);
		const bool part = checkpointed(f, i);
		const struct mg_pieces *kept = part ? &l->kept : &l->again;
		int32_t *mine = slots(g, micro, g->first[c] + i);
		const size_t n = part ? l->again.n : 0;
		const int kind = i >= f->chunk[c].dense;
		const bool stayed = f->wrapped.stays || end[MG_PIECES - 1] >= 0;
		int32_t wide, weights = stayed ? -1 : gather(g, kind);

		put_all(g, &l->again, 0, n, again);
		whole = play_put(g, l->gathered);    /* the gradient, gathered */
		wide = play_put(g, l->wide);
		play_drop(g, &whole);
		drop_all(g, l->again.mlp < n ? l->again.mlp : n, n, again);
		drop_all(g, kept->mlp, kept->n, mine);
		whole = play_put(g, l->gathered);
		play_drop(g, &wide);
		up = play_put(g, l->hidden);
		play_drop(g, &whole);
		play_drop(g, &down);
		wide = play_put(g, l->attention);
		drop_all(g, 0, l->again.mlp < n ? l->again.mlp : n, again);
		drop_all(g, 0, kept->mlp, mine);
		play_drop(g, &wide);
		if (f->grad_bytes > 0)
			oom_play_put(g, GRADIENT, &l->matrices, g->first[c] + i, f->grad_bytes);
		if (!f->wrapped.stays)
			reduce(g, kind);
		play_drop(g, &weights);
		play_drop(g, &end[MG_PIECES - 1]);
		down = up;
	}
	play_drop(g, &down);
	play_drop(g, end);
	last = oom_play_ends(f, c);
	if (f->grad_bytes > 0)
		oom_play_put(g, GRADIENT, &last, g->layers + (int64_t)c, f->grad_bytes);
}

/* ---- the step ---- */

static void optimizer_step(struct playing *g)
{
	const struct mg_step *s = &g->f->step;
	int32_t stays[MG_STEP_BLOCKS];

	for (size_t i = 0; i < s->n; i++)
		if (s->block[i].alone)
			oom_free(g->r, play_put(g, s->block[i].bytes));
	if (s->gradients_go)
		oom_play_drop_all(g, GRADIENT);
	for (size_t i = 0; i < s->n; i++) {
		stays[i] = -1;
		if (s->block[i].per_matrix)
			oom_play_put_all(g, COPY, 4);
		else if (!s->block[i].alone)
			stays[i] = play_put(g, s->block[i].bytes);
	}
	oom_play_drop_all(g, COPY);
	oom_play_come(g, OOM_MG_ROW_COPIES);
	oom_play_states(g);
	for (size_t i = 0; i < s->n; i++)
		play_drop(g, &stays[i]);
	if (!g->f->grads_stay)
		oom_play_drop_all(g, GRADIENT);
	play_drop(g, &g->rest);
}

/* With a pipeline layers are gathered once per step and reduced when the last backward is through
 * (torch/distributed/pipelining/stage.py backward_maybe_with_nosync). */
static void once(struct playing *g, void (*what)(struct playing *g, int kind))
{
	for (size_t c = 0; g->f->wrapped.stays && c < g->f->n_chunks; c++)
		for (int64_t i = 0; i < play_layers(&g->f->chunk[c]); i++)
			what(g, i >= g->f->chunk[c].dense);
}

static void gather_once(struct playing *g, int kind)
{
	oom_free(g->r, gather(g, kind));        /* the row of gathered parameters has them */
}

static void training_step(struct playing *g)
{
	const struct mg_order *o = &g->f->order;
	const int64_t v = (int64_t)g->f->n_chunks, group = o->group * v, total = g->micro * v;
	int64_t back = 0;

	oom_play_go(g, OOM_MG_ROW_COPIES);
	gather_root(g);
	once(g, gather_once);
	no_more(g);
	for (int64_t fwd = 0; fwd < total && !g->r->failed; fwd++) {
		oom_play_come(g, OOM_MG_ROW_GATHERED);
		if (g->rest < 0)
			g->rest = play_put(g, g->f->rest);
		forward(g, (size_t)(fwd % group / o->group), fwd / group * o->group + fwd % o->group);
		if (fwd < o->warm)
			continue;
		backward(g, (size_t)(v - 1 - back % group / o->group),
			 back / group * o->group + back % o->group);
		back++;
	}
	for (; back < total && !g->r->failed; back++)
		backward(g, (size_t)(v - 1 - back % group / o->group),
			 back / group * o->group + back % o->group);
	once(g, reduce);
	reduce_root(g);
	no_more(g);
	optimizer_step(g);
}

/* Micro-batches that show all a step does: the pipeline full, and one group after that. */
static int64_t micro_batches(const struct mg_flow *f)
{
	const int64_t v = (int64_t)f->n_chunks, g = f->order.group,
		      most = (f->order.warm + 1 + v - 1) / v + 2 * g;

	return most < f->order.micro ? (most + g - 1) / g * g : f->order.micro;
}

enum oom_status oom_mg_play(const struct mg_flow *f, struct oom_player *p)
{
	struct playing g = {.f = f, .r = &p->allocator, .rest = -1, .ahead = -1, .reducing = -1};
	int64_t n, parts;

	g.micro = micro_batches(f);
	for (size_t c = 0; c < f->n_chunks; c++) {
		g.first[c] = g.layers;
		g.layers += play_layers(&f->chunk[c]);
	}
	parts = g.layers + (int64_t)f->n_chunks;
	if (g.micro > MOST_SLOTS / parts / MG_PIECES)
		return OOM_ERR_LIMIT;
	n = parts * (g.micro * MG_PIECES + PER_MATRIX * MG_MATRICES);
	g.slot = oom_player_slots(p, (size_t)n);
	if (!g.slot)
		return OOM_ERR_MEMORY;
	for (int i = 0; i < PER_MATRIX; i++)
		g.per[i] = g.slot + parts * (g.micro * MG_PIECES + i * MG_MATRICES);
	for (int i = 0; i < OOM_MG_ROWS; i++)
		g.held[i] = -1;
	oom_play_load(&g);
	for (int step = 0; step < 2 && !g.r->failed; step++)
		training_step(&g);
	return OOM_OK;
}
