/* Gemma 4's text decoder: sandwich norms, unscaled attention with normed values, sliding and full
 * layers of different head sizes, keys and values shared by the last layers, an embedding of its
 * own for every layer, perhaps experts beside the feed-forward.
 * Reference: transformers 5.12, models/gemma4/modeling_gemma4.py,
 * models/gemma4_unified/modeling_gemma4_unified.py. */
#include <string.h>

#include "blocks/decoder.h"
#include "config/keys.h"
#include "families/towers/vision.h"
#include "gemma4.h"

struct gemma4 {
	uint64_t d_full;                /* head size of full layers */
	uint64_t kv_full;               /* heads whose values are their keys; 0: none */
	uint64_t d_layer, vocab_layer;  /* every layer's own embedding; width 0: none */
	uint64_t shared;                /* last layers without keys and values of their own */
	bool wide;                      /* these have feed-forwards twice as wide */
	bool always_mask;
};
OOM_OWN(gemma4, struct gemma4);

enum { SLIDES = 1, SHARES = 2, STORES = 4 };                            /* kind[] */

static const struct oom_key_row gemma4_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), MUST(d_ff, "intermediate_size"),
	MUST(n_layers, "num_hidden_layers"), MUST(n_heads, "num_attention_heads"),
	LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads), MUST(head_dim, "head_dim"),
	OR(max_positions, "max_position_embeddings", 0), OR(window, "sliding_window", 512),
	ACT(act, "hidden_activation", "gelu_pytorch_tanh"), FLAG(tie, "tie_word_embeddings", true),
	FLAG(qkv_bias, "attention_bias", false), FLAG(o_bias, "attention_bias", false),
	REAL(attn_dropout, "attention_dropout", 0),
	REAL(softcap_logits, "final_logit_softcapping", 0),
	OR_OWN(struct gemma4, d_full, "global_head_dim", 0),
	OR_OWN(struct gemma4, d_layer, "hidden_size_per_layer_input", 0),
	LIKE_OWN(struct gemma4, vocab_layer, "vocab_size_per_layer_input", 1, vocab),
	OR_OWN(struct gemma4, shared, "num_kv_shared_layers", 0),
	FLAG_OWN(struct gemma4, wide, "use_double_wide_mlp", false), OOM_KEYS_END};
static const struct oom_key_row experts_keys[] = {
	MUST(n_experts, "num_experts"), MUST(top_k, "top_k_experts"),
	MUST(d_expert, "moe_intermediate_size"), OOM_KEYS_END};

static void parse_kinds(struct oom_arch *a)
{
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool usual = (i + 1) % 6 && i + 1 != a->n_layers;

		a->kind[i] = oom_read_says(a, "layer_types", i, "sliding_attention", usual) ? SLIDES : 0;
	}
}

/* The last layers share what an earlier one computed, however deep the model is: the last of its kind before them. */
static uint8_t kind_of(struct oom_tape *t, const struct oom_arch *a, uint64_t i)
{
	const uint64_t depth = oom_depth(t, a->n_layers), shared = gemma4_of(a)->shared,
		       own = shared < depth ? depth - shared : 0;
	const uint8_t slides = oom_layer_kind(a, i);
	bool last = true;

	if (i >= own)
		return slides | SHARES;
	for (uint64_t j = i + 1; j < own && j < OOM_MAX_LAYERS; j++)
		last &= a->kind[j] != slides;
	return (uint8_t)(slides | (last ? STORES : 0));
}

static void gemma4_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct gemma4 *g = gemma4_own(a);

	a->rotary_share = 1;
	if (!g->d_full)
		g->d_full = a->head_dim;
	if (oom_read_bool(r, "attention_k_eq_v", false)) {
		g->kv_full = oom_read_count_or(r, "num_global_key_value_heads", a->n_kv_heads);
		if (!g->kv_full || a->n_heads % g->kv_full)
			oom_read_fail(r, "num_attention_heads is not a multiple of "
					 "num_global_key_value_heads");
	}
	/* with images in mind, the multimodal class builds a mask for every block of tokens even
	 * when there is none */
	g->always_mask = a->vlm && !strcmp(oom_read_string(r, "use_bidirectional_attention", ""),
					   "vision");
	if (oom_read_bool(r, "enable_moe_block", false)) {
		oom_read_rows(a, experts_keys);
		if (a->top_k > a->n_experts)
			oom_read_fail(r, "top_k_experts is more than num_experts");
	}
	if (!a->n_kv_heads || !a->window || !g->vocab_layer)
		oom_read_fail(r, "num_key_value_heads, sliding_window and "
				 "vocab_size_per_layer_input must be positive");
	parse_kinds(a);
}

struct gemma4_layer {
	struct oom_decoder_layer base;
	struct oom_val ple;             /* all layers' inputs */
};

/* Keys and values; of a layer that shares another's, which that one keeps itself, an input. */
static void keys_values(struct oom_frame *f, const struct oom_decoder_layer *l, uint8_t kind,
			const struct oom_attn *at, struct oom_val x, struct oom_val *k,
			struct oom_val *v)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim kd = oom_k_width(at);
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_tape *t = f->t;

	if (kind & SHARES) {
		*k = *v = oom_input(t, "shared keys and values", t->m_bs, kd.n,
				    oom_linear_dtype(t, x.dt));
		k->perm = v->perm = true;
		oom_tape_warn(t, "gradients of keys and values that layers share are not counted");
		return;
	}
	*k = oom_name(f, oom_op_linear(t, "k_proj", x, kd, bias));
	/* values are the keys before their norm */
	*v = oom_name(f, !(kind & SLIDES) && gemma4_of(a)->kv_full ?
				 *k : oom_op_linear(t, "v_proj", x, kd, bias));
	*k = oom_rename(f, *k, oom_gemma4_norm(t, "k_norm", *k, at->d, true));
	*k = oom_rename(f, *k, oom_rope_heads(t, *k, at->rope, at->kv_heads, at->d));
	*v = oom_rename(f, *v, oom_op_heads(t, oom_gemma4_norm(t, "v_norm", *v, at->d, false)));
}

/* first: the layer's first node. */
static struct oom_val gemma4_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				       uint8_t kind, size_t first, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct gemma4 *g = gemma4_of(a);
	const bool slides = kind & SLIDES;
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	const struct oom_dim h = {x.width, x.text};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_layer_attn(t, l, slides);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	at.caller = layer;
	at.d = at.dv = slides ? a->head_dim : g->d_full;
	at.kv_heads = !slides && g->kv_full ? g->kv_full : a->n_kv_heads;
	q = oom_op_linear(t, "q_proj", x, oom_q_width(&at), bias);
	q = oom_gemma4_norm(t, "q_norm", q, at.d, true);
	q = oom_name(&f, oom_rope_heads(t, q, at.rope, a->n_heads, at.d));
	keys_values(&f, l, kind, &at, x, &k, &v);
	if (kind & STORES) {                    /* shared_kv_states, which the first layer's closure holds, too */
		oom_hold_graph(t, first, k);
		oom_hold_graph(t, first, v);
	}
	return oom_leave(&f, oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), h,
					   bias));
}

/* Softmax over all experts, the chosen ones normalised and scaled by a factor of each expert.  The
 * probabilities are returned beside them. */
static struct oom_val route(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			    struct oom_val *index)
{
	const struct oom_dim k = {a->top_k, "top_k"};
	struct oom_frame f = {.t = t};
	struct oom_val p, v, scale, chosen;

	t->scope = "router";
	x = oom_gemma4_norm(t, "norm", x, 0, false);
	x = oom_op_unary(t, OOM_SCALE, oom_op_mul(t, x, oom_param(t, "scale", 0, a->d_model, 0)));
	p = oom_op_softmax(t, oom_op_linear(t, "proj", x, D(a->n_experts), 0), false);
	p = oom_name(&f, p);
	chosen = oom_name(&f, oom_new(t, "top-k index", p.mono, k, OOM_I64));
	*index = oom_give(&f, chosen);
	v = oom_name(&f, oom_op_gather(t, "top-k value", p, chosen, p.mono, k));
	v = oom_rename(&f, v, oom_op_div(t, v, oom_op_sum(t, v, v.mono, D(1))));
	scale = oom_param(t, "per_expert_scale", 0, a->n_experts, 0);
	scale = oom_op_gather(t, "expert scales", scale, chosen, p.mono, k);
	return oom_leave(&f, oom_op_mul(t, v, scale));
}

static struct oom_val gemma4_feed_forward(struct oom_tape *t, const struct oom_arch *a,
					  uint8_t kind, struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .act = a->act};
	const uint64_t ff = a->d_ff * (gemma4_of(a)->wide && kind & SHARES ? 2 : 1);
	struct oom_frame f = {.t = t};
	struct oom_val h, mlp, e, index;

	x = oom_arg(&f, x);
	h = oom_gemma4_norm(t, "pre_feedforward_layernorm", x, 0, true);
	h = oom_gated_mlp(t, h, a->act, (struct oom_dim){ff, "d_ff"}, false);
	if (a->n_experts) {                     /* all locals until the sum is made */
		mlp = oom_name(&f, h);
		h = oom_gemma4_norm(t, "post_feedforward_layernorm_1", mlp, 0, true);
		e = route(t, a, x, &index);
		e = oom_moe_experts(t, &m, oom_gemma4_norm(t, "pre_feedforward_layernorm_2", x, 0, true), e,
				    index);
		h = oom_op_add(t, h, oom_gemma4_norm(t, "post_feedforward_layernorm_2", e, 0, true));
		oom_forget(&f, mlp);
	}
	return oom_leave(&f, oom_op_add(t, x, oom_gemma4_norm(t, "post_feedforward_layernorm", h, 0, true)));
}

static struct oom_val gemma4_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct gemma4_layer *l = ctx;
	const struct oom_arch *a = l->base.a;
	const uint64_t d = gemma4_of(a)->d_layer;
	const uint8_t kind = kind_of(t, a, i);
	const size_t first = t->n_nodes;
	struct oom_frame f = {.t = t};
	struct oom_val h, scalar;

	h = gemma4_attention(&f, &l->base, kind, first, oom_gemma4_norm(t, "input_layernorm", x, 0, true));
	x = oom_op_add(t, x, oom_gemma4_norm(t, "post_attention_layernorm", h, 0, true));
	x = gemma4_feed_forward(t, a, kind, x);
	if (d) {
		x = oom_name(&f, x);
		h = oom_op_linear(t, "per_layer_input_gate", x, D(d), 0);
		h = oom_activation(t, a->act, h);
		h = oom_op_mul(t, h, oom_op_slice(t, l->ple, t->m_bs, D(d)));
		h = oom_op_linear(t, "per_layer_projection", h, D(a->d_model), 0);
		h = oom_gemma4_norm(t, "post_per_layer_input_norm", h, 0, true);
		x = oom_op_add(t, oom_take(&f, x), h);
	}
	scalar = oom_input(t, "layer_scalar", OOM_MONO_ONE, 1, x.dt);
	oom_buffer(t, 1, x.dt == OOM_F32 && !oom_plan_four_bit(t->plan) ? OOM_F32 : OOM_DT_BF16);
	/* hidden_states *= layer_scalar: one fresh gradient */
	return oom_leave(&f, oom_op_masked_inplace(t, x, scalar));
}

/* Token embeddings of every layer at once, added to a normed projection of the first hidden
 * states. */
static struct oom_val layer_inputs(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct gemma4 *g = gemma4_of(a);
	const struct oom_dim w = {oom_depth(t, a->n_layers) * g->d_layer,
				  "n_layers * hidden_size_per_layer_input"};
	struct oom_frame f = {.t = t};
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), own, p;

	own = oom_op_embedding(t, "embed_tokens_per_layer", ids, g->vocab_layer, w,
			       OOM_P_EMBEDDING);
	own = oom_name(&f, oom_scaled_embedding(t, own));
	p = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "per_layer_model_projection", x, w, 0));
	p = oom_gemma4_norm(t, "per_layer_projection_norm", p, g->d_layer, true);
	return oom_leave(&f, oom_op_unary(t, OOM_SCALE, oom_op_add(t, p, own)));
}

static struct oom_val mask(struct oom_tape *t, const struct oom_arch *a, uint64_t window,
			   enum oom_dtype dt)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan padded = *real;
	struct oom_val m;

	padded.padding_mask |= gemma4_of(a)->always_mask;
	t->plan = &padded;
	m = oom_causal_mask(t, window, dt);
	t->plan = real;
	return m;
}

/* shared_kv_states: keys and values of the last layer of each kind, which the checkpoints'
 * closures hold. */
static void store_shared(struct oom_frame *f, const struct oom_arch *a, enum oom_dtype dt)
{
	const struct gemma4 *g = gemma4_of(a);
	const uint64_t full = (g->kv_full ? g->kv_full : a->n_kv_heads) * g->d_full,
		       slides = a->n_kv_heads * a->head_dim;
	struct oom_tape *t = f->t;
	const uint64_t depth = oom_depth(t, a->n_layers);
	const uint8_t last = depth && depth <= OOM_MAX_LAYERS ? kind_of(t, a, (uint32_t)depth - 1) : 0;

	/* what autograd does not keep; without gradients the last layer holds its own anyway */
	if (t->grad ? t->plan->grad_ckpt == OOM_CKPT_NONE : !depth || depth > OOM_MAX_LAYERS || last & SHARES)
		return;
	for (int i = 0; i < 4; i++)
		if (oom_any_layer(t, a, SLIDES, i < 2 ? 0 : SLIDES) && (t->grad || (last & SLIDES) != (i < 2 ? 0 : SLIDES)))
			oom_name_shared(f, oom_new(t, "shared keys and values", t->m_bs,
						   (struct oom_dim){i < 2 ? full : slides,
								    "n_kv_heads * head_dim"},
						   i % 2 && t->amp && dt == OOM_F32 ? oom_linear_dtype(t, dt) : dt));
}

static struct oom_val gemma4_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_val *ple = &((struct gemma4_layer *)l)->ple;
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;
	bool any[2];

	*ple = gemma4_of(a)->d_layer ? oom_name_shared(f, layer_inputs(t, a, x)) : oom_none();
	oom_name(f, oom_name_shared(f, oom_position_ids(t)));
	store_shared(f, a, dt);
	for (int i = 0; i < 2; i++) {
		any[i] = oom_any_layer(t, a, SLIDES, i ? SLIDES : 0);
		*(i ? &l->sliding : &l->mask) =
			oom_name_for(f, mask(t, a, i ? a->window : 0, dt), any[i]);
	}
	if (any[0])
		l->rope = oom_name_tables(f, oom_rope_tables(t, gemma4_of(a)->d_full, dt, 2));
	if (any[1])
		l->local = oom_name_tables(f, oom_rope_tables(t, a->head_dim, dt, 2));
	return x;
}

static struct oom_val gemma4_finish(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	(void)a;
	return oom_gemma4_norm(t, "norm", x, 0, true);
}

static const struct oom_family_type gemma4_types[] = {
	{"gemma4_text", NULL}, {"gemma4_unified_text", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_gemma4 = {
	.name = "gemma4",
	.summary = "sandwich norms, sliding and full layers of different head sizes, an embedding "
		   "for every layer",
	.source = "transformers 5.12 models/gemma4/modeling_gemma4.py",
	.types = gemma4_types,
	.norm = OOM_NORM_RMS_FP32_W,
	.lora_targets = "q_proj+v_proj",
	.keys = gemma4_keys,
	.parse = gemma4_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .gemma_embed = true, .kind_of = kind_of,
			       .layer_size = sizeof(struct gemma4_layer), .block = gemma4_block,
			       .prepare = gemma4_prepare, .finish = gemma4_finish),
};
