/* The free blocks of a pool, ordered as c10's BlockComparatorSize orders them: by size, then address.
 * Tests and searches ask for hundreds of thousands of places: runs of sorted entries keep them near
 * each other, and what is moved to make room is short. */
#ifndef OOM_FREE_SET_H
#define OOM_FREE_SET_H

#include "step/allocator.h"

struct oom_free_place {
	size_t run;
	uint32_t at;
};

/* The first entry not below (size, addr); run == set->n where there is none. */
struct oom_free_place oom_free_find(const struct oom_free_set *set, uint64_t size, uint64_t addr);
/* The same, looked for first at a place that may be it. */
struct oom_free_place oom_free_find_near(const struct oom_free_set *set, struct oom_free_place guess,
					 uint64_t size, uint64_t addr);
/* *at: a guess before, where it came to lie after.  False: out of memory, nothing was inserted. */
bool oom_free_insert(struct oom_free_set *set, struct oom_free_entry e, struct oom_free_place *at);
void oom_free_remove(struct oom_free_set *set, struct oom_free_place at);
/* Puts another entry in the place of one, where it belongs: *at becomes its place. */
bool oom_free_replace(struct oom_free_set *set, struct oom_free_place *at, struct oom_free_entry e);
/* The place after this one. */
struct oom_free_place oom_free_next(const struct oom_free_set *set, struct oom_free_place at);
/* Keeps its memory. */
void oom_free_clear(struct oom_free_set *set);
void oom_free_release(struct oom_free_set *set);

/* Whether the block's entry is there: a place from before may be another's, or nobody's. */
static inline bool oom_free_is_at(const struct oom_free_set *set, struct oom_free_place p, int32_t block)
{
	return p.run < set->n && p.at < set->run[p.run]->n && set->run[p.run]->e[p.at].block == block;
}

static inline const struct oom_free_entry *oom_free_at(const struct oom_free_set *set,
						       struct oom_free_place p)
{
	return &set->run[p.run]->e[p.at];
}

#endif
