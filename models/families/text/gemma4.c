/* Gemma 4's text decoder: sandwich norms, unscaled attention with normed values, sliding and full
 * layers of different head sizes, keys and values shared by the last layers, an embedding of its
 * own for every layer, perhaps experts beside the feed-forward.
 * Reference: transformers 5.12, models/gemma4/modeling_gemma4.py,
 * models/gemma4_unified/modeling_gemma4_unified.py. */
#include <stdio.h>
#include <string.h>

#include "families/towers/vision.h"

enum { D_FULL, KV_FULL, D_LAYER, VOCAB_LAYER, WIDE, ALWAYS_MASK, SHARED };      /* extra[] */
enum { SLIDES = 1, SHARES = 2 };                                        /* kind[] */

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[SHARED] = oom_read_count_or(r, "num_kv_shared_layers", 0);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);
		const bool slides = type ? !strcmp(type, "sliding_attention") :
					   (i + 1) % 6 && i + 1 != a->n_layers;

		a->kind[i] = slides ? SLIDES : 0;
	}
}

/* The last layers share what an earlier one computed, however deep the model is. */
static uint8_t kind_of(const struct oom_tape *t, const struct oom_arch *a, uint64_t i)
{
	const bool shares = i + a->extra[SHARED] >= oom_depth(t, a->n_layers);

	return (uint8_t)((i < OOM_MAX_LAYERS ? a->kind[i] : 0) | (shares ? SHARES : 0));
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS_FP32_W;
	a->rotary_share = 1;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count(r, "head_dim", 1);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->window = oom_read_count_or(r, "sliding_window", 512);
	a->act = oom_read_act(r, "hidden_activation", "gelu_pytorch_tanh");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->softcap_logits = oom_read_real(r, "final_logit_softcapping", 0);
	a->extra[D_FULL] = oom_read_count_or(r, "global_head_dim", 0);
	if (!a->extra[D_FULL])
		a->extra[D_FULL] = a->head_dim;
	if (oom_read_bool(r, "attention_k_eq_v", false)) {
		a->extra[KV_FULL] = oom_read_count_or(r, "num_global_key_value_heads",
						      a->n_kv_heads);
		if (!a->extra[KV_FULL] || a->n_heads % a->extra[KV_FULL])
			oom_read_fail(r, "num_attention_heads is not a multiple of "
					 "num_global_key_value_heads");
	}
	a->extra[D_LAYER] = oom_read_count_or(r, "hidden_size_per_layer_input", 0);
	a->extra[VOCAB_LAYER] = oom_read_count_or(r, "vocab_size_per_layer_input", a->vocab);
	a->extra[WIDE] = oom_read_bool(r, "use_double_wide_mlp", false);
	/* with images in mind, the multimodal class builds a mask for every block of tokens even
	 * when there is none */
	a->extra[ALWAYS_MASK] = a->vlm &&
				!strcmp(oom_read_string(r, "use_bidirectional_attention", ""),
					"vision");
	if (oom_read_bool(r, "enable_moe_block", false)) {
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = oom_read_count(r, "top_k_experts", 1);
		a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
		if (a->top_k > a->n_experts)
			oom_read_fail(r, "top_k_experts is more than num_experts");
	}
	if (!a->n_kv_heads || !a->window || !a->extra[VOCAB_LAYER])
		oom_read_fail(r, "num_key_value_heads, sliding_window and "
				 "vocab_size_per_layer_input must be positive");
	parse_kinds(a);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope[2];        /* full, sliding */
	struct oom_val mask[2];
	struct oom_val ple;             /* all layers' inputs */
};

/* float(); * pow(mean(x^2) + eps, -0.5); * weight.float(); back to the input's type. */
static struct oom_val norm(struct oom_tape *t, const char *name, struct oom_val x, uint64_t width,
			   bool weighted)
{
	const uint64_t w = width ? width : x.width;
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	struct oom_val weight = oom_none(), f, v, y;

	t->scope = name;
	if (weighted)
		weight = oom_param(t, "weight", 0, w, OOM_P_NORM);
	f = oom_op_cast(t, oom_keep(x), OOM_F32);
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(f)), x.mono,
			(struct oom_dim){x.width / w, NULL});
	v = oom_op_unary(t, OOM_POW, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_mul(t, f, v);
	if (weighted)
		y = oom_op_mul(t, y, oom_op_cast(t, weight, OOM_F32));
	y = oom_op_cast(t, y, in);
	oom_done(t, x);
	t->scope = scope;
	return y;
}

/* apply_rotary_pos_emb on [b, s, heads, d]: the argument lives until it returns. */
static struct oom_val rotate(struct oom_tape *t, struct oom_val x, const struct oom_rope *r,
			     uint64_t heads, uint64_t d)
{
	struct oom_val y = oom_rope_apply(t, oom_keep(x), r, heads, d, d);

	oom_drop(t, x);
	return oom_op_heads(t, y);
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, uint8_t kind,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const int slides = kind & SLIDES ? 1 : 0;
	/* values are the keys before their norm */
	const bool same = !slides && a->extra[KV_FULL];
	const uint64_t d = slides ? a->head_dim : a->extra[D_FULL],
		       kv = same ? a->extra[KV_FULL] : a->n_kv_heads;
	const struct oom_dim h = {x.width, x.text}, qd = {a->n_heads * d, "n_heads * head_dim"},
			     kd = {kv * d, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, local[3];

	at.layer_names_weights = true;
	at.d = at.dv = d;
	at.kv_heads = kv;
	at.mask = l->mask[slides];
	q = norm(t, "q_norm", oom_op_linear(t, "q_proj", oom_keep(x), qd, bias), d, true);
	q = rotate(t, q, &l->rope[slides], a->n_heads, d);
	if (kind & SHARES) {                    /* another layer's, which it keeps itself */
		k = v = oom_input(t, "shared keys and values", t->m_bs, kd.n, (enum oom_dtype)q.dt);
		k.perm = v.perm = true;
		t->warning = "gradients of keys and values that layers share are not counted";
	} else {
		k = oom_op_linear(t, "k_proj", oom_keep(x), kd, bias);
		v = same ? oom_share(t, k) : oom_op_linear(t, "v_proj", oom_keep(x), kd, bias);
		k = rotate(t, norm(t, "k_norm", k, d, true), &l->rope[slides], kv, d);
		v = oom_op_heads(t, norm(t, "v_norm", v, d, false));
	}
	local[0] = oom_share(t, q);
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	q = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), h, bias);
	for (int i = 0; i < 3; i++)
		oom_drop(t, local[i]);
	oom_done(t, x);
	return q;
}

/* Softmax over all experts, the chosen ones normalised and scaled by a factor of each expert. */
static struct oom_val route(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			    struct oom_val *index)
{
	const struct oom_dim k = {a->top_k, "top_k"};
	struct oom_val p, v, scale, each;

	t->scope = "router";
	x = norm(t, "norm", x, 0, false);
	x = oom_op_unary(t, OOM_SCALE, oom_op_mul(t, x, oom_param(t, "scale", 0, a->d_model, 0)));
	p = oom_op_softmax(t, oom_op_linear(t, "proj", x, D(a->n_experts), 0), false);
	*index = oom_new(t, "top-k index", p.mono, k, OOM_I64);
	v = oom_op_gather(t, "top-k value", oom_keep(p), oom_keep(*index), p.mono, k);
	v = oom_op_div(t, v, oom_op_sum(t, oom_keep(v), v.mono, D(1)));
	scale = oom_param(t, "per_expert_scale", 0, a->n_experts, 0);
	each = oom_op_gather(t, "expert scales", scale, oom_keep(*index), p.mono, k);
	v = oom_op_mul(t, v, each);
	oom_drop(t, p);                         /* returned beside them */
	return v;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act};
	const uint64_t ff = a->d_ff * (a->extra[WIDE] && kind & SHARES ? 2 : 1);
	struct oom_val h = norm(t, "pre_feedforward_layernorm", oom_keep(x), 0, true), e, index;

	h = oom_gated_mlp(t, h, a->act, (struct oom_dim){ff, "d_ff"}, false);
	if (a->n_experts) {                     /* all locals until the sum is made */
		const struct oom_val mlp = h;

		h = norm(t, "post_feedforward_layernorm_1", oom_keep(mlp), 0, true);
		e = route(t, a, oom_keep(x), &index);
		e = oom_moe_experts(t, &m,
				    norm(t, "pre_feedforward_layernorm_2", oom_keep(x), 0, true), e,
				    index);
		h = oom_op_add(t, h, norm(t, "post_feedforward_layernorm_2", e, 0, true));
		oom_drop(t, mlp);
	}
	return oom_op_add(t, x, norm(t, "post_feedforward_layernorm", h, 0, true));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = kind_of(t, a, i);
	struct oom_val h, scalar;

	h = attention(t, l, kind, norm(t, "input_layernorm", oom_keep(x), 0, true));
	x = oom_op_add(t, x, norm(t, "post_attention_layernorm", h, 0, true));
	x = feed_forward(t, a, kind, x);
	if (a->extra[D_LAYER]) {
		h = oom_op_linear(t, "per_layer_input_gate", oom_keep(x), D(a->extra[D_LAYER]), 0);
		h = oom_activation(t, a->act, h);
		h = oom_op_mul(t, h,
			       oom_op_slice(t, oom_keep(l->ple), t->m_bs, D(a->extra[D_LAYER])));
		h = oom_op_linear(t, "per_layer_projection", h, D(a->d_model), 0);
		x = oom_op_add(t, x, norm(t, "post_per_layer_input_norm", h, 0, true));
	}
	scalar = oom_input(t, "layer_scalar", OOM_MONO_ONE, 1, (enum oom_dtype)x.dt);
	oom_buffer(t, 1, x.dt == OOM_F32 && !t->plan->qlora ? OOM_F32 : OOM_DT_BF16);
	/* hidden_states *= layer_scalar: one fresh gradient */
	return oom_op_masked_inplace(t, x, scalar);
}

/* Token embeddings of every layer at once, added to a normed projection of the first hidden
 * states. */
static struct oom_val layer_inputs(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t all = oom_depth(t, a->n_layers) * a->extra[D_LAYER];
	const struct oom_dim w = {all, "n_layers * hidden_size_per_layer_input"};
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), own, p;

	own = oom_op_embedding(t, "embed_tokens_per_layer", ids, a->extra[VOCAB_LAYER], w,
			       OOM_P_EMBEDDING);
	oom_buffer(t, 1, x.dt == OOM_F32 && !t->plan->qlora ? OOM_F32 : OOM_DT_BF16);
	own = oom_op_unary(t, OOM_SCALE, own);
	p = oom_op_unary(t, OOM_SCALE,
			 oom_op_linear(t, "per_layer_model_projection", oom_keep(x), w, 0));
	p = norm(t, "per_layer_projection_norm", p, a->extra[D_LAYER], true);
	p = oom_op_unary(t, OOM_SCALE, oom_op_add(t, p, oom_keep(own)));
	oom_drop(t, own);
	return p;
}

static struct oom_val mask(struct oom_tape *t, const struct oom_arch *a, uint64_t window,
			   enum oom_dtype dt)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan padded = *real;
	struct oom_val m;

	padded.padding_mask |= a->extra[ALWAYS_MASK] != 0;
	t->plan = &padded;
	m = oom_make_mask(t, true, window, dt, t->m_b, t->m_s, t->m_s);
	t->plan = real;
	return m;
}

/* shared_kv_states: keys and values of the last layer of each kind, which the checkpoints'
 * closures hold. */
static void store(struct oom_tape *t, const struct oom_arch *a, struct oom_val kv[4],
		  enum oom_dtype dt)
{
	const bool same = a->extra[KV_FULL] != 0;
	const uint64_t full = (same ? a->extra[KV_FULL] : a->n_kv_heads) * a->extra[D_FULL],
		       slides = a->n_kv_heads * a->head_dim;

	if (t->plan->grad_ckpt == OOM_CKPT_NONE || !t->grad)
		return;
	for (int i = 0; i < 4; i++)
		if (oom_any_layer(t, a, SLIDES, i < 2 ? 0 : SLIDES))
			kv[i] = oom_new(t, "shared keys and values", t->m_bs,
				(struct oom_dim){i < 2 ? full : slides, "n_kv_heads * head_dim"},
				dt);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a,
			  .ple = oom_none(),
			  .rope = {{oom_none(), oom_none()}, {oom_none(), oom_none()}}};
	struct oom_val kv[4] = {oom_none(), oom_none(), oom_none(), oom_none()};
	const uint64_t depth = oom_depth(t, a->n_layers);
	uint8_t kind[OOM_MAX_LAYERS];
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	oom_buffer(t, 1, x.dt == OOM_F32 && !t->plan->qlora ? OOM_F32 : OOM_DT_BF16);
	x = oom_input_grads(t, oom_op_unary(t, OOM_SCALE, x));
	if (a->extra[D_LAYER])
		l.ple = layer_inputs(t, a, x);
	/* inputs_embeds and position_ids, locals of the model */
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	dt = (enum oom_dtype)x.dt;
	store(t, a, kv, dt);
	l.mask[0] = mask(t, a, 0, dt);
	l.mask[1] = mask(t, a, a->window, dt);
	if (oom_any_layer(t, a, SLIDES, 0))
		l.rope[0] = oom_rope_tables(t, a->extra[D_FULL], dt, 2);
	if (oom_any_layer(t, a, SLIDES, SLIDES))
		l.rope[1] = oom_rope_tables(t, a->head_dim, dt, 2);
	for (uint64_t i = 0; i < depth && i < OOM_MAX_LAYERS; i++)
		kind[i] = kind_of(t, a, i);
	x = oom_layers(t, (uint32_t)depth, kind, block, &l, x);
	for (int i = 0; i < 2; i++) {
		oom_drop_shared(t, l.rope[i].cos);
		oom_drop_shared(t, l.rope[i].sin);
		oom_drop_shared(t, l.mask[i]);
	}
	if (a->extra[D_LAYER])
		oom_drop_shared(t, l.ple);
	for (int i = 0; i < 4; i++)
		oom_drop_shared(t, kv[i]);
	oom_drop_shared(t, oom_share(t, ids));
	x = norm(t, "norm", x, 0, true);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"gemma4_text", NULL}, {"gemma4_unified_text", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_gemma4 = {
	.name = "gemma4",
	.summary = "sandwich norms, sliding and full layers of different head sizes, an embedding "
		   "for every layer",
	.source = "transformers 5.12 models/gemma4/modeling_gemma4.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
