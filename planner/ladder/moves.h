/* One step of each change: what rungs apply one after the other and the search's axes in all
 * combinations. */
#ifndef OOM_MOVES_H
#define OOM_MOVES_H

#include "oomplan/engine.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"

/* More GPUs help only what is sharded: a plan that keeps everything whole on several is sharded
 * wholly instead; false: this one is left as it is. */
bool shard_for_many(struct oom_plan *p);
/* The engine that keeps everything whole. */
int64_t plain_engine(void);

/* Each changes the plan by one step and returns false, the plan as it was, when there is none. */
typedef bool oom_move(struct oom_plan *p, const struct oom_model *model);
oom_move move_to_smaller_batch, move_to_16_bit, move_to_checkpoints, move_to_expandable, move_to_sdpa,
	move_to_shorter, move_to_small_states, move_to_shards, move_to_host, move_to_adapters,
	move_to_16_bit_weights;

#endif
