/* Jamba: Mamba layers, every eighth softmax attention without positions, every other feed-forward a
 * mixture. Reference: transformers 5.12, models/jamba/modeling_jamba.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { INNER, STATE, RANK, KERNEL, BIAS, CONV_BIAS };                   /* extra[] */
enum { ATTENTION = 1, EXPERTS = 2 };                                    /* kinds */

static struct oom_selective mixer_of(const struct oom_arch *a)
{
	return (struct oom_selective){.inner = a->extra[INNER],
				      .d_state = a->extra[STATE],
				      .rank = a->extra[RANK],
				      .kernel = a->extra[KERNEL],
				      .heads = 1,
				      .bias = a->extra[BIAS],
				      .conv_bias = a->extra[CONV_BIAS],
				      .normed = true,
				      .norm = OOM_NORM_RMS,
				      .act = a->act};
}

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t period = oom_read_count(r, "attn_layer_period", 1),
		       offset = oom_read_count(r, "attn_layer_offset", 0);
	const uint64_t moe = oom_read_count(r, "expert_layer_period", 1),
		       first = oom_read_count(r, "expert_layer_offset", 0);

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++)
		a->kind[i] = (uint8_t)((i % period == offset ? ATTENTION : 0) |
				       (a->n_experts > 1 && i % moe == first ? EXPERTS : 0));
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *rank = oom_read_key(r, "mamba_dt_rank");
	struct oom_selective m;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->n_experts = oom_read_count(r, "num_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = a->d_ff;
	a->extra[INNER] = oom_read_count(r, "mamba_expand", 1) * a->d_model;
	a->extra[STATE] = oom_read_count(r, "mamba_d_state", 1);
	a->extra[RANK] = rank && rank->type == OOM_KEY_NUMBER ?
				 oom_read_count(r, "mamba_dt_rank", 1) :
				 (a->d_model + 15) / 16;
	a->extra[KERNEL] = oom_read_count(r, "mamba_d_conv", 1);
	a->extra[BIAS] = oom_read_bool(r, "mamba_proj_bias", false);
	a->extra[CONV_BIAS] = oom_read_bool(r, "mamba_conv_bias", true);
	if (a->n_experts > 1 && a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	if (r->status)
		return;
	parse_kinds(a);
	m = mixer_of(a);
	if (!oom_selective_check(r, &m))
		return;
	if (!memchr(a->kind, EXPERTS, a->n_layers) &&
	    !memchr(a->kind, EXPERTS | ATTENTION, a->n_layers))
		a->n_experts = 0;
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the mamba_ssm and causal_conv1d kernels; with them training needs far less.",
		 a->model_type);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act,
				  .scores_in_model_type = true,
				  .router_linear = true};

	return kind & EXPERTS ? oom_moe_mlp(t, &m, x) :
				oom_gated_mlp(t, x, a->act, D(a->d_ff), false);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	if (kind & ATTENTION) {
		struct oom_attn at = oom_attn_of(t, a);

		at.mask = l->mask;
		h = oom_attention(t, &at, h);
	} else {
		const struct oom_selective m = mixer_of(a);

		h = oom_selective_mixer(t, &m, h);
	}
	x = oom_op_add(t, x, h);
	h = oom_norm(t, a->norm, "pre_ff_layernorm", oom_keep(x), 0);
	return oom_op_add(t, x, feed_forward(t, a, kind, h));
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "final_layernorm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_jamba = {
	.name = "jamba",
	.summary = "Mamba layers with softmax attention and experts between them",
	.source = "transformers 5.12 models/jamba/modeling_jamba.py",
	.types = OOM_TYPE("jamba"),
	.lora_targets = "in_proj+q_proj+v_proj",
	.parse = parse,
	.step = step,
};
