/* What an engine moves off the GPU or adds to it, over plain single-GPU training. */
#ifndef OOM_ENGINES_H
#define OOM_ENGINES_H

#include "oomplan/megatron.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"

/* Model-state bytes of one rank, rounded, before and after the engine. */
struct oom_states {
	uint64_t params, grads, opt;    /* resident */
	uint64_t comm;                  /* buckets and gathered parameters, alive with them */
	const char *warning;            /* "" or what is only approximated */
};
/* Applies plan's engine, ZeRO stage and offload to s.  largest: bytes of the largest layer's parameters;
 * params16: weights are stored in 16 bit.  OOM_ERR_INVALID for layouts that are not modelled or impossible. */
enum oom_status oom_engine_states(const struct oom_plan *plan, uint64_t trainable, uint64_t largest, bool params16,
				  struct oom_states *s, struct oom_error *err);

/* The plan as a Megatron launch; refused with the reason where Megatron has no such thing. */
enum oom_status oom_megatron_launch(const struct oom_model *model, const struct oom_plan *plan, struct oom_megatron *out,
				    struct oom_error *err);
/* oom_evaluate for engine megatron. */
enum oom_status oom_megatron_evaluate(const struct oom_model *model, const struct oom_plan *plan, unsigned flags,
				      struct oom_eval *out, struct oom_error *err);

#endif
