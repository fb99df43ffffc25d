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

static inline struct oom_free_hint block_hint(struct oom_free_place p)
{
	return (struct oom_free_hint){(uint8_t)p.at, (uint16_t)p.run};
}

static inline struct oom_free_place block_place_at(struct oom_free_hint h)
{
	return (struct oom_free_place){h.run, h.at};
}

/* A size that comes again mostly finds its place where it was. */
static inline struct oom_free_hint *block_hint_for(struct oom_replay *r, uint64_t size, unsigned pool)
{
	return &r->sizes[pool][(size / OOM_BLOCK * 0x9e3779b97f4a7c15u) >> 59];
}

/* Puts a free block into its pool's set. */
static inline void block_insert(struct oom_replay *r, int32_t i)
{
	struct oom_ablock *b = &r->blocks[i];
	struct oom_free_place p = block_place_at(*block_hint_for(r, b->size, b->pool));

	if (oom_free_insert(&r->pool[b->pool].free, (struct oom_free_entry){b->size, b->addr, i}, &p))
		b->hint = block_hint(p);
	else
		r->failed = true;
}

/* Where a free block is in its set. */
static inline struct oom_free_place block_place(const struct oom_replay *r, int32_t i)
{
	const struct oom_ablock *b = &r->blocks[i];
	const struct oom_free_set *set = &r->pool[b->pool].free;
	const struct oom_free_place p = block_place_at(b->hint);

	return oom_free_is_at(set, p, i) ? p : oom_free_find(set, b->size, b->addr);
}

/* Block i is in the set where another one was. */
static inline void block_replace(struct oom_replay *r, struct oom_free_place p, int32_t i)
{
	struct oom_ablock *b = &r->blocks[i];

	if (oom_free_replace(&r->pool[b->pool].free, &p, (struct oom_free_entry){b->size, b->addr, i}))
		b->hint = block_hint(p);
	else
		r->failed = true;
}

/* Takes a free block out of its set. */
static inline void block_take(struct oom_replay *r, int32_t i)
{
	const struct oom_ablock *b = &r->blocks[i];

	oom_free_remove(&r->pool[b->pool].free, block_place(r, i));
}

/* The record of a free block that is in no list yet; -1: out of host memory. */
static inline int32_t block_new(struct oom_replay *r, uint64_t size, uint64_t addr, unsigned pool)
{
	int32_t i;

	if (r->n_spare) {
		i = r->spare[--r->n_spare];
	} else {
		if (!block_room(r, (void **)&r->blocks, &r->cap_blocks, r->n_blocks + 1,
			  sizeof(*r->blocks)))
			return -1;
		i = (int32_t)r->n_blocks++;
	}
	r->blocks[i] = (struct oom_ablock){
		.size = size, .addr = addr, .prev = -1, .next = -1, .state = FREE, .pool = (uint8_t)pool};
	return i;
}

static inline void block_retire(struct oom_replay *r, int32_t i)
{
	if (block_room(r, (void **)&r->spare, &r->cap_spare, r->n_spare + 1, sizeof(int32_t)))
		r->spare[r->n_spare++] = i;
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

#endif
