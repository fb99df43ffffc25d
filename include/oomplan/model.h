/* A model, and what a plan for it costs. */
#ifndef OOMPLAN_MODEL_H
#define OOMPLAN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/config.h"
#include "oomplan/option.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model's architecture, read from a config.json.  Opaque; free with oom_model_free.  Once made it
 * is never written again: any number of threads may price plans for one model at the same time, each
 * with an evaluator of its own. */
struct oom_model;

/* Builds the architecture that the keys describe; the keys must outlive the model.  OOM_ERR_INVALID
 * names the key, its line and the family.  A model type that no family has is priced as the nearest
 * structure, and oom_model_warning says so. */
OOM_API enum oom_status oom_model_new(struct oom_model **out, const struct oom_keys *keys,
				      struct oom_error *err);
OOM_API void oom_model_free(struct oom_model *model);
/* Sets the teacher that --objective distill learns from.  The teacher is borrowed; NULL removes it.
 * Call this before the first evaluation. */
OOM_API void oom_model_teach(struct oom_model *model, const struct oom_model *teacher);
/* The config's model_type, and the name of the family that reads it.  They live as long as the model. */
OOM_API const char *oom_model_type(const struct oom_model *model);
OOM_API const char *oom_model_family(const struct oom_model *model);
/* A sentence that must reach the user, or "" if there is none. */
OOM_API const char *oom_model_warning(const struct oom_model *model);
/* True if a family models the type itself; otherwise it is priced as the nearest structure. */
OOM_API bool oom_model_known(const struct oom_model *model);
/* The keys of the config that its model type does not have, with their lines.  They were not used.
 * "" if there are none. */
OOM_API const char *oom_model_unknown_keys(const struct oom_model *model);
/* The task that a plan with task auto has: what the config's architecture says, otherwise the usual one of the type. */
OOM_API enum oom_task oom_model_task(const struct oom_model *model);
/* The dimensions of the architecture that reports and searches need; 0 where a model has none. */
struct oom_model_shape {
	uint64_t vocab, d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, max_positions,
		n_experts, image_size;
	uint64_t image_step;            /* image sides are multiples of it (patches, windows); otherwise 32 */
};
OOM_API struct oom_model_shape oom_model_shape(const struct oom_model *model);
/* The modules that get adapters where a plan names none (PEFT's own choice for the type, where it has one), as the
 * knob lora-targets spells them.  Static. */
OOM_API const char *oom_model_lora_targets(const struct oom_model *model);
/* The same of a plan, whose kind of adapter or whose engine may have a default of its own. */
OOM_API const char *oom_plan_lora_targets(const struct oom_plan *plan, const struct oom_model *model);
/* A warning for a config whose weights are stored in few bits but priced as if they were not; otherwise
 * "". */
OOM_API const char *oom_model_stored_warning(const struct oom_model *model, const struct oom_plan *plan);
/* A sentence for a plan without images, audio and video of a model that has towers for them, which is priced
 * as a step on words alone, or of one that hears and is priced for a usual length; otherwise "".  Static. */
OOM_API const char *oom_model_unasked(const struct oom_model *model, const struct oom_plan *plan);
/* With adapters, and unless the plan says how the base is stored, sets the base's storage to what the
 * config's own quantization_config loads, provided that it is modelled and can be trained through. */
OOM_API void oom_model_settle_base(const struct oom_model *model, struct oom_plan *plan);
/* True if the plan quantises with adapters a base that the config's own quantization_config stores in another way, which
 * transformers then loads whatever it is asked for (quantizers/auto.py merge_quantization_configs): the plan gets it. */
OOM_API bool oom_model_keep_base(const struct oom_model *model, struct oom_plan *plan);

/* The precision is auto or auto-amp: it is the engine's and the config's to say. */
OOM_API bool oom_plan_precision_open(const struct oom_plan *plan);
/* A plan whose precision is auto gets what its engine does with this config (oom_engine_info.precision);
 * transformers before 5 loads fp32; auto-amp is bf16 autocast over that.  One that takes bf16 where the card has it (precision_by_card) becomes
 * fp16 on an older card.  told, where there is one, is then a sentence about it, else "". */
OOM_API void oom_model_settle_precision(const struct oom_model *model, struct oom_plan *plan,
					char told[200]);

/* A model type that a family reads. */
struct oom_family_type {
	const char *name;               /* a model_type word; NULL ends the list */
	const void *kind;               /* the family's own description of it */
};
struct oom_family_info {
	const char *name, *summary, *source;
	const struct oom_family_type *types;
};
/* The i-th family; NULL past the end.  Static. */
OOM_API const struct oom_family_info *oom_family_at(size_t i);

/* The phases of a run in which its peak can lie. */
enum oom_phase {
	OOM_PHASE_LOAD, OOM_PHASE_FWD1, OOM_PHASE_BWD1, OOM_PHASE_OPT1, OOM_PHASE_FWD2,
	OOM_PHASE_BWD2, OOM_PHASE_OPT2,
	OOM_PHASE_EVAL,
	OOM_PHASE_ROLLOUTS,             /* answers generated within the step; 0 where there are none */
	OOM_PHASES
};
/* The phase in words ("load", "step 1 forward") and as the stem of column names ("fwd1").  Static. */
OOM_API const char *oom_phase_str(enum oom_phase phase);
OOM_API const char *oom_phase_column(enum oom_phase phase);

/* What an evaluation has to say at most, and the text of all of it, a model's own sentences before it. */
enum { OOM_WARNINGS = 8, OOM_WARNINGS_SIZE = 3200 };

struct oom_eval;
/* All that is only approximated or not counted, "; " between sentences: of the model, which may be NULL, and of the
 * evaluation.  Returns buf. */
OOM_API const char *oom_warnings_of(const struct oom_model *model, const struct oom_eval *e, char buf[OOM_WARNINGS_SIZE]);
/* True if the evaluated step has the phase.  Every step has all of them except the rollouts; of what is judged
 * (oomplan/answer.h) a run that never evaluates has no evaluation. */
OOM_API bool oom_phase_occurs(const struct oom_eval *e, enum oom_phase phase);

/* What the bytes that are alive at a peak belong to. */
enum oom_bucket {
	OOM_BUCKET_PARAMS, OOM_BUCKET_BUFFERS, OOM_BUCKET_INPUTS, OOM_BUCKET_GRADS, OOM_BUCKET_OPT,
	OOM_BUCKET_SAVED, OOM_BUCKET_AMP, OOM_BUCKET_LOGITS, OOM_BUCKET_RECOMPUTE, OOM_BUCKET_TEMP,
	OOM_BUCKET_COMM, OOM_BUCKETS
};
/* The bucket in words ("saved activations") and as the stem of column names.  Static. */
OOM_API const char *oom_bucket_str(enum oom_bucket bucket);
OOM_API const char *oom_bucket_column(enum oom_bucket bucket);

/* What one micro-step (forward, backward, recomputation) asks of one GPU, whatever the card; the input
 * of the step time (steptime.h).  With a pipeline these are the slowest rank's figures.  Elements are
 * counted when they are computed, bytes when they are read or written. */
struct oom_work {
	/* multiplications and additions: of products with weights in 16 bit and in 32 (thin ones
	 * counted as the tiles they fill), of fused attention kernels (the half below the diagonal
	 * where a kernel skips the other), of batched products outside of them, which are what eager
	 * attention consists of; what of all these the model needs, without recomputation */
	double product_flops, fp32_flops, attention_flops, batched_flops, model_flops;
	double wide_flops, wide_batched_flops;  /* of attention_flops and of batched_flops, on fp32 */
	/* of products in 16 bit: elements that they write, and their inner sizes, summed over calls */
	double written, depth;
	double uncast;                  /* of `written`: what an 8-bit recipe does not cast */
	double bytes;                   /* through the card's memory, without attention's */
	/* bytes of weights that products read, and of gradients that they add to; a product of few tokens
	 * waits for them */
	double streamed;
	/* kernels that Python launches (forward, recomputation), and autograd's own threads */
	double launches, launches_back;
	double captured, replays;       /* of both: what CUDA graphs of layers hold, and what launches these */
	double unpacked;                /* elements of 4-bit weights that are dequantised, each time */
	/* bytes that this GPU sends to its tensor-, expert- and context-parallel peers and to the next
	 * pipeline rank, and the number of collectives it takes */
	double tensor_bytes, expert_bytes, context_bytes, pipeline_bytes;
	double tensor_calls, expert_calls, context_calls, pipeline_calls;
	double expert_copies;           /* experts that a token is sent to */
	double tensor_behind;           /* the share of tensor collectives that runs beside products */
	double units;                   /* layers, which are gathered and reduced one by one */
	double tensors, trained;        /* of weights, adapters included; which of them train; 0 of a Megatron rank */
};

/* The result of one evaluation.  Sizes are bytes on one GPU, the fullest rank, unless the name says
 * otherwise. */
struct oom_eval {
	/* elements over all ranks: of all parameters, tied ones once; of those that train; of those that one
	 * token meets, which of a mixture's experts are the chosen ones */
	uint64_t total_params, trainable_params, active_params;
	/* exact sizes, not rounded up to the allocator's blocks */
	uint64_t param_bytes, buffer_bytes, input_bytes, grad_bytes, opt_bytes;
	uint64_t whole_bytes;           /* of param_bytes: in buffers, which no engine divides */
	/* what all ranks hold together of gradients and states: fp32 under FSDP's mixed precision, with DeepSpeed's master
	 * weights, where grad_bytes and opt_bytes are those of the 16-bit step (whose time goes by them); 0: as those say */
	uint64_t held_grads, held_states;
	uint64_t peak[OOM_PHASES];      /* PyTorch's max_memory_allocated of the phase */
	uint64_t end[OOM_PHASES];       /* allocated at the end of the phase */
	uint64_t overall_peak;          /* over the six training phases */
	enum oom_phase peak_phase;
	uint64_t saved_bytes;           /* alive between forward and backward */
	/* the most that the caching allocator reserves: replayed if asked for, otherwise estimated */
	uint64_t reserved_bytes;
	bool reserved_replayed;
	/* FSDP1: the most that wrapping its largest unit may leave in the cache (estimated); otherwise 0 */
	uint64_t wrap_bytes;
	/* Set by oom_judge for a plan that fits only because the allocator releases cached segments: how
	 * many requests of two steps had to wait for that, and how much would be used on a card with room
	 * for the whole cache.  Otherwise 0, and used_bytes. */
	uint32_t retries;
	uint64_t wanted_bytes;
	/* The step was replayed on the card and died there, with the cache emptied.  used_bytes are then those of an
	 * endless card: what a card needs lies between the peak and them. */
	bool died;
	/* activations in host memory; part of host_pinned_bytes */
	uint64_t offloaded_bytes;
	/* true if context_bytes was measured on a card of this compute capability; otherwise it is a guess */
	bool context_measured;
	/* Not part of overall_peak.  On a card, the workspaces are part of max_memory_allocated and of
	 * max_memory_reserved, because PyTorch takes them from its caching allocator; they are 0 here if
	 * the engine's own rows contain them.  nccl_bytes has, where allocators were replayed on a card, what is cached
	 * on an average rank beyond a node's first, which reserved_bytes is of (FSDP1 over a quantised base). */
	uint64_t context_bytes, workspace_bytes, nccl_bytes;
	/* the cached part of nccl_bytes on a card with room for the whole cache; 0 without a replay */
	uint64_t later_bytes;
	/* max_memory_allocated on a card: overall_peak plus workspaces and, where the allocator was replayed, what its blocks
	 * are larger than what lies in them */
	uint64_t allocated_bytes;
	uint64_t used_bytes;            /* what nvidia-smi would show at the peak */
	/* the same with the reserved bytes estimated cheaply, whether or not they were replayed */
	uint64_t used_bytes_estimated;
	/* offloaded state of one rank */
	uint64_t host_pinned_bytes, host_pageable_bytes, nvme_bytes;
	/* the most that gathered parameters and buckets take; more GPUs do not lower it */
	uint64_t floor_bytes;
	/* forward, backward and recomputation; matrix products only */
	double flops_per_sample;
	struct oom_work work;
	/* Where GPUs hold different layers (pipeline stages, device_map): the number of the fullest one,
	 * how many there are (0: all GPUs are alike), and the peak of the emptiest. */
	uint32_t stage, n_stages;
	uint64_t least_peak;
	const char *warning[OOM_WARNINGS];      /* what is only approximated or not counted, then NULLs */
	/* The rest is set only with OOM_EVAL_BUCKETS: what is alive at the overall peak, the operation that
	 * allocated last, and the parts of saved_bytes that are casts of weights and inputs of the loss. */
	uint64_t bucket[OOM_BUCKETS];
	const char *peak_op, *peak_module;
	uint64_t saved_amp_bytes, saved_logits_bytes;
};

/* Working memory of evaluations: recorded tapes.  Every call that is given an evaluator writes to it, so
 * each thread needs its own (or a lock).  One evaluator serves any number of models, and models may be freed
 * while it lives. */
struct oom_evaluator;
OOM_API struct oom_evaluator *oom_evaluator_new(void);
OOM_API void oom_evaluator_free(struct oom_evaluator *ev);
/* True if an evaluation has failed with OOM_ERR_MEMORY since this was last asked: calls that answer with a number or a
 * verdict alone (oom_evaluation_fits) have then answered without it. */
OOM_API bool oom_evaluator_starved(struct oom_evaluator *ev);

enum oom_eval_flags {
	OOM_EVAL_FAST = 0,      /* the peaks of the phases only, without composition and replay */
	OOM_EVAL_BUCKETS = 1,   /* what is alive at the peak */
	OOM_EVAL_REPLAY = 2,    /* replay the allocator; the time grows with the model's depth */
	/* the caller promises that, since this evaluator's last call, only knobs for which oom_knob_near()
	 * is true have changed, so that the others need not be compared */
	OOM_EVAL_NEAR = 4,
	/* of oom_judge, without OOM_EVAL_REPLAY: only the verdict on this card is wanted.  What dies there is not
	 * replayed on an endless one: reserved_replayed is false, and used_bytes is no more than too much */
	OOM_EVAL_VERDICT = 8,
};
/* True for knobs such as batch, accumulation, length, optimizer and compute capability, a change of which
 * OOM_EVAL_NEAR allows. */
OOM_API bool oom_knob_near(const struct oom_option *knob);
/* With OOM_EVAL_BUCKETS: report what is alive at the peak of this phase of a training step instead of at
 * the overall peak. */
#define OOM_EVAL_PHASE_SHIFT 8
#define OOM_EVAL_AT(phase) ((unsigned)(phase) << OOM_EVAL_PHASE_SHIFT)
/* Prices the plan.  Memory is allocated only for a structure that is new to the evaluator (another
 * precision, attention, optimizer, ...); a change of batch or sequence length re-evaluates recorded rows.
 * OOM_ERR_INVALID if the plan cannot run on this model. */
OOM_API enum oom_status oom_evaluate(struct oom_evaluator *ev, const struct oom_model *model,
				     const struct oom_plan *plan, unsigned flags,
				     struct oom_eval *out, struct oom_error *err);

/* The most bytes a plan may use and still count as fitting: the capacity less the plan's margin, and less
 * the share of a rollout engine that stays awake while the model trains. */
OOM_API uint64_t oom_budget(uint64_t capacity_bytes, const struct oom_plan *plan);
/* What an evaluation decides about a budget without a replay.  UNDECIDED means that the estimate of the
 * reserved bytes may be wrong about it, or that less may do on a full card.  A decision is always the one
 * of oom_judge. */
enum oom_decision { OOM_DOES_NOT_FIT, OOM_FITS, OOM_UNDECIDED };
OOM_API enum oom_decision oom_decide(const struct oom_eval *e, uint64_t budget_bytes);
/* The same for a card of capacity_bytes, on which a rollout engine that slept must also find its share
 * again. */
OOM_API enum oom_decision oom_decide_on(const struct oom_eval *e, uint64_t capacity_bytes,
					const struct oom_plan *plan);
/* The bytes that a rollout engine takes of a card of capacity_bytes. */
OOM_API uint64_t oom_rollout_bytes(uint64_t capacity_bytes, const struct oom_plan *plan);
/* The verdict, which is the same for every command: prices the plan into *out and sets *fits if it fits a
 * card of capacity_bytes.  The allocator is replayed only if the cheap bounds do not decide; flags are
 * those of oom_evaluate (with OOM_EVAL_REPLAY it is always replayed, and *fits is the same).  If only the
 * allocator's cache is too large, the step is replayed again on a card of that size: used_bytes is then
 * what it uses there, and it does not fit if a request fails even after cached segments were released.
 * OOM_EVAL_VERDICT leaves the endless card out where the verdict does not take it. */
OOM_API enum oom_status oom_judge(struct oom_evaluator *ev, const struct oom_model *model,
				  const struct oom_plan *plan, uint64_t capacity_bytes,
				  unsigned flags, struct oom_eval *out, bool *fits,
				  struct oom_error *err);

/* An evaluation between steps: a forward pass of the plan's eval_batch without gradients, beside weights
 * and optimizer states.  An estimate.  0 if the plan never evaluates or the evaluation cannot be priced. */
struct oom_evaluation {
	uint64_t allocated_bytes, used_bytes;
	uint64_t left_bytes;            /* allocated before it and after it */
};
OOM_API struct oom_evaluation oom_evaluation_of(struct oom_evaluator *ev, const struct oom_model *model,
						const struct oom_plan *plan);
/* Its used bytes alone. */
OOM_API uint64_t oom_evaluation_bytes(struct oom_evaluator *ev, const struct oom_model *model,
				      const struct oom_plan *plan);
/* Whether the evaluation is a phase of the plan's own price: logits that pile up lie in the step's own replay. */
OOM_API bool oom_evaluation_is_priced(const struct oom_plan *plan);
/* Whether that fits, where the plan says that the run evaluates, as oom_judge has it where the plan's own price is of the
 * evaluation; true where it does not say so. */
OOM_API bool oom_evaluation_fits(struct oom_evaluator *ev, const struct oom_model *model,
				 const struct oom_plan *plan, uint64_t capacity_bytes);

/* Who is alive at the peak of every phase, for pictures: each phase's buckets add up to its peak.
 * e: the plan's evaluation with OOM_EVAL_BUCKETS.  It can fail as oom_evaluate can. */
struct oom_anatomy {
	uint64_t bucket[OOM_PHASES][OOM_BUCKETS];
};
OOM_API enum oom_status oom_anatomy(struct oom_evaluator *ev, const struct oom_model *model,
				    const struct oom_plan *plan, const struct oom_eval *e,
				    struct oom_anatomy *out, struct oom_error *err);

/* One row of the ledger, for `oomplan explain`. */
struct oom_ledger_row {
	const char *scope, *name;       /* module and tensor or operation */
	/* "weight" (what the rank keeps), "whole weight" (what it computes with, where it keeps something else),
	 * "buffer", "saved activation", "temporary", "gradient", ... */
	const char *kind;
	const char *born;               /* "load", "start", "forward", "backward", "evaluation" or "optimizer" */
	char formula[160];              /* as compiled: "b*s*d_ff * 2 B" */
	char numbers[120];              /* the same with the values put in */
	uint64_t bytes;                 /* of one */
	uint64_t count;                 /* the number of layers it stands for */
	uint64_t held;                  /* how many of them the forward pass keeps for the backward pass */
	bool host;                      /* it lies in host memory or on NVMe, which scope says */
	const char *source;
};
typedef void (*oom_ledger_fn)(void *ctx, const struct oom_ledger_row *row);
/* Calls fn for every row of the plan's ledger, in the order in which the rows are allocated.  It can fail as
 * oom_evaluate can; fn has not been called then. */
OOM_API enum oom_status oom_ledger_each(struct oom_evaluator *ev, const struct oom_model *model,
					const struct oom_plan *plan, oom_ledger_fn fn, void *ctx,
					struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
