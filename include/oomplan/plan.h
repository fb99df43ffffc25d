/* A plan: one value per knob.  oomplan/option.h has the words, ranges, defaults and help texts of the
 * knobs. */
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
/* A library version as one number that grows with the version.  Patch releases are ignored. */
#define OOM_VERSION(major, minor) ((int64_t)(major) * 1000 + (minor))
/* The size of a text knob: module names, or a regular expression over module paths. */
#define OOM_NAMES_SIZE 256
/* A buffer of this size holds any knob's value as text (oom_plan_get). */
#define OOM_VALUE_SIZE (OOM_NAMES_SIZE + 24)

/* A group of quantised weights that is wider than any row: there is one per row. */
enum { OOM_GROUP_OF_ROW = 1 << 20 };

/* All fields are plain values; a plan is copied by assignment.  Choices are indices into the
 * knob's list. */
struct oom_plan {
	/* what is trained on */
	int64_t task;               /* enum oom_task */
	int64_t micro_batch;        /* sequences (or images) per forward pass on one GPU */
	/* sequences per optimizer step over all GPUs; 0 = micro-batch x accumulation x GPUs */
	int64_t global_batch;
	int64_t grad_accum;         /* micro-steps per optimizer step */
	int64_t seq_len;            /* tokens */
	int64_t tgt_len;            /* decoder tokens of an encoder-decoder; 0 = seq_len */
	int64_t image_size;         /* pixels per side; 0 = the config's */
	int64_t images;             /* images per sample of a vision-language model; 0 = text only */
	int64_t video_frames;       /* frames of a video per sample of a vision-language model; 0 = none */
	int64_t audio_seconds;      /* seconds of audio per sample of a speech-language model; 0 = text only */
	int64_t num_labels;         /* classes of a classification head; 0 = the config's */
	int64_t num_layers;         /* depth override; 0 = the config's */
	int64_t padding_mask;       /* 1 = batches contain padding, so that a mask is passed */
	/* what is optimised (enum oom_method), and the reference it is compared with (enum oom_reference) */
	int64_t objective, reference;
	int64_t completion_len;     /* tokens of a completion, part of seq_len; for online objectives */
	int64_t texts;              /* texts per sample that are compared: 2 = anchor and positive */
	int64_t texts_chunk;        /* rows of one text that a cached loss runs at once; 0 = all, not cached */
	int64_t medusa_heads, medusa_layers; /* of objective medusa */
	int64_t empty_cache;        /* enum oom_empty_cache: whether what loading left in the cache is given back */
	int64_t loop;               /* enum oom_loops: whose loop runs the step */
	int64_t rollouts;           /* enum oom_rollouts_by: what generates the completions */
	/* the share of the card that the rollout engine takes in the same process, 0..1, and whether it
	 * releases it while the model trains (1) or keeps it (0) */
	double vllm_share;
	int64_t vllm_sleep;
	int64_t packing;            /* 1 = several samples share a sequence */
	double label_smoothing;     /* above 0: Trainer's LabelSmoother computes the loss */
	int64_t keep_outputs;       /* 1 = the loop holds the model's outputs through the backward */
	int64_t spare_loss;         /* 1 = the model is given labels, too, and makes a loss that nobody takes */
	double max_grad_norm;       /* of the Trainer's loop: gradients are clipped by their norms; 0 = they are not */
	double neftune;             /* above 0: noise is added to the embeddings while the model trains */
	int64_t class_weights;      /* 1 = the loss has a weight for every class */
	int64_t router_logits;      /* 1 = a mixture's routers have a loss of their own, as with output_router_logits */
	int64_t resize_vocab;       /* rows that embeddings and head are given after loading; 0 = the config's */
	/* numerics and kernels */
	int64_t precision;          /* enum oom_precision; auto is resolved together with the model (model.h) */
	/* enum oom_fp8: changes bytes with engine megatron, only time with others */
	int64_t fp8;
	int64_t fp8_params;         /* 1 = Megatron keeps and gathers weights in fp8 */
	int64_t tf32;               /* 1 = products of fp32 matrices are rounded to TF32; only time */
	int64_t cuda_graphs;        /* 1 = Megatron captures its layers as CUDA graphs; only time */
	int64_t tp_overlap;         /* 1 = Megatron's tensor collectives travel in chunks beside products; only time */
	int64_t compile;            /* 1 = torch.compile (models/README.md says how its bytes are estimated) */
	int64_t compile_layers;     /* 1 = of each layer for itself, in models whose code makes no mask */
	int64_t attn;               /* enum oom_attention */
	int64_t grad_ckpt;          /* enum oom_checkpointing */
	int64_t ckpt_every;         /* every n-th layer of a stack is checkpointed; 1 = all */
	int64_t use_reentrant;      /* enum oom_reentrant */
	/* enum oom_rope_kept: whose layers keep cosines and sines of all positions */
	int64_t rope_tables;
	/* enum oom_kv_repeat: which attention kernels get keys and values copied to all heads */
	int64_t kv_repeat;
	int64_t sdp_fused;          /* 1 = SDPA may choose a fused kernel, 0 = its MATH backend alone */
	int64_t math_sdp_fp32;      /* 1 = attention without a fused kernel computes in fp32 */
	int64_t keep_softmax_inputs; /* 1 = softmax and log_softmax keep their inputs for the backward pass */
	int64_t softmax_product;    /* 1 = softmax's gradient is made of gradient times result, as CUDA's kernel has it */
	int64_t casts_backwards;    /* 1 = autocast casts the arguments of a product from the last to the first */
	int64_t cublas_workspaces;  /* 1 = cuBLAS takes its workspaces from the caching allocator */
	int64_t view_sums;          /* 1 = what is added to a gradient that is a view makes a third tensor */
	int64_t sum_buffers;        /* 1 = a sum over many rows has a buffer of its parts, as CUDA's kernel does */
	int64_t segments_down;      /* 1 = the driver gives a segment addresses below those of the segments before it */
	int64_t moe_experts;        /* enum oom_moe_experts: how a layer's experts are stored */
	int64_t t5_attention;       /* enum oom_t5_attention */
	int64_t force_t5_tie;       /* 1 = the heads of T5 and its likes are tied, whatever their configs say */
	int64_t quantise_derived;   /* 1 = layers of classes derived from nn.Linear are quantised, too */
	int64_t kbit_recast;        /* 1 = embeddings and head of a prepared 4-bit base are cast back to bf16 (TRL) */
	int64_t quantised_load;     /* enum oom_quantised_load: where a quantised model is before FSDP divides it */
	int64_t keep_base_inputs;   /* 1 = frozen 4-bit layers keep their inputs for the backward pass */
	int64_t zero_grad;          /* enum oom_zero_grad */
	int64_t scan;               /* enum oom_scan; Mamba and Falcon Mamba */
	int64_t fused_ce;           /* enum oom_loss */
	int64_t loss_chunk;         /* tokens per chunk of the loss; 0 = the loss's default */
	int64_t liger_kernels;      /* enum oom_liger: Triton kernels that replace modules */
	int64_t convert_outputs_fp32; /* 1 = accelerate's wrapper converts outputs to fp32 */
	int64_t allocator;          /* enum oom_allocator */
	int64_t lazy_modules;       /* 1 = CUDA loads kernels when they are first used */
	int64_t max_split;          /* MiB; larger cached blocks are not split; 0 = no limit */
	/* evaluation batches whose logits are kept on the GPU; 0 = none */
	int64_t eval_accumulation;
	int64_t evaluates;          /* enum oom_evaluates */
	int64_t eval_batch;         /* sequences per evaluation batch on one GPU */
	/* 1 = evaluations generate: so many tokens (0 = as tgt_len, or completion_len) in so many beams */
	int64_t eval_generates, eval_new_tokens, eval_beams;
	/* optimizer and adapters */
	int64_t optimizer;          /* index into the optimizer table */
	int64_t step_in_backward;   /* 1 = each parameter is updated as soon as its gradient is complete */
	int64_t ema;                /* enum oom_ema: a running mean of the trained weights */
	int64_t lora_r;             /* rank of the adapters; 0 = full fine-tuning */
	int64_t peft_type;          /* enum oom_adapter_kind; oom_plan_adapter() considers use_dora as well */
	/* "all-linear", or module names joined by +; empty = the family's default */
	char lora_targets[OOM_NAMES_SIZE];
	double lora_dropout;
	int64_t qlora;              /* 1 = NF4 base weights */
	int64_t kbit_prepare;       /* 1 = PEFT prepare_model_for_kbit_training */
	int64_t quant_storage;      /* enum oom_quant_storage: the type 4-bit weights are stored under */
	int64_t packed_weights;     /* enum oom_packed_as: what GPTQ's and AWQ's weights are held in, which decides whether they are sharded */
	int64_t double_quant;       /* 1 = quantised absmax */
	int64_t base_weights;       /* enum oom_base; oom_plan_base() considers qlora as well */
	int64_t base_group;         /* elements of a row that share a scale; 0 = as the form does, unless the config says */
	int64_t use_dora;           /* 1 = DoRA: magnitudes are trained apart from directions */
	int64_t adapter_fp32;       /* 1 = PEFT keeps 16-bit adapters in fp32 */
	int64_t virtual_tokens;     /* of prompt-tuning and p-tuning: tokens before each sequence; of prefix-tuning: keys */
	int64_t bank_vectors, bank_length, bank_topk;   /* of VB-LoRA: vectors, their length, how many make a piece */
	int64_t encoder_hidden;     /* width of p-tuning's encoder (0 = the model's) or prefix-tuning's (0 = none) */
	int64_t idle_adapters;      /* adapters of the same form that neither train nor run */
	int64_t trainable_tokens;   /* embedding rows that are trained beside the adapters */
	int64_t lora_bias;          /* enum oom_lora_bias */
	int64_t lora_zero_pad;      /* 1 = what queries' and values' adapters add is copied into zeros (litgpt) */
	char layers_to_transform[OOM_NAMES_SIZE]; /* layer numbers joined by +; empty = all layers */
	char modules_to_save[OOM_NAMES_SIZE]; /* modules of which a full copy is trained */
	char exclude_modules[OOM_NAMES_SIZE]; /* modules that lora_targets names and that get no adapter */
	char rank_pattern[OOM_NAMES_SIZE]; /* name:rank pairs joined by +, for modules with a rank of their own */
	/* what is frozen or trained without adapters: names joined by +, or a regular expression; empty = all
	 * is trained */
	char freeze[OOM_NAMES_SIZE], train[OOM_NAMES_SIZE];
	int64_t train_last;         /* only this many last layers of a stack are trained; 0 = all */
	int64_t freeze_tower, freeze_projector, freeze_language; /* 1 = frozen: parts of a composite model */
	/* card */
	/* of an NVIDIA card, such as 8.6; 0 = the card's own, or 8.0 without a card */
	double compute_capability;
	/* many GPUs */
	int64_t engine;             /* enum oom_engine_id */
	int64_t gpus;               /* ranks over all nodes */
	int64_t nodes;
	int64_t gpus_per_node;      /* 0 = gpus / nodes; see oom_plan_settle */
	int64_t network_gbps;       /* of a machine, to others; 0 = as struct oom_gpu says, or a guess */
	int64_t zero_stage;         /* 0..3; FSDP: 2 = SHARD_GRAD_OP, 3 = FULL_SHARD */
	/* degrees of parallelism; sp is a flag; vpp: model chunks per pipeline rank */
	int64_t tp, sp, pp, vpp, cp, ep;
	int64_t pp_schedule;        /* enum oom_pp_schedule */
	/* How layers are distributed over pipeline stages: the number of layers of the first and of the last
	 * rank (0: like the others); 1 if the embedding, or the loss, counts as a layer; a layout in
	 * Megatron's letters ("" = none). */
	int64_t pp_first, pp_last, pp_embedding, pp_loss;
	char pp_layout[OOM_NAMES_SIZE];
	int64_t cp_comm;            /* enum oom_cp_comm */
	int64_t recompute_layers;   /* Megatron block recomputation; 0 = all layers */
	/* modules of a Megatron layer, joined by +: those that selective checkpointing recomputes ("" =
	 * core_attn), and those whose inputs are offloaded to host memory */
	char recompute_modules[OOM_NAMES_SIZE], offload_modules[OOM_NAMES_SIZE];
	int64_t etp;                /* expert-tensor-parallel degree */
	int64_t mtp_layers;         /* multi-token prediction modules that are trained */
	int64_t layer_impl;         /* enum oom_layer_impl */
	/* 1 = the head's weight gradients are computed when the pipeline has drained */
	int64_t defer_wgrad;
	int64_t grads_16bit;        /* 1 = Megatron's gradient buffer is 16-bit */
	/* 1 = the loss is computed on logits that are sharded over tensor-parallel ranks */
	int64_t loss_parallel;
	double moe_imbalance;       /* tokens of the fullest expert-parallel rank, divided by the mean */
	int64_t offload_optimizer;  /* enum oom_offload */
	int64_t offload_params;
	/* 1 = with offload_optimizer: gradients move to the host as soon as they are computed */
	int64_t offload_gradients;
	/* 1 = what layers save for the backward pass is kept in pinned host memory */
	int64_t offload_activations;
	int64_t hybrid_shard;       /* FSDP: shard within a node, replicate between nodes */
	int64_t bucket_view;        /* DDP: gradient_as_bucket_view */
	int64_t data_parallel;      /* 1 = nn.DataParallel: one process drives the GPUs, of which the first is priced */
	int64_t torch_autocast;     /* enum oom_autocast; DeepSpeed: over fp32 weights; FSDP1: around those that were loaded */
	int64_t reduce_dtype;       /* enum oom_reduce: FSDP, the type in which gradients are reduced */
	int64_t no_sync;            /* FSDP: 1 = gradients stay whole on every GPU until the last micro-batch */
	int64_t backward_prefetch;  /* enum oom_prefetch: FSDP1, when the next unit is gathered in the backward pass */
	int64_t fp32_grads;         /* DeepSpeed: 1 = 16-bit gradients are accumulated in fp32 */
	int64_t rank0_contexts;     /* 1 = GPU 0 holds a CUDA context of every process of its node */
	/* DeepSpeed, in elements; OOM_COUNT_AUTO = what transformers fills in for "auto" */
	int64_t overlap_comm;       /* enum oom_overlap */
	int64_t early_states;       /* 1 = DeepSpeed makes the optimizer's states with its engine, before the first step */
	int64_t fp32_copy_back;     /* 1 = what DeepSpeed steps on the host comes back in fp32 and is cast on the card */
	int64_t reduce_bucket, max_live_params, prefetch_bucket, persistence, sub_group_size;
	/* host */
	int64_t dataloader_workers, prefetch_factor;
	int64_t low_cpu_mem;        /* 1 = checkpoints are loaded shard by shard */
	int64_t save_sharded;       /* 1 = no full state dict is gathered */
	int64_t save_total_limit;   /* checkpoints kept */
	/* Not a knob: how many parameters the weights on disk hold beyond (or short of) what the config gives,
	 * for a model type that no family models. */
	int64_t surplus_params;
	/* Not a knob: 1 = precision was auto and is the engine's default, so that a search may begin from
	 * another one where it is inadvisable. */
	int64_t precision_unasked;
	/* 1 = bf16 is meant where the card has it, fp16 where it has not, as files say it (bf16: auto, dtype=None).
	 * Nor is this a knob. */
	int64_t precision_by_card;
	/* Not a knob: 1 = the stage was said; otherwise oom_plan_settle takes the engine's own. */
	int64_t zero_said;
	/* Not a knob: whose files the run is started with (oom_framework_number); 0: nobody's that is known.
	 * What that framework refuses holds as well (oomplan/compat.h). */
	int64_t framework;
	/* Not a knob: enum oom_generating, for the forward passes of a step that generates
	 * (models/step/rollouts.c). */
	int64_t generating;
	/* library versions, OOM_VERSION(major, minor); 0 = the newest that is modelled */
	int64_t transformers, torch, bitsandbytes, peft, deepspeed, accelerate;
	/* Not a knob: the version of torch that was named, after oom_plan_resolve; what a step takes depends on it in more
	 * than knobs say.  0: none was. */
	int64_t torch_named;
	/* verdict */
	double margin;              /* the share of the capacity that is kept free */
};

/* A plan with every knob at its default: what a user of Hugging Face's Trainer gets. */
OOM_API struct oom_plan oom_plan_default(void);
/* How the base's layers are stored, whichever knob says so. */
OOM_API enum oom_base oom_plan_base(const struct oom_plan *plan);
/* True if the base's layers are held in 4 or 8 bits and therefore cannot be trained. */
OOM_API bool oom_plan_quantised(const struct oom_plan *plan);
/* True if bitsandbytes holds them in 4 bits; the rest of the model is then loaded in bf16, whatever the
 * precision. */
OOM_API bool oom_plan_four_bit(const struct oom_plan *plan);
/* True if prepare_model_for_kbit_training converts what is not quantised to fp32, which it does for some
 * quantisation libraries only. */
OOM_API bool oom_plan_kbit_fp32(const struct oom_plan *plan);
/* The kind of adapter, whichever knob says so; without adapters it means nothing. */
OOM_API enum oom_adapter_kind oom_plan_adapter(const struct oom_plan *plan);
/* True if the adapter is one of virtual tokens, which belongs to no layer. */
OOM_API bool oom_plan_prompted(const struct oom_plan *plan);
/* True if keys and values that are trained are attended to besides a layer's own. */
OOM_API bool oom_plan_attended(const struct oom_plan *plan);
/* True if the adapters are trained copies of norms, which belong to no linear layer. */
OOM_API bool oom_plan_norms(const struct oom_plan *plan);
/* True if adapters are trained and the base is frozen. */
OOM_API bool oom_plan_adapted(const struct oom_plan *plan);
/* Gives the plan adapters of the usual rank, or removes them.  Their targets stay as they are. */
OOM_API void oom_plan_adapt(struct oom_plan *plan);
OOM_API void oom_plan_unadapt(struct oom_plan *plan);
/* A model of the plan's types whose weights are whole. */
OOM_API void oom_plan_unquantise(struct oom_plan *plan);
/* The type that weights are stored in: OOM_FP32, OOM_BF16 or OOM_FP16. */
OOM_API enum oom_precision oom_plan_stores(const struct oom_plan *plan);
/* Where the plan computes in 16 bit, it does so in fp16. */
OOM_API bool oom_plan_fp16(const struct oom_plan *plan);
/* The compute capability that the plan is priced for; 8.0 if the plan names none. */
OOM_API double oom_capability(const struct oom_plan *plan);
/* True if layers are checkpointed with use_reentrant=True.  The plan must not name versions any more
 * (oom_plan_resolve). */
OOM_API bool oom_ckpt_reenters(const struct oom_plan *plan);
/* True if they are, around what an engine wraps: its hooks are hung anew when a block runs again. */
OOM_API bool oom_ckpt_around_units(const struct oom_plan *plan);
/* Whether torch's autocast runs beside the engine's own mixed precision. */
OOM_API bool oom_plan_autocasts(const struct oom_plan *plan);
/* Computes that one of gpus, nodes and gpus_per_node which was left at its default from the others.  An engine that
 * shards unless told otherwise (FSDP) gets its stage if none was set and there are several GPUs. */
OOM_API void oom_plan_settle(struct oom_plan *plan);
/* Where bf16 is meant if the card has it (precision_by_card) and this one, of a compute capability below 8.0, has
 * not: the same in fp16; whether it changed. */
OOM_API bool oom_plan_settle_on_card(struct oom_plan *plan);
/* The number of ranks that see different data: GPUs / (tensor x pipeline x context parallel), at least
 * 1; 1 with a device map. */
OOM_API int64_t oom_plan_data_parallel(const struct oom_plan *plan);
/* One process drives all GPUs: those of an engine whose GPUs work in turn, and nn.DataParallel's. */
OOM_API bool oom_plan_one_process(const struct oom_plan *plan);
/* The replicas whose outputs come together on the first GPU, which nn.DataParallel's do; else 1. */
OOM_API int64_t oom_plan_gathered_replicas(const struct oom_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
