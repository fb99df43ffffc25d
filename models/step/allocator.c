/* The CUDA caching allocator, replayed.
 *
 * Rules (c10/cuda/CUDACachingAllocator.cpp): requests rounded to 512 bytes; up to 1 MiB from the
 * small pool (2 MiB segments), above from the large one (20 MiB segments below 10 MiB, else the
 * request rounded to 2 MiB); best fit by (size, address); split when the rest is at least 512 bytes
 * (small) or more than 1 MiB (large); neighbours merge on free; segments stay.
 * expandable_segments: one growing arena a pool, in pages of 2 or 20 MiB, split from 512 bytes.
 * Left out: the retry that frees cached segments when cudaMalloc fails, so a full card may do
 * with less. */
#include "step/allocator.h"

#include <stdlib.h>
#include <string.h>

#include "step/engines.h"
#include "step/optimizers.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

void oom_replay_release(struct oom_replay *r)
{
	if (!r)
		return;
	free(r->blocks);
	free(r->spare);
	free(r->pool[0].v);
	free(r->pool[1].v);
	free(r->of_row);
	free(r->grad_of_row);
	memset(r, 0, sizeof(*r));
}

static bool room(struct oom_replay *r, void **p, size_t *cap, size_t need, size_t size)
{
	size_t want = *cap ? *cap : 512;
	void *q;

	if (need <= *cap)
		return true;
	while (want < need)
		want *= 2;
	q = realloc(*p, want * size);
	if (!q) {
		r->failed = true;
		return false;
	}
	*p = q;
	*cap = want;
	return true;
}

/* ---- free lists: sorted arrays, short in practice ---- */

static size_t lower(const struct oom_replay *r, bool small, uint64_t size, uint64_t addr)
{
	size_t lo = 0, hi = r->pool[small].n;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;
		const struct oom_afree *f = &r->pool[small].v[mid];

		if (f->size < size || (f->size == size && r->blocks[f->block].addr < addr))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Thousands of layers make lists of a hundred thousand blocks: there the estimate does. */
static void count_moves(struct oom_replay *r, size_t n)
{
	r->moved += n;
	if (r->moved > 200000000)
		r->failed = r->given_up = true;
}

static void insert(struct oom_replay *r, int32_t i)
{
	const bool s = r->blocks[i].small;
	const size_t at = lower(r, s, r->blocks[i].size, r->blocks[i].addr);

	if (!room(r, (void **)&r->pool[s].v, &r->pool[s].cap, r->pool[s].n + 1,
		  sizeof(*r->pool[s].v)))
		return;
	count_moves(r, r->pool[s].n - at);
	memmove(r->pool[s].v + at + 1, r->pool[s].v + at,
		(r->pool[s].n - at) * sizeof(*r->pool[s].v));
	r->pool[s].v[at] = (struct oom_afree){r->blocks[i].size, i};
	r->pool[s].n++;
}

static void take(struct oom_replay *r, int32_t i)
{
	const bool s = r->blocks[i].small;
	const size_t at = lower(r, s, r->blocks[i].size, r->blocks[i].addr);

	count_moves(r, r->pool[s].n - at);
	memmove(r->pool[s].v + at, r->pool[s].v + at + 1,
		(r->pool[s].n - at - 1) * sizeof(*r->pool[s].v));
	r->pool[s].n--;
}

static int32_t new_block(struct oom_replay *r, uint64_t size, uint64_t addr, bool small)
{
	int32_t i;

	if (r->n_spare) {
		i = r->spare[--r->n_spare];
	} else {
		if (!room(r, (void **)&r->blocks, &r->cap_blocks, r->n_blocks + 1,
			  sizeof(*r->blocks)))
			return -1;
		i = (int32_t)r->n_blocks++;
	}
	r->blocks[i] = (struct oom_ablock){
		.size = size, .addr = addr, .prev = -1, .next = -1, .small = small};
	return i;
}

static void retire(struct oom_replay *r, int32_t i)
{
	if (room(r, (void **)&r->spare, &r->cap_spare, r->n_spare + 1, sizeof(int32_t)))
		r->spare[r->n_spare++] = i;
}

static void reserve(struct oom_replay *r, uint64_t n)
{
	r->reserved += n;
	if (r->reserved > r->peak)
		r->peak = r->reserved;
}

/* ---- segments ---- */

static int32_t segment(struct oom_replay *r, uint64_t size, bool small)
{
	const uint64_t n = small	   ? 2 * MIB :
			   size < 10 * MIB ? 20 * MIB :
					     (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	const int32_t b = new_block(r, n, r->top, small);

	r->top += n;
	reserve(r, n);
	return b;
}

/* Maps more pages behind the arena's last block, which may be free itself. */
static int32_t grow(struct oom_replay *r, uint64_t size, bool small)
{
	const uint64_t page = small ? 2 * MIB : 20 * MIB;
	const int32_t tail = r->pool[small].tail;
	const bool open = tail >= 0 && r->blocks[tail].free;
	uint64_t have = open ? r->blocks[tail].size : 0, add;
	int32_t b;

	if (open)
		take(r, tail);
	if (have >= size)
		return tail;
	add = (size - have + page - 1) / page * page;
	reserve(r, add);
	if (open) {
		r->blocks[tail].size += add;
		r->pool[small].mapped += add;
		return tail;
	}
	b = new_block(r, add, (small ? (uint64_t)1 << 60 : 0) + r->pool[small].mapped, small);
	if (b < 0)
		return -1;
	r->pool[small].mapped += add;
	r->blocks[b].prev = tail;
	if (tail >= 0)
		r->blocks[tail].next = b;
	r->pool[small].tail = b;
	return b;
}

static int32_t find(struct oom_replay *r, uint64_t size, bool small)
{
	size_t at = lower(r, small, size, 0);

	if (r->expandable && at < r->pool[small].n &&
	    r->pool[small].v[at].block == r->pool[small].tail)
		at++;                           /* the open end is the last resort */
	return at < r->pool[small].n ? r->pool[small].v[at].block : -1;
}

static int32_t allocate(struct oom_replay *r, uint64_t bytes)
{
	const uint64_t size = bytes < 512 ? 512 : (bytes + 511) / 512 * 512;
	const bool small = size <= MIB;
	int32_t b;
	uint64_t rest;

	if (r->failed)
		/* out of host memory: the lists can no longer be trusted */
		return -1;
	b = find(r, size, small);

	if (b >= 0)
		take(r, b);
	else
		b = r->expandable ? grow(r, size, small) : segment(r, size, small);
	if (b < 0)
		return -1;
	rest = r->blocks[b].size - size;
	if (r->expandable || small ? rest >= 512 : rest > MIB) {
		const int32_t n = new_block(r, rest, r->blocks[b].addr + size, small);

		if (n < 0)
			return -1;
		r->blocks[n].prev = b;
		r->blocks[n].next = r->blocks[b].next;
		if (r->blocks[n].next >= 0)
			r->blocks[r->blocks[n].next].prev = n;
		r->blocks[b].next = n;
		r->blocks[b].size = size;
		r->blocks[n].free = true;
		insert(r, n);
		if (r->expandable && r->pool[small].tail == b)
			r->pool[small].tail = n;
	}
	r->blocks[b].free = false;
	return b;
}

static void release(struct oom_replay *r, int32_t b)
{
	int32_t n, p;
	bool small;

	if (b < 0 || r->failed)
		return;
	small = r->blocks[b].small;
	r->blocks[b].free = true;
	n = r->blocks[b].next;
	if (n >= 0 && r->blocks[n].free) {
		take(r, n);
		r->blocks[b].size += r->blocks[n].size;
		r->blocks[b].next = r->blocks[n].next;
		if (r->blocks[b].next >= 0)
			r->blocks[r->blocks[b].next].prev = b;
		if (r->pool[small].tail == n)
			r->pool[small].tail = b;
		retire(r, n);
	}
	p = r->blocks[b].prev;
	if (p >= 0 && r->blocks[p].free) {
		take(r, p);
		r->blocks[p].size += r->blocks[b].size;
		r->blocks[p].next = r->blocks[b].next;
		if (r->blocks[p].next >= 0)
			r->blocks[r->blocks[p].next].prev = p;
		if (r->pool[small].tail == b)
			r->pool[small].tail = p;
		retire(r, b);
		b = p;
	}
	insert(r, b);
}

static void clear(struct oom_replay *r, bool expandable)
{
	r->n_blocks = r->n_spare = 0;
	r->pool[0].n = r->pool[1].n = 0;
	r->pool[0].tail = r->pool[1].tail = -1;
	r->pool[0].mapped = r->pool[1].mapped = 0;
	r->top = r->reserved = r->peak = 0;
	r->expandable = expandable;
	r->failed = r->given_up = false;
	r->moved = 0;
}

uint64_t oom_replay_trace(struct oom_replay *r, const int64_t *trace, size_t n, bool expandable)
{
	int32_t *ids = calloc(n + 1, sizeof(*ids));
	size_t k = 0;

	clear(r, expandable);
	for (size_t i = 0; ids && i < n; i++) {
		if (trace[i] > 0)
			ids[++k] = allocate(r, (uint64_t)trace[i]);
		else
			release(r, ids[-trace[i]]);
	}
	free(ids);
	return r->peak;
}

/* ---- two training steps ---- */

static uint64_t bytes_of(const struct oom_tape *t, const struct oom_row *row)
{
	return oom_mono_now(t, row->mono) * row->width * oom_dtype_bytes((enum oom_dtype)row->dt);
}

static void play(struct oom_replay *r, const struct oom_tape *t, enum oom_stream_id stream,
		 bool acc)
{
	const struct oom_stream *s = &t->streams[stream];

	for (size_t i = 0; i < s->n && !r->failed; i++) {
		const int32_t row = s->ev[i] >> 2;

		if (s->ev[i] < 0)
			continue;
		switch (s->ev[i] & 3) {
		case OOM_EV_ALLOC: r->of_row[row] = allocate(r, bytes_of(t, &t->rows[row])); break;
		case OOM_EV_FREE: case OOM_EV_FREE_ALL: release(r, r->of_row[row]); break;
		case OOM_EV_GRAD:
			if (acc)
				release(r, r->of_row[row]);
			else
				r->grad_of_row[row] = r->of_row[row];
			break;
		}
	}
}

/* Ids or pixels, labels, and the padding mask where there is one. */
static void batch(struct oom_replay *r, const struct oom_tape *t, const struct oom_plan *plan)
{
	const uint64_t b = (uint64_t)plan->micro_batch, seq = (uint64_t)plan->seq_len,
		       ids = b * seq * 8, all = t->input_bytes,
		       mask = seq && plan->padding_mask && all > 2 * ids ? ids : 0;
	const uint64_t first = seq ? ids : all > b * 8 ? all - b * 8 : 0;

	allocate(r, first);
	if (all > first + mask)
		allocate(r, all - first - mask);
	if (mask)
		allocate(r, mask);
}

/* What lies on the card before the first step: weights one by one, buffers, the batch. */
static void load(struct oom_replay *r, const struct oom_tape *t, const struct oom_plan *plan)
{
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *p = &t->params[i];

		if (p->flags & OOM_P_NF4) {
			allocate(r, (p->elems + 1) / 2);
			allocate(r, 64);
			allocate(r, (p->elems + 63) / 64 * (plan->double_quant ? 1 : 4));
			if (plan->double_quant) {
				allocate(r, (p->elems + 16383) / 16384 * 4);
				allocate(r, 1024);
				allocate(r, 4);
			}
		} else {
			allocate(r, p->elems * oom_dtype_bytes((enum oom_dtype)p->dt));
		}
	}
	if (t->buffer_bytes)
		allocate(r, t->buffer_bytes);
	batch(r, t, plan);
}

static int32_t put(void *ctx, uint64_t bytes)
{
	return allocate(ctx, bytes);
}

static void drop(void *ctx, int32_t block)
{
	release(ctx, block);
}

/* The optimizer's own play, into this allocator. */
static void update(struct oom_replay *r, const struct oom_tape *t, const struct oom_optimizer *o,
		   bool first)
{
	const struct oom_stepped s = {t->params, t->n_params, false, first};
	struct oom_sink sink = {.put = put, .drop = drop, .ctx = r};

	o->update(o, &s, &sink);
	r->failed |= sink.failed;
	oom_sink_release(&sink);
}

static void step(struct oom_replay *r, const struct oom_tape *t, const struct oom_plan *plan,
		 bool first)
{
	const struct oom_optimizer *o = oom_optimizer_at((size_t)plan->optimizer);
	/* later ones repeat the third */
	const int64_t micro = plan->grad_accum < 3 ? plan->grad_accum : 3;

	for (int64_t m = 0; m < micro; m++) {
		play(r, t, OOM_STREAM_FWD, false);
		play(r, t, OOM_STREAM_BWD, m > 0);
	}
	update(r, t, o, first);
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].grad >= 0)
			release(r, r->grad_of_row[t->params[i].grad]);
}

enum oom_status oom_replay(struct oom_replay *r, const struct oom_tape *t,
			   const struct oom_plan *plan, uint64_t *reserved, struct oom_error *err)
{
	if (t->streams[OOM_STREAM_FWD].n + t->streams[OOM_STREAM_BWD].n > 4000000)
		return OOM_ERR_LIMIT;
	clear(r, plan->allocator == OOM_ALLOC_EXPANDABLE);
	if (t->n_rows > r->cap_rows) {
		int32_t *a = realloc(r->of_row, t->n_rows * sizeof(*a)), *b;

		if (a)
			r->of_row = a;
		b = realloc(r->grad_of_row, t->n_rows * sizeof(*b));
		if (b)
			r->grad_of_row = b;
		if (!a || !b)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		r->cap_rows = t->n_rows;
	}
	load(r, t, plan);
	step(r, t, plan, true);
	step(r, t, plan, false);
	if (r->given_up)
		return OOM_ERR_LIMIT;
	if (r->failed)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	*reserved = r->peak;
	return OOM_OK;
}

/* ---- reserved and used without a replay ---- */

uint64_t oom_reserved_estimate(const struct oom_eval *e, const struct oom_plan *plan)
{
	/* median reserved / allocated of 356 emulated runs: 1.08 native, 1.05 with expandable
	 * segments */
	return (uint64_t)((double)e->overall_peak *
			  (plan->allocator == OOM_ALLOC_EXPANDABLE ? 1.05 : 1.08));
}

void oom_overheads(struct oom_eval *e, const struct oom_plan *plan)
{
	const double sm = oom_capability(plan);
	const bool alone = oom_engine_of(plan)->one_process;
	const bool turing = sm >= 7.5 && sm < 8, a100 = sm >= 8 && sm < 8.1;

	/* CUDA context and modules, loaded lazily: 0.47 GiB measured on an A100
	 * (stas00/ml-engineering), 135 MiB on a T4 with torch 2.11 (torch-preflight); a guess
	 * elsewhere */
	e->context_bytes = turing ? 135 * MIB : a100 ? 482 * MIB : 512 * MIB;
	e->context_measured = plan->compute_capability > 0 && (turing || a100);
	/* two cuBLAS workspaces, forward and autograd thread: 8.125 MiB each before Hopper, 32 MiB
	 * from it on (ATen CUDABlas.cpp, parseChosenWorkspaceSize) */
	e->workspace_bytes = 2 * (sm >= 9 ? 32 * MIB : 8 * MIB + 128 * KIB);
	/* first collective on two GPUs: +1.45 GiB measured (stas00/ml-engineering) */
	e->nccl_bytes = plan->gpus > 1 && !alone ? 1485 * MIB : 0;
	/* GPU 0's extras: the contexts of the other processes of its node */
	if (plan->rank0_contexts && plan->gpus >= plan->nodes && !alone)
		e->context_bytes *= (uint64_t)(plan->gpus / plan->nodes);
	e->used_bytes = e->reserved_bytes + e->context_bytes + e->workspace_bytes + e->nccl_bytes;
}
