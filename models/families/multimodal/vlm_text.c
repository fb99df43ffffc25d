/* Text decoders of vision-language models that no model stands alone with: Llama's layer with
 * quirks of their own, and layers that only images meet.
 * Reference: transformers 5.12, models/{chameleon,idefics,ernie4_5_vl_moe}/modeling_*.py. */
#include <string.h>

#include "families/towers/vision.h"
#include "families/towers/weights.h"

enum {
	BETWEEN = 2,            /* gated cross-attention between the layers (IDEFICS) */
	HEAD_NORMS = 4,         /* query and key norms with weights for each head (Chameleon) */
	SWIN = 8,               /* norms after attention and feed-forward (Chameleon) */
	ERNIE = 32,             /* experts for text, others for images (ERNIE 4.5 VL) */
	MASKED_HEAD = 64,       /* logits of the image codes are overwritten (Chameleon) */
	FROZEN_TEXT = 128,
	ROPE_FP32 = 256,
};
enum { FLAGS, D_VISION };   /* extra[] */

static const struct {
	const char *type;
	unsigned flags;
} kinds[] = {
	{"idefics", BETWEEN}, {"chameleon", HEAD_NORMS | MASKED_HEAD},
	{"ernie4_5_vl_moe_text", ERNIE | ROPE_FP32}
};

static void parse_experts(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t flags = a->extra[FLAGS];

	if (!(flags & ERNIE))
		return;
	a->n_experts = oom_read_count(r, "moe_num_experts", 1);
	a->top_k = oom_read_count(r, "moe_k", 1);
	a->d_expert = (uint64_t)oom_read_item_real(r, "moe_intermediate_size", 0, 1536);
	a->extra[D_VISION] = (uint64_t)oom_read_item_real(r, "moe_intermediate_size", 1, 512);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i);

		a->kind[i] = mlp ? !strcmp(mlp, "dense") : !i;
	}
	a->d_shared = a->d_expert * oom_read_count_or(r, "moe_num_shared_experts", 0);
	if (a->top_k > a->n_experts || !a->d_expert || a->d_expert >> 40)
		oom_read_fail(r, "the experts' sizes make no model (model type %s)", r->family);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].type, a->model_type))
			a->extra[FLAGS] = kinds[i].flags;
	if (a->extra[FLAGS] & HEAD_NORMS && oom_read_bool(r, "swin_norm", false))
		a->extra[FLAGS] |= SWIN;
	if (a->extra[FLAGS] & BETWEEN && oom_read_bool(r, "freeze_text_layers", true))
		a->extra[FLAGS] |= FROZEN_TEXT;
	a->norm = OOM_NORM_RMS;
	a->rotary_share = 1;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim) {
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
		return;
	}
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false) ||
				  oom_read_bool(r, "use_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false) || oom_read_bool(r, "use_bias", false);
	a->attn_dropout = oom_read_real(r,
					a->extra[FLAGS] & BETWEEN ? "dropout" : "attention_dropout",
					0);
	a->dropout = a->extra[FLAGS] & BETWEEN ? a->attn_dropout : 0;
	parse_experts(a);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* F.layer_norm without weights, then * weight + bias, one of each for every head. */
static struct oom_val head_norm(struct oom_tape *t, const char *name, struct oom_val x,
				uint64_t heads, uint64_t d)
{
	const char *scope = t->scope;
	struct oom_val w, b, y = oom_op_layer_norm(t, name, oom_keep(x), d, false, false);

	t->scope = name;
	w = oom_param(t, "weight", heads, d, 0);
	b = oom_param(t, "bias", heads, d, 0);
	y = oom_op_add(t, oom_op_mul(t, y, w), b);
	oom_done(t, x);
	t->scope = scope;
	return y;
}

static struct oom_val chameleon_attention(struct oom_tape *t, const struct layer *l,
					  struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     qd = {a->n_heads * a->head_dim, "n_heads * head_dim"};
	const struct oom_dim kd = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, local[3];

	at.mask = l->mask;
	q = oom_op_linear(t, "q_proj", oom_keep(x), qd, bias);
	k = oom_op_linear(t, "k_proj", oom_keep(x), kd, bias);
	v = oom_op_linear(t, "v_proj", oom_keep(x), kd, bias);
	q = oom_op_heads(t, head_norm(t, "q_norm", q, a->n_heads, a->head_dim));
	k = oom_op_heads(t, head_norm(t, "k_norm", k, a->n_kv_heads, a->head_dim));
	v = oom_op_heads(t, v);
	oom_rope_pair(t, &q, &k, &l->rope, a->n_heads, a->n_kv_heads, a->head_dim, a->head_dim);
	/* query_states and its like live until the module returns */
	local[0] = oom_share(t, q);
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	q = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), h,
			  a->o_bias ? OOM_BIAS : 0);
	for (int i = 0; i < 3; i++)
		oom_drop(t, local[i]);
	oom_done(t, x);
	return q;
}

static void vision_experts(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val w;

	t->scope = "vision_moe";
	oom_drop(t, oom_param(t, "gate.weight", a->n_experts, a->d_model, OOM_P_FP32));
	oom_drop(t, oom_param(t, "e_score_correction_bias", 0, a->n_experts,
			      OOM_P_FP32 | OOM_P_FROZEN));
	w = oom_param(t, "gate_up_proj", a->n_experts * 2 * a->extra[D_VISION], a->d_model,
		      OOM_P_EXPERT);
	oom_param_stacked(t, w, 2 * a->extra[D_VISION]);
	w = oom_param(t, "down_proj", a->n_experts * a->d_model, a->extra[D_VISION], OOM_P_EXPERT);
	oom_param_stacked(t, w, a->d_model);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const uint64_t flags = a->extra[FLAGS];
	struct oom_moe m = {.experts = a->n_experts,
			    .top_k = a->top_k,
			    .d_expert = a->d_expert,
			    .d_shared = a->d_shared,
			    .act = a->act,
			    .router_frozen_bias = flags & ERNIE,
			    .never_separate = true,
			    .scores_in_model_type = flags & ERNIE};

	if (!a->n_experts || kind)
		return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
	if (flags & ERNIE) {                    /* text tokens go to the text experts */
		struct oom_weights idle;

		oom_weights_begin(t, &idle);
		vision_experts(t, a);
		oom_weights_end(t, &idle);
	}
	return oom_moe_mlp(t, &m, x);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[FLAGS];
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val h;

	at.rope = &rope;
	at.mask = l->mask;
	at.rope_fp32 = flags & ROPE_FP32;
	h = flags & SWIN ? oom_share(t, x) :
			   oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);
	h = flags & HEAD_NORMS ? chameleon_attention(t, l, h) : oom_attention(t, &at, h);
	if (flags & SWIN)
		h = oom_norm(t, a->norm, "input_layernorm", h, 0);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	h = flags & SWIN ? oom_share(t, x) :
			   oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = feed_forward(t, a, i < OOM_MAX_LAYERS ? a->kind[i] : 0, h);
	if (flags & SWIN)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	return oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
}

/* logits[:, :, image_tokens] = min */
static struct oom_val masked_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				  struct oom_val embed)
{
	struct oom_val logits, hidden, mask, loss;

	if (oom_fuses_head(t))
		return oom_causal_tail(t, a, h, embed);
	hidden = oom_share(t, h);
	logits = oom_lm_head(t, a, h, embed, "lm_head", false);
	mask = oom_new(t, "image codes", OOM_MONO_ONE, (struct oom_dim){8192, "codes"}, OOM_I64);
	logits = oom_op_masked_inplace(t, logits, mask);
	loss = oom_causal_lm_loss(t, a, logits);
	oom_drop(t, hidden);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t flags = a->extra[FLAGS], rows = a->vocab;
	const bool frozen = t->frozen;
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};
	enum oom_dtype dt;

	t->frozen |= flags & FROZEN_TEXT;
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", rows, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, rows, D(a->d_model));
	x = oom_input_grads(t, x);
	/* inputs_embeds and position_ids, locals of the model */
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	dt = (enum oom_dtype)x.dt;
	l.mask = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
	l.rope = flags & ERNIE ? oom_rope_tables_3d(t, a->head_dim, OOM_F32, 1, true) :
				 oom_rope_tables(t, a->head_dim, dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	t->frozen = frozen;
	oom_drop(t, ids);
	oom_drop(t, first);
	if (flags & MASKED_HEAD)
		return masked_head(t, a, x, embed);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_vlm_text = {
	.name = "vlm_text",
	.summary = "text decoders of vision-language models: Llama's layer with quirks",
	.source = "transformers 5.12 models/chameleon/modeling_chameleon.py and its like",
	.types = OOM_TYPE("ernie4_5_vl_moe_text"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
