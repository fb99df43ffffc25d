/* The free blocks of each pool, ordered by size, then address.
 *
 * Blocks are linked by their own records, so nothing is allocated or moved.  What is asked for mostly comes
 * again, and is freed next to where the same was freed before: a search begins at the first block of about
 * that size, an insertion at the last one of its bin (the classes of TLSF: Masmano and others, "TLSF: a new
 * dynamic memory allocator for real-time systems", 2004).  What every event of a replay goes through is inline. */
#ifndef OOM_FREE_SET_H
#define OOM_FREE_SET_H

#include "step/allocator.h"
#include "tape/round.h"

#define OOM_INLINE static inline __attribute__((always_inline))

/* Sizes are multiples of 512, 2^9: those below thirty-two of them have bins of their own, above that an octave has
 * sixteen, told by the four bits behind the highest. */
OOM_INLINE unsigned oom_bin_of(uint64_t size, unsigned pool)
{
	const unsigned shift = (63 ^ (unsigned)__builtin_clzll(size | 16 * OOM_BLOCK)) - 4;

	return OOM_BINS * pool + 16 * (shift - 9) + (unsigned)(size >> shift);
}

OOM_INLINE bool oom_bin_has(const struct oom_free_set *set, unsigned bin)
{
	return set->word[bin / 64] >> bin % 64 & 1;
}

OOM_INLINE bool oom_free_below(const struct oom_ablock *a, const struct oom_ablock *b)
{
	return a->size < b->size || (a->size == b->size && a->addr < b->addr);
}

/* The first block of the bins behind this one; -1: none.  The few sizes of a pool lie in two or three words. */
OOM_INLINE int32_t oom_free_behind(const struct oom_free_set *set, unsigned bin)
{
	const unsigned last = bin / 64 | (OOM_BIN_WORDS - 1);
	unsigned at = bin / 64;
	uint64_t word = set->word[at] & ~(uint64_t)1 << bin % 64;

	while (!word) {
		if (at++ == last)
			return -1;
		word = set->word[at];
	}
	return set->bin[64 * at + (unsigned)__builtin_ctzll(word)].first;
}

/* The smallest block of at least `size` bytes, whose bin is that one, the lowest of these; -1: the pool has none. */
OOM_INLINE int32_t oom_free_find(const struct oom_free_set *set, const struct oom_ablock *blocks, unsigned bin,
				 uint64_t size)
{
	if (oom_bin_has(set, bin))
		for (int32_t b = set->bin[bin].first; b >= 0; b = blocks[b].more)
			if (blocks[b].size >= size)
				return b;
	return oom_free_behind(set, bin);
}

OOM_INLINE void oom_free_insert(struct oom_free_set *set, struct oom_ablock *blocks, int32_t b)
{
	struct oom_ablock *const x = &blocks[b];
	const unsigned bin = oom_bin_of(x->size, x->pool);
	struct oom_free_bin *const list = &set->bin[bin];
	int32_t less, more;

	x->bin = (uint16_t)bin;
	if (!oom_bin_has(set, bin)) {
		set->word[bin / 64] |= (uint64_t)1 << bin % 64;
		x->less = x->more = -1;
		list->first = list->hand = b;
		return;
	}
	less = list->hand;
	list->hand = b;
	if (oom_free_below(&blocks[less], x)) {
		while ((more = blocks[less].more) >= 0 && oom_free_below(&blocks[more], x))
			less = more;
	} else {
		while (more = less, (less = blocks[more].less) >= 0 && !oom_free_below(&blocks[less], x))
			;
	}
	x->less = less;
	x->more = more;
	if (less >= 0)
		blocks[less].more = b;
	else
		list->first = b;
	if (more >= 0)
		blocks[more].less = b;
}

/* b hangs where it was put in, whatever has become of its size. */
OOM_INLINE void oom_free_remove(struct oom_free_set *set, struct oom_ablock *blocks, int32_t b)
{
	const unsigned bin = blocks[b].bin;
	struct oom_free_bin *const list = &set->bin[bin];
	const int32_t less = blocks[b].less, more = blocks[b].more;

	if ((less & more) < 0 && less == more) {        /* the only one */
		set->word[bin / 64] &= ~((uint64_t)1 << bin % 64);
		return;
	}
	if (less >= 0)
		blocks[less].more = more;
	else
		list->first = more;
	if (more >= 0)
		blocks[more].less = less;
	if (list->hand == b)
		list->hand = less >= 0 ? less : more;
}

/* The pool's block after b, or before all of them (-1); -1: none. */
OOM_INLINE int32_t oom_free_next(const struct oom_free_set *set, const struct oom_ablock *blocks, unsigned pool,
				 int32_t b)
{
	if (b < 0)
		return oom_free_find(set, blocks, OOM_BINS * pool, 0);
	return blocks[b].more >= 0 ? blocks[b].more : oom_free_behind(set, blocks[b].bin);
}

/* The pool's last block: the largest, the highest of these; -1: none. */
int32_t oom_free_last(const struct oom_free_set *set, const struct oom_ablock *blocks, unsigned pool);
void oom_free_clear(struct oom_free_set *set);

#endif
