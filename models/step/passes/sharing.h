/* What the sharded engines' passes have in common. */
#ifndef OOM_SHARING_H
#define OOM_SHARING_H

#include "step/pass.h"
#include "tape/round.h"

/* A layer's parameters (unit - 1 of the tape), or with unit 0 what is outside the layers:
 * embeddings, final norm, head. */
struct oom_unit_sums {
	uint64_t bytes;         /* as the step computes with them */
	uint64_t trained;       /* elements that get a gradient */
	uint64_t grads;         /* bytes of those gradients as shards keep them */
};
/* wide: shards are in fp32 whatever the step computes in. */
struct oom_unit_sums oom_sum_unit(const struct oom_rewrite *w, uint32_t unit, bool wide);

/* Bytes of the gradients of a layer's weights that are used twice, as embeddings are that a head shares. */
uint64_t oom_shared_grads(const struct oom_rewrite *w, uint32_t unit);

/* A gradient is whole: it waits until its layer is through, or the pass. */
void oom_grad_waits(struct oom_rewrite *w, int32_t row);
/* Frees the gradients that wait and belong to the layer (0: all that wait). */
void oom_free_waiting(struct oom_rewrite *w, uint32_t unit);

/* Bytes of the bucket in which DeepSpeed reduces gradients: reduce_bucket_size elements, whole whatever the model's size;
 * transformers/integrations/deepspeed.py trainer_config_finalize makes the square of the hidden size of "auto". */
static inline uint64_t oom_reduce_bucket(const struct oom_plan *p, uint64_t hidden, bool half)
{
	return (half ? 2 : 4) * (p->reduce_bucket == OOM_COUNT_AUTO ? hidden * hidden : (uint64_t)p->reduce_bucket);
}

/* Elements below which ZeRO-3 leaves a parameter whole on every rank, and those that it gathers ahead; "auto" as the same
 * function of transformers fills it in. */
static inline uint64_t oom_persistence(const struct oom_plan *p, uint64_t hidden)
{
	return p->persistence == OOM_COUNT_AUTO ? 10 * hidden : (uint64_t)p->persistence;
}

static inline uint64_t oom_prefetch_bucket(const struct oom_plan *p, uint64_t hidden)
{
	return p->prefetch_bucket == OOM_COUNT_AUTO ? (uint64_t)(0.9 * (double)(hidden * hidden)) : (uint64_t)p->prefetch_bucket;
}

/* Whether DeepSpeed reduces and gathers on streams of their own (runtime/zero/config.py overlap_comm_valid). */
static inline bool oom_overlaps(const struct oom_plan *p)
{
	return p->overlap_comm == OOM_OVERLAP_AUTO ? p->zero_stage == 3 : p->overlap_comm == OOM_OVERLAP_TRUE;
}

/* Bytes of one rank's part. */
static inline uint64_t oom_part_of(uint64_t bytes, struct oom_ranks r)
{
	return oom_shared_bytes(bytes, OOM_SHARE_PART, r);
}

#endif
