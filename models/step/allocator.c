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
#include "tape/round.h"

#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

void oom_replay_release(struct oom_replay *r)
{
	if (!r)
		return;
	free(r->blocks);
	free(r->spare);
	for (int k = 0; k < 2; k++) {
		for (size_t i = 0; i < r->pool[k].used; i++)
			free(r->pool[k].list[i].block);
		free(r->pool[k].list);
	}
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

/* ---- free lists ---- */

/* The first list of at least this size. */
static size_t lower(const struct oom_replay *r, bool small, uint64_t size)
{
	size_t lo = 0, hi = r->pool[small].n;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (r->pool[small].list[mid].size < size)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The first block of the list at this address or above. */
static size_t above(const struct oom_replay *r, const struct oom_free_list *l, uint64_t addr)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (r->blocks[l->block[mid]].addr < addr)
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

/* Puts an empty list of this size at its place; false: out of memory. */
static bool open_list(struct oom_replay *r, bool small, size_t at, uint64_t size)
{
	const size_t n = r->pool[small].n, used = r->pool[small].used;
	struct oom_free_list spare = {0};

	if (!room(r, (void **)&r->pool[small].list, &r->pool[small].cap, used + 1,
		  sizeof(*r->pool[small].list)))
		return false;
	if (n < used)
		spare = r->pool[small].list[n];
	else
		r->pool[small].used++;
	count_moves(r, n - at);
	memmove(r->pool[small].list + at + 1, r->pool[small].list + at,
		(n - at) * sizeof(*r->pool[small].list));
	spare.size = size;
	spare.n = 0;
	r->pool[small].list[at] = spare;
	r->pool[small].n++;
	return true;
}

static void insert(struct oom_replay *r, int32_t i)
{
	const bool s = r->blocks[i].small;
	const uint64_t size = r->blocks[i].size;
	const size_t k = lower(r, s, size);
	struct oom_free_list *l;
	size_t at;

	if ((k == r->pool[s].n || r->pool[s].list[k].size != size) && !open_list(r, s, k, size))
		return;
	l = &r->pool[s].list[k];
	if (!room(r, (void **)&l->block, &l->cap, l->n + 1, sizeof(*l->block)))
		return;
	at = above(r, l, r->blocks[i].addr);
	count_moves(r, l->n - at);
	memmove(l->block + at + 1, l->block + at, (l->n - at) * sizeof(*l->block));
	l->block[at] = i;
	l->n++;
}

static void take(struct oom_replay *r, int32_t i)
{
	const bool s = r->blocks[i].small;
	const size_t k = lower(r, s, r->blocks[i].size);
	struct oom_free_list *l = &r->pool[s].list[k], empty;
	const size_t at = above(r, l, r->blocks[i].addr);

	count_moves(r, l->n - at);
	memmove(l->block + at, l->block + at + 1, (l->n - at - 1) * sizeof(*l->block));
	if (--l->n)
		return;
	empty = *l;                             /* its memory waits for another size */
	count_moves(r, r->pool[s].n - k);
	memmove(l, l + 1, (r->pool[s].n - k - 1) * sizeof(*l));
	r->pool[s].list[--r->pool[s].n] = empty;
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

/* The smallest free block that is large enough, the lowest of them. */
static int32_t find(struct oom_replay *r, uint64_t size, bool small)
{
	for (size_t k = lower(r, small, size); k < r->pool[small].n; k++) {
		const struct oom_free_list *l = &r->pool[small].list[k];
		size_t at = 0;

		if (r->expandable && l->n && l->block[0] == r->pool[small].tail)
			at++;                   /* the open end is the last resort */
		if (at < l->n)
			return l->block[at];
	}
	return -1;
}

int32_t oom_allocate(struct oom_replay *r, uint64_t bytes)
{
	const uint64_t size = oom_block(bytes ? bytes : 1);
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

void oom_free(struct oom_replay *r, int32_t b)
{
	int32_t n, p;
	bool small;

	if (b < 0 || r->failed)
		return;
	if (r->blocks[b].free) {                /* twice: the trace is not one; give up, do not guess */
		r->failed = r->given_up = true;
		return;
	}
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

void oom_replay_clear(struct oom_replay *r, bool expandable)
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

	oom_replay_clear(r, expandable);
	for (size_t i = 0; ids && i < n; i++) {
		if (trace[i] > 0)
			ids[++k] = oom_allocate(r, (uint64_t)trace[i]);
		else
			oom_free(r, ids[-trace[i]]);
	}
	free(ids);
	return r->peak;
}
