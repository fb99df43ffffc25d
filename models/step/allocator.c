/* The CUDA caching allocator, replayed.
 *
 * Rules (c10/cuda/CUDACachingAllocator.cpp): requests rounded to 512 bytes; up to 1 MiB from the
 * small pool (2 MiB segments), above from the large one (20 MiB segments below 10 MiB, else the
 * request rounded to 2 MiB); best fit by (size, address); split when the rest is at least 512 bytes
 * (small) or more than 1 MiB (large); neighbours merge on free; segments stay.
 * expandable_segments: one growing arena a pool, in pages of 2 or 20 MiB, split from 512 bytes; what
 * can grow is the last resort.
 *
 * A full card (malloc, release_available_cached_blocks, release_cached_blocks): where cudaMalloc
 * gives no more, max_split_size_mb has the oversized free blocks released that the request needs;
 * else every cached segment that nothing lives in is, of arenas every free page; then it is tried
 * again, once.  garbage_collection_threshold is left out: without set_per_process_memory_fraction
 * malloc never asks for it. */
#include "step/allocator.h"

#include <stdlib.h>
#include <string.h>

#include "step/free_set.h"
#include "tape/round.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

enum state {
	USED,
	FREE,                   /* in its pool's set, but while it is worked on */
	HOLE                    /* of an arena: address space without memory */
};

void oom_replay_release(struct oom_replay *r)
{
	if (!r)
		return;
	free(r->blocks);
	free(r->spare);
	free(r->list);
	for (int k = 0; k < OOM_POOLS; k++)
		oom_free_release(&r->pool[k].free);
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

/* ---- blocks ---- */

static inline struct oom_free_hint hint_of(struct oom_free_place p)
{
	return (struct oom_free_hint){(uint8_t)p.at, (uint16_t)p.run};
}

static inline struct oom_free_place place_at(struct oom_free_hint h)
{
	return (struct oom_free_place){h.run, h.at};
}

/* A size that comes again mostly finds its place where it was. */
static inline struct oom_free_hint *hint_for(struct oom_replay *r, uint64_t size, unsigned pool)
{
	return &r->sizes[pool][(size / OOM_BLOCK * 0x9e3779b97f4a7c15u) >> 59];
}

static void insert(struct oom_replay *r, int32_t i)
{
	struct oom_ablock *b = &r->blocks[i];
	struct oom_free_place p = place_at(*hint_for(r, b->size, b->pool));

	if (oom_free_insert(&r->pool[b->pool].free, (struct oom_free_entry){b->size, b->addr, i}, &p))
		b->hint = hint_of(p);
	else
		r->failed = true;
}

static struct oom_free_place place_of(const struct oom_replay *r, int32_t i)
{
	const struct oom_ablock *b = &r->blocks[i];
	const struct oom_free_set *set = &r->pool[b->pool].free;
	const struct oom_free_place p = place_at(b->hint);

	return oom_free_is_at(set, p, i) ? p : oom_free_find(set, b->size, b->addr);
}

/* Block i is in the set where another one was. */
static void replace(struct oom_replay *r, struct oom_free_place p, int32_t i)
{
	struct oom_ablock *b = &r->blocks[i];

	if (oom_free_replace(&r->pool[b->pool].free, &p, (struct oom_free_entry){b->size, b->addr, i}))
		b->hint = hint_of(p);
	else
		r->failed = true;
}

static void take(struct oom_replay *r, int32_t i)
{
	const struct oom_ablock *b = &r->blocks[i];

	oom_free_remove(&r->pool[b->pool].free, place_of(r, i));
}

static int32_t new_block(struct oom_replay *r, uint64_t size, uint64_t addr, unsigned pool)
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
		.size = size, .addr = addr, .prev = -1, .next = -1, .state = FREE, .pool = (uint8_t)pool};
	return i;
}

static void retire(struct oom_replay *r, int32_t i)
{
	if (room(r, (void **)&r->spare, &r->cap_spare, r->n_spare + 1, sizeof(int32_t)))
		r->spare[r->n_spare++] = i;
}

/* Puts n behind b in their segment. */
static void link_after(struct oom_replay *r, int32_t b, int32_t n)
{
	struct oom_pool *pool = &r->pool[r->blocks[b].pool];
	const int32_t next = r->blocks[b].next;

	r->blocks[n].prev = b;
	r->blocks[n].next = next;
	r->blocks[b].next = n;
	if (next >= 0)
		r->blocks[next].prev = n;
	else if (pool->tail == b)
		pool->tail = n;
}

/* Takes b's successor into b. */
static void absorb(struct oom_replay *r, int32_t b)
{
	struct oom_pool *pool = &r->pool[r->blocks[b].pool];
	const int32_t n = r->blocks[b].next, next = r->blocks[n].next;

	r->blocks[b].size += r->blocks[n].size;
	r->blocks[b].next = next;
	if (next >= 0)
		r->blocks[next].prev = b;
	else if (pool->tail == n)
		pool->tail = b;
	retire(r, n);
}

/* Cuts b down to size; the rest is a block of its own behind it, or -1. */
static int32_t cut(struct oom_replay *r, int32_t b, uint64_t size)
{
	const int32_t n = new_block(r, r->blocks[b].size - size, r->blocks[b].addr + size,
				    r->blocks[b].pool);

	if (n < 0)
		return -1;
	r->blocks[n].state = r->blocks[b].state;
	r->blocks[b].size = size;
	link_after(r, b, n);
	return n;
}

/* ---- memory of the card ---- */

/* False: there is not so much left. */
static bool reserve(struct oom_replay *r, uint64_t n)
{
	if (r->rules.limit && n > r->rules.limit - r->reserved)
		return false;
	r->reserved += n;
	if (r->reserved > r->peak)
		r->peak = r->reserved;
	return true;
}

static bool is_small(unsigned pool)
{
	return pool & 1;
}

static int32_t segment(struct oom_replay *r, uint64_t size, unsigned pool)
{
	const uint64_t n = is_small(pool)  ? 2 * MIB :
			   size < 10 * MIB ? 20 * MIB :
					     (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	int32_t b;

	if (!reserve(r, n))
		return -1;
	b = new_block(r, n, r->top, pool);
	r->top += n;
	return b;
}

static uint64_t page_of(unsigned pool)
{
	return is_small(pool) ? 2 * MIB : 20 * MIB;
}

/* Where an arena has address space for so much before its end: the first hole, or the free block
 * before it, that with its neighbours is large enough (find_expandable_block). */
static int32_t first_space(const struct oom_replay *r, uint64_t size, const struct oom_pool *pool)
{
	int32_t from = -1;
	uint64_t sum = 0;
	bool hole = false;

	for (int32_t b = pool->holes ? pool->head : -1; b >= 0; b = r->blocks[b].next) {
		if (r->blocks[b].state == USED) {
			from = -1;
			sum = 0;
			hole = false;
			continue;
		}
		from = from < 0 ? b : from;
		sum += r->blocks[b].size;
		hole |= r->blocks[b].state == HOLE;
		if (hole && sum >= size)
			return from;
	}
	/* the end is open */
	return hole ? from : -1;
}

/* Maps the first `add` bytes of a hole: its own block, or behind cur. */
static int32_t fill_hole(struct oom_replay *r, int32_t cur, int32_t hole, uint64_t add)
{
	struct oom_pool *pool = &r->pool[r->blocks[hole].pool];

	if (add < r->blocks[hole].size && cut(r, hole, add) < 0)
		return -1;
	else if (add == r->blocks[hole].size)
		pool->holes--;
	r->blocks[hole].state = FREE;
	if (cur == hole)
		return cur;
	absorb(r, cur);
	return cur;
}

/* A block of the arena's end, cur with so much more behind it. */
static int32_t lengthen(struct oom_replay *r, int32_t cur, uint64_t add, unsigned pool)
{
	struct oom_pool *a = &r->pool[pool];

	if (cur >= 0) {
		r->blocks[cur].size += add;
	} else {
		cur = new_block(r, add, a->end, pool);
		if (cur < 0)
			return -1;
		if (a->tail >= 0) {
			link_after(r, a->tail, cur);
		} else {
			a->head = cur;
			a->tail = cur;
		}
	}
	a->end += add;
	return cur;
}

/* Maps pages until there is a free block of that size; it is in no set. */
static int32_t grow(struct oom_replay *r, uint64_t size, unsigned pool)
{
	const uint64_t page = page_of(pool);
	int32_t cur = first_space(r, size, &r->pool[pool]);

	if (cur < 0 && r->pool[pool].tail >= 0 && r->blocks[r->pool[pool].tail].state == FREE)
		cur = r->pool[pool].tail;
	if (cur >= 0 && r->blocks[cur].state == FREE)
		take(r, cur);
	while (!r->failed && (cur < 0 || r->blocks[cur].state == HOLE || r->blocks[cur].size < size)) {
		const bool mapped = cur >= 0 && r->blocks[cur].state == FREE;
		const int32_t next = cur < 0 ? -1 : mapped ? r->blocks[cur].next : cur;
		const uint64_t have = mapped ? r->blocks[cur].size : 0;
		uint64_t add = (size - have + page - 1) / page * page;

		if (next >= 0 && r->blocks[next].state == FREE) {
			take(r, next);
			absorb(r, cur);
			continue;
		}
		if (next >= 0 && add > r->blocks[next].size)
			add = r->blocks[next].size;
		if (!reserve(r, add)) {
			if (mapped)
				insert(r, cur);
			return -1;
		}
		cur = next >= 0 ? fill_hole(r, cur, next, add) : lengthen(r, cur, add, pool);
		if (cur < 0)
			return -1;
	}
	if (!r->failed && r->blocks[cur].next >= 0 && r->blocks[r->blocks[cur].next].state == FREE) {
		take(r, r->blocks[cur].next);
		absorb(r, cur);
	}
	return cur;
}

/* ---- finding ---- */

/* What a free block of an arena could become without another one being mapped. */
static uint64_t could_be(const struct oom_replay *r, int32_t b)
{
	const int32_t next = r->blocks[b].next;

	return next < 0			     ? UINT64_MAX :
	       r->blocks[next].state == HOLE ? r->blocks[b].size + r->blocks[next].size :
					       r->blocks[b].size;
}

/* Where the smallest free block lies that is large enough, the lowest of them (get_free_block). */
static bool best(struct oom_replay *r, uint64_t size, unsigned pool, struct oom_free_place *p)
{
	const struct oom_free_set *set = &r->pool[pool].free;
	const uint64_t split = r->rules.max_split;
	uint64_t got;

	struct oom_free_hint *hint = hint_for(r, size, pool);

	*p = oom_free_find_near(set, place_at(*hint), size, 0);
	if (p->run == set->n)
		return false;
	*hint = hint_of(*p);
	while (r->rules.expandable) {
		const struct oom_free_place next = oom_free_next(set, *p);

		if (next.run == set->n || could_be(r, oom_free_at(set, next)->block) >=
						  could_be(r, oom_free_at(set, *p)->block))
			break;
		*p = next;
	}
	got = oom_free_at(set, *p)->size;
	/* an oversized block serves no small request, and a large one only if little is wasted
	 * (max_non_split_rounding_mb, 20 MiB) */
	return !split || (size < split ? got < split : got < size + 20 * MIB);
}

/* ---- a full card ---- */

static bool is_whole(const struct oom_replay *r, int32_t b)
{
	return r->blocks[b].prev < 0 && r->blocks[b].next < 0;
}

static void give_back(struct oom_replay *r, int32_t b)
{
	take(r, b);
	r->reserved -= r->blocks[b].size;
	retire(r, b);
}

/* Of a free block of an arena, its whole pages (unmap_block). */
static void unmap(struct oom_replay *r, int32_t b)
{
	struct oom_pool *pool = &r->pool[r->blocks[b].pool];
	const uint64_t page = page_of(r->blocks[b].pool), addr = r->blocks[b].addr,
		       from = (addr + page - 1) / page * page,
		       to = (addr + r->blocks[b].size) / page * page;
	int32_t hole = b;

	if (from >= to)
		return;
	take(r, b);
	if (from > addr) {
		hole = cut(r, b, from - addr);
		insert(r, b);
	}
	if (hole < 0)
		return;
	if (r->blocks[hole].size > to - from) {
		const int32_t rest = cut(r, hole, to - from);

		if (rest < 0)
			return;
		insert(r, rest);
	}
	r->blocks[hole].state = HOLE;
	r->reserved -= to - from;
	pool->holes++;
	if (r->blocks[hole].prev >= 0 && r->blocks[r->blocks[hole].prev].state == HOLE) {
		hole = r->blocks[hole].prev;
		absorb(r, hole);
		pool->holes--;
	}
	if (r->blocks[hole].next >= 0 && r->blocks[r->blocks[hole].next].state == HOLE) {
		absorb(r, hole);
		pool->holes--;
	}
}

/* Everything that is cached and empty (release_cached_blocks). */
static void release_cached(struct oom_replay *r)
{
	for (unsigned k = 0; k < OOM_POOLS; k++) {
		const struct oom_free_set *set = &r->pool[k].free;
		struct oom_free_place p = {0, 0};
		size_t n = 0;

		for (; p.run < set->n; p = oom_free_next(set, p)) {
			const int32_t b = oom_free_at(set, p)->block;

			if (!r->rules.expandable && !is_whole(r, b))
				continue;
			if (!room(r, (void **)&r->list, &r->cap_list, n + 1, sizeof(*r->list)))
				return;
			r->list[n++] = b;
		}
		for (size_t i = 0; i < n && !r->failed; i++)
			if (r->rules.expandable)
				unmap(r, r->list[i]);
			else
				give_back(r, r->list[i]);
	}
}

/* With max_split_size_mb: one oversized block as large as the request, or as many of the largest as
 * make up for it (release_available_cached_blocks).  Oversized blocks are never split. */
static bool release_oversized(struct oom_replay *r, uint64_t size, unsigned pool)
{
	const uint64_t least = r->rules.max_split, key = size < least ? least : size;
	struct oom_free_set *set = &r->pool[pool].free;
	struct oom_free_place p;
	uint64_t released = 0;

	if (!least || r->rules.expandable)
		return false;
	p = oom_free_find(set, key, 0);
	if (p.run < set->n) {
		give_back(r, oom_free_at(set, p)->block);
		return true;
	}
	while (released < key && set->n) {
		const struct oom_free_run *last = set->run[set->n - 1];
		const struct oom_free_entry e = last->e[last->n - 1];

		if (e.size < least || !is_whole(r, e.block))
			break;
		give_back(r, e.block);
		released += e.size;
	}
	return released >= key;
}

static int32_t obtain(struct oom_replay *r, uint64_t size, unsigned pool)
{
	return r->rules.expandable ? grow(r, size, pool) : segment(r, size, pool);
}

static int32_t obtain_somehow(struct oom_replay *r, uint64_t size, unsigned pool)
{
	int32_t b = obtain(r, size, pool);

	if (b >= 0 || r->failed)
		return b;
	if (release_oversized(r, size, pool))
		b = obtain(r, size, pool);
	if (b >= 0)
		return b;
	r->retries++;
	release_cached(r);
	b = r->failed ? -1 : obtain(r, size, pool);
	if (b < 0 && !r->failed)
		r->died = r->failed = true;
	return b;
}

/* ---- what is asked ---- */

int32_t oom_allocate_on(struct oom_replay *r, uint64_t bytes, enum oom_cuda_stream stream)
{
	const uint64_t size = oom_block(bytes ? bytes : 1);
	const bool small = size <= MIB;
	const unsigned pool = 2 * (unsigned)stream + small;
	struct oom_free_place p;
	bool cached;
	uint64_t rest;
	int32_t b;

	if (r->failed)
		/* out of host memory: the lists can no longer be trusted */
		return -1;
	cached = best(r, size, pool, &p);
	b = cached ? oom_free_at(&r->pool[pool].free, p)->block : obtain_somehow(r, size, pool);
	if (b < 0)
		return -1;
	rest = r->blocks[b].size - size;
	if (r->rules.expandable || small ?
		    rest >= 512 :
		    rest > MIB && (!r->rules.max_split || size < r->rules.max_split)) {
		const int32_t n = cut(r, b, size);

		if (n < 0)
			return -1;
		if (cached)
			replace(r, p, n);
		else
			insert(r, n);
	} else if (cached) {
		oom_free_remove(&r->pool[pool].free, p);
	}
	r->blocks[b].state = USED;
	return b;
}

int32_t oom_allocate(struct oom_replay *r, uint64_t bytes)
{
	return oom_allocate_on(r, bytes, OOM_COMPUTE);
}

void oom_free(struct oom_replay *r, int32_t b)
{
	struct oom_free_place at = {0};
	bool known = false;             /* where b's entry is, of what it has been merged with */
	int32_t n, p;

	if (b < 0 || r->failed)
		return;
	if (r->blocks[b].state != USED) {       /* twice: the trace is not one; give up, do not guess */
		r->failed = r->given_up = true;
		return;
	}
	r->blocks[b].state = FREE;
	n = r->blocks[b].next;
	p = r->blocks[b].prev;
	if (n >= 0 && r->blocks[n].state == FREE) {
		at = place_of(r, n);
		known = true;
		absorb(r, b);
	}
	if (p >= 0 && r->blocks[p].state == FREE) {
		if (known)
			oom_free_remove(&r->pool[r->blocks[b].pool].free, at);
		at = place_of(r, p);
		known = true;
		absorb(r, p);
		b = p;
	}
	if (known)
		replace(r, at, b);
	else
		insert(r, b);
}

uint64_t oom_replay_mark(const struct oom_replay *r)
{
	uint64_t h = oom_mark(oom_mark(r->reserved, r->top), r->retries);

	for (unsigned k = 0; k < OOM_POOLS; k++) {
		const struct oom_free_set *set = &r->pool[k].free;

		h = oom_mark(oom_mark(h, r->pool[k].end), r->pool[k].holes);
		for (size_t i = 0; i < set->n; i++)
			for (uint32_t j = 0; j < set->run[i]->n; j++)
				h = oom_mark(oom_mark(h, set->run[i]->e[j].size), set->run[i]->e[j].addr);
	}
	return h;
}

void oom_replay_clear(struct oom_replay *r, const struct oom_alloc_rules *rules)
{
	r->n_blocks = r->n_spare = 0;
	for (int k = 0; k < OOM_POOLS; k++) {
		oom_free_clear(&r->pool[k].free);
		r->pool[k].head = r->pool[k].tail = -1;
		r->pool[k].end = 0;
		r->pool[k].holes = 0;
	}
	r->top = r->reserved = r->peak = 0;
	r->rules = *rules;
	r->retries = 0;
	r->failed = r->given_up = r->died = false;
}

uint64_t oom_replay_trace(struct oom_replay *r, const int64_t *trace, size_t n,
			  const struct oom_alloc_rules *rules)
{
	int32_t *ids = calloc(n + 1, sizeof(*ids));
	size_t k = 0;

	oom_replay_clear(r, rules);
	for (size_t i = 0; ids && i < n; i++) {
		if (trace[i] > 0)
			ids[++k] = oom_allocate(r, (uint64_t)trace[i]);
		else
			oom_free(r, ids[-trace[i]]);
	}
	free(ids);
	return r->peak;
}
