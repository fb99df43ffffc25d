/* A sorted set in lists of blocks of about a size. */
#include "step/free_set.h"

#include <string.h>

#include "tape/round.h"

struct place {
	unsigned octave, class;
};

/* Sizes are multiples of 512: the first sixteen have classes of their own, above them an octave has
 * sixteen. */
static inline struct place place_of(uint64_t size)
{
	const uint64_t n = size / OOM_BLOCK;
	unsigned octave;

	if (n < OOM_CLASSES)
		return (struct place){0, (unsigned)n};
	octave = 60 - (unsigned)__builtin_clzll(n);
	return (struct place){octave, (unsigned)(n >> (octave - 1)) & (OOM_CLASSES - 1)};
}

static inline bool has(const struct oom_free_set *set, struct place p)
{
	return set->classes[p.octave] >> p.class & 1;
}

/* The first block of the classes behind this one; -1: none. */
static int32_t behind(const struct oom_free_set *set, struct place p)
{
	const unsigned classes = set->classes[p.octave] & ~0u << p.class << 1;
	uint64_t octaves;

	if (classes)
		return set->list[p.octave][__builtin_ctz(classes)].first;
	octaves = set->octaves & ~(uint64_t)0 << p.octave << 1;
	if (!octaves)
		return -1;
	p.octave = (unsigned)__builtin_ctzll(octaves);
	return set->list[p.octave][__builtin_ctz(set->classes[p.octave])].first;
}

int32_t oom_free_find(const struct oom_free_set *set, const struct oom_ablock *blocks, uint64_t size)
{
	const struct place p = place_of(size);
	int32_t b = has(set, p) ? set->list[p.octave][p.class].first : -1;

	while (b >= 0 && blocks[b].size < size)
		b = blocks[b].more;
	return b >= 0 ? b : behind(set, p);
}

int32_t oom_free_next(const struct oom_free_set *set, const struct oom_ablock *blocks, int32_t b)
{
	if (b < 0)
		return oom_free_find(set, blocks, 0);
	return blocks[b].more >= 0 ? blocks[b].more : behind(set, place_of(blocks[b].size));
}

int32_t oom_free_last(const struct oom_free_set *set, const struct oom_ablock *blocks)
{
	unsigned octave;
	int32_t b;

	if (!set->octaves)
		return -1;
	octave = 63 - (unsigned)__builtin_clzll(set->octaves);
	b = set->list[octave][31 - __builtin_clz(set->classes[octave])].first;
	while (blocks[b].more >= 0)
		b = blocks[b].more;
	return b;
}

static inline bool below(const struct oom_ablock *a, const struct oom_ablock *b)
{
	return a->size < b->size || (a->size == b->size && a->addr < b->addr);
}

void oom_free_insert(struct oom_free_set *set, struct oom_ablock *blocks, int32_t b)
{
	const struct place p = place_of(blocks[b].size);
	struct oom_free_class *list = &set->list[p.octave][p.class];
	int32_t less = -1, more = -1;

	if (has(set, p)) {
		less = list->hand;
		if (below(&blocks[less], &blocks[b])) {
			while ((more = blocks[less].more) >= 0 && below(&blocks[more], &blocks[b]))
				less = more;
		} else {
			while (more = less, (less = blocks[more].less) >= 0 && !below(&blocks[less], &blocks[b]))
				;
		}
	} else {
		set->octaves |= (uint64_t)1 << p.octave;
		set->classes[p.octave] |= (uint16_t)(1u << p.class);
	}
	blocks[b].less = less;
	blocks[b].more = more;
	if (less >= 0)
		blocks[less].more = b;
	else
		list->first = b;
	if (more >= 0)
		blocks[more].less = b;
	list->hand = b;
}

void oom_free_remove(struct oom_free_set *set, struct oom_ablock *blocks, int32_t b)
{
	const struct place p = place_of(blocks[b].size);
	struct oom_free_class *list = &set->list[p.octave][p.class];
	const int32_t less = blocks[b].less, more = blocks[b].more;

	if (less >= 0)
		blocks[less].more = more;
	else
		list->first = more;
	if (more >= 0)
		blocks[more].less = less;
	if (list->hand == b)
		list->hand = less >= 0 ? less : more;
	if (less >= 0 || more >= 0)
		return;
	set->classes[p.octave] &= (uint16_t)~(1u << p.class);
	if (!set->classes[p.octave])
		set->octaves &= ~((uint64_t)1 << p.octave);
}

void oom_free_clear(struct oom_free_set *set)
{
	set->octaves = 0;
	memset(set->classes, 0, sizeof(set->classes));
}
