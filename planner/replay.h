/* When the estimate of the reserved bytes is not enough. */
#ifndef OOM_REPLAY_PARTS_H
#define OOM_REPLAY_PARTS_H

#include "oomplan/model.h"

/* The estimate says no, but a replay of the allocator may say yes: what is allocated is held in
 * any case, the rest is guessed. */
static inline bool replay_decides(const struct oom_eval *e, uint64_t budget)
{
	return e->used_bytes > budget &&
	       e->used_bytes - e->reserved_bytes + e->overall_peak <= budget;
}

#endif
