/* Text decoders of vision-language models that no model stands alone with: Llama's layer with
 * quirks of their own, and layers that only images meet.
 * Reference: transformers 5.12, models/{chameleon,idefics,ernie4_5_vl_moe}/modeling_*.py. */
#include <string.h>

#include "blocks/decoder.h"
#include "config/keys.h"
#include "families/towers/weights.h"

struct vlm_text_kind {
	const char *dropout;            /* key of the attention's */
	bool between;                   /* gated cross-attention between the layers (IDEFICS) */
	bool head_norms;                /* query and key norms with weights for each head (Chameleon) */
	bool masked_head;               /* logits of the image codes are overwritten (Chameleon) */
	bool parted;                    /* experts for text, others for images (ERNIE 4.5 VL) */
};
static const struct vlm_text_kind idefics = {.dropout = "dropout", .between = true};
static const struct vlm_text_kind chameleon = {
	.dropout = "attention_dropout", .head_norms = true, .masked_head = true};
static const struct vlm_text_kind ernie = {.dropout = "attention_dropout", .parted = true};
static const struct oom_family_type vlm_text_inner[] = {
	{"idefics", &idefics}, {"chameleon", &chameleon}, {NULL, NULL}};
static const struct oom_family_type vlm_text_types[] = {
	{"ernie4_5_vl_moe_text", &ernie}, {NULL, NULL}};
static const struct vlm_text_kind *kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

struct vlm_text {
	uint64_t d_vision;              /* of the experts for images */
	bool swin;                      /* norms after attention and feed-forward (Chameleon) */
	bool frozen;                    /* the text layers (IDEFICS) */
	bool head_frozen;               /* the head's matrix (IDEFICS) */
	bool bias;
};
OOM_OWN(vlm_text, struct vlm_text);

static const struct oom_key_row vlm_text_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), OOM_GROUPED_KEYS,
	OR(max_positions, "max_position_embeddings", 0), ACT(act, "hidden_act", "silu"),
	FLAG(tie, "tie_word_embeddings", false), FLAG_OWN(struct vlm_text, bias, "use_bias", false),
	OOM_BIAS_KEYS(false), FLAG(mlp_bias, "mlp_bias", false),
	FLAG_OWN(struct vlm_text, swin, "swin_norm", false),
	FLAG_OWN(struct vlm_text, frozen, "freeze_text_layers", true),
	FLAG_OWN(struct vlm_text, head_frozen, "freeze_lm_head", false), OOM_KEYS_END};

static void parse_experts(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->n_experts = oom_read_count(r, "moe_num_experts", 1);
	a->top_k = oom_read_count(r, "moe_k", 1);
	a->d_expert = (uint64_t)oom_read_item_real(r, "moe_intermediate_size", 0, 1536);
	vlm_text_own(a)->d_vision = (uint64_t)oom_read_item_real(r, "moe_intermediate_size", 1, 512);
	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *mlp = oom_read_item(r, "mlp_layer_types", i);

		a->kind[i] = mlp ? !strcmp(mlp, "dense") : !i;
	}
	a->d_shared = a->d_expert * oom_read_count_or(r, "moe_num_shared_experts", 0);
	if (a->top_k > a->n_experts || !a->d_expert || a->d_expert >> 40)
		oom_read_fail(r, "the experts' sizes make no model (model type %s)", r->family);
}

static void vlm_text_parse(struct oom_arch *a)
{
	const struct vlm_text_kind *k = kind_of(a);
	struct vlm_text *own = vlm_text_own(a);

	a->rotary_share = 1;
	own->swin &= k->head_norms;
	own->frozen &= k->between;
	own->head_frozen &= k->between;
	a->qkv_bias |= own->bias;
	a->o_bias |= own->bias;
	a->mlp_bias |= own->bias;
	a->attn_dropout = oom_read_real(&a->rd, k->dropout, 0);
	a->dropout = k->between ? a->attn_dropout : 0;
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(&a->rd, "num_key_value_heads and head_dim must be positive");
	if (k->parted)
		parse_experts(a);
}

/* F.layer_norm without weights, then * weight + bias, one of each for every head. */
static struct oom_val head_norm(struct oom_tape *t, const char *name, struct oom_val x,
				uint64_t heads, uint64_t d)
{
	const char *scope = t->scope;
	struct oom_frame f = {.t = t};
	struct oom_val w, b, y;

	x = oom_arg(&f, x);
	y = oom_op_layer_norm(t, name, x, d, false, false);
	t->scope = name;
	w = oom_param(t, "weight", heads, d, 0);
	b = oom_param(t, "bias", heads, d, 0);
	y = oom_op_add(t, oom_op_mul(t, y, w), b);
	t->scope = scope;
	return oom_leave(&f, y);
}

static struct oom_val chameleon_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
					  struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     qd = {a->n_heads * a->head_dim, "n_heads * head_dim"},
			     kd = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val p[3];

	x = oom_arg(&f, x);
	at.mask = l->mask;
	p[0] = oom_op_linear(t, "q_proj", x, qd, bias);
	p[1] = oom_op_linear(t, "k_proj", x, kd, bias);
	p[2] = oom_op_linear(t, "v_proj", x, kd, bias);
	p[0] = oom_op_heads(t, head_norm(t, "q_norm", p[0], a->n_heads, a->head_dim));
	p[1] = oom_op_heads(t, head_norm(t, "k_norm", p[1], a->n_kv_heads, a->head_dim));
	p[2] = oom_op_heads(t, p[2]);
	oom_rope_pair(t, &p[0], &p[1], &l->rope, a->n_heads, a->n_kv_heads, a->head_dim,
		      a->head_dim);
	oom_name_each(&f, p, 3);                /* query_states and its like */
	x = oom_attention_core(t, &at, p[0], p[1], p[2]);
	return oom_leave(&f, oom_op_linear(t, "o_proj", x, h, a->o_bias ? OOM_BIAS : 0));
}

static void vision_experts(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t d = vlm_text_of(a)->d_vision, e = a->n_experts;
	struct oom_weights idle;

	oom_weights_begin(t, &idle);
	t->scope = "vision_moe";
	oom_param(t, "gate.weight", e, a->d_model, OOM_P_FP32);
	oom_param(t, "e_score_correction_bias", 0, e, OOM_P_FP32 | OOM_P_FROZEN);
	oom_param_stacked(t, oom_param(t, "gate_up_proj", e * 2 * d, a->d_model, OOM_P_EXPERT),
			  2 * d);
	oom_param_stacked(t, oom_param(t, "down_proj", e * a->d_model, d, OOM_P_EXPERT), a->d_model);
	oom_weights_end(t, &idle);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const bool parted = kind_of(a)->parted;
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .d_shared = a->d_shared, .act = a->act,
				  .router_frozen_bias = parted, .never_separate = true,
				  .scores_in_model_type = parted};

	if (!a->n_experts || kind)
		return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
	if (parted)                             /* text tokens go to the text experts */
		vision_experts(t, a);
	return oom_moe_mlp(t, &m, x);
}

static struct oom_val vlm_text_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	static const char *const norms[] = {"input_layernorm", "post_attention_layernorm"};
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool swin = vlm_text_of(a)->swin;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	at.rope = &rope;
	at.mask = l->mask;
	at.rope_fp32 = kind_of(a)->parted;
	h = swin ? x : oom_norm(t, a->norm, norms[0], x, 0);
	h = kind_of(a)->head_norms ? chameleon_attention(t, l, h) : oom_attention(t, &at, h);
	if (swin)
		h = oom_norm(t, a->norm, norms[0], h, 0);
	x = oom_name(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
	h = swin ? x : oom_norm(t, a->norm, norms[1], x, 0);
	h = feed_forward(t, a, i < OOM_MAX_LAYERS ? a->kind[i] : 0, h);
	if (swin)
		h = oom_norm(t, a->norm, norms[1], h, 0);
	return oom_leave(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
}

/* logits[:, :, image_tokens] = min */
static struct oom_val masked_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				  struct oom_val embed)
{
	struct oom_frame f = {.t = t};
	struct oom_val logits, mask;

	if (oom_fuses_head(t))
		return oom_causal_tail(t, a, h, embed);
	h = oom_name(&f, h);
	logits = oom_lm_head(t, a, h, embed, "lm_head", false);
	mask = oom_new(t, "image codes", OOM_MONO_ONE, (struct oom_dim){8192, "codes"}, OOM_I64);
	logits = oom_op_masked_inplace(t, logits, mask);
	return oom_leave(&f, oom_causal_lm_loss(t, a, logits));
}

static struct oom_val vlm_text_prepare(struct oom_frame *f, const struct oom_arch *a,
				       struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s));
	l->rope = kind_of(a)->parted ? oom_rope_tables_3d(t, a->head_dim, OOM_F32, 1, true) :
				       oom_rope_tables(t, a->head_dim, dt, 2);
	l->rope = oom_name_tables(f, l->rope);
	return x;
}

static const struct oom_decoder vlm_text_decoder = {
	.embed = "embed_tokens",
	.norm = "norm",
	.position_ids = true,
	.kinds = true,
	.block = vlm_text_block,
	.prepare = vlm_text_prepare,
};

static struct oom_val vlm_text_step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool frozen = t->frozen;
	struct oom_val embed, x;

	/* IdeficsModel.forward raises without pixel_values, or what an encoder has made of them */
	if (kind_of(a)->between && !t->plan->images)
		oom_tape_warn(t, "this class takes no step without an image, and images are not counted for it: what the layers that "
			     "attend to them save, their gradients and their optimizer states come on top");
	t->frozen |= vlm_text_of(a)->frozen;
	x = oom_decoder_model(t, a, &vlm_text_decoder, &embed);
	t->frozen = frozen || vlm_text_of(a)->head_frozen;
	x = kind_of(a)->masked_head ? masked_head(t, a, x, embed) : oom_causal_tail(t, a, x, embed);
	t->frozen = frozen;
	return x;
}

const struct oom_family oom_family_vlm_text = {
	.name = "vlm_text",
	.summary = "text decoders of vision-language models: Llama's layer with quirks",
	.source = "transformers 5.12 models/chameleon/modeling_chameleon.py and its like",
	.types = vlm_text_types,
	.norm = OOM_NORM_RMS,
	.inner_types = vlm_text_inner,
	.lora_targets = "q_proj+v_proj",
	.keys = vlm_text_keys,
	.parse = vlm_text_parse,
	.step = vlm_text_step,
};
