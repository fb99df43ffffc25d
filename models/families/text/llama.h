/* What llama.c, llama_config.c and llama_parts.c share. */
#ifndef OOM_FAMILIES_LLAMA_H
#define OOM_FAMILIES_LLAMA_H

#include <string.h>

#include "blocks/blocks.h"

/* What a model type has that Llama has not. */
enum {
	SANDWICH = 1,           /* norms after attention and feed-forward too (Gemma 2) */
	POST_ONLY = 2,          /* norms after them only (OLMo 2) */
	SCALED_EMBED = 4,       /* embeddings times sqrt(d_model), inside the embedding module */
	MULTIPLIERS = 8,        /* embedding, residual and logit multipliers (Granite) */
	FUSED = 16,             /* qkv_proj and gate_up_proj in one (Phi-3) */
	QK_NORM = 32, QK_NORM_FULL = 64,
	QKV_BIAS = 128,
	EXPERTS = 256,          /* every layer a mixture */
	SCORES_CAST = 512,      /* router scores go on in the model's type */
	ALTERNATING = 1024,     /* every other layer slides (Gemma 2) */
	HEAD_BUFFER = 2048,     /* a scalar buffer beside the embedding (Gemma) */
	SHARED_GATE = 4096,
	FP32_NORM = 8192,       /* weight * in fp32, cast after (OLMo 2) */
	TIED = 16384,
	/* one norm, attention and feed-forward side by side (Cohere, Phi) */
	PARALLEL = 1 << 15,
	FUSED_MLP = 1 << 16,    /* gate_up_proj alone (GLM) */
	ALL_BIAS = 1 << 17,     /* every linear layer, by use_bias (StarCoder 2), or always (Phi) */
	NO_O_BIAS = 1 << 18,
	PATTERN_4 = 1 << 20,    /* three sliding layers, one full (OLMo 3, EXAONE 4) */
	QK_NORM_LATE = 1 << 21, /* query and key norms after the rotation (HunYuan) */
	FP32_ROPE = 1 << 22,    /* queries and keys rotated in fp32 (Cohere) */
	LOCAL_ROPE = 1 << 23,   /* full layers have no positions (Cohere 2) */
	INTERLEAVED = 1 << 24,  /* cos and sin spread anew in every layer (Helium) */
	EMBED_NORM = 1 << 25,   /* the final norm's like before the first layer too (nanochat) */
	SUB_NORM = 1 << 26,     /* norms before the output projections (BitNet) */
	XIELU = 1 << 27,        /* an activation with two parameters of its own (Apertus) */
	ERNIE_ROUTER = 1 << 29, TOPK_FIRST = 1 << 30,
	/* layers slide where layer_types says so, each kind with its rotary table (Mellum) */
	LAYER_ROPES = 1 << 28,
	/* five sliding layers, one full (Gemma 3), each kind with its rotary table */
	PATTERN_6 = 1 << 19,
};
/* A model type: what it has that Llama has not. */
struct oom_llama_kind {
	const char *type;
	unsigned flags;
	enum oom_norm norm;
	/* share of the head that is rotated when the config is silent; 0 = all */
	double rotary;
	const char *up, *down;  /* a plain feed-forward's layers; NULL: gated */
};
enum { FLAGS, KIND, NORM_TOPK, N_CROSS, EMBED_MORE, MOSHI, HEAD_NORMS, N_EXTRA };   /* extra[] */

extern const struct oom_llama_kind oom_llama_kinds[];
extern const struct oom_family_type oom_llama_types[];

static inline bool is_type(const struct oom_arch *a, const char *type)
{
	return !strcmp(a->model_type, type);
}
/* Reads the config; llama_config.c. */
void oom_llama_parse(struct oom_arch *a);

/* Mllama's cross-attention layers, which text alone passes by. */
void oom_llama_cross_unused(struct oom_tape *t, const struct oom_arch *a, uint64_t layers);
/* Phi-4's image and audio embeddings: weights alone when the batch is text. */
void oom_llama_phi4_unused(struct oom_tape *t, const struct oom_arch *a);

#endif
