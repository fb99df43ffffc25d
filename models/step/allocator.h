/* The CUDA caching allocator, simulated. */
#ifndef OOM_ALLOCATOR_H
#define OOM_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oom_ablock {
	uint64_t size, addr;
	int32_t prev, next;             /* neighbours in the segment, or arena; -1: none */
	int32_t less, more;             /* of a free block: its neighbours in its bin of the free set */
	uint16_t bin;                   /* of a block in the free set: the list that it hangs in */
	uint8_t state, pool;
};

/* Streams have pools of their own: what was freed on one serves no other. */
enum oom_cuda_stream { OOM_COMPUTE, OOM_GATHERS, OOM_REDUCES, OOM_BEFORE_GATHERS, OOM_CUDA_STREAMS };
enum { OOM_POOLS = 2 * OOM_CUDA_STREAMS };

/* The free blocks of each pool by (size, address), as c10's BlockComparatorSize orders them: lists of blocks of
 * about a size, sixteen an octave, and which of them have any.  A pool's bins lie together. */
enum { OOM_BINS = 1024, OOM_BIN_WORDS = OOM_BINS / 64 };
struct oom_free_set {
	uint64_t word[OOM_POOLS * OOM_BIN_WORDS];       /* bit k of word i: bin 64 i + k has blocks */
	/* of a bin that has any: its first block, and the one put in last, near which the next may belong */
	struct oom_free_bin {
		int32_t first, hand;
	} bin[OOM_POOLS * OOM_BINS];
};

/* PYTORCH_CUDA_ALLOC_CONF, and the card. */
struct oom_alloc_rules {
	bool expandable;                /* expandable_segments */
	uint64_t max_split;             /* bytes; 0: there is no such limit */
	/* bytes that cudaMalloc gives away altogether; 0: as many as are wanted */
	uint64_t limit;
	bool down;                      /* a segment lies below those before it, not above */
};
/* A simulated caching allocator. */
struct oom_replay {
	struct oom_ablock *blocks;
	size_t n_blocks, cap_blocks;
	int32_t spare;                  /* unused block records, linked by next; -1: none */
	int32_t *list;                  /* of blocks, while cached ones are released */
	size_t cap_list;
	struct oom_pool {
		int32_t head, tail;     /* expandable: first and last block of the arena */
		uint64_t end;           /* address behind the last */
		size_t holes;           /* blocks of the arena that are not mapped */
	} pool[OOM_POOLS];
	struct oom_alloc_rules rules;
	/* bytes from which the rest of a block that is cut is one of its own, by whether the pool is the small one */
	uint64_t least_rest[2];
	/* out of host memory; the trace frees twice; the card is full even without cached segments */
	bool failed, given_up, died;
	uint32_t retries;               /* requests that had cached segments released first */
	uint64_t top, reserved, peak;
	uint64_t held, most;            /* in blocks that are used, rests that are not cut off included; the most ever */
	/* gives back what other streams may still read, before cached segments are released; NULL: there is nothing of the kind */
	void (*others_end)(void *of);
	void *of;
	bool streams;                   /* blocks of another stream than the computation's were asked for */
	struct oom_free_set free;       /* last, as its bins need not be zeroed */
};
/* Empties it, keeping its memory. */
void oom_replay_clear(struct oom_replay *r, const struct oom_alloc_rules *rules);
void oom_replay_release(struct oom_replay *r);
/* A block of at least so many bytes, or -1 when it has failed. */
int32_t oom_allocate(struct oom_replay *r, uint64_t bytes);
int32_t oom_allocate_on(struct oom_replay *r, uint64_t bytes, enum oom_cuda_stream stream);
/* By the rounded size. */
static inline unsigned oom_pool_of(uint64_t size, enum oom_cuda_stream stream)
{
	return 2 * (unsigned)stream + (size <= (uint64_t)1 << 20);
}
/* A number for what is free where, to compare with another moment's: from equal ones the same requests are served with
 * the same addresses, and the second time they take nothing more from the card. */
uint64_t oom_replay_mark(const struct oom_replay *r);
static inline uint64_t oom_mark(uint64_t h, uint64_t n)
{
	h = (h ^ n) * 0x9e3779b97f4a7c15u;      /* Fibonacci hashing, Knuth 6.4 */
	return h ^ h >> 32;
}
/* Gives everything that is cached and empty back to the card (empty_cache). */
void oom_release_cached(struct oom_replay *r);
/* Negative blocks are nothing. */
void oom_free(struct oom_replay *r, int32_t block);
/* The allocator alone, for tests: sizes > 0 allocate, entry -k frees the k-th allocation
 * (1-based). */
uint64_t oom_replay_trace(struct oom_replay *r, const int64_t *trace, size_t n,
			  const struct oom_alloc_rules *rules);

#endif
