/* What DeepSeek's types have and are told, for deepseek.c and deepseek_latent.c. */
#ifndef OOM_FAMILIES_DEEPSEEK_H
#define OOM_FAMILIES_DEEPSEEK_H

#include "blocks/decoder.h"

struct deepseek_kind {
	bool latent;            /* multi-head latent attention, else grouped heads */
	bool experts;
	bool sigmoid;           /* of the router's scores, else softmax */
	bool mlp_bias;          /* feed-forwards may have biases, by mlp_bias */
	bool interleave;        /* pairs are rotated, unless the config says otherwise */
	bool complex_rope;
	bool qk_norm;
	bool qk_norm_full;      /* one norm over all heads (MiniMax M2) */
	bool tied;              /* where the config is silent */
	bool all_sparse;        /* no dense layers (Solar Open, MiniMax M2) */
	bool no_dense;          /* none where the config is silent (Mistral 4) */
	bool local_rope;        /* sliding layers, and full ones without positions (EXAONE MoE) */
	bool route_late;        /* router product in the model's type, scores in fp32 (MiniMax M2) */
	bool divided_apart;     /* struct oom_moe */
	bool plain_softmax;     /* router and scores in the model's type (Mistral 4) */
	bool scaled_query;      /* queries times a factor of their position (Mistral 4) */
	/* norms after attention and feed-forward too, gated attention (AFMoE) */
	bool sandwich;
	bool cat_rope;          /* rotated and passed parts are joined even when all is rotated */
	bool o_plain;           /* attention_bias is not the output projection's */
	/* an indexer chooses the keys of every query: a mask of its own in every layer (DSA) */
	bool sparse;
	/* two attentions and dense feed-forwards a layer, the experts beside them (LongCat) */
	bool twice;
	double rotary;          /* share of a head that is rotated; 0: all of it */
};
OOM_KIND(deepseek, struct deepseek_kind);

enum {
	DEEPSEEK_DENSE = 1,
	DEEPSEEK_SLIDES = 2,
	DEEPSEEK_CHOSEN = 4             /* the layer before has chosen the keys */
}; /* of kind[] */

struct deepseek {
	uint64_t q_rank, kv_rank, nope, rot;
	uint64_t index_heads, index_dim, index_topk;
	uint64_t zero_experts;
	bool interleave, norm_topk, combine_fp32, mup;
};
OOM_OWN(deepseek, struct deepseek);

/* Multi-head latent attention over x, consumed.  layer: the frame of the block, where the weights
 * have a name. */
struct oom_val deepseek_latent_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					 uint32_t i, struct oom_val x);

#endif
