/* The free blocks of a pool, ordered by size, then address.
 *
 * Blocks are linked by their own records, so nothing is allocated or moved.  What is asked for mostly comes
 * again, and is freed next to where the same was freed before: a search begins at the first block of about
 * that size, an insertion at the last one of its class (the classes of TLSF: Masmano and others, "TLSF: a new
 * dynamic memory allocator for real-time systems", 2004). */
#ifndef OOM_FREE_SET_H
#define OOM_FREE_SET_H

#include "step/allocator.h"

/* The smallest block of at least `size` bytes, the lowest of these; -1: there is none. */
int32_t oom_free_find(const struct oom_free_set *set, const struct oom_ablock *blocks, uint64_t size);
/* The block after b, or before all of them (-1); -1: none. */
int32_t oom_free_next(const struct oom_free_set *set, const struct oom_ablock *blocks, int32_t b);
/* The last block: the largest, the highest of these; -1: none. */
int32_t oom_free_last(const struct oom_free_set *set, const struct oom_ablock *blocks);
void oom_free_insert(struct oom_free_set *set, struct oom_ablock *blocks, int32_t b);
/* b's size is what it was when it was put in. */
void oom_free_remove(struct oom_free_set *set, struct oom_ablock *blocks, int32_t b);
void oom_free_clear(struct oom_free_set *set);

#endif
