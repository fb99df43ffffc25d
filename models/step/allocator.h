/* Allocated -> reserved -> used. */
#ifndef OOM_ALLOCATOR_H
#define OOM_ALLOCATOR_H

#include "oomplan/model.h"
#include "tape/tape.h"

struct oom_ablock {
	uint64_t size, addr;
	int32_t prev, next;
	bool free, small;
};
/* A free block in its pool's list; the size stands here too so that a search stays within the
 * list. */
struct oom_afree {
	uint64_t size;
	int32_t block;
};
/* A simulated caching allocator and the maps of one replay. */
struct oom_replay {
	struct oom_ablock *blocks;
	size_t n_blocks, cap_blocks;
	int32_t *spare;                 /* unused block records */
	size_t n_spare, cap_spare;
	struct {
		struct oom_afree *v;    /* free blocks by (size, address) */
		size_t n, cap;
		int32_t tail;           /* expandable: last block of the arena */
		uint64_t mapped;
	} pool[2];
	bool expandable, failed, given_up;
	uint64_t moved;                 /* entries of free lists, in making room */
	uint64_t top, reserved, peak;
	int32_t *of_row, *grad_of_row;
	size_t cap_rows;
};
void oom_replay_release(struct oom_replay *r);

/* Plays two training steps of a fully recorded tape; *reserved gets the peak of reserved bytes.
 * OOM_ERR_LIMIT for tapes beyond four million events, or so many free blocks that it would take
 * seconds. */
enum oom_status oom_replay(struct oom_replay *r, const struct oom_tape *t,
			   const struct oom_plan *plan, uint64_t *reserved, struct oom_error *err);
/* The allocator alone, for tests: sizes > 0 allocate, entry -k frees the k-th allocation
 * (1-based). */
uint64_t oom_replay_trace(struct oom_replay *r, const int64_t *trace, size_t n, bool expandable);

/* Reserved bytes without a replay: the median ratio of the measured rows; a guess. */
uint64_t oom_reserved_estimate(const struct oom_eval *e, const struct oom_plan *plan);
/* Context, workspaces, communication; used = reserved + those. */
void oom_overheads(struct oom_eval *e, const struct oom_plan *plan);

#endif
