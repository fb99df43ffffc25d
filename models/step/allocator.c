/* The CUDA caching allocator, replayed.
 *
 * Rules (c10/cuda/CUDACachingAllocator.cpp): requests rounded to 512 bytes; up to 1 MiB from the
 * small pool (2 MiB segments), above from the large one (20 MiB segments below 10 MiB, else the
 * request rounded to 2 MiB); best fit by (size, address); split when the rest is at least 512 bytes
 * (small) or more than 1 MiB (large); neighbours merge on free; segments stay.
 * expandable_segments: one growing arena a pool, in pages of 2 or 20 MiB, split from 512 bytes; what
 * can grow is the last resort.  What happens when the card is full is in card_memory.c.
 * garbage_collection_threshold is left out: without set_per_process_memory_fraction malloc never asks
 * for it. */
#include <string.h>

#include "step/allocator_blocks.h"

/* More than a card has. */
#define ADDRESSES ((uint64_t)1 << 62)

void oom_replay_release(struct oom_replay *r)
{
	if (!r)
		return;
	free(r->blocks);
	free(r->list);
	memset(r, 0, sizeof(*r));
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

/* The smallest free block that is large enough, the lowest of them (get_free_block); -1: there is none. */
static int32_t best(const struct oom_replay *r, uint64_t size, unsigned pool)
{
	const struct oom_free_set *set = &r->free;
	const uint64_t split = r->rules.max_split;
	int32_t b = oom_free_find(set, r->blocks, oom_bin_of(size, pool), size);
	uint64_t got;

	if (b < 0)
		return -1;
	while (r->rules.expandable) {
		const int32_t next = oom_free_next(set, r->blocks, pool, b);

		if (next < 0 || could_be(r, next) >= could_be(r, b))
			break;
		b = next;
	}
	got = r->blocks[b].size;
	/* an oversized block serves no small request, and a large one only if little is wasted
	 * (max_non_split_rounding_mb, 20 MiB) */
	return !split || (size < split ? got < split : got < size + 20 * MIB) ? b : -1;
}

/* ---- what is asked ---- */

/* What takes more than best fit: the rules of PYTORCH_CUDA_ALLOC_CONF, memory from the card, records of blocks. */
int32_t oom_allocate_anew(struct oom_replay *r, uint64_t size, unsigned pool)
{
	struct oom_free_set *set = &r->free;
	int32_t b, n;

	if (r->failed)
		/* out of host memory: the lists can no longer be trusted */
		return -1;
	if (r->spare < 0 && !block_spares(r))
		return -1;
	r->streams |= pool / 2 != OOM_COMPUTE;
	b = best(r, size, pool);
	if (b >= 0)
		oom_free_remove(set, r->blocks, b);
	else
		b = oom_obtain(r, size, pool);
	if (b < 0)
		return -1;
	if (r->blocks[b].size - size < r->least_rest[block_is_small(pool)] ||
	    (r->rules.max_split && size >= r->rules.max_split && !r->rules.expandable && !block_is_small(pool))) {
		return block_hold(r, b);
	}
	if (r->spare < 0 && !block_spares(r))
		return -1;
	n = block_cut_front(r, b, size);
	oom_free_insert(set, r->blocks, b);
	return block_hold(r, n);
}

int32_t oom_allocate_on(struct oom_replay *r, uint64_t bytes, enum oom_cuda_stream stream)
{
	const uint64_t size = oom_block(bytes ? bytes : 1);

	return r->failed ? -1 : block_serve(r, size, oom_bin_of(size, oom_pool_of(size, stream)));
}

int32_t oom_allocate(struct oom_replay *r, uint64_t bytes)
{
	return oom_allocate_on(r, bytes, OOM_COMPUTE);
}

void oom_free(struct oom_replay *r, int32_t b)
{
	block_release(r, b);
}

/* Whether it does not matter how far arenas are mapped: what can grow is taken last, whatever its size, so that an
 * address follows from what lies below the last block that is used. */
static bool end_is_open(const struct oom_replay *r)
{
	if (!r->rules.expandable || r->rules.max_split)
		return false;
	for (unsigned k = 0; k < OOM_POOLS; k++)
		if (r->pool[k].holes)
			return false;
	return true;
}

/* The free blocks below the last one that is used, and where that ends. */
static uint64_t mark_of_arenas(const struct oom_replay *r)
{
	uint64_t h = r->retries;

	for (unsigned k = 0; k < OOM_POOLS; k++) {
		const int32_t tail = r->pool[k].tail;
		const bool open = tail >= 0 && r->blocks[tail].state == FREE;

		h = oom_mark(h, open ? r->blocks[tail].addr : r->pool[k].end);
		for (int32_t b = -1; (b = oom_free_next(&r->free, r->blocks, k, b)) >= 0;)
			if (b != tail)
				h = oom_mark(oom_mark(h, r->blocks[b].size), r->blocks[b].addr);
	}
	return h;
}

uint64_t oom_replay_mark(const struct oom_replay *r)
{
	uint64_t h = oom_mark(oom_mark(r->reserved, r->top), r->retries);

	if (end_is_open(r))
		return mark_of_arenas(r);
	for (unsigned k = 0; k < OOM_POOLS; k++) {
		const struct oom_free_set *set = &r->free;

		h = oom_mark(oom_mark(h, r->pool[k].end), r->pool[k].holes);
		for (int32_t b = -1; (b = oom_free_next(set, r->blocks, k, b)) >= 0;)
			h = oom_mark(oom_mark(h, r->blocks[b].size), r->blocks[b].addr);
	}
	return h;
}

void oom_replay_clear(struct oom_replay *r, const struct oom_alloc_rules *rules)
{
	r->n_blocks = 0;
	r->spare = -1;
	oom_free_clear(&r->free);
	for (int k = 0; k < OOM_POOLS; k++) {
		r->pool[k].head = r->pool[k].tail = -1;
		r->pool[k].end = 0;
		r->pool[k].holes = 0;
	}
	r->top = rules->down ? ADDRESSES : 0;
	r->reserved = r->peak = r->held = r->most = 0;
	r->rules = *rules;
	r->least_rest[true] = OOM_BLOCK;
	r->least_rest[false] = rules->expandable ? OOM_BLOCK : MIB + 1;
	r->retries = 0;
	r->failed = r->given_up = r->died = r->streams = false;
	r->others_end = NULL;
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
