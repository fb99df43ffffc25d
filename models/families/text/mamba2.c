/* Mamba 2 and the decoders that mix it with attention: Bamba, Falcon-H1, Granite 4 (hybrid),
 * Nemotron-H. Reference: transformers 5.12,
 * models/{mamba2,bamba,falcon_h1,granitemoehybrid,nemotron_h}/modeling_*.py. */
#include "mamba2.h"

static struct oom_val mamba2_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				       struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_layer_attn(t, l, false);

	at.rot_dim = oom_rot_dim(a);
	at.rope_cat = mamba2_kind(a)->joins_rope;
	at.k_scaled = mamba2_kind(a)->both;
	return oom_attention(t, &at, x);
}

/* ---- feed-forwards ---- */

/* down(up(x) * act(gate(x) * multiplier)) * multiplier */
static struct oom_val falcon_mlp(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				 struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned bias = a->mlp_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val up, gate;

	(void)layer;
	x = oom_arg(&f, x);
	up = oom_op_linear(t, "up_proj", x, D(a->d_ff), bias);
	gate = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "gate_proj", x, D(a->d_ff), bias));
	up = oom_op_mul(t, up, oom_activation(t, a->act, gate));
	up = oom_op_linear(t, "down_proj", up, h, bias);
	return oom_leave(&f, oom_op_unary(t, OOM_SCALE, up));
}

static struct oom_val granite_experts(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				      struct oom_val x)
{
	const struct oom_moe m = OOM_MOE(a, .d_shared = a->d_shared);

	(void)layer;
	return oom_moe_parallel_experts(t, &m, x);
}

static struct oom_val nemotron_feed_forward(struct oom_tape *t, const struct oom_arch *a,
					    uint8_t layer, struct oom_val x)
{
	const struct oom_moe m = OOM_MOE(a, .d_shared = a->d_shared, .ungated = true,
					 .norm_topk = mamba2_of(a)->norm_topk, .router_fp32 = true,
					 .sigmoid = true, .scale_weights = true,
					 .latent = mamba2_of(a)->latent, .latent_bias = a->mlp_bias);

	if (layer == MAMBA2_MOE)
		return oom_moe_mlp(t, &m, x);
	return oom_plain_mlp(t, x, "up_proj", "down_proj", a->act, D(a->d_ff), a->mlp_bias);
}

static struct oom_val bamba_mlp(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				struct oom_val x)
{
	(void)layer;
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
}

/* ---- layers ---- */

/* Mamba 2 and Nemotron-H: one mixer per layer. */
static struct oom_val single_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_ssd m = mamba2_ssd(a);
	const uint8_t layer = oom_layer_kind(a, i);
	struct oom_val h = oom_norm(t, a->norm, "norm", oom_op_cast(t, x, l->table), 0);

	if (mamba2_of(a)->fp32_residual)
		x = oom_op_cast(t, x, OOM_F32);
	h = layer == MAMBA2_MIXER     ? oom_ssd_mixer(t, &m, h) :
	    layer == MAMBA2_ATTENTION ? mamba2_attention(t, l, h) :
				       mamba2_kind(a)->feed_forward(t, a, layer, h);
	return oom_op_add(t, x, h);
}

/* Falcon-H1: Mamba 2 and attention side by side, names of the layer. */
static struct oom_val both_mixers(struct oom_frame *layer, const struct oom_decoder_layer *l,
				  struct oom_val h)
{
	const struct oom_ssd m = mamba2_ssd(l->a);
	struct oom_tape *t = layer->t;
	struct oom_frame f = {.t = t};
	struct oom_val y, z;

	h = oom_arg(&f, h);
	y = oom_name(layer, oom_op_unary(t, OOM_SCALE, oom_ssd_mixer(t, &m, h)));
	z = mamba2_attention(t, l, oom_op_unary(t, OOM_SCALE, h));
	z = oom_name(layer, oom_op_unary(t, OOM_SCALE, z));
	return oom_leave(&f, oom_op_add(t, y, z));
}

static struct oom_val mixed_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct mamba2_kind *kind = mamba2_kind(a);
	const uint8_t layer = oom_layer_kind(a, i);
	const struct oom_ssd m = mamba2_ssd(a);
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", x, 0);

	h = kind->both		 ? both_mixers(&f, l, h) :
	    layer == MAMBA2_MIXER ? oom_ssd_mixer(t, &m, h) :
				   mamba2_attention(t, l, h);
	if (kind->scaled_branches)
		h = oom_op_unary(t, OOM_SCALE, h);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = kind->feed_forward(t, a, layer, oom_norm(t, a->norm, kind->second_norm, x, 0));
	if (kind->scaled_branches)
		h = oom_op_unary(t, OOM_SCALE, h);
	return oom_leave(&f, oom_op_add(t, x, h));
}

static struct oom_val mamba2_prepare(struct oom_frame *f, const struct oom_arch *a,
				     struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_tape *t = f->t;

	if (mamba2_kind(a)->attention) {
		oom_name_shared(f, oom_position_ids(t));
		l->mask = oom_name_shared(f, oom_causal_mask(t, 0, x.dt));
	}
	if (mamba2_of(a)->rope)
		l->rope = oom_name_tables(f, oom_rope_tables(t, oom_rot_dim(a), x.dt, 2));
	return x;
}

static struct oom_val mamba2_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct mamba2_kind *kind = mamba2_kind(a);
	const struct oom_decoder d = {.embed = kind->embed, .norm = kind->last_norm, .kinds = true,
				      .multiplied = kind->multipliers,
				      .block = kind->single ? single_block : mixed_block,
				      .prepare = mamba2_prepare};
	struct oom_frame f = {.t = t};
	struct oom_val embed, x;

	if (kind->peft_refuses)
		oom_mamba_adapters(t);
	x = oom_decoder_model(t, a, &d, &embed);
	if (kind->cast_hidden)
		x = oom_op_cast(t, x, embed.dt);
	if (!kind->float_logits || t->task != OOM_TASK_CAUSAL_LM || oom_fuses_head(t))
		return oom_causal_tail(t, a, x, embed);
	x = oom_name(&f, x);
	x = oom_op_cast(t, oom_lm_head(t, a, x, embed, "lm_head", false), OOM_F32);
	return oom_leave(&f, oom_causal_lm_loss(t, a, x));
}

static const struct mamba2_kind mamba2 = {
	.embed = "embeddings", .last_norm = "norm_f",
	.keys = oom_mamba2_words, .d_head = "head_dim", .expand = "expand", .ssm_act = "hidden_act",
	.act = "hidden_act", .layer_list = "layers_block_type", .single = true,
	.float_logits = true, .fp32_residual = true, .cast_hidden = true, .peft_refuses = true};

#define PREFIXED \
	.keys = oom_prefixed_words, .d_head = "mamba_d_head", .expand = "mamba_expand", \
	.ssm_act = "hidden_act", .act = "hidden_act", .attention = true, .mask_twice = true

static const struct mamba2_kind bamba = {
	.module = "mamba",
	.embed = "embed_tokens", .last_norm = "final_layernorm",
	PREFIXED, .layer_list = "layers_block_type", .indices = true,
	/* partial_rotary_factor, which its configuration sets to 0.5, is not read by BambaRotaryEmbedding */
	.joins_rope = true,
	.second_norm = "pre_ff_layernorm", .feed_forward = bamba_mlp};
static const struct mamba2_kind falcon_h1 = {
	.module = "mamba",
	.embed = "embed_tokens", .last_norm = "final_layernorm",
	PREFIXED, .layer_list = "layers_block_type", .both = true, .multipliers = true,
	.scaled = true, .norm_by_key = true, .peft_refuses = true,
	.second_norm = "pre_ff_layernorm", .feed_forward = falcon_mlp};
static const struct mamba2_kind granite = {
	.module = "mamba",
	.embed = "embed_tokens", .last_norm = "norm",
	PREFIXED, .layer_list = "layer_types", .multipliers = true, .scaled_branches = true,
	.rope_by_key = true, .second_norm = "post_attention_layernorm",
	.feed_forward = granite_experts};
static const struct mamba2_kind nemotron_h = {
	.embed = "embeddings", .last_norm = "norm_f",
	.keys = oom_nemotron_words, .d_head = "mamba_head_dim", .expand = "mamba_expand",
	.ssm_act = "mamba_hidden_act", .act = "mlp_hidden_act",
	.layer_list = "layers_block_type", .single = true, .attention = true,
	.float_logits = true, .peft_refuses = true, .pattern = true, .no_rope = true,
	.norm = OOM_GATED_RMS_GROUPS, .mask_any_batch = true, .name_taken_over = true,
	.feed_forward = nemotron_feed_forward};

static const struct oom_family_type types[] = {
	{"mamba2", &mamba2}, {"bamba", &bamba}, {"falcon_h1", &falcon_h1},
	{"granitemoehybrid", &granite}, {"nemotron_h", &nemotron_h}, {NULL, NULL},
};

const struct oom_family oom_family_mamba2 = {
	.name = "mamba2",
	.summary = "Mamba 2's chunked scan written in PyTorch, alone or with attention, experts "
		   "and feed-forwards",
	.source = "transformers 5.12 models/mamba2/modeling_mamba2.py",
	.types = types,
	.norm = OOM_NORM_RMS,
	.lora_targets = "in_proj+q_proj+k_proj+v_proj+o_proj",
	.parse = mamba2_parse,
	.step = mamba2_step,
};
