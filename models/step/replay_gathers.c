/* What ZeRO-3's streams reserve, in a replay: parameters are gathered on one of their own, one module's at a time and
 * others ahead of them, and gradients are joined on another before they are reduced.
 *
 * Blocks of one stream serve no other (c10/cuda/CUDACachingAllocator.cpp), so what a stream's pool grows to does not
 * depend on the computation's: both are played through by themselves, two steps, before the first one.  The order is
 * DeepSpeed's own (runtime/zero/partitioned_param_coordinator.py): in the first step a module's parameters come with it
 * and go with it; from the second on, the order being known, every module sends for parameters that come later until
 * stage3_max_live_parameters are there, and what is needed again within the reuse distance stays.  The host is taken to
 * keep pace with the card: where it runs ahead, what it has released waits for the card (record_stream), and the pool
 * grows by what was gathered meanwhile, as far as there is room.
 *
 * Held against that code itself, run on tensors without memory for five models, and against an H100
 * (data/h100_sharded.csv). */
#include <stdlib.h>

#include "ops/ops.h"
#include "step/allocator_blocks.h"
#include "step/playing.h"
#include "step/program.h"
#include "tape/round.h"

enum { NOTHING = -1 };

struct gathering {
	const struct playing *g;
	struct oom_gathered *of;        /* by parameter */
	struct oom_call *call;          /* a step's calls of modules */
	size_t n_calls, queue;          /* those before `queue` were fetched or passed over */
	uint64_t live, most;            /* elements that are there or under way; as many as may be */
	uint64_t ahead;                 /* elements that a call sends for */
};

/* ---- the calls of a step ---- */

static uint64_t bytes_of(const struct playing *g, const struct oom_param *q)
{
	uint64_t block[OOM_QUANTISED_BLOCKS];

	if (!(q->flags & OOM_P_QUANTISED))
		return q->elems * oom_dtype_bytes((enum oom_dtype)q->dt);
	oom_quantised_blocks(g->plan, q, block);
	return block[0];
}

/* Elements as DeepSpeed counts them: codes are a parameter of bytes. */
static uint64_t elements(const struct playing *g, const struct oom_param *q)
{
	return q->flags & OOM_P_QUANTISED ? bytes_of(g, q) : q->elems;
}

/* Padded to the ranks (_aligned_size). */
static uint64_t aligned(const struct playing *g, const struct oom_param *q)
{
	const uint64_t n = g->s->ranks.n, elems = elements(g, q), each = elems ? bytes_of(g, q) / elems : 0;

	return (elems + n - 1) / n * n * each;
}

static bool is_gathered(const struct playing *g, const struct oom_param *q)
{
	return !(q->flags & OOM_P_BESIDE) && !oom_param_whole(q, g->plan) && q->elems && q->elems >= g->s->ahead.least;
}

/* Modules without parameters of their own, and those whose parameters always stay, send for others, too. */
static void call(struct gathering *s, size_t param)
{
	const struct oom_param *q = param == SIZE_MAX ? NULL : &s->g->v->tape->params[param];

	s->call[s->n_calls++] = (struct oom_call){.param = q && is_gathered(s->g, q) ? (int32_t)param : NOTHING,
						  .next = NOTHING};
}

static void call_unit(struct gathering *s, size_t unit)
{
	const struct oom_unit *u = &s->g->v->tape->units[unit];

	call(s, SIZE_MAX);
	for (size_t i = u->param0; i < u->param1; i++)
		call(s, i);
}

static bool leads(const struct oom_tape *t, size_t i)
{
	const uint32_t unit = t->params[i].unit;

	return unit && t->units[unit - 1].param0 == i;
}

static bool ends(const struct oom_tape *t, size_t i)
{
	const uint32_t unit = t->params[i].unit;

	return unit && t->units[unit - 1].param1 == i + 1;
}

/* Embeddings that a head shares are needed at both ends. */
static void call_shared(struct gathering *s)
{
	const struct oom_tape *t = s->g->v->tape;

	for (size_t i = 0; i < t->n_params; i++)
		if (!t->params[i].unit && t->params[i].edges > 1)
			call(s, i);
}

/* Forward, and backward from the end, in which a layer with a checkpoint runs forward once more. */
static void list_calls(struct gathering *s)
{
	const struct oom_tape *t = s->g->v->tape;
	const bool again = s->g->plan->grad_ckpt != OOM_CKPT_NONE;
	int32_t *next = s->g->p->moved;
	uint64_t before = 0;

	for (size_t i = 0; i < t->n_params; i++) {
		if (leads(t, i))
			call(s, SIZE_MAX);
		call(s, i);
	}
	call_shared(s);
	call_shared(s);
	for (size_t i = t->n_params; i--;) {
		if (ends(t, i) && again)
			call_unit(s, t->params[i].unit - 1);
		call(s, i);
		if (leads(t, i))
			call(s, SIZE_MAX);
	}
	for (size_t i = 0; i < t->n_params; i++)
		next[i] = NOTHING;
	for (size_t k = s->n_calls; k--;) {
		const int32_t param = s->call[k].param;

		if (param < 0)
			continue;
		s->call[k].next = next[param];
		next[param] = (int32_t)k;
	}
	for (size_t k = 0; k < s->n_calls; k++) {
		s->call[k].before = before;
		before += s->call[k].param < 0 ? 0 : elements(s->g, &t->params[s->call[k].param]);
	}
}

/* ---- gathering ---- */

static int32_t take(const struct gathering *s, uint64_t bytes, enum oom_cuda_stream stream)
{
	return oom_allocate_on(&s->g->p->allocator, bytes, stream);
}

/* One parameter has a buffer of its own, of which it is a view (_all_gather_sequential); several come in one, and are
 * copied out of it when the first of them is needed (AllGatherCoalescedHandle). */
static void send(struct gathering *s, const int32_t *params, size_t n)
{
	const struct oom_param *p = s->g->v->tape->params;
	uint64_t bytes = 0;
	int32_t buffer;

	for (size_t i = 0; i < n; i++)
		bytes += aligned(s->g, &p[params[i]]);
	buffer = n ? take(s, bytes, OOM_GATHERS) : NOTHING;
	for (size_t i = 0; i < n; i++) {
		struct oom_gathered *of = &s->of[params[i]];

		of->state = OOM_GATHER_SENT;
		of->block = n > 1 ? NOTHING : buffer;
		of->first = params[0];
		of->following = i + 1 < n ? params[i + 1] : NOTHING;
		s->live += elements(s->g, &p[params[i]]);
	}
	if (n > 1) {
		s->of[params[0]].buffer = buffer;
		s->of[params[0]].waiting = (uint32_t)n;
	}
}

static void arrive(struct gathering *s, int32_t param)
{
	struct oom_gathered *of = &s->of[param], *first = &s->of[of->first];

	if (of->state == OOM_GATHER_SENT && of->block < 0)
		for (int32_t i = of->first; i >= 0; i = s->of[i].following) {
			s->of[i].block = take(s, bytes_of(s->g, &s->g->v->tape->params[i]), OOM_GATHERS);
			s->of[i].state = OOM_GATHER_COPIED;
		}
	if (of->state == OOM_GATHER_COPIED && !--first->waiting)
		oom_free(&s->g->p->allocator, first->buffer);
	of->state = OOM_GATHER_THERE;
}

/* Until so many elements are under way, in the order in which they will be needed. */
static void send_ahead(struct gathering *s)
{
	const struct oom_param *p = s->g->v->tape->params;
	const uint64_t room = s->most > s->live ? s->most - s->live : 0, least = room < s->ahead ? room : s->ahead;
	int32_t *params = s->g->p->moved;
	uint64_t sum = 0;
	size_t n = 0;

	for (; s->queue < s->n_calls && sum < least; s->queue++) {
		const int32_t i = s->call[s->queue].param;

		if (i < 0)
			continue;
		s->of[i].passed = (int32_t)s->queue;
		if (s->of[i].state != OOM_GATHER_AWAY)
			continue;
		s->of[i].state = OOM_GATHER_SENT;
		params[n++] = i;
		sum += elements(s->g, &p[i]);
	}
	send(s, params, n);
}

/* What is passed over in the queue, or needed again soon, stays (__params_to_release). */
static void release(struct gathering *s, size_t at, bool known)
{
	const struct oom_call *c = &s->call[at];
	struct oom_gathered *of = &s->of[c->param];

	if (known && (of->passed > (int32_t)at ||
		      (c->next >= 0 && s->call[c->next].before - s->call[at + 1].before < s->most)))
		return;
	oom_free(&s->g->p->allocator, of->block);
	of->state = OOM_GATHER_AWAY;
	s->live -= elements(s->g, &s->g->v->tape->params[c->param]);
}

static void gather_step(struct gathering *s, bool known)
{
	s->queue = 0;
	for (size_t i = 0; i < s->g->v->tape->n_params; i++)
		s->of[i] = (struct oom_gathered){.passed = NOTHING};
	for (size_t k = 0; k < s->n_calls; k++) {
		const int32_t param = s->call[k].param;

		if (param >= 0 && s->of[param].state == OOM_GATHER_AWAY)
			send(s, &param, 1);
		if (param >= 0)
			arrive(s, param);
		if (known && s->queue <= k)
			s->queue = k + 1;
		if (known)
			send_ahead(s);
		if (param >= 0)
			release(s, k, known);
	}
}

/* ---- gradients ---- */

/* reduce_scatter_coalesced joins the gradients of a bucket, the parts of each rank together; one that fills a bucket
 * by itself is reduced where it is (comm/coalesced_collectives.py).  A bucket that is larger than those before it finds no
 * room in what they have left. */
static void join(const struct gathering *s, uint64_t bytes, size_t n)
{
	oom_free(&s->g->p->allocator, n > 1 ? take(s, bytes, OOM_REDUCES) : NOTHING);
}

static void reduce(const struct gathering *s)
{
	const struct oom_tape *t = s->g->v->tape;
	const uint64_t bucket = s->g->s->ranks.bucket;
	uint64_t sum = 0;
	size_t n = 0;

	for (size_t i = t->n_params; i--;) {
		const uint64_t bytes = t->params[i].trainable ? aligned(s->g, &t->params[i]) : 0;

		if (n && sum + bytes > bucket) {
			join(s, sum, n);
			sum = n = 0;
		}
		sum += bytes;
		n += bytes > 0;
	}
	join(s, sum, n);
}

/* ---- what a replay asks for ---- */

bool oom_player_gathers(struct oom_player *p, const struct oom_tape *t)
{
	const size_t calls = 3 * (t->n_params + t->n_units) + 2 * t->n_params;
	struct oom_call *c;
	struct oom_gathered *of;

	if (p->cap_calls < calls) {
		c = realloc(p->call, calls * sizeof(*c));
		if (!c)
			return false;
		p->call = c;
		p->cap_calls = calls;
	}
	if (p->cap_gathered < t->n_params) {
		of = realloc(p->gathered, t->n_params * sizeof(*of));
		if (!of)
			return false;
		p->gathered = of;
		p->cap_gathered = t->n_params;
	}
	return true;
}

static void play_pools(struct playing *g)
{
	const struct oom_plan *p = g->plan;
	struct gathering s = {.g = g, .of = g->p->gathered, .call = g->p->call, .most = (uint64_t)p->max_live_params,
			      .ahead = g->s->ahead.elems};
	const bool streams = g->p->allocator.streams;

	list_calls(&s);
	gather_step(&s, false);
	gather_step(&s, true);
	reduce(&s);
	/* a block is free when it is released, as max_memory_allocated has it: what is held can still be counted */
	g->p->allocator.streams = streams;
}

/* Those that the end of the forward pass has last, and the rest in one. */
int32_t oom_playing_gathered(struct playing *g, uint64_t bytes)
{
	const struct oom_tape *t = g->v->tape;
	const bool streams = g->p->allocator.streams;
	uint64_t left = bytes;
	int32_t rest;

	if (!g->pools)
		play_pools(g);
	g->pools = true;
	for (size_t i = t->n_params; i--;) {
		const uint64_t own = is_gathered(g, &t->params[i]) ? oom_block(bytes_of(g, &t->params[i])) : 0;

		g->p->gathered[i].block = own && own <= left ? oom_allocate_on(&g->p->allocator, own, OOM_GATHERS) : NOTHING;
		left -= g->p->gathered[i].block >= 0 ? own : 0;
	}
	rest = left ? oom_allocate_on(&g->p->allocator, left, OOM_GATHERS) : NOTHING;
	g->p->allocator.streams = streams;
	return rest;
}

void oom_playing_gathered_go(struct playing *g)
{
	for (size_t i = 0; i < g->v->tape->n_params; i++)
		oom_free(&g->p->allocator, g->p->gathered[i].block);
}
