/* What Megatron-core, DeepSpeed's pipeline engine over it and torchtitan's mixes give to the table of
 * engines with ranks of their own (rank_engines.c). */
#ifndef OOM_RANKS_H
#define OOM_RANKS_H

#include "oomplan/megatron.h"
#include "step/engines.h"

extern const struct oom_rank_engine oom_megatron_ranks, oom_titan_ranks;

/* Reads the model as a launch of Megatron into model->launch; NULL where it cannot be one.
 * OOM_ERR_MEMORY. */
enum oom_status oom_megatron_prepare(struct oom_model *model);
/* The plan as a Megatron launch; refused with the reason where Megatron has no such thing. */
enum oom_status oom_megatron_launch(const struct oom_model *model, const struct oom_plan *plan,
				    struct oom_megatron *out, struct oom_error *err);

#endif
