/* LFM2: short gated convolutions with softmax attention between them, dense or with experts.
 * Reference: transformers 5.12, models/{lfm2,lfm2_moe}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { KERNEL, CONV_BIAS, MOE, DENSE_LAYERS, NORM_TOPK, EXPERT_BIAS };  /* extra[] */
enum { ATTENTION = 1, EXPERTS = 2 };                                    /* kinds */

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *some = oom_read_key(r, "full_attn_idxs"),
			     *list = oom_read_key(r, "layer_types");
	const bool listed = list && list->type == OOM_KEY_LIST;

	if (a->extra[MOE] && !listed)
		oom_read_fail(r, "\"layer_types\" is missing; model type %s needs it",
			      a->model_type);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);
		bool full = type ? !strcmp(type, "full_attention") :
				   !some || some->type != OOM_KEY_LIST;

		for (uint32_t j = 0;
		     !type && some && some->type == OOM_KEY_LIST && j < some->n_items; j++)
			full |= oom_read_item_real(r, "full_attn_idxs", j, -1) == (double)i;
		a->kind[i] = (uint8_t)((full ? ATTENTION : 0) |
				       (a->extra[MOE] && i >= a->extra[DENSE_LAYERS] ? EXPERTS :
										       0));
	}
}

/* Two thirds of the size given, scaled, in whole multiples. */
static void parse_width(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t read = oom_read_count_or(r, "block_multiple_of", 256),
		       multiple = read ? read : 1;
	const double scale = oom_read_real(r, "block_ffn_dim_multiplier", -1);

	if (a->extra[MOE] || !oom_read_bool(r, "block_auto_adjust_ff_dim", true))
		return;
	a->d_ff = 2 * a->d_ff / 3;
	if (scale < 0)
		return;
	if (!(scale * (double)a->d_ff < 1e12)) {
		oom_read_fail(r, "block_ffn_dim_multiplier (%g) is out of range", scale);
		return;
	}
	a->d_ff = (uint64_t)(scale * (double)a->d_ff);
	a->d_ff = multiple * ((a->d_ff + multiple - 1) / multiple);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->extra[MOE] = !strcmp(a->model_type, "lfm2_moe");
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_explicit(r, "block_ff_dim") ? oom_read_count(r, "block_ff_dim", 1) :
							 oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = OOM_ACT_SILU;
	a->tie = oom_read_bool(r, "tie_embedding", oom_read_bool(r, "tie_word_embeddings", true));
	a->extra[KERNEL] = oom_read_count(r, "conv_L_cache", 1);
	a->extra[CONV_BIAS] = oom_read_bool(r, "conv_bias", false);
	if (a->extra[KERNEL] > 1u << 20)
		oom_read_fail(r, "conv_L_cache (%llu) is out of range",
			      (unsigned long long)a->extra[KERNEL]);
	parse_width(a);
	if (a->extra[MOE]) {
		a->extra[DENSE_LAYERS] = oom_read_count(r, "num_dense_layers", 0);
		a->extra[NORM_TOPK] = oom_read_bool(r, "norm_topk_prob", true);
		a->extra[EXPERT_BIAS] = oom_read_bool(r, "use_expert_bias", true);
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
		a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
		if (a->top_k > a->n_experts)
			oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
				      (unsigned long long)a->top_k,
				      (unsigned long long)a->n_experts);
	}
	parse_kinds(a);
	if (!r->status && a->extra[MOE] && a->extra[DENSE_LAYERS] >= a->n_layers)
		a->n_experts = 0;
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* out_proj(C * conv(B * x)): all three from one projection, the convolution cut to the sequence. */
static struct oom_val short_conv(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, parts[3] = {h, h, h};
	const unsigned bias = a->extra[CONV_BIAS] ? OOM_BIAS : 0;
	struct oom_hold held = {.n = 0};
	struct oom_val p[3], y;

	oom_hold(t, &held, x);
	x = oom_hold(t, &held, oom_mask_padding(t, x, false));
	y = oom_op_linear(t, "in_proj", x, (struct oom_dim){3 * h.n, "3 * d_model"}, bias);
	oom_op_split(t, y, 3, parts, p);
	y = oom_hold(t, &held, oom_op_mul(t, oom_keep(p[0]), p[2]));
	oom_hold(t, &held, p[0]);
	oom_drop(t, p[0]);
	y = oom_hold(t, &held,
		     oom_short_conv(t, "conv", y, a->extra[KERNEL], a->extra[CONV_BIAS],
				    OOM_ACT_NONE));
	y = oom_op_mul(t, p[1], y);
	y = oom_hold(t, &held, oom_op_copy(t, "contiguous", y));
	y = oom_op_linear(t, "out_proj", y, h, bias);
	oom_release(t, &held);
	return y;
}

/* Sigmoid scores of a router that is an nn.Linear; the bias, a buffer in fp32, decides the
 * choice alone. */
static struct oom_val mixture(struct oom_tape *t, const struct oom_arch *a, const struct oom_moe *m,
			      struct oom_val x)
{
	const struct oom_dim e = {m->experts, "n_experts"}, k = {m->top_k, "top_k"};
	struct oom_val p, v, index;
	enum oom_dtype dt;

	t->scope = "gate";
	p = oom_op_linear(t, "gate", oom_keep(x), e, 0);
	dt = (enum oom_dtype)p.dt;
	p = oom_op_unary(t, OOM_SIGMOID, p);
	if (a->extra[EXPERT_BIAS]) {
		oom_buffer(t, m->experts, OOM_F32);
		oom_scratch(t, "scores for choice", x.mono, m->experts, OOM_F32);
	}
	index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	v = oom_op_cast(t, oom_op_gather(t, "top-k value", p, oom_keep(index), x.mono, k), dt);
	if (m->norm_topk)
		v = oom_op_div(t, v,
			       oom_op_unary(t, OOM_ADD_SCALAR,
					    oom_op_sum_wide(t, oom_keep(v), v.mono, D(1))));
	return oom_moe_experts(t, m, x, oom_op_unary(t, OOM_SCALE, v), index);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act,
				  .norm_topk = a->extra[NORM_TOPK]};
	struct oom_val g;

	if (kind & EXPERTS)
		return mixture(t, a, &m, x);
	g = oom_op_unary(t, OOM_SILU, oom_op_linear(t, "w1", oom_keep(x), D(a->d_ff), 0));
	g = oom_op_mul(t, g, oom_op_linear(t, "w3", oom_keep(x), D(a->d_ff), 0));
	g = oom_op_linear(t, "w2", g, h, 0);
	oom_done(t, x);
	return g;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_rope rope = l->rope;
	struct oom_val h = oom_norm(t, a->norm, "operator_norm", oom_keep(x), 0);

	if (kind & ATTENTION) {
		struct oom_attn at = oom_attn_of(t, a);

		at.rope = &rope;
		at.mask = l->mask;
		at.qk_norm = true;
		at.o = "out_proj";
		at.dropout = 0;
		h = oom_attention(t, &at, h);
	} else {
		h = short_conv(t, a, h);
	}
	x = oom_op_add(t, h, x);
	h = oom_norm(t, a->norm, "ffn_norm", oom_keep(x), 0);
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
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "embedding_norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"lfm2", NULL}, {"lfm2_moe", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_lfm2 = {
	.name = "lfm2",
	.summary = "short gated convolutions, softmax attention between them, gated feed-forward "
		   "or experts",
	.source = "transformers 5.12 models/lfm2/modeling_lfm2.py",
	.types = types,
	.lora_targets = "in_proj+q_proj+v_proj",
	.parse = parse,
	.step = step,
};
