/* A schedule played through the caching allocator: the same order as phases.c reads, block by block.
 *
 * Weights come one parameter at a time, states as the optimizer's update makes them, rows as their
 * events say.  What an engine holds in one piece (buckets, flat partitions) is one block. */
#include "step/objectives.h"
#include "step/playing.h"
#include "step/reserved.h"

#include "ops/ops.h"
#include "step/allocator_blocks.h"
#include "step/program.h"
#include "tape/round.h"

/* Some ten thousand layers: beyond them a replay takes seconds. */
enum { MOST_EVENTS = 4000000 };

/* The parts that a stream's markers lead through: a layer's own events, and those behind it to the next. */
static int64_t part_after(const struct playing *g, enum oom_stream_id stream, int64_t at, int32_t ev)
{
	const int64_t unit = (int64_t)oom_ev_unit(ev), n = (int64_t)g->v->tape->n_units;

	if (!oom_ev_unit_ends(ev))
		return unit;
	if (stream == OOM_STREAM_BWD)
		return unit == 0 ? BEFORE_ALL : at;
	return unit + 1 == n ? n : at;
}

/* ---- passes ---- */

static void measure_rows(struct playing *g)
{
	const struct oom_tape *t = g->v->tape;
	uint64_t mono[OOM_MAX_MONOS];

	for (size_t i = 0; i < t->n_monos; i++)
		mono[i] = oom_mono_now(t, (uint16_t)i);
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct oom_row *row = &t->rows[i];
		const uint64_t bytes = oom_shared_bytes(mono[row->mono] * row->width *
								oom_dtype_bytes((enum oom_dtype)row->dt),
							(enum oom_share)row->share, g->s->ranks),
			       size = oom_block(bytes ? bytes : 1);

		g->p->row[i] = (struct oom_played){.size = size,
						   .block = -1,
						   .bin = (uint16_t)oom_bin_of(size, oom_pool_of(size, (enum oom_cuda_stream)row->stream)),
						   .joins_wait = row->joins_wait,
						   .opens_wait = row->opens_wait,
						   .product = row->product};
	}
	for (size_t i = 0; g->s->waits[1] && i < t->n_params; i++)
		if (t->params[i].grad >= 0)
			g->p->row[t->params[i].grad].joins_wait = true;
}

/* A thread's workspace is taken when cuBLAS has its first product to make, behind the result, and kept for good
 * (aten/src/ATen/cuda/CublasHandlePool.cpp getCurrentCUDABlasHandle); the backward has a thread of its own.  It may
 * lie in the middle of what the first step has cached, which then does not serve the second. */
static void take_workspace(struct playing *g, enum oom_stream_id stream)
{
	const unsigned bit = 1u << (stream == OOM_STREAM_BWD);

	if (g->workspace && !(g->p->workspaces & bit)) {
		oom_allocate(playing_allocator(g), g->workspace);
		g->p->workspaces |= bit;
	}
}

static void play(struct playing *g, enum oom_stream_id stream, bool again)
{
	const struct oom_stream *s = &g->v->tape->streams[stream];
	struct oom_replay *r = playing_allocator(g);
	struct oom_played *const rows = g->p->row;
	const bool whole = g->s->chain.whole;
	int64_t part = stream == OOM_STREAM_BWD ? (int64_t)g->v->tape->n_units : BEFORE_ALL;
	bool ours = oom_playing_mine(g, part);

	for (const int32_t *at = s->ev, *end = at + s->n; at < end && !r->failed; at++) {
		const int32_t ev = *at;
		const uint32_t kind = (uint32_t)ev & 3;
		struct oom_played *row;

		if (ev < 0) {
			if (!whole && oom_ev_is_unit(ev)) {
				part = part_after(g, stream, part, ev);
				ours = oom_playing_mine(g, part);
			}
			continue;
		}
		row = &rows[(uint32_t)ev >> 2];
		if (kind == OOM_EV_ALLOC) {
			if (!ours)      /* another rank's: its block stays -1 */
				continue;
			if (row->opens_wait)
				oom_playing_before_gather(g, stream);
			row->block = block_serve(r, row->size, row->bin);
			if (row->product)
				take_workspace(g, stream);
		} else if (kind == OOM_EV_GRAD && !again) {
			g->p->grad[ev >> 2] = row->block;
		} else if ((row->joins_wait || row->opens_wait) && kind != OOM_EV_GRAD) {
			oom_playing_free_late(g, row, stream);
		} else {
			block_release(r, row->block);
		}
	}
}

/* ---- the step ---- */

static int32_t put(void *ctx, uint64_t bytes)
{
	return oom_allocate(ctx, bytes);
}

static void drop(void *ctx, int32_t block)
{
	oom_free(ctx, block);
}

/* Parameters as the rank steps them: its part of each, whole rows where parts are padded to them. */
static const struct oom_param *parts_of(struct playing *g, size_t *n)
{
	const struct oom_tape *t = g->v->tape;
	const struct oom_ranks ranks = g->s->ranks;
	int64_t outside = BEFORE_ALL;

	*n = t->n_params;
	if (!g->s->chain.whole) {
		*n = 0;
		for (size_t i = 0; i < t->n_params; i++)
			if (oom_playing_param(g, i, &outside))
				g->p->parts[(*n)++] = t->params[i];
		return g->p->parts;
	}
	if (!g->s->divided)
		return t->params;
	for (size_t i = 0; i < t->n_params; i++) {
		struct oom_param *q = &g->p->parts[i];
		const uint64_t rows = ranks.pad > 1 ? oom_cut_rows(&t->params[i]) : t->params[i].elems,
			       part = (rows + ranks.n - 1) / ranks.n;

		*q = t->params[i];
		q->elems = rows ? part * (q->elems / rows) : 0;
		q->rows = q->rows ? (uint32_t)((q->rows + ranks.n - 1) / ranks.n) : 0;
	}
	return g->p->parts;
}

/* zero_grad, parameter by parameter, then what passes keep of gradients. */
static void give_up_grads(struct playing *g)
{
	const struct oom_tape *t = g->v->tape;

	for (size_t i = 0; i < t->n_params; i++) {
		const int32_t row = t->params[i].grad;

		if (row < 0 || g->p->grad[row] < 0)
			continue;
		oom_free(playing_allocator(g), g->p->grad[row]);
		g->p->grad[row] = -1;
	}
	for (size_t row = 0; row < t->n_rows; row++) {
		if (g->p->grad[row] < 0)
			continue;
		oom_free(playing_allocator(g), g->p->grad[row]);
		g->p->grad[row] = -1;
	}
}

static void step_with(const struct oom_optimizer *o, const struct oom_stepped *s, struct oom_sink *sink)
{
	if (o->update)
		o->update(o, s, sink);
	else
		oom_update_in_place(o, s, sink);
}

/* A flat partition, a sub-group after the other: each is one tensor to the optimizer. */
static void update_flat(struct playing *g, const struct oom_optimizer *o, bool first)
{
	const struct oom_flat *f = &g->s->flat;
	struct oom_replay *a = playing_allocator(g);
	struct oom_sink sink = {.put = put, .drop = drop, .ctx = a};

	for (uint64_t done = 0; done < f->part && !a->failed; done += f->group) {
		const uint64_t n = f->part - done < f->group ? f->part - done : f->group;
		const struct oom_param one = {.name = "flat partition", .elems = n, .count = 1, .dt = OOM_F32, .trainable = true};
		const struct oom_stepped s = {.p = &one, .n = 1, .first = first, .sum_buffers = g->plan->sum_buffers};
		int32_t joined = f->joined ? oom_allocate(a, n * f->joined) : -1;
		const int32_t cast = f->cast ? oom_allocate(a, n * f->cast) : -1;

		if (cast >= 0) {
			oom_free(a, joined);
			joined = -1;
		}
		if (f->leave)
			give_up_grads(g);
		step_with(o, &s, &sink);
		oom_free(a, joined);
		oom_free(a, cast);
	}
	a->failed |= sink.failed;
	oom_sink_release(&sink);
}

/* Older DeepSpeed makes the states with the engine, by a step whose gradients are zeros. */
static void make_early(struct playing *g)
{
	const struct oom_holding *state = &g->s->hold[OOM_HOLD_STATE];

	if (state->place == OOM_ON_GPU && state->pieces == OOM_PER_FLAT_STATE && state->from == OOM_AT_START)
		update_flat(g, oom_optimizer_at((size_t)g->plan->optimizer), true);
}

/* The optimizer's own play, into this allocator; where it is not known of a flat partition, its temporary is one block. */
static void update(struct playing *g)
{
	const struct oom_holding *state = &g->s->hold[OOM_HOLD_STATE];
	const struct oom_optimizer *o = oom_optimizer_at((size_t)g->plan->optimizer);
	struct oom_stepped s = {.master = g->s->master, .first = g->first, .groups = oom_two_groups(g->plan),
				.sum_buffers = g->plan->sum_buffers};
	struct oom_sink sink = {.put = put, .drop = drop, .ctx = playing_allocator(g)};

	if (state->place != OOM_ON_GPU) {
		oom_free(playing_allocator(g), g->s->copied_back ? oom_allocate(playing_allocator(g), g->s->copied_back) : -1);
		return;
	}
	if (state->pieces == OOM_PER_FLAT_STATE) {
		update_flat(g, o, g->first && state->from != OOM_AT_START);
		return;
	}
	if (state->pieces == OOM_IN_ONE) {
		oom_free(playing_allocator(g), g->s->temps[0] ? oom_allocate(playing_allocator(g), g->s->temps[0]) : -1);
		return;
	}
	if (g->s->divided && oom_optimizer_of_whole_matrices(o)) {
		const uint64_t temps = g->s->temps[!g->first];

		/* a part of the rows has no such states: the schedule's share of them, evenly */
		if (g->first)
			oom_playing_per_trained(g, state->bytes);
		oom_free(playing_allocator(g), temps ? oom_allocate(playing_allocator(g), temps) : -1);
		return;
	}
	s.p = parts_of(g, &s.n);
	step_with(o, &s, &sink);
	playing_allocator(g)->failed |= sink.failed;
	oom_sink_release(&sink);
}

/* The mean of the weights is moved, a tensor after another or all of them in one list. */
static void move_mean(struct playing *g)
{
	const struct oom_mean *m = &g->s->mean;
	size_t n;
	const struct oom_param *p = parts_of(g, &n);
	struct oom_sink sink = {.put = put, .drop = drop, .ctx = playing_allocator(g)};

	for (size_t i = 0; m->temps && i < n; i++) {
		const uint64_t whole = p[i].elems * oom_dtype_bytes((enum oom_dtype)p[i].dt) * m->wider,
			       bytes = m->part && !g->s->divided ?
					       oom_shared_bytes(whole, OOM_SHARE_PART, g->s->ranks) :
					       whole;
		const size_t before = sink.n;

		for (int k = 0; p[i].trainable && k < m->temps; k++)
			oom_sink_take(&sink, bytes);
		while (!m->at_once && sink.n > before)
			oom_sink_give(&sink, (int32_t)--sink.n);
	}
	while (sink.n)
		oom_sink_give(&sink, (int32_t)--sink.n);
	playing_allocator(g)->failed |= sink.failed;
	oom_sink_release(&sink);
}

/* Where everything lies: equal marks, and the same events do the same again. */
static uint64_t mark(const struct playing *g)
{
	const struct oom_replay *r = &g->p->allocator;
	uint64_t h = oom_replay_mark(r);

	for (size_t i = 0; i < g->s->n_hold; i++)
		if (g->there >> i & 1 && g->held[i] >= 0)
			h = oom_mark(h, r->blocks[g->held[i]].addr);
	return oom_mark(h, g->there);
}

/* Whether a backward pass leaves gradients, which the next one adds to. */
static bool keeps_grads(const struct playing *g)
{
	const struct oom_stream *s = &g->v->tape->streams[OOM_STREAM_BWD];

	for (size_t i = 0; i < s->n; i++)
		if (s->ev[i] >= 0 && (s->ev[i] & 3) == OOM_EV_GRAD)
			return true;
	return false;
}

static void micro_batch(struct playing *g, bool again)
{
	oom_playing_go(g, OOM_AT_FORWARD);
	oom_playing_come(g, OOM_AT_FORWARD);
	play(g, OOM_STREAM_FWD, false);
	oom_playing_come(g, OOM_AT_OUTPUT);
	oom_playing_go(g, OOM_AT_BACKWARD);
	oom_playing_come(g, OOM_AT_BACKWARD);
	play(g, OOM_STREAM_BWD, again);
	oom_playing_sync(g);
}

static void training_step(struct playing *g)
{
	/* later micro-batches repeat the third */
	const int64_t micro = g->plan->grad_accum < 3 ? g->plan->grad_accum : 3;
	uint64_t before = 0;

	for (int64_t m = 0; m < micro; m++) {
		const bool again = m > 0 || (!g->first && (g->s->grads_stay || (g->settled && !keeps_grads(g))));
		const uint64_t now = micro > 1 ? mark(g) : 0;

		if (m == 2 && now == before) {          /* the third repeats the second */
			g->settled = true;
			g->there_again = now;
		}
		if (again && g->settled && now == g->there_again)
			break;                          /* and so do all that begin there */
		before = now;
		micro_batch(g, again);
	}
	oom_playing_go(g, OOM_AT_STEP);
	if (g->s->grads_leave && !g->s->flat.leave)
		give_up_grads(g);
	oom_playing_come(g, OOM_AT_STEP);
	update(g);
	move_mean(g);
	oom_playing_go(g, OOM_AT_STEP_END);
	if (!g->s->grads_stay)
		give_up_grads(g);
}

/* What is reserved and held beside them. */
static void without_workspaces(const struct playing *g, struct oom_replay_result *r)
{
	const uint64_t taken = ((g->p->workspaces & 1) + (g->p->workspaces >> 1)) * g->workspace;

	r->reserved -= taken < r->reserved ? taken : r->reserved;
	r->held -= taken < r->held ? taken : r->held;
}

enum oom_status oom_replay(struct oom_player *p, const struct oom_schedule *s,
			   const struct oom_variant *v, const struct oom_plan *plan,
			   uint64_t input_bytes, uint64_t limit, bool later, struct oom_replay_result *out)
{
	struct playing g = {.p = p, .s = s, .v = v, .plan = plan, .input_bytes = input_bytes};
	const struct oom_tape *t = v->tape;
	enum oom_status st;

	if (t->streams[OOM_STREAM_FWD].n + t->streams[OOM_STREAM_BWD].n > MOST_EVENTS)
		return OOM_ERR_LIMIT;
	g.workspace = oom_workspace_bytes(plan);
	oom_player_begin(p, plan, limit ? limit + 2 * g.workspace : 0);
	if (!oom_player_holds(p, t))
		return OOM_ERR_MEMORY;
	if (later && s->later_ahead && !(g.sent = oom_player_slots(p, t->n_params + t->n_units + 1)))
		return OOM_ERR_MEMORY;
	if (s->ahead.least && !oom_player_gathers(p, t))
		return OOM_ERR_MEMORY;
	if (s->whole_first && !(g.loaded = oom_player_slots(p, t->n_params)))
		return OOM_ERR_MEMORY;
	p->allocator.others_end = oom_playing_sync;
	p->allocator.of = &g;
	measure_rows(&g);
	oom_playing_come(&g, OOM_AT_LOAD);
	oom_playing_loaded(&g);
	oom_playing_come(&g, OOM_AT_START);
	make_early(&g);
	for (int step = 0; step < 2 && !p->allocator.failed; step++) {
		g.first = !step;
		training_step(&g);
	}
	p->allocator.others_end = NULL;
	st = oom_player_end(p, out);
	if (!st)
		without_workspaces(&g, out);
	return st;
}
