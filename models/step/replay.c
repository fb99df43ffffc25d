/* A schedule played through the caching allocator: the same order as phases.c reads, block by block.
 *
 * Weights come one parameter at a time, states as the optimizer's update makes them, rows as their
 * events say.  What an engine holds in one piece (buckets, flat partitions) is one block. */
#include "step/replay.h"

#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "step/program.h"

/* Some ten thousand layers: beyond them a replay takes seconds. */
enum { MOST_EVENTS = 4000000 };

struct playing {
	struct oom_player *p;
	const struct oom_schedule *s;
	const struct oom_variant *v;
	const struct oom_plan *plan;
	uint64_t input_bytes;
	uint32_t there;                         /* holdings, a bit each */
	int32_t held[OOM_MAX_HOLDINGS];         /* the block of what lies in one */
	bool first;                             /* step */
	int32_t waiting;                        /* gathered parameters that the allocator does not have back yet */
};

void oom_player_release(struct oom_player *p)
{
	if (!p)
		return;
	oom_replay_release(&p->allocator);
	free(p->block);
	free(p->bytes);
	free(p->grad);
	free(p->parts);
	free(p->moved);
	free(p->slot);
	memset(p, 0, sizeof(*p));
}

void oom_player_begin(struct oom_player *p, const struct oom_plan *plan, uint64_t limit)
{
	const struct oom_alloc_rules rules = {.expandable = plan->allocator == OOM_ALLOC_EXPANDABLE,
					      .max_split = (uint64_t)plan->max_split << 20,
					      .limit = limit};

	oom_replay_clear(&p->allocator, &rules);
}

enum oom_status oom_player_end(const struct oom_player *p, struct oom_replay_result *out)
{
	if (p->allocator.given_up)
		return OOM_ERR_LIMIT;
	if (p->allocator.failed && !p->allocator.died)
		return OOM_ERR_MEMORY;
	*out = (struct oom_replay_result){.reserved = p->allocator.peak,
					  .retries = p->allocator.retries,
					  .died = p->allocator.died};
	return OOM_OK;
}

int32_t *oom_player_slots(struct oom_player *p, size_t n)
{
	if (n > p->cap_slot) {
		int32_t *q = realloc(p->slot, n * sizeof(*q));

		if (!q)
			return NULL;
		p->slot = q;
		p->cap_slot = n;
	}
	for (size_t i = 0; i < n; i++)
		p->slot[i] = -1;
	return p->slot;
}

static bool room(struct oom_player *p, const struct oom_tape *t)
{
	int32_t *a, *b, *m;
	uint64_t *c;
	struct oom_param *q;

	if (t->n_rows > p->cap) {
		a = realloc(p->block, t->n_rows * sizeof(*a));
		p->block = a ? a : p->block;
		b = realloc(p->grad, t->n_rows * sizeof(*b));
		p->grad = b ? b : p->grad;
		c = realloc(p->bytes, t->n_rows * sizeof(*c));
		p->bytes = c ? c : p->bytes;
		if (!a || !b || !c)
			return false;
		p->cap = t->n_rows;
	}
	if (t->n_params > p->cap_parts) {
		q = realloc(p->parts, t->n_params * sizeof(*q));
		p->parts = q ? q : p->parts;
		m = realloc(p->moved, t->n_params * sizeof(*m));
		p->moved = m ? m : p->moved;
		if (!q || !m)
			return false;
		p->cap_parts = t->n_params;
	}
	for (size_t i = 0; i < t->n_rows; i++)
		p->block[i] = p->grad[i] = -1;
	return true;
}

/* ---- what is this rank's ---- */

/* A rank that has part of the chain: are the layer `unit` (from 0), or what comes before all of them and after,
 * its own?  Layers are the tape's units, numbered as the forward meets them. */
enum { BEFORE_ALL = -1 };

static bool mine(const struct playing *g, int64_t unit)
{
	const struct oom_chain *c = &g->s->chain;

	if (c->whole)
		return true;
	if (unit == BEFORE_ALL)
		return c->times[OOM_PART_BEFORE] > 0;
	if (unit >= (int64_t)g->v->tape->n_units)
		return c->times[OOM_PART_AFTER] > 0;
	return unit >= (int64_t)c->first && unit < (int64_t)(c->first + c->times[OOM_PART_LAYER]);
}

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

/* Parameters outside of the layers come before or after them as they are recorded. */
static bool param_mine(const struct playing *g, size_t i, int64_t *outside)
{
	const struct oom_param *q = &g->v->tape->params[i];

	if (q->unit)
		*outside = (int64_t)g->v->tape->n_units;
	return mine(g, q->unit ? (int64_t)q->unit - 1 : *outside);
}

/* ---- holdings ---- */

static struct oom_replay *allocator(struct playing *g)
{
	return &g->p->allocator;
}

static uint64_t scaled(uint64_t bytes, uint64_t part, uint64_t whole)
{
	return part == whole || !whole ? bytes :
					 (uint64_t)((double)bytes * (double)part / (double)whole);
}

/* A parameter's blocks. */
static void weight(struct playing *g, const struct oom_param *p, uint64_t part, uint64_t whole)
{
	struct oom_replay *r = allocator(g);
	uint64_t block[OOM_QUANTISED_BLOCKS];
	size_t n;

	if (!(p->flags & OOM_P_QUANTISED)) {
		oom_allocate(r, scaled(p->elems * oom_dtype_bytes((enum oom_dtype)p->dt), part,
				       whole));
		return;
	}
	n = oom_quantised_blocks(g->plan, p->elems, block);
	for (size_t i = 0; i < n; i++)
		oom_allocate(r, i ? block[i] : scaled(block[i], part, whole));
}

/* ---- FSDP1's flat parameters ---- */

/* torch/distributed/fsdp/_init_utils.py, PARAM_BROADCAST_BUCKET_SIZE; two are under way
 * (torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced: max_in_flight). */
#define BROADCAST ((uint64_t)250 << 20)

struct wrapping {
	uint64_t flat;          /* bytes of the unit */
	uint64_t bucket;        /* that is being filled */
	int32_t sent[2];
	size_t n;               /* parameters moved to the card */
};

static void send(struct playing *g, struct wrapping *u)
{
	oom_free(allocator(g), u->sent[0]);
	u->sent[0] = u->sent[1];
	u->sent[1] = u->bucket ? oom_allocate(allocator(g), u->bucket) : -1;
	u->bucket = 0;
}

/* A parameter of a unit comes to the card; what a quantised one has beside its codes stays there. */
static void move(struct playing *g, struct wrapping *u, const struct oom_param *p)
{
	uint64_t block[OOM_QUANTISED_BLOCKS] = {0};
	size_t n = 0;

	if (p->flags & OOM_P_QUANTISED)
		n = oom_quantised_blocks(g->plan, p->elems, block);
	else
		block[0] = p->elems * oom_dtype_bytes((enum oom_dtype)p->dt) * (g->s->master ? 2 : 1);
	g->p->moved[u->n++] = oom_allocate(allocator(g), block[0]);
	for (size_t i = 1; i < n; i++)
		oom_allocate(allocator(g), block[i]);
	u->flat += block[0];
	u->bucket += block[0];
	if (u->bucket >= BROADCAST)
		send(g, u);
}

/* _init_param_handle_from_module: a unit's parameters are moved to the card one by one, rank 0's are
 * broadcast (sync_module_states, as accelerate asks), joined to a flat one, and the rank's part of that is
 * cloned (_flat_param.py FlatParamHandle.shard); the others go when the function returns.  The allocator
 * keeps what that took. */
static void wrap_unit(struct playing *g, uint32_t unit, size_t from, size_t to, bool stays)
{
	struct wrapping u = {.sent = {-1, -1}};
	const struct oom_param *p = g->v->tape->params;
	int32_t flat, part;

	for (size_t i = from; i < to; i++)
		if (p[i].unit == unit && !(p[i].flags & (OOM_P_LORA | OOM_P_BESIDE)))
			move(g, &u, &p[i]);
	if (!u.n)
		return;
	send(g, &u);
	send(g, &u);
	send(g, &u);
	flat = oom_allocate(allocator(g), u.flat);
	part = oom_allocate(allocator(g), oom_shared_bytes(u.flat, OOM_SHARE_PART, g->s->ranks));
	oom_free(allocator(g), flat);
	for (size_t i = 0; i < u.n; i++)
		oom_free(allocator(g), g->p->moved[i]);
	if (!stays)                             /* flat_param_to(cpu) */
		oom_free(allocator(g), part);
}

/* Layers in their order, then the root.  Adapters are units of their own (PEFT's fsdp_auto_wrap_policy). */
static void wrap(struct playing *g, const struct oom_holding *h, bool stays)
{
	const struct oom_tape *t = g->v->tape;

	for (size_t i = 0; i < t->n_params && stays; i++)
		if (t->params[i].flags & OOM_P_LORA)
			weight(g, &t->params[i], h->bytes, g->s->in.params);
	for (size_t k = 0; k < t->n_units; k++)
		wrap_unit(g, (uint32_t)k + 1, t->units[k].param0, t->units[k].param1, stays);
	wrap_unit(g, 0, 0, t->n_params, stays);
}

/* Ids or pixels, labels, and the padding mask where there is one. */
static void batch(struct playing *g)
{
	const uint64_t b = (uint64_t)g->plan->micro_batch, seq = (uint64_t)g->plan->seq_len,
		       ids = b * seq * 8, all = g->input_bytes,
		       mask = seq && g->plan->padding_mask && all > 2 * ids ? ids : 0;
	const uint64_t first = seq ? ids : all > b * 8 ? all - b * 8 : 0;

	oom_allocate(allocator(g), first);
	if (all > first + mask)
		oom_allocate(allocator(g), all - first - mask);
	if (mask)
		oom_allocate(allocator(g), mask);
}

/* Each trained parameter's part of a holding that is as large as all their gradients, or so many times. */
static void per_trained(struct playing *g, uint64_t part)
{
	const struct oom_tape *t = g->v->tape;

	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].trainable)
			oom_allocate(allocator(g), scaled(t->params[i].elems * oom_dtype_bytes((enum oom_dtype)t->params[i].dt),
							  part, g->s->in.trained));
}

/* Another model's parameters; its buffers in one. */
static void per_beside(struct playing *g, uint64_t part)
{
	const struct oom_beside *o = &g->v->tape->beside;
	uint64_t sum = 0, rounded;

	for (size_t i = 0; i < o->n; i++) {
		if (!(o->params[i].flags & OOM_P_BESIDE))
			continue;
		weight(g, &o->params[i], part, o->rounded);
		oom_param_bytes(&o->params[i], g->plan, &rounded);
		sum += rounded;
	}
	if (sum < o->rounded)
		oom_allocate(allocator(g), scaled(o->rounded - sum, part, o->rounded));
}

static void take(struct playing *g, size_t i)
{
	const struct oom_holding *h = &g->s->hold[i];
	const struct oom_tape *t = g->v->tape;
	int64_t outside = BEFORE_ALL;

	g->there |= 1u << i;
	g->held[i] = -1;
	switch ((enum oom_pieces)h->pieces) {
	case OOM_PER_PARAM:
		/* of a part of the chain each is whole */
		for (size_t k = 0; k < t->n_params; k++)
			if (param_mine(g, k, &outside))
				weight(g, &t->params[k], g->s->chain.whole ? h->bytes : 1,
				       g->s->chain.whole ? g->s->in.params : 1);
		break;
	case OOM_PER_TRAINED: per_trained(g, h->bytes); break;
	case OOM_PER_BESIDE: per_beside(g, h->bytes); break;
	case OOM_PER_UNIT: wrap(g, h, true); break;
	case OOM_PER_INPUT: batch(g); break;
	case OOM_PER_STATE: break;              /* the update makes them */
	case OOM_IN_ONE: g->held[i] = oom_allocate(allocator(g), h->bytes); break;
	}
}

static void come(struct playing *g, enum oom_moment_of_step moment)
{
	for (size_t i = 0; i < g->s->n_hold; i++) {
		const struct oom_holding *h = &g->s->hold[i];

		if (h->from != moment || !h->bytes || g->there >> i & 1)
			continue;
		if (h->place == OOM_ON_GPU)
			take(g, i);
		else if (h->pieces == OOM_PER_UNIT)
			wrap(g, h, false);
	}
}

static void go(struct playing *g, enum oom_moment_of_step moment)
{
	for (size_t i = 0; i < g->s->n_hold; i++) {
		if (g->s->hold[i].until != moment || !(g->there >> i & 1))
			continue;
		g->there &= ~(1u << i);
		oom_free(allocator(g), g->held[i]);
	}
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

		g->p->bytes[i] = oom_shared_bytes(mono[row->mono] * row->width *
							  oom_dtype_bytes((enum oom_dtype)row->dt),
						  (enum oom_share)row->share, g->s->ranks);
	}
}

/* FSDP1 gives a unit's parameters up as soon as it has run, and the allocator has them back when the stream that
 * computes is through with them (_flat_param.py _free_unsharded_flat_param: record_stream): in the forward, when
 * the next unit's have come. */
static void give_back(struct playing *g, int32_t block, bool late)
{
	oom_free(allocator(g), late ? g->waiting : block);
	if (late)
		g->waiting = block;
}

static void play(struct playing *g, enum oom_stream_id stream, bool again)
{
	const struct oom_tape *t = g->v->tape;
	const struct oom_stream *s = &t->streams[stream];
	struct oom_replay *r = allocator(g);
	const bool late = g->s->gathers_wait && stream == OOM_STREAM_FWD;
	int64_t part = stream == OOM_STREAM_BWD ? (int64_t)t->n_units : BEFORE_ALL;
	bool ours = mine(g, part);

	for (size_t i = 0; i < s->n && !r->failed; i++) {
		const int32_t row = s->ev[i] >> 2;

		if (oom_ev_is_unit(s->ev[i])) {
			part = part_after(g, stream, part, s->ev[i]);
			ours = mine(g, part);
		}
		if (s->ev[i] < 0)
			continue;
		switch (s->ev[i] & 3) {
		case OOM_EV_ALLOC:
			if (!ours)
				break;          /* another rank's: its block stays -1 */
			g->p->block[row] = oom_allocate_on(r, g->p->bytes[row],
							   (enum oom_cuda_stream)t->rows[row].stream);
			break;
		case OOM_EV_FREE: case OOM_EV_FREE_ALL:
			give_back(g, g->p->block[row], late && t->rows[row].stream == OOM_GATHERS);
			break;
		case OOM_EV_GRAD:
			if (again)
				oom_free(r, g->p->block[row]);
			else
				g->p->grad[row] = g->p->block[row];
			break;
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
			if (param_mine(g, i, &outside))
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

/* The optimizer's own play, into this allocator; a flat partition's temporary is one block. */
static void update(struct playing *g)
{
	const struct oom_holding *state = &g->s->hold[OOM_HOLD_STATE];
	const struct oom_optimizer *o = oom_optimizer_at((size_t)g->plan->optimizer);
	struct oom_stepped s = {.master = g->s->master, .first = g->first};
	struct oom_sink sink = {.put = put, .drop = drop, .ctx = allocator(g)};

	if (state->place != OOM_ON_GPU)
		return;
	if (state->pieces == OOM_IN_ONE) {
		oom_free(allocator(g), g->s->temps[0] ? oom_allocate(allocator(g), g->s->temps[0]) : -1);
		return;
	}
	s.p = parts_of(g, &s.n);
	if (o->update)
		o->update(o, &s, &sink);
	else
		oom_update_in_place(o, &s, &sink);
	allocator(g)->failed |= sink.failed;
	oom_sink_release(&sink);
}

/* The mean of the weights is moved, a tensor after another or all of them in one list. */
static void move_mean(struct playing *g)
{
	const struct oom_mean *m = &g->s->mean;
	size_t n;
	const struct oom_param *p = parts_of(g, &n);
	struct oom_sink sink = {.put = put, .drop = drop, .ctx = allocator(g)};

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
	allocator(g)->failed |= sink.failed;
	oom_sink_release(&sink);
}

/* zero_grad, parameter by parameter, then what passes keep of gradients. */
static void give_up_grads(struct playing *g)
{
	const struct oom_tape *t = g->v->tape;

	for (size_t i = 0; i < t->n_params; i++) {
		const int32_t row = t->params[i].grad;

		if (row < 0 || g->p->grad[row] < 0)
			continue;
		oom_free(allocator(g), g->p->grad[row]);
		g->p->grad[row] = -1;
	}
	for (size_t row = 0; row < t->n_rows; row++) {
		if (g->p->grad[row] < 0)
			continue;
		oom_free(allocator(g), g->p->grad[row]);
		g->p->grad[row] = -1;
	}
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

static void training_step(struct playing *g)
{
	/* later micro-batches repeat the third */
	const int64_t micro = g->plan->grad_accum < 3 ? g->plan->grad_accum : 3;
	uint64_t before = 0;

	for (int64_t m = 0; m < micro; m++) {
		if (m == 1)
			before = mark(g);
		else if (m == 2 && mark(g) == before)
			break;                  /* the third repeats the second */
		go(g, OOM_AT_FORWARD);
		come(g, OOM_AT_FORWARD);
		play(g, OOM_STREAM_FWD, false);
		come(g, OOM_AT_OUTPUT);
		give_back(g, -1, true);
		go(g, OOM_AT_BACKWARD);
		come(g, OOM_AT_BACKWARD);
		play(g, OOM_STREAM_BWD, m > 0 || (!g->first && g->s->grads_stay));
	}
	go(g, OOM_AT_STEP);
	come(g, OOM_AT_STEP);
	update(g);
	move_mean(g);
	go(g, OOM_AT_STEP_END);
	if (!g->s->grads_stay)
		give_up_grads(g);
}

enum oom_status oom_replay(struct oom_player *p, const struct oom_schedule *s,
			   const struct oom_variant *v, const struct oom_plan *plan,
			   uint64_t input_bytes, uint64_t limit, struct oom_replay_result *out)
{
	struct playing g = {.p = p, .s = s, .v = v, .plan = plan, .input_bytes = input_bytes, .waiting = -1};
	const struct oom_tape *t = v->tape;

	if (t->streams[OOM_STREAM_FWD].n + t->streams[OOM_STREAM_BWD].n > MOST_EVENTS)
		return OOM_ERR_LIMIT;
	oom_player_begin(p, plan, limit);
	if (!room(p, t))
		return OOM_ERR_MEMORY;
	measure_rows(&g);
	come(&g, OOM_AT_LOAD);
	come(&g, OOM_AT_START);
	for (int step = 0; step < 2 && !p->allocator.failed; step++) {
		g.first = !step;
		training_step(&g);
	}
	return oom_player_end(p, out);
}
