/* One step of each change: what rungs apply one after the other and the search's axes in all
 * combinations.
 *
 * This is the only file of the planner that asks an engine or an optimizer for its name: the two
 * tables of moves.c are what their descriptors in models/step would say. */
#ifndef OOM_MOVES_H
#define OOM_MOVES_H

#include "oomplan/model.h"
#include "oomplan/plan.h"

/* Which other engine takes over when more is asked of one than it does. */
struct engine_moves {
	/* the engine that divides state over the GPUs in its place (itself where it can), the first
	 * and the last of its stages; shards_to 0: none does */
	int64_t shards_as, shards_from, shards_to;
	/* the engine that moves state to the host in its place, and whether it moves all of it at once
	 * instead of the optimizer's first; offloads false: none does */
	bool offloads, offloads_whole;
	int64_t offloads_as;
	/* engines of which the search tries every stage; GPUs that already share the batch keep theirs */
	int64_t tries[2];
	size_t n_tries;
	bool replicates;        /* its stage 0 is worth a try, too */
	bool hybrid;            /* shards within a node, copies between nodes */
	bool bucket_view;       /* DDP: gradients may be views of the buckets they are reduced in */
	bool in_turn;           /* its GPUs hold different layers and see the same batch */
	bool degrees;           /* tensor, pipeline, context and expert parallelism (tp, pp, cp, ep, sp) */
};
const struct engine_moves *engine_moves(int64_t engine);
/* What trains on one GPU that keeps everything. */
enum { PLAIN_ENGINE = OOM_ENGINE_HF };

/* The optimizer with quantised states, and the one whose quantised states page to the host as well;
 * -1: there is none. */
struct optimizer_moves {
	int64_t quantised, paged;
};
struct optimizer_moves optimizer_moves(int64_t optimizer);

/* More GPUs help only what is sharded: a plan that keeps everything whole on several is sharded
 * wholly instead; false: this one is left as it is. */
bool shard_for_many(struct oom_plan *p);

/* Each changes the plan by one step and returns false, the plan as it was, when there is none. */
typedef bool oom_move(struct oom_plan *p, const struct oom_model *model);
oom_move move_to_smaller_batch, move_to_16_bit, move_to_checkpoints, move_to_expandable, move_to_sdpa,
	move_to_shorter, move_to_small_states, move_to_shards, move_to_host, move_to_adapters;

#endif
