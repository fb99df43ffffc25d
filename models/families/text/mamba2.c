/* Mamba 2 and the decoders that mix it with attention: Bamba, Falcon-H1, Granite 4 (hybrid),
 * Nemotron-H. Reference: transformers 5.12,
 * models/{mamba2,bamba,falcon_h1,granitemoehybrid,nemotron_h}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"
#include "config/keys.h"

enum { LAYER_MAMBA, LAYER_ATTENTION, LAYER_MOE, LAYER_MLP };

/* What sets the types apart. */
struct mamba2_kind {
	const struct oom_key_row *keys;         /* the mixer's, whose words differ */
	const char *d_head, *expand, *ssm_act, *act;    /* more of them */
	const char *layer_list;         /* key of the layers' types; NULL: none */
	bool single;                    /* one mixer a layer, no attention beside it in another */
	bool attention;                 /* some layers, or all, have attention or feed-forwards */
	bool both;                      /* Mamba 2 and attention side by side (Falcon-H1) */
	bool multipliers;               /* of embeddings and logits (Granite, Falcon-H1) */
	bool scaled_branches;           /* of every layer's branches (Granite) */
	bool float_logits;              /* the head's result is converted to fp32 by the class */
	bool fp32_residual;             /* by residual_in_fp32 */
	bool cast_hidden;               /* the head's input goes to the weights' type (Mamba 2) */
	bool peft_refuses;              /* adapters on out_proj */
	bool pattern;                   /* hybrid_override_pattern, which also counts the layers */
	bool indices;                   /* attn_layer_indices */
	/* position_embedding_type says whether there are rotary tables; never; else always */
	bool rope_by_key, no_rope;
	double rotary;                  /* share of a head; 0: all */
	/* of struct oom_ssd */
	bool scaled, mask_any_batch, name_taken_over, mask_twice;
	enum oom_gated_norm norm;
	bool norm_by_key;               /* mamba_rms_norm, mamba_norm_before_gate (Falcon-H1) */
	const char *second_norm;
	struct oom_val (*feed_forward)(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				       struct oom_val x);
};

struct mamba2 {
	uint64_t inner, heads, d_head, state, groups, kernel, chunk;
	bool bias, out_bias, conv_bias;
	enum oom_gated_norm norm;
	enum oom_act act;               /* the mixer's */
	bool rope, fp32_residual, norm_topk;
	uint64_t latent;
};
OOM_OWN(mamba2, struct mamba2);

static const struct mamba2_kind *kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

#define MIXER_KEYS(d_state, n_groups, d_conv, chunk_size, n_heads, conv, proj) \
	MUST_OWN(struct mamba2, state, d_state), MUST_OWN(struct mamba2, groups, n_groups), \
		MUST_OWN(struct mamba2, kernel, d_conv), \
		MUST_OWN(struct mamba2, chunk, chunk_size), \
		MUST_OWN(struct mamba2, heads, n_heads), \
		FLAG_OWN(struct mamba2, conv_bias, conv, true), \
		FLAG_OWN(struct mamba2, bias, proj, false), \
		FLAG_OWN(struct mamba2, out_bias, proj, false)

static const struct oom_key_row mamba2_words[] = {
	MIXER_KEYS("state_size", "n_groups", "conv_kernel", "chunk_size", "num_heads", "use_conv_bias", "use_bias"),
	OOM_KEYS_END};
static const struct oom_key_row nemotron_words[] = {
	MIXER_KEYS("ssm_state_size", "n_groups", "conv_kernel", "chunk_size", "mamba_num_heads", "use_conv_bias", "use_bias"),
	OOM_KEYS_END};
static const struct oom_key_row prefixed_words[] = {
	MIXER_KEYS("mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_chunk_size",
		   "mamba_n_heads", "mamba_conv_bias", "mamba_proj_bias"),
	OOM_KEYS_END};

static const struct oom_key_row attention_keys[] = {
	MUST(n_heads, "num_attention_heads"), OOM_GROUPED_KEYS,
	REAL(attn_dropout, "attention_dropout", 0), FLAG(mlp_bias, "mlp_bias", false),
	MUST(d_ff, "intermediate_size"), OR(max_positions, "max_position_embeddings", 0),
	OOM_KEYS_END};

static void parse_mixer(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, kind->d_head);
	struct mamba2 *m = mamba2_own(a);

	oom_read_rows(a, kind->keys);
	m->norm = kind->norm;
	m->act = oom_read_act(r, kind->ssm_act, "silu");
	m->inner = (uint64_t)(oom_read_real(r, kind->expand, 2) * (double)a->d_model);
	if (kind->norm_by_key) {
		m->inner = oom_read_count_or(r, "mamba_d_ssm", m->inner);
		m->out_bias = oom_read_bool(r, "projectors_bias", false);
		m->norm = !oom_read_bool(r, "mamba_rms_norm", false)	   ? OOM_GATED_PLAIN :
			  oom_read_bool(r, "mamba_norm_before_gate", true) ? OOM_GATED_BEFORE :
									     OOM_GATED_AFTER;
	}
	m->d_head = m->heads ? m->inner / m->heads : 0;
	/* "auto" unless a number is written; Falcon-H1's default width of 1024 goes with heads
	 * of 64 in no published model */
	if (k && k->type == OOM_KEY_NUMBER)
		m->d_head = oom_read_count(r, kind->d_head, 1);
	if (kind->pattern)
		m->inner = m->heads * m->d_head;
}

/* Layer i by a list of words, by a pattern of letters, or by a list of indices. */
static uint8_t layer_of(struct oom_arch *a, const struct mamba2_kind *kind, bool listed,
			const char *pattern, uint32_t i)
{
	static const char *const words[] = {"mamba", "attention", "moe", "mlp"};
	static const char letters[] = "M*E-";
	static const uint8_t nemotron_default[] = {LAYER_MAMBA, LAYER_MOE, LAYER_ATTENTION,
						   LAYER_MLP};
	struct oom_reader *r = &a->rd;
	const struct oom_key *some = kind->indices ? oom_read_key(r, "attn_layer_indices") : NULL;
	const char *word = listed ? oom_read_item(r, kind->layer_list, i) : NULL;
	uint8_t layer = kind->pattern ? nemotron_default[i % 4] : LAYER_MAMBA;

	for (uint8_t w = 0; w < 4; w++)
		if ((word && !strcmp(word, words[w])) ||
		    (!listed && pattern && pattern[i] == letters[w]))
			layer = w;
	for (uint32_t j = 0; some && some->type == OOM_KEY_LIST && j < some->n_items; j++)
		if (oom_read_item_real(r, "attn_layer_indices", j, -1) == (double)i)
			layer = LAYER_ATTENTION;
	return layer;
}

static void parse_layers(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *list = kind->layer_list ? oom_read_key(r, kind->layer_list) : NULL;
	const char *pattern = kind->pattern ? oom_read_string(r, "hybrid_override_pattern", NULL) :
					      NULL;
	const bool listed = list && list->type == OOM_KEY_LIST;

	if (kind->pattern)
		a->n_layers = listed ? list->n_items : pattern ? strlen(pattern) : 4;
	if (a->n_layers > OOM_MAX_LAYERS) {
		oom_read_fail(r, "%llu layers: at most %d are modelled",
			      (unsigned long long)a->n_layers, OOM_MAX_LAYERS);
		return;
	}
	for (uint32_t i = 0; i < a->n_layers; i++)
		a->kind[i] = layer_of(a, kind, listed, pattern, i);
}

static struct oom_ssd ssd_of(const struct oom_arch *a)
{
	const struct mamba2_kind *kind = kind_of(a);
	const struct mamba2 *m = mamba2_of(a);

	return (struct oom_ssd){
		.inner = m->inner,
		.heads = m->heads,
		.d_head = m->d_head,
		.d_state = m->state,
		.groups = m->groups,
		.kernel = m->kernel,
		.chunk = m->chunk,
		.bias = m->bias,
		.out_bias = m->out_bias,
		.conv_bias = m->conv_bias,
		.scaled = kind->scaled,
		.mask_any_batch = kind->mask_any_batch,
		.name_taken_over = kind->name_taken_over,
		.mask_twice = kind->mask_twice,
		.norm = m->norm,
		.act = m->act,
	};
}

static void parse_attention(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;

	oom_read_rows(a, attention_keys);
	a->qkv_bias = a->o_bias = !kind->pattern && oom_read_bool(r, "attention_bias", false);
	a->rotary_share = kind->rotary > 0 ? kind->rotary : 1;
	mamba2_own(a)->rope = kind->rope_by_key ?
				      !strcmp(oom_read_string(r, "position_embedding_type", ""),
					      "rope") :
				      !kind->no_rope;
}

static void parse_experts(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;
	struct mamba2 *m = mamba2_own(a);

	if (kind->scaled_branches) {            /* Granite: in every layer */
		a->n_experts = oom_read_count_or(r, "num_local_experts", 0);
		a->d_expert = a->d_ff;
		a->d_shared = oom_read_count(r, "shared_intermediate_size", 1);
	} else if (memchr(a->kind, LAYER_MOE,
			  a->n_layers < OOM_MAX_LAYERS ? a->n_layers : OOM_MAX_LAYERS)) {
		a->n_experts = oom_read_count(r, "n_routed_experts", 1);
		a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
		a->d_shared = oom_read_count(r, "moe_shared_expert_intermediate_size", 1);
		m->latent = oom_read_count_or(r, "moe_latent_size", 0);
		m->norm_topk = oom_read_bool(r, "norm_topk_prob", true);
	}
	a->top_k = a->n_experts ? oom_read_count(r, "num_experts_per_tok", 1) : 0;
	oom_check_experts(a);
}

static void mamba2_parse(struct oom_arch *a)
{
	const struct mamba2_kind *kind = kind_of(a);
	struct oom_reader *r = &a->rd;
	struct oom_ssd m;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	if (!kind->pattern)
		a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false) && !kind->pattern;
	a->act = oom_read_act(r, kind->act, "silu");
	a->scale_logits = kind->multipliers;
	mamba2_own(a)->fp32_residual = kind->fp32_residual &&
				       oom_read_bool(r, "residual_in_fp32", true);
	parse_mixer(a, kind);
	if (r->status)
		return;
	parse_layers(a, kind);
	if (r->status)
		return;
	if (kind->attention) {
		parse_attention(a, kind);
		parse_experts(a, kind);
	}
	m = ssd_of(a);
	if (!oom_ssd_check(r, &m))
		return;
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the mamba_ssm and causal_conv1d kernels; with them training needs far less.",
		 a->model_type);
}

struct mamba2_layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
	enum oom_dtype dt;              /* of the weights */
};

static struct oom_val mamba2_attention(struct oom_tape *t, const struct mamba2_layer *l,
				       struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);

	at.rope = mamba2_of(a)->rope ? &rope : NULL;
	at.rot_dim = oom_rot_dim(a);
	at.mask = l->mask;
	at.k_scaled = kind_of(a)->both;
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
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .d_shared = a->d_shared, .act = a->act};

	(void)layer;
	return oom_moe_parallel_experts(t, &m, x);
}

static struct oom_val nemotron_feed_forward(struct oom_tape *t, const struct oom_arch *a,
					    uint8_t layer, struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .d_shared = a->d_shared, .act = a->act,
				  .norm_topk = mamba2_of(a)->norm_topk, .router_fp32 = true,
				  .sigmoid = true, .scale_weights = true, .ungated = true,
				  .latent = mamba2_of(a)->latent, .latent_bias = a->mlp_bias};

	if (layer == LAYER_MOE)
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

/* Mamba 2 and Nemotron-H: one mixer a layer. */
static struct oom_val single_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct mamba2_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_ssd m = ssd_of(a);
	const uint8_t layer = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_val h = oom_norm(t, a->norm, "norm", oom_op_cast(t, x, l->dt), 0);

	if (mamba2_of(a)->fp32_residual)
		x = oom_op_cast(t, x, OOM_F32);
	h = layer == LAYER_MAMBA     ? oom_ssd_mixer(t, &m, h) :
	    layer == LAYER_ATTENTION ? mamba2_attention(t, l, h) :
				       kind_of(a)->feed_forward(t, a, layer, h);
	return oom_op_add(t, x, h);
}

/* Falcon-H1: Mamba 2 and attention side by side, names of the layer. */
static struct oom_val both_mixers(struct oom_frame *layer, const struct mamba2_layer *l,
				  struct oom_val h)
{
	const struct oom_ssd m = ssd_of(l->a);
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
	const struct mamba2_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct mamba2_kind *kind = kind_of(a);
	const uint8_t layer = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const struct oom_ssd m = ssd_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", x, 0);

	h = kind->both		 ? both_mixers(&f, l, h) :
	    layer == LAYER_MAMBA ? oom_ssd_mixer(t, &m, h) :
				   mamba2_attention(t, l, h);
	if (kind->scaled_branches)
		h = oom_op_unary(t, OOM_SCALE, h);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = kind->feed_forward(t, a, layer, oom_norm(t, a->norm, kind->second_norm, x, 0));
	if (kind->scaled_branches)
		h = oom_op_unary(t, OOM_SCALE, h);
	return oom_leave(&f, oom_op_add(t, x, h));
}

static struct oom_val mamba2_model(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val *embed)
{
	const struct mamba2_kind *kind = kind_of(a);
	struct mamba2_layer l = {.a = a, .rope = {oom_none(), oom_none()}, .mask = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val x, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = "embeddings";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.dt = (enum oom_dtype)embed->dt;
	x = oom_op_embedding_param(t, *embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	if (kind->multipliers)
		x = oom_op_unary(t, OOM_SCALE, x);
	x = oom_name(&f, x);                    /* inputs_embeds, a local of the model */
	if (kind->attention) {
		oom_name(&f, oom_new(t, "position ids", t->m_s, D(1), OOM_I64));
		l.mask = oom_name_shared(&f, oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b,
							   t->m_s, t->m_s));
	}
	if (mamba2_of(a)->rope) {
		l.rope = oom_name_tables(&f, oom_rope_tables(t, oom_rot_dim(a), (enum oom_dtype)x.dt, 2));
	}
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind,
		       kind->single ? single_block : mixed_block, &l, x);
	oom_forget_shared(&f);
	return oom_leave(&f, oom_norm(t, a->norm, "norm", x, 0));
}

static struct oom_val mamba2_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct mamba2_kind *kind = kind_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val embed, x;

	if (kind->peft_refuses)
		oom_mamba_adapters(t);
	x = mamba2_model(t, a, &embed);
	if (kind->cast_hidden)
		x = oom_op_cast(t, x, (enum oom_dtype)embed.dt);
	if (!kind->float_logits || t->task != OOM_TASK_CAUSAL_LM || oom_fuses_head(t))
		return oom_causal_tail(t, a, x, embed);
	x = oom_name(&f, x);
	x = oom_op_cast(t, oom_lm_head(t, a, x, embed, "lm_head", false), OOM_F32);
	return oom_leave(&f, oom_causal_lm_loss(t, a, x));
}

static const struct mamba2_kind mamba2 = {
	.keys = mamba2_words, .d_head = "head_dim", .expand = "expand", .ssm_act = "hidden_act",
	.act = "hidden_act", .layer_list = "layers_block_type", .single = true,
	.float_logits = true, .fp32_residual = true, .cast_hidden = true, .peft_refuses = true};

#define PREFIXED \
	.keys = prefixed_words, .d_head = "mamba_d_head", .expand = "mamba_expand", \
	.ssm_act = "hidden_act", .act = "hidden_act", .attention = true, .mask_twice = true

static const struct mamba2_kind bamba = {
	PREFIXED, .layer_list = "layers_block_type", .indices = true,
	.rotary = 0.5,                  /* hard-coded by its configuration */
	.second_norm = "pre_ff_layernorm", .feed_forward = bamba_mlp};
static const struct mamba2_kind falcon_h1 = {
	PREFIXED, .layer_list = "layers_block_type", .both = true, .multipliers = true,
	.scaled = true, .norm_by_key = true, .peft_refuses = true,
	.second_norm = "pre_ff_layernorm", .feed_forward = falcon_mlp};
static const struct mamba2_kind granite = {
	PREFIXED, .layer_list = "layer_types", .multipliers = true, .scaled_branches = true,
	.rope_by_key = true, .second_norm = "post_attention_layernorm",
	.feed_forward = granite_experts};
static const struct mamba2_kind nemotron_h = {
	.keys = nemotron_words, .d_head = "mamba_head_dim", .expand = "mamba_expand",
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
