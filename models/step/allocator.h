/* The CUDA caching allocator, simulated. */
#ifndef OOM_ALLOCATOR_H
#define OOM_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oom_ablock {
	uint64_t size, addr;
	int32_t prev, next;
	bool free, small;
};
/* The free blocks of one size, by address.  Tensors have few sizes, so the lists of a pool are few,
 * and each is short. */
struct oom_free_list {
	uint64_t size;
	int32_t *block;
	size_t n, cap;
};
/* A simulated caching allocator. */
struct oom_replay {
	struct oom_ablock *blocks;
	size_t n_blocks, cap_blocks;
	int32_t *spare;                 /* unused block records */
	size_t n_spare, cap_spare;
	struct {
		struct oom_free_list *list;     /* by size; none is empty */
		/* behind the first n lie empty ones, for their memory */
		size_t n, used, cap;
		int32_t tail;           /* expandable: last block of the arena */
		uint64_t mapped;
	} pool[2];
	bool expandable, failed, given_up;
	uint64_t moved;                 /* entries of free lists, in making room */
	uint64_t top, reserved, peak;
};
/* Empties it, keeping its memory. */
void oom_replay_clear(struct oom_replay *r, bool expandable);
void oom_replay_release(struct oom_replay *r);
/* A block of at least so many bytes, or -1 when it has failed (out of host memory, or too many free
 * blocks to go on within seconds: given_up). */
int32_t oom_allocate(struct oom_replay *r, uint64_t bytes);
/* Negative blocks are nothing. */
void oom_free(struct oom_replay *r, int32_t block);
/* The allocator alone, for tests: sizes > 0 allocate, entry -k frees the k-th allocation
 * (1-based). */
uint64_t oom_replay_trace(struct oom_replay *r, const int64_t *trace, size_t n, bool expandable);

#endif
