/* RecurrentGemma (Griffin): gated linear recurrences, every third layer local attention, always
 * scaled_dot_product. Reference: transformers 5.12,
 * models/recurrent_gemma/modeling_recurrent_gemma.py; De et al. 2024, arXiv:2402.19427. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { LRU, KERNEL };                   /* extra[] */
enum { RECURRENT, ATTENTION };          /* kinds */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *list = oom_read_key(r, "block_types");
	const uint32_t n = list && list->type == OOM_KEY_LIST ? (uint32_t)list->n_items : 0;

	a->norm = OOM_NORM_RMS_PLUS1;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 2) / 2;
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = a->d_model / a->n_heads;
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and hidden_size / num_attention_heads must "
				 "be positive");
	a->act = oom_read_act(r, "hidden_activation", "gelu_pytorch_tanh");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->qkv_bias = oom_read_bool(r, "attention_bias", false);
	a->o_bias = true;
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->window = oom_read_count(r, "attention_window_size", 1);
	a->softcap_logits = oom_read_real(r, "logits_soft_cap", 30);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					oom_read_real(r, "partial_rotary_factor", 0.5));
	a->extra[LRU] = oom_read_count_or(r, "lru_width", 0);
	a->extra[LRU] = a->extra[LRU] ? a->extra[LRU] : a->d_model;
	a->extra[KERNEL] = oom_read_count(r, "conv1d_width", 1);
	if (a->extra[LRU] % a->n_heads || a->extra[KERNEL] > 1u << 20 ||
	    !(a->rotary_share > 0 && a->rotary_share <= 1))
		oom_read_fail(r,
			      "lru_width (%llu) is no multiple of num_attention_heads, or "
			      "conv1d_width or partial_rotary_factor is out of range",
			      (unsigned long long)a->extra[LRU]);
	if (!n)
		oom_read_fail(r, "\"block_types\" must list the kinds of layers: \"recurrent\" and "
				 "\"attention\"");
	for (uint32_t i = 0; n && i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *word = oom_read_item(r, "block_types", i % n);

		a->kind[i] = word && !strcmp(word, "attention") ? ATTENTION : RECURRENT;
	}
	snprintf(a->warning, sizeof(a->warning),
		 "%s: parameters are exact; the caches its training step fills are approximated.",
		 a->model_type);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* sigmoid of a block-diagonal linear layer: one matrix a head. */
static struct oom_val gate(struct oom_tape *t, const struct oom_arch *a, const char *weight,
			   const char *bias, struct oom_val x)
{
	const uint64_t lru = a->extra[LRU], width = lru / a->n_heads;
	const struct oom_dim out = {lru, "lru_width"};
	struct oom_val w = oom_param(t, weight, lru, width, 0), b = oom_param(t, bias, 0, lru, 0);

	w.perm = false;
	x = oom_op_bmm(t, weight, oom_keep(x),
		       oom_op_view(t, w, OOM_MONO_ONE, (struct oom_dim){lru * width, NULL}),
		       t->m_bs, out, width);
	x = oom_op_add(t, x, b);
	return oom_op_unary(t, OOM_SIGMOID, oom_op_copy(t, "reshape", x));
}

/* h[t] = gate[t] * h[t - 1] + x[t], in fp32, written into the result token by token. */
static struct oom_val recurrence(struct oom_tape *t, struct oom_val x, struct oom_val a)
{
	const struct oom_dim w = {x.width, x.text};
	const struct oom_loop l = oom_loop_over(t, 1);
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	/* the gate's fp32 copy and the state */
	const uint64_t kept = w.n * (a.dt == OOM_F32 ? 1 : 2);
	struct oom_val h = oom_new(t, "recurrent_states", t->m_b, w, OOM_F32),
		       out = oom_new(t, "contextualized_states", t->m_bs, w, dt), g;

	for (int i = 0; i < l.turns; i++) {
		if (i)
			h = oom_loop_carry(t, &l, i - 1, h,
					   (struct oom_dim){kept, "kept by a turn"}, OOM_F32);
		g = oom_op_cast(t, oom_op_slice(t, oom_keep(a), t->m_b, w), OOM_F32);
		h = oom_op_mul(t, g, h);
		h = oom_op_add(t, h,
			       oom_op_cast(t, oom_op_slice(t, oom_keep(x), t->m_b, w), OOM_F32));
		out = oom_op_set(t, out, oom_op_cast(t, oom_keep(h), dt));
	}
	oom_drop(t, h);
	oom_drop(t, a);
	oom_drop(t, x);
	return out;
}

static struct oom_val rg_lru(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t lru = a->extra[LRU];
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val p, in, rec, log, sq, y;

	t->scope = "rg_lru";
	p = oom_param(t, "recurrent_param", 0, lru, 0);
	in = gate(t, a, "input_gate_weight", "input_gate_bias", x);
	rec = gate(t, a, "recurrent_gate_weight", "recurrent_gate_bias", x);
	log = oom_op_mul(t, oom_op_unary(t, OOM_SCALE, rec), oom_op_unary(t, OOM_SOFTPLUS, p));
	rec = oom_op_unary(t, OOM_EXP, oom_keep(log));
	sq = oom_op_unary(t, OOM_EXP, oom_op_unary(t, OOM_SCALE, log));
	y = oom_op_mul(t, x, in);
	/* a square root that keeps its argument */
	sq = oom_op_unary(t, OOM_LOG, oom_op_unary(t, OOM_ADD_SCALAR, sq));
	sq = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SCALE, sq));
	y = oom_op_mul(t, y, oom_op_cast(t, sq, dt));
	rec = oom_op_unary(t, OOM_SCALE, rec);                                  /* times ~reset */
	return recurrence(t, y, rec);
}

static struct oom_val recurrent(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {a->extra[LRU], "lru_width"}, h = {x.width, x.text};
	struct oom_val y = oom_activation(t, a->act,
					  oom_op_linear(t, "linear_y", oom_keep(x), w, OOM_BIAS)),
		       z;

	z = oom_op_linear(t, "linear_x", oom_keep(x), w, OOM_BIAS);
	z = oom_short_conv(t, "conv_1d", z, a->extra[KERNEL], true, OOM_ACT_NONE);
	z = rg_lru(t, a, z);
	z = oom_op_linear(t, "linear_out", oom_op_mul(t, z, y), h, OOM_BIAS);
	oom_drop(t, x);
	return z;
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_plan sdpa = *t->plan;
	const struct oom_plan *plan = t->plan;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope;

	sdpa.attn = OOM_ATTN_SDPA;
	at.rot_dim = oom_rot_dim(a);
	rope = oom_rope_tables(t, at.rot_dim ? at.rot_dim : 1, (enum oom_dtype)x.dt, 2);
	at.rope = &rope;
	at.mask = l->mask;
	t->plan = &sdpa;
	x = oom_attention(t, &at, x);
	t->plan = plan;
	oom_drop(t, rope.cos);
	oom_drop(t, rope.sin);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h = oom_norm(t, a->norm, "temporal_pre_norm", oom_keep(x), 0);

	h = i < OOM_MAX_LAYERS && a->kind[i] == ATTENTION ? attention(t, l, h) : recurrent(t, a, h);
	x = oom_op_add(t, h, x);
	h = oom_norm(t, a->norm, "channel_pre_norm", oom_keep(x), 0);
	return oom_op_add(t, oom_gated_mlp(t, h, a->act, D(a->d_ff), true), x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct oom_plan eager = *t->plan;
	const struct oom_plan *plan = t->plan;
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	oom_buffer(t, 1, OOM_DT_BF16);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	eager.attn = OOM_ATTN_EAGER;            /* the mask is always laid out */
	t->plan = &eager;
	l.mask = oom_make_mask(t, true, a->window, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	t->plan = plan;
	x = oom_op_unary(t, OOM_SCALE, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "final_norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_recurrent_gemma = {
	.name = "recurrent_gemma",
	.summary = "gated linear recurrences with local attention between them",
	.source = "transformers 5.12 models/recurrent_gemma/modeling_recurrent_gemma.py",
	.types = OOM_TYPE("recurrent_gemma"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
