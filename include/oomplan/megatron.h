/* Megatron-LM: what one rank of a launch allocates.
 *
 * Megatron has layers, buffers and schedules of its own, so this engine does not use a recorded tape: a
 * launch (the arguments of pretrain_gpt.py and similar scripts, spelled as there) is turned into the rows of
 * a ledger.  The sources are megatron/core and TransformerEngine; the results are compared with measured
 * runs (tests/accuracy/megatron.c). */
#ifndef OOMPLAN_MEGATRON_H
#define OOMPLAN_MEGATRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_mg_stack { OOM_MG_GPT, OOM_MG_BERT, OOM_MG_T5 };
enum oom_mg_precision { OOM_MG_BF16, OOM_MG_FP16, OOM_MG_FP32 };
enum oom_mg_recompute { OOM_MG_RC_NONE, OOM_MG_RC_SELECTIVE, OOM_MG_RC_FULL };
enum oom_mg_attention {
	OOM_MG_ATTN_AUTO,
	OOM_MG_ATTN_FLASH,
	OOM_MG_ATTN_FUSED,
	OOM_MG_ATTN_UNFUSED
};
enum oom_mg_ce { OOM_MG_CE_NONE, OOM_MG_CE_NATIVE, OOM_MG_CE_TE };
enum oom_mg_optimizer { OOM_MG_ADAM, OOM_MG_SGD, OOM_MG_MUON };
/* one scale per tensor, per 128 x 128 elements, per 32 elements, per 16 elements (4 bit) */
enum oom_mg_fp8_recipe {
	OOM_MG_FP8_TENSORWISE,
	OOM_MG_FP8_BLOCKWISE,
	OOM_MG_FP8_MXFP8,
	OOM_MG_FP8_NVFP4
};
enum oom_mg_arch { OOM_MG_AMPERE, OOM_MG_HOPPER, OOM_MG_BLACKWELL };
enum oom_mg_sharding {
	OOM_MG_NO_SHARD,
	OOM_MG_OPTIM,
	OOM_MG_OPTIM_GRADS,
	OOM_MG_OPTIM_GRADS_PARAMS
};

/* How layers are distributed if nobody says so: the same number on each stage; with embedding and loss
 * counted as layers; rounded up, with the rest on the last stage; in numbers that differ by at most one. */
enum oom_mg_split {
	OOM_MG_SPLIT_EVEN,
	OOM_MG_SPLIT_ENDS,
	OOM_MG_SPLIT_UP,
	OOM_MG_SPLIT_BALANCED
};

/* One launch.  Begin with oom_megatron_default, set arguments with oom_megatron_set, and then call
 * oom_megatron_derive.  The fields are counts and flags unless a name says bytes. */
struct oom_megatron {
	/* model */
	int64_t stack;                  /* enum oom_mg_stack */
	int64_t layers, encoder_layers, decoder_layers, hidden, ffn_hidden, heads, query_groups,
		kv_channels;
	int64_t vocab, vocab_divisor, padded_vocab, seq, decoder_seq, max_pos, learned_pos,
		tied_embeddings;
	int64_t swiglu, rmsnorm, bias_linear, qkv_bias, qk_layernorm;
	double attention_dropout, hidden_dropout;
	int64_t experts, moe_topk, moe_ffn, moe_shared_ffn, moe_shared_gate, moe_latent,
		moe_grouped_gemm, dense_layers;
	/* 1: all-gather; 0: all-to-all, which includes flex */
	int64_t moe_dispatcher_gathers;
	double moe_capacity;            /* 0: dropless */
	/* dropless: tokens of the fullest expert-parallel rank divided by the mean, at least 1 */
	double moe_imbalance;
	char moe_layer_freq[64];        /* "1", "2", "([0]*3+[1]*11)" */
	int64_t mla, q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_dim, v_head_dim, mtp_layers;
	/* layout */
	int64_t n_gpus, micro_batch, num_microbatches, tp, pp, cp, ep, etp, dp, vpp,
		sequence_parallel, cp_all_to_all;
	int64_t gpipe;                  /* 1: all forward passes first; 0: 1F1B */
	int64_t first_stage_layers, last_stage_layers, account_embedding, account_loss;
	char layout[512];               /* as in the argument, or derived: "Ett|tt|tmL" */
	int64_t split;                  /* enum oom_mg_split; derived */
	/* what is kept */
	int64_t distributed_optimizer, optimizer_instances, fsdp, fsdp_sharding, precision,
		grad_bytes;
	int64_t main_param_bytes, main_grad_bytes, exp_avg_bytes, exp_avg_sq_bytes,
		optimizer;              /* enum oom_mg_optimizer */
	int64_t layerwise;              /* 1: each data-parallel rank has whole parameters */
	int64_t recompute, recompute_uniform, recompute_layers;
	char recompute_modules[256];    /* "core_attn mlp ..." */
	int64_t local_layers;           /* 1: Megatron's own layers; 0: TransformerEngine's */
	int64_t attention, cross_entropy, grad_accum_fusion, bias_act_fusion, mask_in_loader,
		deterministic, fp8, fp8_params;
	int64_t fp8_recipe;             /* enum oom_mg_fp8_recipe */
	int64_t ends_in_bf16;           /* 1: the first and the last layer are not in fp8 */
	int64_t defer_wgrad;            /* 1: the head's weight gradients wait until the pipeline has drained */
	char offload_modules[256];      /* "core_attn attn_proj ..."; empty: none */
	int64_t pipe_engine;            /* 1: DeepSpeed's pipeline engine and optimizers (Megatron-DeepSpeed) */
	int64_t gpu_arch;               /* enum oom_mg_arch */
	int64_t cublas_kib;             /* workspace of one handle; 0: the architecture's default */
	/* Megatron-Bridge's LoRA over frozen weights; rank 0: everything trains */
	int64_t lora_r;
	int64_t lora_targets;           /* set of enum oom_mg_target, as bits */
	double lora_dropout;
};

/* Linear modules of a layer that adapters are put on, by their names in Megatron-core. */
enum oom_mg_target {
	OOM_MG_LINEAR_QKV,
	OOM_MG_LINEAR_PROJ,
	OOM_MG_LINEAR_FC1,
	OOM_MG_LINEAR_FC2,
	OOM_MG_TARGETS
};

enum oom_mg_kind { OOM_MG_COUNT, OOM_MG_REAL, OOM_MG_CHOICE, OOM_MG_TEXT };
/* An argument of a launch, which is also a column of runs files. */
struct oom_mg_arg {
	const char *column, *argument;  /* "tp", "--tensor-model-parallel-size" */
	enum oom_mg_kind kind;
	size_t offset, size;            /* of the field; size of a text */
	const char *const *words;       /* CHOICE: NULL-terminated */
	double min, max, def;
};
OOM_API const struct oom_mg_arg *oom_mg_arg_at(size_t i);
OOM_API const struct oom_mg_arg *oom_mg_arg_find(const char *column);

/* A launch with every argument at its default; and one argument set from text, as the command line has it.
 * On OOM_ERR_INVALID, whose text names the argument and what was expected, the launch is as it was. */
OOM_API struct oom_megatron oom_megatron_default(void);
OOM_API enum oom_status oom_megatron_set(struct oom_megatron *m, const struct oom_mg_arg *arg,
					 const char *text, struct oom_error *err);
/* Computes the fields that follow from the others (data-parallel degree, padded vocabulary, ...) and refuses
 * impossible layouts with OOM_ERR_INVALID. */
OOM_API enum oom_status oom_megatron_derive(struct oom_megatron *m, struct oom_error *err);

struct oom_model;
struct oom_plan;
/* If the layers do not divide evenly over the plan's pipeline stages and the plan does not say how they are
 * distributed, sets the knobs to what was priced, because Megatron must be told.  Other plans do not
 * change. */
OOM_API void oom_megatron_say_split(const struct oom_model *model, struct oom_plan *plan);

/* What a row is, which determines when it is alive. */
enum oom_mg_row_kind {
	OOM_MG_ROW_WEIGHTS,
	OOM_MG_ROW_GRADS,       /* the gradient buffer */
	OOM_MG_ROW_MASTER,
	OOM_MG_ROW_OPTIMIZER,   /* allocated by the first step */
	OOM_MG_ROW_PASSING,     /* gradients that are not alive between steps */
	OOM_MG_ROW_LOW_GRADS,   /* 16-bit gradients beside fp32 ones, from the first backward pass on */
	OOM_MG_ROW_COPIES,      /* fp32 copies of fp16 gradients, from one step to the next */
	OOM_MG_ROW_STEP,        /* alive during the optimizer's step */
	OOM_MG_ROW_FIXED,       /* workspaces inside the allocator */
	OOM_MG_ROW_SAVED,       /* activations of the passes in flight */
	OOM_MG_ROW_GATHERED,    /* parameters in use, if weights are sharded */
	OOM_MG_ROW_TRANSIENT,   /* alive at the loss */
	OOM_MG_ROW_RECOMPUTED,  /* what a layer's backward pass holds beyond what the loss holds */
	OOM_MG_ROW_KINDS
};
struct oom_mg_row {
	const char *name, *formula;
	uint64_t bytes;
	enum oom_mg_row_kind kind;
};
#define OOM_MG_ROWS 40
/* One pipeline rank. */
struct oom_mg_rank {
	/* the rank's parameters without routed experts, and those of routed experts */
	uint64_t params, expert_params;
	uint64_t trained_params;        /* all of these, or adapters beside them */
	/* weights, gradient buffer, master weights, optimizer state */
	uint64_t static_bytes;
	uint64_t fixed_bytes;           /* workspaces inside the allocator */
	uint64_t optimizer_bytes;       /* the part of static_bytes that the first step allocates */
	uint64_t alloc_bytes;           /* between steps: PyTorch's allocated.current */
	uint64_t peak_first_bytes;      /* step 1 */
	uint64_t peak_bytes;            /* from step 2 on: PyTorch's max_memory_allocated */
	uint64_t activation_bytes;      /* of the micro-batches in flight */
	double in_flight;               /* passes of model chunks */
	uint64_t host_bytes;            /* activations in pinned host memory */
	struct oom_mg_row row[OOM_MG_ROWS];
	size_t n_rows;
};
/* Prices pipeline rank r, 0..pp-1.  OOM_ERR_INVALID: there is no such rank. */
OOM_API enum oom_status oom_megatron_rank(const struct oom_megatron *m, int64_t r,
					  struct oom_mg_rank *out, struct oom_error *err);
/* Sets *bytes to what PyTorch's caching allocator reserves for the rank: two of its steps are replayed on a
 * card of unlimited size.  OOM_ERR_LIMIT: the step is too long to be replayed, or the model is a T5;
 * OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_megatron_reserved(const struct oom_megatron *m, int64_t r,
					      uint64_t *bytes, struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
