/* The engines that train, and what each optimizer has smaller forms of: what searches and reports ask
 * instead of names. */
#ifndef OOMPLAN_ENGINE_H
#define OOMPLAN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/plan.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One engine: what it keeps on a GPU, what it buffers besides, where that was read, and which other
 * engine takes over when more is asked of it than it does.  Static. */
struct oom_engine_info {
	const char *keeps, *buffers, *source;
	/* The engine (enum oom_engine_id) that divides state over the GPUs in its place, itself where it
	 * can, and the first and the last of its stages; shards_to 0: none does. */
	int64_t shards_as, shards_from, shards_to;
	/* The engine that moves state to the host in its place, and whether it moves all of it at once
	 * instead of the optimizer's first; offloads false: none does. */
	bool offloads, offloads_whole;
	int64_t offloads_as;
	/* Engines of which the search tries every stage. */
	int64_t tries[2];
	size_t n_tries;
	bool replicates;        /* its stage 0 is worth a try, too */
	bool hybrid;            /* shards within a node, copies between nodes */
	bool bucket_view;       /* DDP: gradients may be views of the buckets they are reduced in */
	bool in_turn;           /* its GPUs hold different layers and see the same batch */
	bool degrees;           /* tensor, pipeline, context and expert parallelism (tp, pp, cp, ep, sp) */
	bool keeps_autocast;    /* its frameworks leave autocast on around its mixed precision */
	bool casts_model;       /* mixed precision is 16-bit weights, autocast asked for apart */
	bool mixes;             /* takes tp, pp, cp and ep beside its sharding (torchtitan) */
	bool plain;             /* keeps everything whole on every GPU */
	/* What it trains in unless told (enum oom_precision, auto: in what the config says), over plain data
	 * parallelism and with degrees besides, and where that was read. */
	int64_t precision, mixed_precision;
	const char *precision_source;
	bool for_many;          /* what a plan that keeps everything whole becomes when its GPUs grow */
};
/* By enum oom_engine_id; NULL past the end. */
OOM_API const struct oom_engine_info *oom_engine_at(size_t i);

/* Smaller forms of the optimizer at this index of its knob: with 8-bit states, with 8-bit states that
 * page to the host as well, with 8-bit states that FSDP2 can shard, and with the fewest bits of those; and
 * the one that it is a smaller form of itself.  Indices of the same knob, -1 where there is none. */
struct oom_smaller_states {
	int64_t quantised, paged, sharded, least, whole;
};
OOM_API struct oom_smaller_states oom_smaller_states(int64_t optimizer);

#ifdef __cplusplus
}
#endif

#endif
