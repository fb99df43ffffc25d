/* Building blocks the families share: norms, rotary positions, attention, feed-forwards, masks,
 * heads and losses. */
#ifndef OOM_BLOCKS_H
#define OOM_BLOCKS_H

#include "config/arch.h"
#include "ops/activation.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "tape/frame.h"

/* A norm of the architecture's kind over the last `width` elements (0: all). */
struct oom_val oom_norm(struct oom_tape *t, enum oom_norm kind, const char *name, struct oom_val x,
			uint64_t width);

/* Rotary tables as the first layer needs them: cos and sin of [1, s, dim] in x's type. */
struct oom_rope {
	struct oom_val cos, sin;
};
struct oom_rope oom_rope_tables(struct oom_tape *t, uint64_t dim, enum oom_dtype dt,
				unsigned buffers);
/* Both as names of f's that all layers share. */
struct oom_rope oom_name_tables(struct oom_frame *f, struct oom_rope r);
/* Tables of positions in time, height and width, one per token: [3, b, s, dim], or [b, s, dim]
 * once merged. */
struct oom_rope oom_rope_tables_3d(struct oom_tape *t, uint64_t dim, enum oom_dtype dt,
				   unsigned buffers, bool merged);
/* Whichever of the two the architecture's positions call for, with frequencies that are read and kept. */
struct oom_rope oom_rope_tables_of(struct oom_tape *t, const struct oom_arch *a, uint64_t dim, enum oom_dtype dt);
/* What every layer gets; a family that shares more begins a struct of its own with it. */
struct oom_decoder_layer {
	const struct oom_arch *a;
	const struct oom_decoder *d;    /* of layers that the skeleton writes (decoder.h) */
	struct oom_val mask, sliding;   /* sliding: of the layers that have a window, where others have none */
	struct oom_rope rope, local;    /* local: those layers' own tables, if they have any */
	enum oom_dtype table;           /* type of the token table, and of the weights */
	struct oom_val bias;            /* what scores get beside the mask (ALiBi), or none */
};

/* q * cos + rotate_half(q) * sin on [b, heads, s, dim]; dim < head_dim rotates a part (rot_dim). */
struct oom_val oom_rope_apply(struct oom_tape *t, struct oom_val q, const struct oom_rope *r,
			      uint64_t heads, uint64_t head_dim, uint64_t rot_dim);
/* [x1 cos - x2 sin, x2 cos + x1 sin] on the two halves, joined. */
struct oom_val oom_rope_halves(struct oom_tape *t, struct oom_val x, const struct oom_rope *r);
/* apply_rotary_pos_emb on [b, s, heads, head_dim], whose argument lives until it returns; then laid out as heads. */
struct oom_val oom_rope_heads(struct oom_tape *t, struct oom_val x, const struct oom_rope *r,
			      uint64_t heads, uint64_t head_dim);
/* The same for queries and keys in one call, whose arguments live until both are rotated. */
void oom_rope_pair(struct oom_tape *t, struct oom_val *q, struct oom_val *k,
		   const struct oom_rope *r, uint64_t heads, uint64_t kv_heads, uint64_t head_dim,
		   uint64_t rot_dim);
/* q.float() * cos + rotate_half(q.float()) * sin for both, each converted twice, and back to
 * their type (ModernBERT, ESM). */
void oom_rope_fp32(struct oom_tape *t, struct oom_val *q, struct oom_val *k,
		   const struct oom_rope *r, uint64_t heads, uint64_t kv_heads, uint64_t head_dim);

/* What an attention layer is made of.  Widths in elements. */
struct oom_attn {
	uint64_t heads, kv_heads, d, dv;
	const struct oom_rope *rope;    /* NULL: none */
	uint64_t rot_dim;               /* 0 = d */
	struct oom_val mask;            /* none, or the layer's mask (kept) */
	bool across;                    /* elements of a head do not lie side by side */
	bool causal, qkv_bias, o_bias, qk_norm, qk_norm_full, qk_norm_late;
	enum oom_norm norm;
	double dropout, softcap;
	/* eager multiplies the scores by the scale (HF decoder style) */
	bool scale_after;
	/* eager softmax in the scores' type (BERT-likes, GPT-2) instead of fp32 */
	bool softmax_as_is;
	bool no_cast_back;              /* and its result goes on in that type */
	const char *q, *k, *v, *o;      /* module names */
	uint16_t mq, mk, sk;            /* tokens of queries and keys, length of keys */
	/* the output projection takes d_model, whatever the heads make (Helium) */
	bool o_square;
	/* sdpa with grouped heads spread out, mask or not (Moshi) */
	bool repeat_kv;
	/* flash_attn too, in the attention classes of transformers before 4.48 */
	bool repeat_kv_flash;
	bool rope_fp32;                 /* q and k rotated in fp32 */
	/* the rotation's result goes back to the queries' type (OLMo: tables stay fp32) */
	bool rope_back;
	/* all three are projected before any is laid out as heads */
	bool views_late;
	/* queries times a factor of their position (Ministral 3) */
	bool q_scaled;
	/* a LayerNorm without bias for every head of queries and keys (StableLM 2 12B) */
	bool norm_per_head;
	bool gated;                     /* output times sigmoid(gate_proj(x)) (AFMoE) */
	/* the parts rotated are locals of the module, not of a function (Phi, StableLM) */
	bool rope_inline;
	/* rotated and passed parts joined although nothing passes */
	bool rope_cat;
	bool rope_sections;             /* tables of three axes merged anew in every layer */
	/* halves of cos and sin repeated in place: new tables in every layer */
	bool rope_spread;
	bool gate_bias;                 /* of gated's gate_proj */
	/* softplus(g_proj(x)) in fp32, one number per head (Laguna) */
	bool head_gate;
	/* q_proj gives queries and such a gate, by head (Qwen3-Next) */
	bool gate_in_q;
	bool k_scaled;                  /* keys times a constant before the rotation (Falcon-H1) */
	const char *o_norm;             /* norm before the output projection; NULL: none */
	const char *q_norm, *k_norm;    /* the norms' names; NULL: these */
	/* of written_out: in one Python function, the scores a local until the context is made */
	bool scores_local;
	/* eager: the frame of whoever calls the module, where the weights have a name (`hidden, _ =
	 * self.self_attn(...)`, most decoders); NULL: none */
	struct oom_frame *caller;
	/* eager: a reference to the attention weights, for a caller that keeps them */
	struct oom_val *weights;
	struct oom_val *scores;         /* of scores_local: the same of the scores */
	bool returned;                  /* eager: the block returns the weights beside what it made (oom_block_returns) */
	/* eager whatever the plan asks for: the architecture has no other */
	bool written_out;
	struct oom_val kv_from;         /* cross-attention: keys and values from here (kept) */
	/* makes the layer's own mask of `mask` and x, once queries, keys and values are there; both are kept,
	 * the result is a name of the module's frame f (MiniMax M3); NULL: none */
	struct oom_val (*chosen_keys)(struct oom_frame *f, const void *ctx, struct oom_val x);
	const void *chosen_by;          /* its ctx */
};
/* The defaults of a decoder-style layer: q_proj, k_proj, v_proj, o_proj over b x s tokens. */
struct oom_attn oom_attn_of(struct oom_tape *t, const struct oom_arch *a);
/* The same with the mask and the tables of a layer; slides: of one that has a window. */
struct oom_attn oom_layer_attn(struct oom_tape *t, const struct oom_decoder_layer *l, bool slides);
/* What its projections of queries and of keys are wide. */
struct oom_dim oom_q_width(const struct oom_attn *a);
struct oom_dim oom_k_width(const struct oom_attn *a);
/* Rotates queries and keys as a->rope and the fields beside it say; parts that are locals of the module are named in its
 * frame. */
void oom_attn_rotate(struct oom_frame *module, const struct oom_attn *a, struct oom_val *q, struct oom_val *k);
/* Projections, rotary, kernel, output projection.  Consumes x. */
struct oom_val oom_attention(struct oom_tape *t, const struct oom_attn *a, struct oom_val x);
/* Whether the attention being recorded has trained tokens beside it, and y, the result over x, with what comes of them.
 * Consumes y. */
bool oom_adaption(const struct oom_tape *t);
struct oom_val oom_adaption_added(struct oom_tape *t, const struct oom_attn *a, struct oom_val x, struct oom_val y);
/* The kernel alone on q, k, v laid out as heads; returns merged heads. */
struct oom_val oom_attention_core(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
				  struct oom_val k, struct oom_val v);

/* The type of a linear layer's result (a quantised one returns its input's) on x, a norm's. */
enum oom_dtype oom_linear_dtype(const struct oom_tape *t, enum oom_dtype x);
/* The attention weights (of type dt) that the model's `outputs` still hold from the layer before
 * the i-th, where autograd does not keep them anyway; absent otherwise. */
struct oom_val oom_weights_before(struct oom_tape *t, uint32_t i, uint64_t heads,
				  enum oom_dtype dt);

/* down(act(gate(x)) * up(x)) and fc2(act(fc1(x))).  Consume x. */
struct oom_val oom_gated_mlp(struct oom_tape *t, struct oom_val x, enum oom_act act,
			     struct oom_dim ff, bool bias);
struct oom_val oom_plain_mlp(struct oom_tape *t, struct oom_val x, const char *up, const char *down,
			     enum oom_act act, struct oom_dim ff, bool bias);
/* The gated one of a type with names of its own for gate, up and down, which no kernel replaces. */
struct oom_val oom_named_glu(struct oom_tape *t, struct oom_val x, const char *const names[3],
			     enum oom_act act, struct oom_dim ff, bool bias, bool down_bias);

/* LoRA on a bare parameter (lora_param.c): the weight, what is added to it, and the sum while it
 * is in use. */
struct oom_lora_param {
	struct oom_val w, delta, sum;
};
enum oom_lora_part { OOM_LORA_ROUTER, OOM_LORA_GATE_UP, OOM_LORA_DOWN };
/* The adapter of w, stacked [experts, out, in]: delta stays absent when the plan does not adapt
 * it. */
struct oom_lora_param oom_lora_delta(struct oom_tape *t, enum oom_lora_part part, struct oom_val w,
				     uint64_t experts, uint64_t out, uint64_t in);
/* What the layer computes with: w itself, or a reference to w + delta. */
struct oom_val oom_lora_sum(struct oom_tape *t, struct oom_lora_param *l);
void oom_lora_drop(struct oom_tape *t, struct oom_lora_param *l);

/* Mixture of experts (moe.c). */
struct oom_moe {
	uint64_t experts, top_k, d_expert, d_shared;    /* d_shared 0: no shared expert */
	enum oom_act act;
	bool norm_topk, shared_gate;
	/* the weights of the chosen in the logits' type; in that of the experts' input (Jamba) */
	bool scores_in_model_type, scores_in_input_type;
	/* DeepSeek's router: fp32 product, sigmoid (with a correction bias, a buffer) or softmax,
	 * scaled weights; the shared experts run after the routed ones */
	bool router_fp32, sigmoid, scale_weights;
	/* of router_fp32: the product in the model's type, only the scores in fp32 */
	bool route_late;
	/* of router_fp32: the chosen over their sum are a tensor of their own, in the sum's type, which is fp32
	 * under autocast (HY v3); else the division is in place */
	bool divided_apart;
	/* of router_fp32: everything in the model's type after all */
	bool route_plain;
	/* ERNIE 4.5: router weight and a frozen bias in fp32, outside autocast */
	bool router_frozen_bias;
	/* AFMoE: the correction bias a frozen parameter; shared experts before the routed */
	bool bias_param, shared_first;
	/* Phi MoE's router returns three tensors: PEFT's wrapper stops there */
	bool three_results;
	bool gate_fp32;                 /* HunYuan: a router kept in fp32, fed with an fp32 copy */
	bool topk_first;                /* Cohere 2: softmax over the chosen logits alone */
	/* experts and shared experts are down(act(up(x))) (Nemotron-H) */
	bool ungated;
	bool latent_bias;
	/* width the experts work in, between two projections; 0: the model's */
	uint64_t latent;
	/* LongCat: experts that pass their input on, weighed and stacked like the others */
	uint64_t zero_experts;
	enum oom_glu {
		/* act(min(gate, limit)) * clamp(up) (DeepSeek-V4) */
		OOM_GLU, OOM_GLU_CLAMPED,
		/* (clamp(up) + 1) * g * sigmoid(alpha * g), g = min(gate, limit) (MiniMax M3) */
		OOM_GLU_OAI,
	} glu;
	bool scale_output;              /* the routed output is scaled, not the weights */
	/* a plain router: an nn.Linear, which adapters and quantisation find (Jamba) */
	bool router_linear;
	bool combine_fp32;              /* routed and shared outputs summed in fp32 */
	bool never_separate;            /* experts were one tensor from the type's beginning */
	bool expert_bias;               /* separate experts: one layer for gate and up, biases, summed in fp32 */
};
/* The same sizes as the arch has, and whatever else is said. */
#define OOM_MOE(arch, ...) \
	((struct oom_moe){.experts = (arch)->n_experts, .top_k = (arch)->top_k, \
			  .d_expert = (arch)->d_expert, .act = (arch)->act, __VA_ARGS__})
/* The expert that every token goes through, a gated feed-forward of a->d_shared; x stays the caller's. */
struct oom_val oom_shared_expert(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
/* The gate of m->glu over what one projection made; consumes both. */
struct oom_val oom_glu(struct oom_tape *t, const struct oom_moe *m, struct oom_val gate,
		       struct oom_val up);
/* down(glu(gate_up(x))): one projection for both (fused), or two, which are clamped. */
struct oom_val oom_glu_mlp(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
			   struct oom_dim ff, bool fused);
/* A router's logits, which its loss works on; that loss; the end of the model that had it (router_loss.c). */
void oom_router_keeps(struct oom_tape *t, uint64_t experts, uint64_t top_k, struct oom_val logits);
void oom_router_loss(struct oom_tape *t);
void oom_router_leave(struct oom_tape *t);
/* Router, dispatch, experts, combination; consumes x. */
struct oom_val oom_moe_mlp(struct oom_tape *t, const struct oom_moe *m, struct oom_val x);
/* The experts alone: x dispatched by index [tokens, top_k], weighed by scores; consumes all
 * three. */
struct oom_val oom_moe_experts(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
			       struct oom_val scores, struct oom_val index);
/* The same as modules of their own (moe_separate.c). */
struct oom_val oom_moe_separate_experts(struct oom_tape *t, const struct oom_moe *m, struct oom_val x,
					struct oom_val scores, struct oom_val index);
/* Experts that run one after another, each token meeting one (moe_top1.c): which tokens go where is
 * the data's to say. */
struct oom_top1 {
	uint64_t experts;
	struct oom_dim ff;
	enum oom_act act;
	double dropout;
	const char *up[3], *down[3];    /* names: the layer, its weight, its bias */
	bool router_bias, bias;         /* of the router; of the experts */
	bool jitter;                    /* the router's input is multiplied by noise (Switch) */
	bool masked;                    /* probabilities times a mask, summed at the end (NLLB-MoE) */
};
struct oom_val oom_moe_top1(struct oom_tape *t, const struct oom_top1 *m, struct oom_val x);
/* Granite's: experts run one after another, the shared expert fused. */
struct oom_routes {
	/* gates sorted by expert; the sorting order; the token of each row */
	struct oom_val logits, gates, order, rows;
};
struct oom_routes oom_parallel_route(struct oom_tape *t, uint64_t experts, uint64_t top_k,
				     struct oom_val x);
struct oom_val oom_parallel_experts(struct oom_tape *t, const char *name, struct oom_val x,
				    uint64_t experts, uint64_t out, uint64_t in);
struct oom_val oom_moe_parallel_experts(struct oom_tape *t, const struct oom_moe *m,
					struct oom_val x);

/* Positions of the tokens: a tensor of the model's, or of the batch's where samples share sequences. */
struct oom_val oom_position_ids(struct oom_tape *t);
/* Ids that a decoder begins with: labels, shifted by the model, or the batch's own where it gets no labels. */
struct oom_val oom_decoder_ids(struct oom_tape *t, uint16_t tokens);

/* Attention both ways whose mask hides nothing, or something: what a traced step makes of it. */
void oom_mask_nothing(struct oom_tape *t, bool nothing);
/* The 4D mask transformers builds for a whole model, or none: causal / bidirectional, with a
 * sliding window (0: none). */
struct oom_val oom_make_mask(struct oom_tape *t, bool causal, uint64_t window, enum oom_dtype dt,
			     uint16_t mb, uint16_t mq, uint16_t mk);

/* The same for an architecture that writes its attention out whatever the plan asks for. */
struct oom_val oom_make_written_mask(struct oom_tape *t, bool causal, enum oom_dtype dt,
				     uint16_t mb, uint16_t mq, uint16_t mk);
/* The causal masks over the batch: of the plan's attention, and of one that is written out. */
struct oom_val oom_causal_mask(struct oom_tape *t, uint64_t window, enum oom_dtype dt);
struct oom_val oom_make_eager_mask(struct oom_tape *t, enum oom_dtype dt);

/* Token ids / labels of the batch: persistent inputs (counted once), as values. */
struct oom_val oom_input(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
			 enum oom_dtype dt);

/* Whether there is a layer, at the depth asked for, whose kind has exactly `value` of these bits: what
 * models make once for every layer type they have (`for layer_type in set(config.layer_types)`). */
bool oom_any_layer(struct oom_tape *t, const struct oom_arch *a, uint8_t bits, uint8_t value);

/* Gemma's embeddings times a buffer of one number, which is made in the loaded type. */
struct oom_val oom_scaled_embedding(struct oom_tape *t, struct oom_val x);
/* The output of a module that a model within the model (a tower) names as its input embeddings: with adapters and checkpoints
 * PEFT has it need a gradient, frozen or not (transformers 5, modeling_utils.py, enable_input_require_grads walks all modules). */
struct oom_val oom_hooked(struct oom_tape *t, struct oom_val x);
/* Makes the embedding's output require a gradient where PEFT and checkpointing do. */
struct oom_val oom_input_grads(struct oom_tape *t, struct oom_val x);


/* ---- heads and losses (loss.c) ---- */
/* x is part of what the model returns beside the loss: held until it has returned, and converted by
 * accelerate where the plan says so. */
void oom_returns(struct oom_tape *t, struct oom_val x);
/* The doors to what a training loop makes of logits: they are returned beside the loss, or where the
 * model gets no labels (t->no_labels) alone.  A family that writes its loss itself ends in one of
 * them; the functions below do. */
void oom_returns_logits(struct oom_tape *t, struct oom_val logits);
struct oom_val oom_logits_alone(struct oom_tape *t, struct oom_val logits);
/* logits of a language-model head, tied to embed or not, and their loss (ForCausalLMLoss /
 * ForMaskedLMLoss). */
struct oom_val oom_lm_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			   struct oom_val embed, const char *name, bool bias);
struct oom_val oom_causal_lm_loss(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val logits);
/* Logits as the loss reads them: in fp32, but where its kernel takes 16-bit ones as they are. */
struct oom_val oom_upcast_logits(struct oom_tape *t, struct oom_val logits);
/* cross_entropy on what is given, without an upcast (BERT-like heads, T5). */
struct oom_val oom_cross_entropy(struct oom_tape *t, struct oom_val logits, struct oom_val labels);
/* Log-probabilities of tokens as flash_attn's losses, whose gradient takes the logits' place; and whether an objective that
 * makes its own loss has them so, from logits that its loop hands on as they are. */
bool oom_logps_in_place(const struct oom_plan *plan);
struct oom_val oom_flash_logps(struct oom_tape *t, struct oom_val logits);
struct oom_val oom_plain_lm_loss(struct oom_tape *t, struct oom_val logits, bool upcast,
				 uint16_t tokens);
/* Decoder-style classification: score(h) of every token, the last one picked, loss on [b,
 * labels]. */
struct oom_val oom_seq_cls_last(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				const char *name);
/* Encoder-decoder classification: the decoder's state at the last end-of-sequence token, two
 * linear layers, loss. */
struct oom_val oom_seq2seq_cls(struct oom_tape *t, const struct oom_arch *a, struct oom_val h);
/* Loss on [b, labels]. */
struct oom_val oom_cls_loss(struct oom_tape *t, const struct oom_arch *a, struct oom_val logits);
/* Head and loss in one, as --loss has them (fused_loss.c). */
struct oom_val oom_fused_ce(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name);
/* Whether a word of --loss takes the head in: from hidden states to the loss, without logits. */
bool oom_loss_takes_head(int64_t loss);
/* Whether this pass fuses the head of a language model with its loss. */
bool oom_fuses_head(const struct oom_tape *t);
/* oom_fused_ce of a head with or without a bias, which the fused product leaves out. */
struct oom_val oom_fused_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			      struct oom_val embed, const char *name, bool bias);
/* Embedding + final hidden states -> loss for a causal decoder: the tail every such family
 * shares.  name: the head's module, by which patterns of what trains find it. */
struct oom_val oom_causal_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed, const char *name);
/* The same of a head that is called lm_head. */
struct oom_val oom_causal_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed);

#endif
