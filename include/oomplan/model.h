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

/* Builds the architecture of keys (which must outlive it).  OOM_ERR_INVALID names the key, the line
 * and the family. A model type no family has gets the nearest structure, and oom_model_warning
 * says so. */
OOM_API enum oom_status oom_model_new(struct oom_model **out, const struct oom_keys *keys,
				      struct oom_error *err);
OOM_API void oom_model_free(struct oom_model *model);
/* The model that --objective distill learns from; borrowed, NULL: none.  Before the first evaluation. */
OOM_API void oom_model_teach(struct oom_model *model, const struct oom_model *teacher);
OOM_API const char *oom_model_type(const struct oom_model *model);
OOM_API const char *oom_model_family(const struct oom_model *model);
/* "" or a sentence that must reach the user. */
OOM_API const char *oom_model_warning(const struct oom_model *model);
/* Whether a family models the type itself; else it is counted as the nearest structure. */
OOM_API bool oom_model_known(const struct oom_model *model);
/* Keys of the config that its model type does not have, with their lines, and that were
 * therefore not used; "" if none. */
OOM_API const char *oom_model_unknown_keys(const struct oom_model *model);
OOM_API enum oom_task oom_model_task(const struct oom_model *model);
/* A few numbers of the architecture for reports and searches. */
struct oom_model_shape {
	uint64_t vocab, d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, max_positions,
		n_experts, image_size;
	uint64_t image_step;            /* sides of images are multiples of it: patches, windows; 32 else */
};
OOM_API struct oom_model_shape oom_model_shape(const struct oom_model *model);
OOM_API const char *oom_model_lora_targets(const struct oom_model *model);
/* What is said of weights that the config has stored in few bits and that are counted as if they were not;
 * "" otherwise. */
OOM_API const char *oom_model_stored_warning(const struct oom_model *model, const struct oom_plan *plan);
/* Under adapters, and unless the plan says how the base is stored: as the config's own
 * quantization_config has it loaded, where that can be trained through and is modelled. */
OOM_API void oom_model_settle_base(const struct oom_model *model, struct oom_plan *plan);

/* A plan whose precision is auto gets what its engine does with this config (oom_engine_info.precision);
 * transformers before 5 loads fp32.  One that takes bf16 where the card has it (precision_by_card) becomes
 * fp16 on an older card.  told, where there is one, is then a sentence about it, else "". */
OOM_API void oom_model_settle_precision(const struct oom_model *model, struct oom_plan *plan,
					char told[200]);

/* The families, for `oomplan list families`: NULL past the end. */
struct oom_family_type {
	const char *name;               /* a model_type word; NULL ends the list */
	const void *kind;               /* the family's own description of it */
};
struct oom_family_info {
	const char *name, *summary, *source;
	const struct oom_family_type *types;
};
OOM_API const struct oom_family_info *oom_family_at(size_t i);

/* The moments at which the peak may lie. */
enum oom_phase {
	OOM_PHASE_LOAD, OOM_PHASE_FWD1, OOM_PHASE_BWD1, OOM_PHASE_OPT1, OOM_PHASE_FWD2,
	OOM_PHASE_BWD2, OOM_PHASE_OPT2,
	OOM_PHASE_EVAL,
	OOM_PHASE_ROLLOUTS,             /* answers generated within the step; 0 where there are none */
	OOM_PHASES
};
/* "load", "step 1 forward", ...; and the column stem ("fwd1"). */
OOM_API const char *oom_phase_str(enum oom_phase phase);
OOM_API const char *oom_phase_column(enum oom_phase phase);

struct oom_eval;
/* Whether the step has the phase: all of them have all but the rollouts. */
OOM_API bool oom_phase_occurs(const struct oom_eval *e, enum oom_phase phase);

/* Who is alive at a peak. */
enum oom_bucket {
	OOM_BUCKET_PARAMS, OOM_BUCKET_BUFFERS, OOM_BUCKET_INPUTS, OOM_BUCKET_GRADS, OOM_BUCKET_OPT,
	OOM_BUCKET_SAVED, OOM_BUCKET_AMP, OOM_BUCKET_LOGITS, OOM_BUCKET_RECOMPUTE, OOM_BUCKET_TEMP,
	OOM_BUCKET_COMM, OOM_BUCKETS
};
OOM_API const char *oom_bucket_str(enum oom_bucket bucket);
OOM_API const char *oom_bucket_column(enum oom_bucket bucket);

/* What one micro-step (forward, backward, recomputation) asks of one GPU, whatever the card: the
 * input of the step time (steptime.h).  The slowest pipeline rank's; elements are counted as they
 * are computed, bytes as they are read and written. */
struct oom_work {
	/* multiplications and additions: of products with weights in 16 bit and in 32 (thin ones
	 * counted as the tiles they fill), of fused attention kernels (the half below the diagonal
	 * where a kernel skips the other), of batched products outside of them, which are what eager
	 * attention consists of; what of all these the model needs, without recomputation */
	double product_flops, fp32_flops, attention_flops, batched_flops, model_flops;
	double bytes;                   /* through the card's memory, outside of attention */
	/* weights read, and gradients added to, by products while they compute: what a product of few
	 * tokens waits for */
	double streamed;
	/* kernels that Python launches (forward, recomputation), and autograd's own threads */
	double launches, launches_back;
	double unpacked;                /* 4-bit weights made whole: elements, every time */
	/* sent by this GPU: to tensor-parallel, expert-parallel and context-parallel peers, to the
	 * next pipeline rank; and in how many collectives */
	double tensor_bytes, expert_bytes, context_bytes, pipeline_bytes;
	double tensor_calls, expert_calls, context_calls, pipeline_calls;
	double tensor_behind;           /* share of the tensor collectives that products hide */
	double units;                   /* layers: gathered and reduced one by one */
};

/* Everything one evaluation says.  Bytes on one GPU (the fullest rank) unless the name says
 * otherwise. */
struct oom_eval {
	uint64_t total_params, trainable_params, active_params;
	/* exact, unrounded */
	uint64_t param_bytes, buffer_bytes, input_bytes, grad_bytes, opt_bytes;
	uint64_t peak[OOM_PHASES];      /* PyTorch's max_memory_allocated of the phase */
	uint64_t end[OOM_PHASES];       /* allocated when it ends */
	uint64_t overall_peak;          /* over the six training phases */
	enum oom_phase peak_phase;
	uint64_t saved_bytes;           /* alive between forward and backward */
	/* peak the allocator holds: replayed if asked for, else estimated */
	uint64_t reserved_bytes;
	bool reserved_replayed;
	/* FSDP1: what joining its largest unit may leave in the cache, at most (estimated); else 0 */
	uint64_t wrap_bytes;
	/* oom_judge, of a plan that fits a card only once its allocator gives cached segments back:
	 * how many requests had to wait for that in two steps, and what would be used on a card that
	 * has room for the cache; else 0, and used_bytes */
	uint32_t retries;
	uint64_t wanted_bytes;
	/* activations that wait in host memory; part of host_pinned_bytes */
	uint64_t offloaded_bytes;
	/* context_bytes was measured on a card of this compute capability; else a guess */
	bool context_measured;
	/* outside overall_peak; the workspaces are in max_memory_allocated and max_memory_reserved of a card,
	 * as PyTorch takes them from its caching allocator.  0 where the engine's own rows have them */
	uint64_t context_bytes, workspace_bytes, nccl_bytes;
	uint64_t allocated_bytes;       /* max_memory_allocated on a card: overall_peak and workspaces */
	uint64_t used_bytes;            /* what nvidia-smi would show at the peak */
	/* the same by the cheap estimate of the reserved bytes, whether or not they were replayed */
	uint64_t used_bytes_estimated;
	/* offloaded state, per rank */
	uint64_t host_pinned_bytes, host_pageable_bytes, nvme_bytes;
	/* gathered parameters and buckets at their highest: more GPUs do not lower it */
	uint64_t floor_bytes;
	/* forward + backward + recomputation, matrix products only */
	double flops_per_sample;
	struct oom_work work;
	/* where GPUs hold different layers (pipeline stages, device_map): the fullest one, of how
	 * many (0: all are alike), and the peak of the emptiest */
	uint32_t stage, n_stages;
	uint64_t least_peak;
	const char *warning;            /* "" or what is only approximated */
	/* from here on with OOM_EVAL_BUCKETS alone: alive at the overall peak, the operation that
	 * allocated last; of saved_bytes, copies of weights and what waits for the loss */
	uint64_t bucket[OOM_BUCKETS];
	const char *peak_op, *peak_module;
	uint64_t saved_amp_bytes, saved_logits_bytes;
};

/* Scratch for evaluations: recorded tapes and their memory.  Every call that is given one writes it:
 * one per thread (or a lock around it).  It serves any number of models, and remembers them by their
 * address: it must not be used again once a model it has seen was freed and another one made. */
struct oom_evaluator;
OOM_API struct oom_evaluator *oom_evaluator_new(void);
OOM_API void oom_evaluator_free(struct oom_evaluator *ev);

enum oom_eval_flags {
	OOM_EVAL_FAST = 0,      /* phase peaks only: composition and replay are left out */
	OOM_EVAL_BUCKETS = 1,   /* who is alive at the peak */
	OOM_EVAL_REPLAY = 2,    /* replay the allocator (cost grows with depth) */
	/* the caller's word that the plan differs from what this evaluator was asked last in knobs alone
	 * that oom_knob_near() names: all others need not be compared */
	OOM_EVAL_NEAR = 4,
};
/* Of sizes and the like: batch, accumulation, length, optimizer, compute capability. */
OOM_API bool oom_knob_near(const struct oom_option *knob);
/* With OOM_EVAL_BUCKETS: who is alive at the peak of this phase of a training step, not at the
 * overall one. */
#define OOM_EVAL_PHASE_SHIFT 8
#define OOM_EVAL_AT(phase) ((unsigned)(phase) << OOM_EVAL_PHASE_SHIFT)
/* Prices plan.  Allocates only when it meets a new structure (another precision, attention,
 * optimizer, ...); a change of batch or sequence re-evaluates recorded rows.  OOM_ERR_INVALID
 * when the plan cannot run on this model. */
OOM_API enum oom_status oom_evaluate(struct oom_evaluator *ev, const struct oom_model *model,
				     const struct oom_plan *plan, unsigned flags,
				     struct oom_eval *out, struct oom_error *err);

/* Used bytes that still count as fitting: capacity less the plan's margin, and less the share of an engine for
 * rollouts that does not sleep meanwhile. */
OOM_API uint64_t oom_budget(uint64_t capacity_bytes, const struct oom_plan *plan);
/* What an evaluation decides about a budget without a replay: UNDECIDED where the estimate of the
 * reserved bytes could be wrong about it, or a full card might do with less.  Never wrong where it
 * decides: oom_judge says the same. */
enum oom_decision { OOM_DOES_NOT_FIT, OOM_FITS, OOM_UNDECIDED };
OOM_API enum oom_decision oom_decide(const struct oom_eval *e, uint64_t budget_bytes);
/* The same on a card of capacity_bytes, where a sleeping engine also has to find its share again. */
OOM_API enum oom_decision oom_decide_on(const struct oom_eval *e, uint64_t capacity_bytes,
					const struct oom_plan *plan);
/* What that engine takes of such a card, in bytes. */
OOM_API uint64_t oom_rollout_bytes(uint64_t capacity_bytes, const struct oom_plan *plan);
/* The verdict, the same for every command: prices plan into *out and says whether it fits a card of
 * capacity_bytes.  The allocator is replayed only where the cheap bounds do not decide; flags as of
 * oom_evaluate (OOM_EVAL_REPLAY replays whatever the bounds say, and *fits is the same).  A plan of
 * which only the cache is too large is replayed again on that card: what it then uses is
 * used_bytes, and it is out of memory where a request finds too little even after the cached
 * segments were released. */
OOM_API enum oom_status oom_judge(struct oom_evaluator *ev, const struct oom_model *model,
				  const struct oom_plan *plan, uint64_t capacity_bytes,
				  unsigned flags, struct oom_eval *out, bool *fits,
				  struct oom_error *err);

/* What an evaluation between steps uses: the plan's eval_batch without gradients over weights and
 * states; an estimate.  0: the plan never evaluates, or that cannot be priced. */
OOM_API uint64_t oom_evaluation_bytes(struct oom_evaluator *ev, const struct oom_model *model,
				      const struct oom_plan *plan);
/* Whether that fits, where the plan says that the run evaluates; true where it does not say so. */
OOM_API bool oom_evaluation_fits(struct oom_evaluator *ev, const struct oom_model *model,
				 const struct oom_plan *plan, uint64_t capacity_bytes);

/* Who is alive at the peak of every phase, for pictures: each phase's buckets add up to its peak.
 * e: the plan's evaluation with OOM_EVAL_BUCKETS. */
struct oom_anatomy {
	uint64_t bucket[OOM_PHASES][OOM_BUCKETS];
};
OOM_API enum oom_status oom_anatomy(struct oom_evaluator *ev, const struct oom_model *model,
				    const struct oom_plan *plan, const struct oom_eval *e,
				    struct oom_anatomy *out, struct oom_error *err);

/* One row of the ledger, for `oomplan explain`. */
struct oom_ledger_row {
	const char *scope, *name;       /* module and tensor or operation */
	/* weight, buffer, saved activation, temporary, gradient, ... */
	const char *kind;
	const char *born;               /* load, forward, backward, evaluation, optimizer */
	char formula[160];              /* as compiled: "b*s*d_ff * 2 B" */
	char numbers[120];              /* the same with the values put in */
	uint64_t bytes;                 /* of one */
	uint64_t count;                 /* layers it stands for */
	uint64_t held;                  /* how many of them the forward leaves for the backward */
	const char *source;
};
typedef void (*oom_ledger_fn)(void *ctx, const struct oom_ledger_row *row);
/* Calls fn for every row of the plan's ledger, in the order of birth. */
OOM_API enum oom_status oom_ledger_each(struct oom_evaluator *ev, const struct oom_model *model,
					const struct oom_plan *plan, oom_ledger_fn fn, void *ctx,
					struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
