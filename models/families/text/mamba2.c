/* Mamba 2 and the decoders that mix it with attention: Bamba, Falcon-H1, Granite 4 (hybrid),
 * Nemotron-H. Reference: transformers 5.12,
 * models/{mamba2,bamba,falcon_h1,granitemoehybrid,nemotron_h}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { MAMBA2, BAMBA, FALCON_H1, GRANITE, NEMOTRON };
enum { LAYER_MAMBA, LAYER_ATTENTION, LAYER_MOE, LAYER_MLP };
enum {
	TYPE,
	INNER,
	HEADS,
	D_HEAD,
	STATE,
	GROUPS,
	KERNEL,
	CHUNK,
	BIAS,
	OUT_BIAS,
	CONV_BIAS,
	NORM,
	ROPE,
	FP32_RESIDUAL,
	SHARED,
	LATENT,
	NORM_TOPK,
	SSM_ACT
}; /* extra[] */

static const struct oom_family_type types[] = {
	{"mamba2", NULL}, {"bamba", NULL}, {"falcon_h1", NULL}, {"granitemoehybrid", NULL},
	{"nemotron_h", NULL}, {NULL, NULL},
};

/* The mixer's keys: Mamba 2's own words, Nemotron-H's, or those with a prefix. */
static void parse_mixer(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	uint64_t *e = a->extra;
	const bool mamba2 = e[TYPE] == MAMBA2, nemotron = e[TYPE] == NEMOTRON,
		   plain = mamba2 || nemotron;
	const char *size = nemotron ? "mamba_head_dim" : mamba2 ? "head_dim" : "mamba_d_head";
	const struct oom_key *k = oom_read_key(r, size);

	e[STATE] = oom_read_count(r,
				  nemotron ? "ssm_state_size" :
				  mamba2   ? "state_size" :
					     "mamba_d_state",
				  1);
	e[GROUPS] = oom_read_count(r, plain ? "n_groups" : "mamba_n_groups", 1);
	e[KERNEL] = oom_read_count(r, plain ? "conv_kernel" : "mamba_d_conv", 1);
	e[CHUNK] = oom_read_count(r, plain ? "chunk_size" : "mamba_chunk_size", 1);
	e[HEADS] = oom_read_count(r,
				  nemotron ? "mamba_num_heads" :
				  mamba2   ? "num_heads" :
					     "mamba_n_heads",
				  1);
	e[CONV_BIAS] = oom_read_bool(r, plain ? "use_conv_bias" : "mamba_conv_bias", true);
	e[BIAS] = e[OUT_BIAS] = oom_read_bool(r, plain ? "use_bias" : "mamba_proj_bias", false);
	e[NORM] = nemotron ? OOM_GATED_RMS_GROUPS : OOM_GATED_RMS;
	e[SSM_ACT] = oom_read_act(r, nemotron ? "mamba_hidden_act" : "hidden_act", "silu");
	e[INNER] = (uint64_t)(oom_read_real(r, mamba2 ? "expand" : "mamba_expand", 2) *
			      (double)a->d_model);
	if (e[TYPE] == FALCON_H1) {
		e[INNER] = oom_read_count_or(r, "mamba_d_ssm", e[INNER]);
		e[OUT_BIAS] = oom_read_bool(r, "projectors_bias", false);
		e[NORM] = !oom_read_bool(r, "mamba_rms_norm", false)	   ? OOM_GATED_PLAIN :
			  oom_read_bool(r, "mamba_norm_before_gate", true) ? OOM_GATED_BEFORE :
									     OOM_GATED_AFTER;
	}
	e[D_HEAD] = e[HEADS] ? e[INNER] / e[HEADS] : 0;
	/* "auto" unless a number is written; Falcon-H1's default width of 1024 goes with heads
	 * of 64 in no published model */
	if (k && k->type == OOM_KEY_NUMBER)
		e[D_HEAD] = oom_read_count(r, size, 1);
	if (nemotron)
		e[INNER] = e[HEADS] * e[D_HEAD];
}

/* Kinds of layers, by list, by indices or by a pattern of letters. */
static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	static const char *const words[] = {"mamba", "attention", "moe", "mlp"};
	static const char letters[] = "M*E-";
	static const uint8_t nemotron_default[] = {LAYER_MAMBA, LAYER_MOE, LAYER_ATTENTION,
						   LAYER_MLP};
	const struct oom_key *list = oom_read_key(r, a->extra[TYPE] == GRANITE ?
							     "layer_types" :
							     "layers_block_type");
	const struct oom_key *some = a->extra[TYPE] == BAMBA ?
					     oom_read_key(r, "attn_layer_indices") :
					     NULL;
	const char *pattern = a->extra[TYPE] == NEMOTRON ?
				      oom_read_string(r, "hybrid_override_pattern", NULL) :
				      NULL;
	const bool listed = list && list->type == OOM_KEY_LIST;

	if (a->extra[TYPE] == NEMOTRON)
		a->n_layers = listed ? list->n_items : pattern ? strlen(pattern) : 4;
	if (a->n_layers > OOM_MAX_LAYERS) {
		oom_read_fail(r, "%llu layers: at most %d are modelled",
			      (unsigned long long)a->n_layers, OOM_MAX_LAYERS);
		return;
	}
	for (uint32_t i = 0; i < a->n_layers; i++) {
		const char *word = NULL;
		uint8_t kind = a->extra[TYPE] == NEMOTRON ? nemotron_default[i % 4] : LAYER_MAMBA;

		if (listed)
			word = oom_read_item(r,
					     a->extra[TYPE] == GRANITE ? "layer_types" :
									 "layers_block_type",
					     i);
		for (uint8_t w = 0; w < 4; w++)
			if ((word && !strcmp(word, words[w])) ||
			    (!listed && pattern && pattern[i] == letters[w]))
				kind = w;
		for (uint32_t j = 0; some && some->type == OOM_KEY_LIST && j < some->n_items; j++)
			if (oom_read_item_real(r, "attn_layer_indices", j, -1) == (double)i)
				kind = LAYER_ATTENTION;
		a->kind[i] = kind;
	}
}

static struct oom_ssd ssd_of(const struct oom_arch *a)
{
	const uint64_t *e = a->extra;

	return (struct oom_ssd){
		.inner = e[INNER],
		.heads = e[HEADS],
		.d_head = e[D_HEAD],
		.d_state = e[STATE],
		.groups = e[GROUPS],
		.kernel = e[KERNEL],
		.chunk = e[CHUNK],
		.bias = e[BIAS],
		.out_bias = e[OUT_BIAS],
		.conv_bias = e[CONV_BIAS],
		.scaled = e[TYPE] == FALCON_H1,
		.mask_any_batch = e[TYPE] == NEMOTRON,
		.name_taken_over = e[TYPE] == NEMOTRON,
		.mask_twice = e[TYPE] != MAMBA2 && e[TYPE] != NEMOTRON,
		.norm = (enum oom_gated_norm)e[NORM],
		.act = (enum oom_act)e[SSM_ACT],
	};
}

static void parse_attention(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->qkv_bias = a->o_bias = a->extra[TYPE] != NEMOTRON &&
				  oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	/* hard-coded by its configuration */
	a->rotary_share = a->extra[TYPE] == BAMBA ? 0.5 : 1;
	a->extra[ROPE] = a->extra[TYPE] == GRANITE ?
				 !strcmp(oom_read_string(r, "position_embedding_type", ""),
					 "rope") :
				 a->extra[TYPE] != NEMOTRON;
	a->scale_logits = a->extra[TYPE] == GRANITE || a->extra[TYPE] == FALCON_H1;
}

static void parse_experts(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	if (a->extra[TYPE] == GRANITE) {
		a->n_experts = oom_read_count_or(r, "num_local_experts", 0);
		a->d_expert = a->d_ff;
		a->d_shared = oom_read_count(r, "shared_intermediate_size", 1);
	} else if (memchr(a->kind, LAYER_MOE,
			  a->n_layers < OOM_MAX_LAYERS ? a->n_layers : OOM_MAX_LAYERS)) {
		a->n_experts = oom_read_count(r, "n_routed_experts", 1);
		a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
		a->d_shared = oom_read_count(r, "moe_shared_expert_intermediate_size", 1);
		a->extra[LATENT] = oom_read_count_or(r, "moe_latent_size", 0);
		a->extra[NORM_TOPK] = oom_read_bool(r, "norm_topk_prob", true);
	}
	a->top_k = a->n_experts ? oom_read_count(r, "num_experts_per_tok", 1) : 0;
	if (a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct oom_ssd m;

	a->norm = OOM_NORM_RMS;
	a->extra[TYPE] = (uint64_t)(a->type - types);
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	if (a->extra[TYPE] != NEMOTRON)
		a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false) && a->extra[TYPE] != NEMOTRON;
	a->act = oom_read_act(r, a->extra[TYPE] == NEMOTRON ? "mlp_hidden_act" : "hidden_act",
			      "silu");
	a->extra[FP32_RESIDUAL] = a->extra[TYPE] == MAMBA2 &&
				  oom_read_bool(r, "residual_in_fp32", true);
	parse_mixer(a);
	if (r->status)
		return;
	parse_kinds(a);
	if (r->status)
		return;
	if (a->extra[TYPE] != MAMBA2) {
		parse_attention(a);
		parse_experts(a);
	}
	m = ssd_of(a);
	if (!oom_ssd_check(r, &m))
		return;
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the mamba_ssm and causal_conv1d kernels; with them training needs far less.",
		 a->model_type);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
	enum oom_dtype dt;              /* of the weights */
};

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_rope *rope,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);

	at.rope = a->extra[ROPE] ? rope : NULL;
	at.rot_dim = oom_rot_dim(a);
	at.mask = l->mask;
	at.k_scaled = a->extra[TYPE] == FALCON_H1;
	return oom_attention(t, &at, x);
}

/* down(up(x) * act(gate(x) * multiplier)) * multiplier */
static struct oom_val falcon_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned bias = a->mlp_bias ? OOM_BIAS : 0;
	struct oom_val up = oom_op_linear(t, "up_proj", oom_keep(x), D(a->d_ff), bias), gate;

	gate = oom_op_unary(t, OOM_SCALE,
			    oom_op_linear(t, "gate_proj", oom_keep(x), D(a->d_ff), bias));
	up = oom_op_mul(t, up, oom_activation(t, a->act, gate));
	up = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "down_proj", up, h, bias));
	oom_done(t, x);
	return up;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .act = a->act,
				  .norm_topk = a->extra[NORM_TOPK],
				  .router_fp32 = true,
				  .sigmoid = true,
				  .scale_weights = true,
				  .ungated = true,
				  .latent = a->extra[LATENT],
				  .latent_bias = a->mlp_bias};

	switch (a->extra[TYPE]) {
	case FALCON_H1: return falcon_mlp(t, a, x);
	case GRANITE: return oom_moe_parallel_experts(t, &m, x);
	case NEMOTRON:
		if (kind == LAYER_MOE)
			return oom_moe_mlp(t, &m, x);
		return oom_plain_mlp(t, x, "up_proj", "down_proj", a->act, D(a->d_ff), a->mlp_bias);
	default: return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
	}
}

/* Mamba 2 and Nemotron-H: one mixer a layer. */
static struct oom_val single_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_ssd m = ssd_of(a);
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_val h = oom_norm(t, a->norm, "norm", oom_op_cast(t, oom_keep(x), l->dt), 0), y;

	if (a->extra[FP32_RESIDUAL])
		x = oom_op_cast(t, x, OOM_F32);
	y = kind == LAYER_MAMBA	    ? oom_ssd_mixer(t, &m, h) :
	    kind == LAYER_ATTENTION ? attention(t, l, NULL, h) :
				      feed_forward(t, a, kind, h);
	return oom_op_add(t, x, y);
}

/* Falcon-H1: Mamba 2 and attention side by side. */
static struct oom_val both_mixers(struct oom_tape *t, const struct layer *l, struct oom_rope *rope,
				  struct oom_val h, struct oom_hold *held)
{
	const struct oom_ssd m = ssd_of(l->a);
	struct oom_val y = oom_hold(t, held,
				    oom_op_unary(t, OOM_SCALE, oom_ssd_mixer(t, &m, oom_keep(h)))),
		       z;

	z = attention(t, l, rope, oom_op_unary(t, OOM_SCALE, oom_keep(h)));
	z = oom_hold(t, held, oom_op_unary(t, OOM_SCALE, z));
	y = oom_op_add(t, y, z);
	oom_drop(t, h);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const bool granite = a->extra[TYPE] == GRANITE;
	const struct oom_ssd m = ssd_of(a);
	struct oom_hold held = {.n = 0};
	struct oom_rope rope = l->rope;
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	if (a->extra[TYPE] == FALCON_H1)
		h = both_mixers(t, l, &rope, h, &held);
	else
		h = kind == LAYER_MAMBA ? oom_ssd_mixer(t, &m, h) : attention(t, l, &rope, h);
	x = oom_op_add(t, x, granite ? oom_op_unary(t, OOM_SCALE, h) : h);
	h = oom_norm(t, a->norm, granite ? "post_attention_layernorm" : "pre_ff_layernorm",
		     oom_keep(x), 0);
	h = feed_forward(t, a, kind, h);
	x = oom_op_add(t, x, granite ? oom_op_unary(t, OOM_SCALE, h) : h);
	oom_release(t, &held);
	return x;
}

/* Mamba 2 and Nemotron-H make the logits fp32 themselves. */
static struct oom_val tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val embed)
{
	struct oom_val hidden, logits, loss;

	if ((a->extra[TYPE] != MAMBA2 && a->extra[TYPE] != NEMOTRON) ||
	    t->task != OOM_TASK_CAUSAL_LM || (t->plan->fused_ce == OOM_LOSS_FUSED && t->train))
		return oom_causal_tail(t, a, x, embed);
	hidden = oom_share(t, x);
	logits = oom_op_cast(t, oom_lm_head(t, a, x, embed, "lm_head", false), OOM_F32);
	loss = oom_causal_lm_loss(t, a, logits);
	oom_drop(t, hidden);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t type = a->extra[TYPE],
		       rot = oom_rot_dim(a);
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
					positions = oom_none();
	struct layer l = {.a = a, .rope = {oom_none(), oom_none()}, .mask = oom_none()};

	if (type == MAMBA2 || type == FALCON_H1 || type == NEMOTRON)
		oom_mamba_adapters(t);
	t->scope = "embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.dt = (enum oom_dtype)embed.dt;
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	/* Granite and Falcon-H1 have a multiplier here as well */
	if (a->scale_logits)
		x = oom_op_unary(t, OOM_SCALE, x);
	first = oom_share(t, x);                /* inputs_embeds, a local of the model */
	if (type != MAMBA2) {
		positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
		l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	}
	if (a->extra[ROPE])
		l.rope = oom_rope_tables(t, rot, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind,
		       type == MAMBA2 || type == NEMOTRON ? single_block : block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, positions);
	oom_drop(t, first);
	if (type == MAMBA2)
		x = oom_op_cast(t, x, l.dt);
	return tail(t, a, x, embed);
}

const struct oom_family oom_family_mamba2 = {
	.name = "mamba2",
	.summary = "Mamba 2's chunked scan written in PyTorch, alone or with attention, experts "
		   "and feed-forwards",
	.source = "transformers 5.12 models/mamba2/modeling_mamba2.py",
	.types = types,
	.lora_targets = "in_proj+q_proj+k_proj+v_proj+o_proj",
	.parse = parse,
	.step = step,
};
