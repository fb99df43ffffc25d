/* Blocks of the replayed allocator: their records, the lists they hang in, the set of the free ones.
 *
 * Shared by what hands blocks out (allocator.c) and what fetches memory for them from the card
 * (card_memory.c); inline, because every request goes through here. */
#ifndef OOM_ALLOCATOR_BLOCKS_H
#define OOM_ALLOCATOR_BLOCKS_H

#include <stdlib.h>

#include "step/allocator.h"
#include "step/free_set.h"
#include "tape/room.h"
#include "tape/round.h"

#define MIB ((uint64_t)1 << 20)

enum block_state {
	USED,
	FREE,                   /* in its pool's set, but while it is worked on */
	HOLE                    /* of an arena: address space without memory */
};

/* Room for `need` entries of a growing list; false, and the replay has failed, when there is none. */
static inline bool block_room(struct oom_replay *r, void **p, size_t *cap, size_t need, size_t size)
{
	if (oom_room(p, cap, 512, need, size))
		return true;
	r->failed = true;
	return false;
}

/* Puts a free block into its pool's set. */
static inline void block_insert(struct oom_replay *r, int32_t i)
{
	oom_free_insert(&r->free, r->blocks, i);
}

/* Takes a free block out of its set, before anything about it changes. */
static inline void block_take(struct oom_replay *r, int32_t i)
{
	oom_free_remove(&r->free, r->blocks, i);
}

/* More records that no block has; false, and the replay has failed: out of host memory. */
static inline bool block_spares(struct oom_replay *r)
{
	if (!block_room(r, (void **)&r->blocks, &r->cap_blocks, r->n_blocks + 1, sizeof(*r->blocks)))
		return false;
	/* a few at a time: what no block has is not touched */
	for (int k = 0; k < 32 && r->n_blocks < r->cap_blocks; k++) {
		r->blocks[r->n_blocks] = (struct oom_ablock){.next = r->spare, .state = FREE};
		r->spare = (int32_t)r->n_blocks++;
	}
	return true;
}

/* The record of a free block that is in no list yet; -1: out of host memory. */
static inline int32_t block_new(struct oom_replay *r, uint64_t size, uint64_t addr, unsigned pool)
{
	const int32_t i = r->spare < 0 && !block_spares(r) ? -1 : r->spare;

	if (i < 0)
		return -1;
	r->spare = r->blocks[i].next;
	r->blocks[i] = (struct oom_ablock){
		.size = size, .addr = addr, .prev = -1, .next = -1, .less = -1, .more = -1, .state = FREE,
		.pool = (uint8_t)pool};
	return i;
}

static inline void block_retire(struct oom_replay *r, int32_t i)
{
	r->blocks[i].next = r->spare;
	r->spare = i;
}

/* Puts n behind b in their segment. */
static inline void block_link(struct oom_replay *r, int32_t b, int32_t n)
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
static inline void block_absorb(struct oom_replay *r, int32_t b)
{
	struct oom_pool *pool = &r->pool[r->blocks[b].pool];
	const int32_t n = r->blocks[b].next, next = r->blocks[n].next;

	r->blocks[b].size += r->blocks[n].size;
	r->blocks[b].next = next;
	if (next >= 0)
		r->blocks[next].prev = b;
	else if (pool->tail == n)
		pool->tail = b;
	block_retire(r, n);
}

/* Cuts b down to size; the rest is a block of its own behind it, or -1. */
static inline int32_t block_cut(struct oom_replay *r, int32_t b, uint64_t size)
{
	const int32_t n = block_new(r, r->blocks[b].size - size, r->blocks[b].addr + size,
				    r->blocks[b].pool);

	if (n < 0)
		return -1;
	r->blocks[n].state = r->blocks[b].state;
	r->blocks[b].size = size;
	block_link(r, b, n);
	return n;
}

static inline bool block_is_small(unsigned pool)
{
	return pool & 1;
}

/* Memory from the card for a request that no free block serves: a free block of at least that size, which is
 * in no set.  -1: the card is full, even without what was cached. */
int32_t oom_obtain(struct oom_replay *r, uint64_t size, unsigned pool);

/* The blocks behind one that cannot grow are no better than it. */
OOM_INLINE bool block_may_grow(const struct oom_replay *r, int32_t b)
{
	const int32_t next = r->blocks[b].next;

	return next < 0 || r->blocks[next].state == HOLE;
}

/* The first bytes of a free block that is larger become one of their own before it: the rest keeps the record.  There
 * is a spare record. */
OOM_INLINE int32_t block_cut_front(struct oom_replay *r, int32_t b, uint64_t size)
{
	const int32_t n = r->spare;
	struct oom_ablock *const front = &r->blocks[n], *const rest = &r->blocks[b];
	const int32_t prev = rest->prev;

	r->spare = front->next;
	front->size = size;
	front->addr = rest->addr;
	front->prev = prev;
	front->next = b;
	front->state = USED;
	front->pool = rest->pool;
	rest->size -= size;
	rest->addr += size;
	rest->prev = n;
	if (prev >= 0)
		r->blocks[prev].next = n;
	else if (r->pool[rest->pool].head == b)
		r->pool[rest->pool].head = n;
	return n;
}

/* A block is handed out. */
OOM_INLINE int32_t block_hold(struct oom_replay *r, int32_t b)
{
	r->blocks[b].state = USED;
	r->held += r->blocks[b].size;
	if (r->held > r->most)
		r->most = r->held;
	return b;
}

/* What takes more than best fit: the rules of PYTORCH_CUDA_ALLOC_CONF, memory from the card, records of blocks. */
int32_t oom_allocate_anew(struct oom_replay *r, uint64_t size, unsigned pool);

/* A block of that size, which is rounded, and whose bin is that one; the replay has not failed. */
OOM_INLINE int32_t block_serve(struct oom_replay *r, uint64_t size, unsigned bin)
{
	struct oom_free_set *const set = &r->free;
	const unsigned pool = bin / OOM_BINS;
	int32_t b, n;

	if (r->rules.max_split || r->spare < 0)
		return oom_allocate_anew(r, size, pool);
	b = oom_free_find(set, r->blocks, bin, size);
	if (b < 0)
		return oom_allocate_anew(r, size, pool);
	if (r->rules.expandable && block_may_grow(r, b)) {
		if (r->pool[pool].holes)
			return oom_allocate_anew(r, size, pool);
		/* the arena's end: whatever else is large enough comes first */
		n = oom_free_next(set, r->blocks, pool, b);
		b = n < 0 ? b : n;
	}
	oom_free_remove(set, r->blocks, b);
	if (r->blocks[b].size - size < r->least_rest[block_is_small(pool)])
		return block_hold(r, b);
	n = block_cut_front(r, b, size);
	oom_free_insert(set, r->blocks, b);
	return block_hold(r, n);
}

OOM_INLINE void block_release(struct oom_replay *r, int32_t b)
{
	struct oom_ablock *const blocks = r->blocks;
	struct oom_free_set *const set = &r->free;
	int32_t n, p;

	if (b < 0 || r->failed)
		return;
	if (blocks[b].state != USED) {          /* twice: the trace is not one; give up, do not guess */
		r->failed = r->given_up = true;
		return;
	}
	n = blocks[b].next;
	p = blocks[b].prev;
	blocks[b].state = FREE;
	r->held -= blocks[b].size;
	if (n >= 0 && blocks[n].state == FREE) {
		oom_free_remove(set, blocks, n);
		block_absorb(r, b);
	}
	if (p >= 0 && blocks[p].state == FREE) {
		oom_free_remove(set, blocks, p);
		block_absorb(r, p);
		b = p;
	}
	oom_free_insert(set, blocks, b);
}

#endif
