/* A plan: one value per knob, and the table that describes the knobs.
 *
 * The table is the only list of them.  Command-line options, --help, completion, the man page,
 * sweep axes, CSV columns, runs files and the search's axes are all read from it: a knob called
 * "micro-batch" is the option --micro-batch, the axis micro-batch and the column micro_batch. */
#ifndef OOMPLAN_PLAN_H
#define OOMPLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_task {
	OOM_TASK_AUTO,
	OOM_TASK_CAUSAL_LM,
	OOM_TASK_MASKED_LM,
	OOM_TASK_SEQ_CLS,
	OOM_TASK_IMAGE_CLS,
	OOM_TASK_SEQ2SEQ,
	OOM_TASK_IMAGE_TEXT
};
enum oom_precision { OOM_FP32, OOM_BF16, OOM_FP16, OOM_AMP_BF16, OOM_AMP_FP16, OOM_BF16_AMP };
enum oom_attention { OOM_ATTN_EAGER, OOM_ATTN_SDPA, OOM_ATTN_FLASH };
enum oom_checkpointing { OOM_CKPT_NONE, OOM_CKPT_FULL, OOM_CKPT_SELECTIVE };
enum oom_loss { OOM_LOSS_PLAIN, OOM_LOSS_FUSED, OOM_LOSS_SLICED };
enum oom_allocator { OOM_ALLOC_NATIVE, OOM_ALLOC_EXPANDABLE };
enum oom_engine_id {
	OOM_ENGINE_HF,
	OOM_ENGINE_DEEPSPEED,
	OOM_ENGINE_FSDP2,
	OOM_ENGINE_FSDP1,
	OOM_ENGINE_MEGATRON,
	OOM_ENGINE_TORCHTUNE,
	OOM_ENGINE_DEVICE_MAP
};
enum oom_scan { OOM_SCAN_ASSOCIATIVE, OOM_SCAN_LOOP };
enum oom_offload { OOM_OFFLOAD_NONE, OOM_OFFLOAD_CPU, OOM_OFFLOAD_NVME };

#define OOM_COUNT_AUTO (-1)

/* All fields are plain values; a plan is copied by assignment.  Choices are indices into the
 * knob's list. */
struct oom_plan {
	/* what is trained on */
	int64_t task;               /* enum oom_task */
	int64_t micro_batch;        /* sequences (images) a forward pass holds on one GPU */
	/* sequences an optimizer step sees over all GPUs; 0 = micro x accumulation x GPUs */
	int64_t global_batch;
	int64_t grad_accum;         /* micro-steps per optimizer step */
	int64_t seq_len;            /* tokens */
	int64_t tgt_len;            /* decoder tokens of an encoder-decoder; 0 = seq_len */
	int64_t image_size;         /* pixels a side; 0 = the config's */
	int64_t images;             /* images a sample of a vision-language model; 0 = text alone */
	int64_t num_labels;         /* classes of a classification head; 0 = the config's */
	int64_t num_layers;         /* depth override; 0 = the config's */
	int64_t padding_mask;       /* 1 = batches really contain padding, so a mask is passed */
	/* numerics and kernels */
	int64_t precision;          /* enum oom_precision */
	int64_t attn;               /* enum oom_attention */
	int64_t grad_ckpt;          /* enum oom_checkpointing */
	int64_t scan;               /* enum oom_scan; Mamba and Falcon Mamba */
	int64_t fused_ce;           /* enum oom_loss */
	int64_t convert_outputs_fp32; /* 1 = accelerate's wrapper upcasts the outputs */
	int64_t allocator;          /* enum oom_allocator */
	/* evaluation batches whose logits pile up on the GPU; 0 = not counted */
	int64_t eval_accumulation;
	/* optimizer and adapters */
	int64_t optimizer;          /* index into the optimizer table */
	int64_t lora_r;             /* 0 = full fine-tuning */
	/* "all-linear" or names joined by + ; empty = the family's default */
	char lora_targets[120];
	double lora_dropout;
	int64_t qlora;              /* 1 = NF4 base weights */
	int64_t kbit_prepare;       /* 1 = PEFT prepare_model_for_kbit_training */
	int64_t double_quant;       /* 1 = quantised absmax */
	/* card */
	/* NVIDIA's, as 8.6; 0: the card's own, 8.0 when there is none */
	double compute_capability;
	/* many GPUs */
	int64_t engine;             /* enum oom_engine_id */
	int64_t gpus;               /* ranks over all nodes */
	int64_t nodes;
	int64_t gpus_per_node;      /* 0 = gpus / nodes; see oom_plan_settle */
	int64_t zero_stage;         /* 0..3; FSDP: 2 = SHARD_GRAD_OP, 3 = FULL_SHARD */
	/* degrees; sp is a flag; vpp: model chunks a pipeline rank */
	int64_t tp, sp, pp, vpp, cp, ep;
	int64_t pp_schedule;        /* 0 1F1B, 1 GPipe */
	int64_t cp_comm;            /* 0 ring, 1 all-to-all */
	int64_t recompute_layers;   /* Megatron block recomputation; 0 = all layers */
	double moe_imbalance;       /* tokens of the fullest expert-parallel rank over the mean */
	int64_t offload_optimizer;  /* enum oom_offload */
	int64_t offload_params;
	/* 1 = what layers keep for backward waits in pinned host memory */
	int64_t offload_activations;
	int64_t hybrid_shard;       /* FSDP: shard within a node, replicate between nodes */
	int64_t bucket_view;        /* DDP: gradient_as_bucket_view */
	int64_t rank0_contexts;     /* 1 = GPU 0 holds a context of every process of its node */
	/* DeepSpeed, elements; OOM_COUNT_AUTO: what transformers fills in for "auto" */
	int64_t reduce_bucket, max_live_params, prefetch_bucket, persistence, sub_group_size;
	/* host */
	int64_t dataloader_workers, prefetch_factor;
	int64_t low_cpu_mem;        /* 1 = checkpoints are loaded a shard at a time */
	int64_t save_sharded;       /* 1 = no full state dict is gathered */
	int64_t save_total_limit;   /* checkpoints kept */
	/* what weights on disk hold beyond (or short of) the config's count, where only they know:
	 * a type no family models.  Parameters; not a knob. */
	int64_t surplus_params;
	/* verdict */
	double margin;              /* share of the capacity kept free */
};

enum oom_knob_kind { OOM_KNOB_COUNT, OOM_KNOB_CHOICE, OOM_KNOB_FLAG, OOM_KNOB_REAL, OOM_KNOB_TEXT };

/* What a change does to the run's result (the playbook's classes). */
enum oom_class { OOM_EXACT, OOM_NUMERICS, OOM_PLACEMENT, OOM_SCIENCE };

/* One legal word of a choice knob. */
struct oom_choice {
	const char *name;
	const char *summary;    /* for help; ends without a full stop */
	const char *source;     /* where the behaviour was read */
	enum oom_class cls;
};

struct oom_knob {
	const char *name;       /* words joined by '-' */
	const char *column;     /* name in runs files, CSV and JSON */
	const char *metavar;    /* "N", "WORD", "NAMES" */
	const char *summary;
	/* how a training script sets it: HF argument, environment variable */
	const char *setting;
	const char *source;
	enum oom_knob_kind kind;
	size_t offset;          /* of the field in struct oom_plan */
	/* inclusive range and default (COUNT, FLAG, REAL; default index of CHOICE); a COUNT from
	 * OOM_COUNT_AUTO on takes "auto" */
	double min, max, def;
	const struct oom_choice *(*choice)(size_t i);   /* CHOICE: NULL past the end */
};

/* What an engine keeps on a GPU, what it buffers besides, and where that was read. */
struct oom_engine_info {
	const char *keeps, *buffers, *source;
};
/* By enum oom_engine_id, the order of the knob's choices; NULL past the end. */
OOM_API const struct oom_engine_info *oom_engine_at(size_t i);

/* The knob table, in the order of help; NULL past the end. */
OOM_API const struct oom_knob *oom_knob_at(size_t i);
/* By name, '-' and '_' alike, or by column; NULL if there is none. */
OOM_API const struct oom_knob *oom_knob_find(const char *name);

/* Every knob at its default: what a Hugging Face Trainer user gets. */
OOM_API struct oom_plan oom_plan_default(void);
/* Sets one knob from text ("8", "bf16", "true"; 2k = 2000 and 2Ki = 2048 for counts).
 * OOM_ERR_INVALID names the knob, the range or the allowed words, and the nearest one. */
OOM_API enum oom_status oom_plan_set(struct oom_plan *plan, const struct oom_knob *knob,
				     const char *text, struct oom_error *err);
/* Writes the knob's value as oom_plan_set would read it; returns buf. */
OOM_API const char *oom_plan_get(const struct oom_plan *plan, const struct oom_knob *knob,
				 char *buf, size_t size);
/* The compute capability the plan is priced for, 8.0 where the plan names none. */
OOM_API double oom_capability(const struct oom_plan *plan);
/* The knobs in which `to` differs from `from`, as options: "--a=b --no-c", cut to size; returns
 * buf. */
OOM_API const char *oom_plan_options(const struct oom_plan *from, const struct oom_plan *to,
				     char *buf, size_t size);
/* Of gpus, nodes and gpus_per_node, the one that was left at its default follows from the others. */
OOM_API void oom_plan_settle(struct oom_plan *plan);
/* Ranks that see different data: GPUs / (tensor x pipeline x context parallel), at least 1; one
 * with a device map. */
OOM_API int64_t oom_plan_data_parallel(const struct oom_plan *plan);
/* The integer behind a COUNT, CHOICE or FLAG knob. */
OOM_API int64_t *oom_plan_field(struct oom_plan *plan, const struct oom_knob *knob);

/* Words for a class: "exact", "numerics", "placement", "changes the science". */
OOM_API const char *oom_class_str(enum oom_class cls);

/* The word of `words` (NULL-terminated) nearest to `word` by edit distance, or NULL when none is
 * near. */
OOM_API const char *oom_nearest(const char *word, const char *const *words);
/* The same, NULL when it is more than `most` edits away. */
OOM_API const char *oom_nearest_within(const char *word, const char *const *words, int most);

#ifdef __cplusplus
}
#endif

#endif
