/* What an engine moves off the GPU or adds to it, over plain single-GPU training. */
#ifndef OOM_ENGINES_H
#define OOM_ENGINES_H

#include "oomplan/megatron.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"

/* The model as the engine meets it: elements, and the bytes one undivided rank would hold. */
struct oom_engine_in {
	uint64_t total, trainable;      /* elements */
	uint64_t hidden;                /* size; what DeepSpeed's "auto" values are made of */
	/* elements: a block (the wrapped unit), embeddings and head, an untied head */
	uint64_t layer, root, head;
	uint64_t params, grads, opt;    /* bytes, rounded by the allocator */
	uint64_t temps[2];              /* of the optimizer step */
	/* elements of the parameters below ZeRO-3's persistence threshold; what whole rows on every
	 * rank make of the shards (FSDP2), at least 1 */
	uint64_t small;
	double uneven;
	bool half;                      /* weights are stored in 16 bit */
	/* optimizer state does not follow the weights' type (8-bit) */
	bool quantised;
};
/* What one rank holds. */
struct oom_states {
	uint64_t params, grads, opt;    /* resident; grads from the backward pass to the step */
	uint64_t comm;                  /* buffers that are always there */
	uint64_t fwd, bwd;              /* gathered parameters and buckets of the pass */
	/* bwd in the last unit of a backward pass; when no activation is left */
	uint64_t bwd_late, bwd_end;
	uint64_t temps[2];              /* of the optimizer step, first and later */
	bool opt_from_start;            /* optimizer state exists before the first step */
	bool grads_reduced;             /* a gradient leaves as soon as it is made, into grads */
	/* then: of grads, what is there when the first unit's have come */
	uint64_t grads_first;
	uint64_t fwd_start;             /* fwd when forward begins and there is no activation yet */
	uint64_t host_pinned, host_pageable, nvme;      /* per rank */
	const char *warning;            /* "" or what is only approximated */
};
/* Applies the engine, ZeRO stage and offload of a plan that breaks no rule. */
void oom_engine_states(const struct oom_plan *plan, const struct oom_engine_in *in,
		       struct oom_states *s);
/* FSDP's mixed precision computes in 16 bit on parameters kept in 32: the tape is then recorded
 * in 16 bit. */
bool oom_engine_casts(const struct oom_plan *plan);

/* DeepSpeed's own estimators (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py,
 * estimate_zero{2,3}_model_states_mem_needs), bytes per GPU and per node, for comparison. */
struct oom_ds_estimate {
	double gpu, cpu;
};
struct oom_ds_estimate oom_ds_estimate2(double n_params, double gpus_per_node, double nodes,
					bool offload);
struct oom_ds_estimate oom_ds_estimate3(double n_params, double largest_layer, double gpus_per_node,
					double nodes, bool offload_optimizer, bool offload_params,
					bool zero_init);

/* The plan as a Megatron launch; refused with the reason where Megatron has no such thing. */
enum oom_status oom_megatron_launch(const struct oom_model *model, const struct oom_plan *plan,
				    struct oom_megatron *out, struct oom_error *err);
/* oom_evaluate for engine megatron. */
enum oom_status oom_megatron_evaluate(const struct oom_model *model, const struct oom_plan *plan,
				      unsigned flags, struct oom_eval *out, struct oom_error *err);

#endif
