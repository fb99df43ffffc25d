/* What searches and reports need to know about engines, and the smaller forms of optimizers.  They ask for
 * these traits instead of comparing names. */
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

/* One engine: what it keeps on a GPU, what else it buffers, the source of both, and the engine that takes
 * over when something is asked that it cannot do.  Static. */
struct oom_engine_info {
	const char *keeps, *buffers, *source;
	/* The engine (enum oom_engine_id) that shards state over GPUs in its place, which is itself if it can,
	 * and that engine's first and last stage.  shards_to 0: there is none. */
	int64_t shards_as, shards_from, shards_to;
	/* Its stage on several GPUs if nobody says one, and the source; 0: it shards only when asked. */
	int64_t shards_unasked;
	const char *shards_source;
	/* The engine that offloads state to the host in its place, and whether it offloads everything at once
	 * rather than the optimizer's state first.  offloads false: there is none. */
	bool offloads, offloads_whole;
	int64_t offloads_as;
	/* The engines whose stages the search tries. */
	int64_t tries[2];
	size_t n_tries;
	/* One more whose stages are tried where nothing else fits (OOM_NO_ENGINE: none). */
	int64_t last_try;
	bool narrows;           /* its buffers can be smaller than by default: oom_engine_narrow */
	bool replicates;        /* its stage 0 is tried as well */
	bool hybrid;            /* it can shard within a node and replicate between nodes */
	bool bucket_view;       /* DDP: gradients may be views of their reduction buckets */
	bool in_turn;           /* its GPUs hold different layers and see the same batch */
	bool degrees;           /* tensor, pipeline, context and expert parallelism (tp, pp, cp, ep, sp) */
	bool keeps_autocast;    /* its frameworks leave autocast on around its mixed precision */
	bool of_old_libraries;  /* the Trainer that starts it unasked is one from before transformers 5 */
	bool casts_model;       /* mixed precision means 16-bit weights; autocast is a choice of its own */
	bool mixes;             /* combines tp, pp, cp and ep with its sharding (torchtitan) */
	/* What launches its tensor, pipeline, context and expert parallelism, if that is a launcher of its own;
	 * otherwise NULL. */
	const char *launcher;
	bool plain;             /* it keeps everything in full on every GPU */
	/* Its default precision (enum oom_precision; auto: the config's) with data parallelism alone and with
	 * other degrees of parallelism, and the source. */
	int64_t precision, mixed_precision;
	const char *precision_source;
	bool for_many;          /* it shards a plan that kept everything in full once it has more GPUs */
};
#define OOM_NO_ENGINE 0         /* what an engine's last_try says where there is none */
/* By enum oom_engine_id; NULL past the end. */
OOM_API const struct oom_engine_info *oom_engine_at(size_t i);

/* Buffers of the plan's engine become small, which costs time.  False: they have no size that could be set,
 * or somebody set it. */
OOM_API bool oom_engine_narrow(struct oom_plan *plan);

/* Smaller forms of an optimizer, given by its index in the knob: with 8-bit states; with 8-bit states that
 * are also paged to the host; with 8-bit states that FSDP2 can shard; with the fewest bits that FSDP2 can
 * shard; and the optimizer that it is itself a smaller form of.  All are indices of the same knob, -1 if
 * there is none. */
struct oom_smaller_states {
	int64_t quantised, paged, sharded, least, whole;
};
OOM_API struct oom_smaller_states oom_smaller_states(int64_t optimizer);

#ifdef __cplusplus
}
#endif

#endif
