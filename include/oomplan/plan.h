/* A plan: one value per knob.  Words, ranges, defaults and sentences of the knobs stand in
 * oomplan/option.h. */
#ifndef OOMPLAN_PLAN_H
#define OOMPLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "oomplan/choices.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OOM_COUNT_AUTO (-1)
/* A library's version as one number that grows with it; patch releases do not count. */
#define OOM_VERSION(major, minor) ((int64_t)(major) * 1000 + (minor))
/* Room for a knob that is a text: names of modules, a regular expression over their paths. */
#define OOM_NAMES_SIZE 256
/* Room for any knob's value as a word (oom_plan_get). */
#define OOM_VALUE_SIZE (OOM_NAMES_SIZE + 24)

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
	/* what the loss is of (enum oom_method), and what it is compared with (enum oom_reference) */
	int64_t objective, reference;
	int64_t completion_len;     /* tokens of an answer, within seq_len; of online objectives */
	int64_t texts;              /* of a sample that are compared: 2 = anchor and positive */
	int64_t rollouts;           /* enum oom_rollouts_by: who gives those answers */
	/* share of the card that rollouts' engine takes in the same process, 0..1; whether it gives that
	 * back while the model trains (1) or holds it (0) */
	double vllm_share;
	int64_t vllm_sleep;
	int64_t packing;            /* 1 = several samples share a sequence */
	double label_smoothing;     /* above 0: Trainer's LabelSmoother makes the loss */
	int64_t keep_outputs;       /* 1 = the loop holds the model's outputs through the backward */
	/* numerics and kernels */
	int64_t precision;          /* enum oom_precision; auto is settled with the model (model.h) */
	/* enum oom_fp8: bytes in engine megatron, elsewhere time only */
	int64_t fp8;
	int64_t fp8_params;         /* 1 = Megatron keeps and gathers weights in fp8 */
	int64_t compile;            /* 1 = torch.compile: time only, bytes are those without */
	int64_t attn;               /* enum oom_attention */
	int64_t grad_ckpt;          /* enum oom_checkpointing */
	int64_t ckpt_every;         /* of the layers of a stack, every n-th is checkpointed; 1 = all */
	int64_t use_reentrant;      /* enum oom_reentrant */
	int64_t kv_repeat;          /* enum oom_kv_repeat: which attention copies keys and values to all heads */
	int64_t moe_experts;        /* enum oom_moe_experts: how a layer's experts are stored */
	int64_t keep_base_inputs;   /* 1 = frozen 4-bit layers keep their inputs for backward */
	int64_t zero_grad;          /* enum oom_zero_grad */
	int64_t scan;               /* enum oom_scan; Mamba and Falcon Mamba */
	int64_t fused_ce;           /* enum oom_loss */
	int64_t loss_chunk;         /* tokens of a chunk of the loss; 0 = the loss's own */
	int64_t liger_kernels;      /* enum oom_liger: Triton kernels in place of modules */
	int64_t convert_outputs_fp32; /* 1 = accelerate's wrapper upcasts the outputs */
	int64_t allocator;          /* enum oom_allocator */
	int64_t lazy_modules;       /* 1 = CUDA loads a kernel when it is first used */
	int64_t max_split;          /* MiB: larger cached blocks are not split; 0 = there is no limit */
	/* evaluation batches whose logits pile up on the GPU; 0 = not counted */
	int64_t eval_accumulation;
	int64_t evaluates;          /* enum oom_evaluates */
	int64_t eval_batch;         /* sequences of an evaluation batch on one GPU */
	/* optimizer and adapters */
	int64_t optimizer;          /* index into the optimizer table */
	int64_t step_in_backward;   /* 1 = a parameter is stepped once its gradient is whole */
	int64_t ema;                /* enum oom_ema: a running mean of the trained weights */
	int64_t lora_r;             /* size of the adapters; 0 = full fine-tuning */
	int64_t peft_type;          /* enum oom_adapter_kind; oom_plan_adapter() knows of use_dora too */
	/* "all-linear" or names joined by +; empty = the family's default */
	char lora_targets[OOM_NAMES_SIZE];
	double lora_dropout;
	int64_t qlora;              /* 1 = NF4 base weights */
	int64_t kbit_prepare;       /* 1 = PEFT prepare_model_for_kbit_training */
	int64_t double_quant;       /* 1 = quantised absmax */
	int64_t base_weights;       /* enum oom_base; oom_plan_base() knows of qlora too */
	int64_t use_dora;           /* 1 = LoRA's directions and magnitudes apart */
	int64_t adapter_fp32;       /* 1 = PEFT keeps 16-bit adapters in fp32 */
	int64_t virtual_tokens;     /* of prompt-tuning and p-tuning, before each sequence */
	int64_t encoder_hidden;     /* width of p-tuning's network; 0 = the model's */
	int64_t trainable_tokens;   /* rows of the embedding that train beside the adapters */
	int64_t lora_bias;          /* enum oom_lora_bias */
	char layers_to_transform[OOM_NAMES_SIZE]; /* numbers joined by +; empty = every layer */
	char modules_to_save[OOM_NAMES_SIZE]; /* modules of which a copy is trained whole */
	char exclude_modules[OOM_NAMES_SIZE]; /* of those that lora_targets names */
	char rank_pattern[OOM_NAMES_SIZE]; /* modules with ranks of their own: name:rank joined by + */
	/* what trains without adapters: names joined by + or a regular expression; empty = all */
	char freeze[OOM_NAMES_SIZE], train[OOM_NAMES_SIZE];
	int64_t train_last;         /* layers at the end of a stack that train alone; 0 = all */
	int64_t freeze_tower, freeze_projector, freeze_language; /* parts of a composition */
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
	int64_t pp_schedule;        /* enum oom_pp_schedule */
	/* how a pipeline's layers lie on its stages: layers of the first and of the last rank (0:
	 * like the others); 1 = the embedding, the loss takes the place of a layer; a layout in
	 * Megatron's letters, "" = none */
	int64_t pp_first, pp_last, pp_embedding, pp_loss;
	char pp_layout[OOM_NAMES_SIZE];
	int64_t cp_comm;            /* enum oom_cp_comm */
	int64_t recompute_layers;   /* Megatron block recomputation; 0 = all layers */
	/* modules of a Megatron layer joined by +: recomputed with selective checkpointing ("" =
	 * core_attn), and whose inputs wait in host memory */
	char recompute_modules[OOM_NAMES_SIZE], offload_modules[OOM_NAMES_SIZE];
	int64_t etp;                /* expert-tensor-parallel degree */
	int64_t mtp_layers;         /* multi-token prediction modules that are trained */
	int64_t layer_impl;         /* enum oom_layer_impl */
	int64_t defer_wgrad;        /* 1 = the head's weight gradients wait for the pipeline to drain */
	int64_t grads_16bit;        /* 1 = Megatron's gradient buffer is in 16 bit */
	int64_t loss_parallel;      /* 1 = the loss is of logits divided over tensor-parallel ranks */
	double moe_imbalance;       /* tokens of the fullest expert-parallel rank over the mean */
	int64_t offload_optimizer;  /* enum oom_offload */
	int64_t offload_params;
	int64_t offload_gradients;  /* 1 = with offload_optimizer: gradients leave the card as they come */
	/* 1 = what layers keep for backward waits in pinned host memory */
	int64_t offload_activations;
	int64_t hybrid_shard;       /* FSDP: shard within a node, replicate between nodes */
	int64_t bucket_view;        /* DDP: gradient_as_bucket_view */
	int64_t torch_autocast;     /* enum oom_autocast; DeepSpeed: over fp32 weights; FSDP1: around 16-bit ones */
	int64_t fp32_grads;         /* DeepSpeed: 1 = 16-bit gradients are added up in fp32 */
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
	/* 1 = precision was auto and is what the engine does by default: a plan may begin from another where
	 * that is inadvisable.  Not a knob either. */
	int64_t precision_unasked;
	/* 1 = bf16 is meant where the card has it, fp16 where it has not, as files say it (bf16: auto, dtype=None).
	 * Nor is this a knob. */
	int64_t precision_by_card;
	/* enum oom_generating, a forward pass of a plan whose step generates (models/step/rollouts.c); not a knob */
	int64_t generating;
	/* library generations, OOM_VERSION(major, minor); 0 = the newest that is modelled */
	int64_t transformers, torch, bitsandbytes, peft, deepspeed;
	/* verdict */
	double margin;              /* share of the capacity kept free */
};

/* Every knob at its default: what a Hugging Face Trainer user gets. */
OOM_API struct oom_plan oom_plan_default(void);
/* How the layers of the base are stored, whichever knob says it. */
OOM_API enum oom_base oom_plan_base(const struct oom_plan *plan);
/* Layers of the base are held in 4 or 8 bit and cannot be trained. */
OOM_API bool oom_plan_quantised(const struct oom_plan *plan);
/* ... by bitsandbytes in 4 bit: what is left of the model is then loaded in bf16 whatever the precision. */
OOM_API bool oom_plan_four_bit(const struct oom_plan *plan);
/* prepare_model_for_kbit_training leaves what is not quantised in fp32; only over some libraries' layers. */
OOM_API bool oom_plan_kbit_fp32(const struct oom_plan *plan);
/* What is trained beside the base, whichever knob says it; of no meaning without adapters. */
OOM_API enum oom_adapter_kind oom_plan_adapter(const struct oom_plan *plan);
/* The kind is one of virtual tokens, and of no layer. */
OOM_API bool oom_plan_prompted(const struct oom_plan *plan);
/* Whether its adapters are copies of norms, beside no layer. */
OOM_API bool oom_plan_norms(const struct oom_plan *plan);
/* Adapters are trained beside a frozen base. */
OOM_API bool oom_plan_adapted(const struct oom_plan *plan);
/* The plan with adapters of the usual size, and without any; targets stay as they are. */
OOM_API void oom_plan_adapt(struct oom_plan *plan);
OOM_API void oom_plan_unadapt(struct oom_plan *plan);
/* What the weights are stored in: OOM_FP32, OOM_BF16 or OOM_FP16. */
OOM_API enum oom_precision oom_plan_stores(const struct oom_plan *plan);
/* The compute capability the plan is priced for, 8.0 where the plan names none. */
OOM_API double oom_capability(const struct oom_plan *plan);
/* Whether blocks are checkpointed by torch's reentrant way; of a plan that names no versions. */
OOM_API bool oom_ckpt_reenters(const struct oom_plan *plan);
/* Whether torch's autocast runs beside the engine's own mixed precision. */
OOM_API bool oom_plan_autocasts(const struct oom_plan *plan);
/* Of gpus, nodes and gpus_per_node, the one that was left at its default follows from the others. */
OOM_API void oom_plan_settle(struct oom_plan *plan);
/* Where bf16 is meant if the card has it (precision_by_card) and this one, of a compute capability below 8.0, has
 * not: the same in fp16; whether it changed. */
OOM_API bool oom_plan_settle_on_card(struct oom_plan *plan);
/* Ranks that see different data: GPUs / (tensor x pipeline x context parallel), at least 1; one
 * with a device map. */
OOM_API int64_t oom_plan_data_parallel(const struct oom_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
