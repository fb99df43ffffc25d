/* What sets the types of Llama's family apart: llama_types.c describes them, llama_config.c reads
 * their configs, llama.c runs their layers. */
#ifndef OOM_FAMILIES_LLAMA_H
#define OOM_FAMILIES_LLAMA_H

#include "blocks/blocks.h"
#include "config/keys.h"

/* Where a layer has its norms. */
enum oom_llama_norms {
	OOM_NORMS_BEFORE,               /* attention and feed-forward (Llama) */
	OOM_NORMS_AROUND,               /* both sides of them (Gemma 2) */
	OOM_NORMS_AFTER,                /* them only (OLMo 2) */
};

/* Norms of queries and keys. */
enum oom_llama_qk {
	OOM_QK_PLAIN,
	OOM_QK_HEAD,                    /* each head's (Qwen3) */
	OOM_QK_WHOLE,                   /* over all heads (OLMo 2) */
	OOM_QK_LATE,                    /* each head's, after the rotation (HunYuan) */
};

/* Which linear layers have a bias. */
enum oom_llama_bias {
	OOM_BIAS_ATTENTION,             /* all four of attention's, by attention_bias (Llama) */
	OOM_BIAS_PROJECTIONS,           /* its three inputs, by attention_bias (GLM) */
	OOM_BIAS_QKV,                   /* its three inputs, by qkv_bias, which is true (Qwen2) */
	OOM_BIAS_ALL,                   /* every one, by use_bias (StarCoder 2) */
};

/* Which layers slide where the config has a window and no layer_types. */
enum oom_llama_slide {
	OOM_SLIDE_ALL,
	OOM_SLIDE_EVEN,                 /* every other one (Gemma 2) */
	OOM_SLIDE_BUT_LAST,             /* all but the last of every `period` (Gemma 3) */
	OOM_SLIDE_BUT_FIRST,            /* all but the first of every `period` (CWM) */
	OOM_SLIDE_LISTED,               /* none (Mellum) */
};

/* The order of a layer's branches. */
enum oom_llama_shape {
	OOM_SHAPE_SEQUENTIAL,
	OOM_SHAPE_PARALLEL,             /* x + attention(h) + feed_forward(h) (Cohere, Phi) */
	OOM_SHAPE_NAMED,                /* sequential; h and both branches keep their names (StableLM) */
	OOM_SHAPE_UNEVEN,               /* sequential; every layer has sizes of its own (OpenELM) */
};

/* A mixture in place of the feed-forwards. */
struct oom_llama_experts {
	bool scores_cast;               /* router scores go on in the model's type */
	bool weights_cast;              /* the same, over their sum whatever the config says (HunYuan) */
	bool topk_first;                /* softmax over the chosen logits alone (Cohere 2) */
	bool frozen_bias;               /* ERNIE's router */
	bool gate_fp32;                 /* HunYuan's router */
	bool one_by_one;                /* experts run one after another (Granite) */
	bool three_results;             /* the router returns three tensors (Phi MoE) */
	bool as_wide;                   /* experts and the shared one are as wide as d_ff */
	bool shared_gate;               /* the shared expert's output is gated (Qwen2) */
	uint64_t always_top;            /* experts chosen whatever the config says; 0: as it says */
	const char *top_k;              /* key; NULL: num_experts_per_tok */
	/* the shared experts' width, or their number; NULL: none */
	const char *shared_width, *shared_count;
	const char *dense_width;        /* of the layers without experts; NULL: intermediate_size */
	const char *dense_first;        /* key: so many layers without experts first; NULL: none */
	/* moe_layer_{start_index,interval,end_index} say which layers have them (ERNIE) */
	bool layer_indices;
};

/* What a type calls its norms; NULL: as Llama and Gemma 2 do. */
struct oom_llama_norm_names {
	const char *before, *after;     /* of attention */
	const char *before_mlp, *after_mlp;
	const char *last;               /* before the head */
	const char *q, *k;              /* of queries and keys */
};

/* A model type.  Zero is Llama itself. */
struct oom_llama_kind {
	enum oom_norm norm;
	enum oom_llama_norms norms;
	enum oom_llama_qk qk;
	enum oom_llama_bias bias;
	enum oom_llama_slide slide;
	enum oom_llama_shape shape;
	unsigned period;                /* of slide, unless sliding_window_pattern says another */
	const struct oom_llama_experts *experts;

	/* embeddings and head */
	bool scaled_embed;              /* times sqrt(d_model), inside the embedding module */
	bool embed_norm;                /* the final norm's like before the first layer too */
	bool tied;                      /* where the config is silent */
	bool multipliers;               /* of embeddings, residuals and logits (Granite) */
	bool scale_logits;              /* of logits alone (Cohere) */
	bool head_bias, head_bias_as_layers;    /* always; where the layers have one */
	bool shift_logits;              /* logits.float(), sliced and copied before the loss (Moshi) */
	bool embed_dropout_renames;     /* the dropout's result takes the embeddings' name (Phi) */
	uint64_t embed_more;            /* rows of the table beyond the vocabulary */

	/* positions */
	double rotary;                  /* share of a head that is rotated; 0: all */
	bool rope_fp32;                 /* queries and keys rotated in fp32 (Cohere) */
	bool rope_back;                 /* rotated in the tables' type, then converted (OLMo) */
	bool tables_fp32;
	bool rope_spread;               /* cos and sin repeated anew in every layer (Helium) */
	bool rope_inline;               /* its parts are locals of the module (Phi) */
	bool rope_cat;                  /* rotated and passed parts joined although nothing passes */
	bool rope_sliding_only;         /* full layers have no positions (Cohere 2) */
	/* sliding layers have tables of their own; each made where there are such layers (Gemma 3) */
	bool local_tables;
	bool layer_tables;              /* every layer makes its own (Moshi) */
	enum oom_rope_kept tables_kept; /* the first word of --rope-tables by which its layers keep some; OOM_ROPE_MADE: none */
	uint64_t layer_frequencies;     /* rotary buffers of every attention, unused (Nemotron) */

	/* attention */
	bool fused_qkv;                 /* qkv_proj (Phi-3) */
	const char *qkv;                /* one projection of this name, its parts as they are */
	bool views_late, repeat_kv, repeat_kv_flash, o_square;   /* as struct oom_attn has them */
	bool q_scaled;                  /* queries times a factor of their position (Ministral 3) */
	bool head_norms;                /* by qk_layernorm, a norm for every head (StableLM) */
	bool qk_by_key;                 /* by use_qk_norm, each head's with weights of its own (Command R+) */
	const char *o, *o_norm;         /* NULL: "o_proj"; no norm before it */
	bool no_o_bias, o_bias;         /* never, always; else as attention's others */
	const char *no_bias;            /* key: the other linear layers have none (Qwen 1) */
	bool window_off;                /* use_sliding_window is false where the config is silent */
	bool both_masks;                /* the full one is made although no layer may use it */
	bool sliding_mask;              /* the sliding one as well, for a window of 0 (Qwen2 MoE) */
	bool mask_if_padded;            /* only of a mask that is given */

	/* feed-forward: its layers (NULL: gate_proj, up_proj, down_proj) */
	struct oom_val (*mlp)(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
	const char *up, *down;          /* down(act(up(x))) */
	const char *gate;               /* of oom_llama_named_mlp */
	bool down_bias;                 /* its last layer has one whatever the others have (TeleChat) */
	bool four_wide;                 /* four times hidden_size where the config is silent */
	bool halves;                    /* intermediate_size counts gate and up together (Qwen 1) */
	bool own_act;                   /* the activation has parameters, hidden_act none (Apertus) */
	bool ffn_dim;                   /* the key of their width, gate and up together (Moshi) */

	/* dropout of the residuals; NULL: residual_dropout alone */
	const char *dropout, *embed_dropout;
	bool dropout_within;            /* in attention and the feed-forward, whose argument lives until then (StarCoder 2) */
	bool branch_dropout;            /* of a parallel attention's output too (Phi) */

	/* layers between the others that only images meet (Mllama) */
	bool cross_layers;
	bool towers;                    /* for images or audio, of which only the weights are counted */
	/* parameters that no step on text runs; may be NULL */
	void (*unused)(struct oom_tape *t, const struct oom_arch *a);
	bool parallel_by_key;           /* use_parallel_residual (StableLM) */
	const struct oom_llama_norm_names *names;       /* NULL: Llama's */
	/* reads layers of different sizes; NULL: all are alike */
	void (*sizes)(struct oom_arch *a);
};

/* A layer where they differ (OOM_SHAPE_UNEVEN). */
struct oom_llama_size {
	uint32_t heads, kv_heads;
	uint64_t ff;
	/* one linear layer instead; no such part and no norm before it */
	bool linear_attention, linear_ff, no_attention, no_ff;
};
/* kind[] of a layer is its number among the sizes plus one, above the bits of llama.c. */
enum { OOM_LLAMA_SIZES = 48, OOM_LLAMA_SIZE_SHIFT = 2 };
/* Another bit of kind[], of types with cross_layers. */
enum { OOM_LLAMA_CROSS = 4 };

/* What a config says. */
struct oom_llama {
	enum oom_llama_norms norms;
	enum oom_llama_shape shape;
	bool norm_topk, head_norms, qk_norm;
	uint64_t cross;                 /* layers that only images meet */
	uint32_t n_sizes;
	struct oom_llama_size size[OOM_LLAMA_SIZES];
};
OOM_OWN(llama, struct oom_llama);

static inline const struct oom_llama_kind *llama_kind(const struct oom_arch *a)
{
	return a->type->kind;
}

extern const struct oom_family_type oom_llama_types[], oom_llama_remote_types[];
void oom_llama_parse(struct oom_arch *a);

/* Feed-forwards (llama_mlp.c); each consumes x. */
struct oom_val oom_llama_fused_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
struct oom_val oom_llama_xielu_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
struct oom_val oom_llama_sub_norm_mlp(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val x);
struct oom_val oom_llama_moshi_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
struct oom_val oom_llama_named_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
/* Types whose code is remote (llama_remote.c). */
void oom_llama_openelm_sizes(struct oom_arch *a);
void oom_llama_nas_sizes(struct oom_arch *a);
struct oom_val oom_llama_uneven(struct oom_frame *f, const struct oom_arch *a, struct oom_attn at,
				uint8_t kind, struct oom_val x);
/* The type's feed-forward; dense: whatever mixture the other layers have. */
struct oom_val oom_llama_feed_forward(struct oom_tape *t, const struct oom_arch *a, bool dense,
				      struct oom_val x);

/* A layer that attends to an image (llama_parts.c). */
struct oom_val oom_llama_cross_layer(struct oom_tape *t, const struct oom_arch *a, const struct oom_crossed *c,
				     struct oom_val x);
/* Weights that a step on text does not run (llama_parts.c). */
void oom_llama_cross_unused(struct oom_tape *t, const struct oom_arch *a);
void oom_llama_phi4_unused(struct oom_tape *t, const struct oom_arch *a);
void oom_llama_phi3v_unused(struct oom_tape *t, const struct oom_arch *a);

#endif
