/* Memory that the replayed allocator takes from the card, and gives back to it.
 *
 * Segments of their own, or with expandable_segments one arena a pool that grows page by page.  A full
 * card (malloc, release_available_cached_blocks, release_cached_blocks in CUDACachingAllocator.cpp):
 * where cudaMalloc gives no more, max_split_size_mb has the oversized free blocks released that the
 * request needs; else what other streams may still read is waited for (synchronize_and_free_events) and every
 * cached segment that nothing lives in is, of arenas every free page; then it is tried again, once. */
#include "step/allocator_blocks.h"

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

static int32_t segment(struct oom_replay *r, uint64_t size, unsigned pool)
{
	const uint64_t n = block_is_small(pool)  ? 2 * MIB :
			   size < 10 * MIB ? 20 * MIB :
					     (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	const uint64_t low = r->rules.down ? r->top - n : r->top;

	if (!reserve(r, n))
		return -1;
	r->top = r->rules.down ? low : low + n;
	return block_new(r, n, low, pool);
}

static uint64_t page_of(unsigned pool)
{
	return block_is_small(pool) ? 2 * MIB : 20 * MIB;
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

	if (add == r->blocks[hole].size)
		pool->holes--;
	else if (block_cut(r, hole, add) < 0)   /* the rest is still one */
		return -1;
	r->blocks[hole].state = FREE;
	if (cur == hole)
		return cur;
	block_absorb(r, cur);
	return cur;
}

/* A block of the arena's end, cur with so much more behind it. */
static int32_t lengthen(struct oom_replay *r, int32_t cur, uint64_t add, unsigned pool)
{
	struct oom_pool *a = &r->pool[pool];

	if (cur >= 0) {
		r->blocks[cur].size += add;
	} else {
		cur = block_new(r, add, a->end, pool);
		if (cur < 0)
			return -1;
		if (a->tail >= 0) {
			block_link(r, a->tail, cur);
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
		block_take(r, cur);
	while (!r->failed && (cur < 0 || r->blocks[cur].state == HOLE || r->blocks[cur].size < size)) {
		const bool mapped = cur >= 0 && r->blocks[cur].state == FREE;
		const int32_t next = cur < 0 ? -1 : mapped ? r->blocks[cur].next : cur;
		const uint64_t have = mapped ? r->blocks[cur].size : 0;
		uint64_t add = (size - have + page - 1) / page * page;

		if (next >= 0 && r->blocks[next].state == FREE) {
			block_take(r, next);
			block_absorb(r, cur);
			continue;
		}
		if (next >= 0 && add > r->blocks[next].size)
			add = r->blocks[next].size;
		if (!reserve(r, add)) {
			if (mapped)
				block_insert(r, cur);
			return -1;
		}
		cur = next >= 0 ? fill_hole(r, cur, next, add) : lengthen(r, cur, add, pool);
		if (cur < 0)
			return -1;
	}
	if (!r->failed && r->blocks[cur].next >= 0 && r->blocks[r->blocks[cur].next].state == FREE) {
		block_take(r, r->blocks[cur].next);
		block_absorb(r, cur);
	}
	return cur;
}

/* ---- a full card ---- */

static bool is_whole(const struct oom_replay *r, int32_t b)
{
	return r->blocks[b].prev < 0 && r->blocks[b].next < 0;
}

static void give_back(struct oom_replay *r, int32_t b)
{
	block_take(r, b);
	r->reserved -= r->blocks[b].size;
	block_retire(r, b);
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
	block_take(r, b);
	if (from > addr) {
		hole = block_cut(r, b, from - addr);
		block_insert(r, b);
	}
	if (hole < 0)
		return;
	if (r->blocks[hole].size > to - from) {
		const int32_t rest = block_cut(r, hole, to - from);

		if (rest < 0)
			return;
		block_insert(r, rest);
	}
	r->blocks[hole].state = HOLE;
	r->reserved -= to - from;
	pool->holes++;
	if (r->blocks[hole].prev >= 0 && r->blocks[r->blocks[hole].prev].state == HOLE) {
		hole = r->blocks[hole].prev;
		block_absorb(r, hole);
		pool->holes--;
	}
	if (r->blocks[hole].next >= 0 && r->blocks[r->blocks[hole].next].state == HOLE) {
		block_absorb(r, hole);
		pool->holes--;
	}
}

/* Everything that is cached and empty (release_cached_blocks). */
void oom_release_cached(struct oom_replay *r)
{
	for (unsigned k = 0; k < OOM_POOLS; k++) {
		const struct oom_free_set *set = &r->free;
		size_t n = 0;

		for (int32_t b = -1; (b = oom_free_next(set, r->blocks, k, b)) >= 0;) {
			if (!r->rules.expandable && !is_whole(r, b))
				continue;
			if (!block_room(r, (void **)&r->list, &r->cap_list, n + 1, sizeof(*r->list)))
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
	const struct oom_free_set *set = &r->free;
	uint64_t released = 0;
	int32_t b;

	if (!least || r->rules.expandable)
		return false;
	b = oom_free_find(set, r->blocks, oom_bin_of(key, pool), key);
	if (b >= 0) {
		give_back(r, b);
		return true;
	}
	while (released < key && (b = oom_free_last(set, r->blocks, pool)) >= 0) {
		if (r->blocks[b].size < least || !is_whole(r, b))
			break;
		released += r->blocks[b].size;
		give_back(r, b);
	}
	return released >= key;
}

static int32_t obtain(struct oom_replay *r, uint64_t size, unsigned pool)
{
	return r->rules.expandable ? grow(r, size, pool) : segment(r, size, pool);
}

int32_t oom_obtain(struct oom_replay *r, uint64_t size, unsigned pool)
{
	int32_t b = obtain(r, size, pool);

	if (b >= 0 || r->failed)
		return b;
	if (release_oversized(r, size, pool))
		b = obtain(r, size, pool);
	if (b >= 0)
		return b;
	r->retries++;
	if (r->others_end)
		r->others_end(r->of);
	oom_release_cached(r);
	b = r->failed ? -1 : obtain(r, size, pool);
	if (b < 0 && !r->failed)
		r->died = r->failed = true;
	return b;
}
