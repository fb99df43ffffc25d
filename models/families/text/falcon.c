/* Falcon: fused qkv with one key and value head or a group of them, parallel feed-forward, a mask
 * always made. Reference: transformers 5.12, models/falcon/modeling_falcon.py. */
#include "blocks/blocks.h"

enum { NEW, MULTI, PARALLEL, BIAS, NORMS, ALIBI };      /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->d_ff = oom_read_count_or(r, "ffn_hidden_size", 4 * a->d_model);
	a->act = oom_read_act(r, "activation", "gelu");
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->dropout = oom_read_real(r, "hidden_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[NEW] = oom_read_bool(r, "new_decoder_architecture", false);
	a->extra[MULTI] = oom_read_bool(r, "multi_query", true);
	a->extra[PARALLEL] = oom_read_bool(r, "parallel_attn", true);
	a->extra[BIAS] = oom_read_bool(r, "bias", false);
	a->extra[ALIBI] = oom_read_bool(r, "alibi", false);
	a->extra[NORMS] = oom_read_count_or(r, "num_ln_in_parallel_attn", a->extra[NEW] ? 2 : 1);
	a->n_kv_heads = a->extra[NEW]	? oom_read_count_or(r, "num_kv_heads", a->n_heads) :
			a->extra[MULTI] ? 1 :
					  a->n_heads;
	if (!a->head_dim || !a->n_kv_heads || a->n_heads % a->n_kv_heads)
		oom_read_fail(r,
			      "num_attention_heads (%llu) must divide hidden_size and be a "
			      "multiple of num_kv_heads (%llu)",
			      (unsigned long long)a->n_heads, (unsigned long long)a->n_kv_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask, alibi;
};

/* fused_qkv taken apart as _split_heads does: slices are views, lists of indices copies,
 * flattened groups copies. */
static void split_heads(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			struct oom_val p[3])
{
	const struct oom_dim h = D(a->d_model), kv = D(a->n_kv_heads * a->head_dim);

	for (int i = 0; i < 3; i++) {
		if (!a->extra[NEW] && (!a->extra[MULTI] || !i)) {
			p[i] = oom_op_slice(t, oom_keep(x), x.mono, h);
		} else if (!i) {
			p[i] = oom_op_copy(t, "flatten", oom_op_slice(t, oom_keep(x), x.mono, h));
		} else {
			p[i] = oom_op_gather(t, "index", oom_keep(x),
					     oom_input(t, "index", OOM_MONO_ONE, 1, OOM_I64),
					     x.mono, kv);
			if (a->extra[NEW] && a->n_kv_heads < a->n_heads)
				p[i] = oom_op_expand_copy(t, p[i], x.mono, h);
		}
	}
	oom_done(t, x);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
}

/* softmax(q k^T / sqrt(d) [+ alibi] + mask) v, scaled in place. */
static struct oom_val eager(struct oom_tape *t, const struct layer *l, struct oom_val p[3],
			    enum oom_dtype dt, struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_val w, y;

	if (a->n_kv_heads == 1 && a->n_heads > 1 && !a->extra[NEW]) {
		p[1] = oom_op_expand(t, p[1], p[1].mono, h);
		p[2] = oom_op_expand(t, p[2], p[2].mono, h);
	}
	w = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, D(a->n_heads), a->head_dim);
	if (!oom_is_none(l->alibi))
		w = oom_op_add(t, oom_op_cast(t, w, OOM_F32), oom_keep(l->alibi));
	y = oom_op_add(t, oom_keep(w), oom_keep(l->mask));
	y = oom_op_softmax(t, oom_op_cast(t, y, dt), false);
	oom_drop(t, w);                         /* attention_scores is reassigned only now */
	w = y;
	if (!oom_is_none(l->alibi))
		w = oom_op_dropout(t, w, a->attn_dropout);
	*weights = oom_share(t, w);
	return oom_op_merge_heads(t, oom_op_bmm(t, "attention", w, p[2], t->m_bs, h,
						oom_mono_now(t, t->m_s)));
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const uint64_t groups = a->extra[NEW] ? a->n_heads : a->n_kv_heads,
		       kv = a->n_kv_heads * a->head_dim;
	const unsigned bias = OOM_NOT_LEAF | (a->extra[BIAS] ? OOM_BIAS : 0);
	const struct oom_sdpa s = {.heads = a->n_heads,
				   .kv_heads = groups,
				   .d = a->head_dim,
				   .dv = a->head_dim,
				   .mq = t->m_bs,
				   .mk = t->m_bs,
				   .sk = t->m_s,
				   .sq = t->m_s,
				   .causal = true};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val p[3], local[4], y;

	y = oom_op_linear(t, "query_key_value", oom_keep(x), D(a->d_model + 2 * kv), bias);
	local[3] = oom_share(t, y);
	split_heads(t, a, y, p);
	*weights = oom_none();
	if (!a->extra[ALIBI]) {
		oom_rope_pair(t, &p[0], &p[1], &l->rope, a->n_heads, groups, a->head_dim,
			      a->head_dim);
	}
	/* query_layer and its like live until the module returns */
	for (int i = 0; i < 3; i++)
		local[i] = oom_share(t, p[i]);
	switch ((enum oom_attention)t->plan->attn) {
	case OOM_ATTN_SDPA:
		y = oom_op_sdpa(t, p[0], p[1], p[2],
				oom_is_none(l->mask) ? oom_none() : oom_keep(l->mask), &s);
		y = oom_op_merge_heads(t, y);
		break;
	case OOM_ATTN_FLASH:
		y = oom_op_merge_heads(t, oom_op_flash(t, p[0], p[1], p[2], &s));
		break;
	default: y = eager(t, l, p, dt, weights); break;
	}
	y = oom_op_linear(t, "dense", y, D(a->d_model), bias);
	for (int i = 0; i < 4; i++)
		oom_drop(t, local[i]);
	oom_done(t, x);
	return y;
}

/* The caller keeps a layer's (hidden, weights) until the next layer has returned its own. */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool two = a->extra[NEW] && a->extra[NORMS] == 2,
		   side = a->extra[NEW] || a->extra[PARALLEL];
	const unsigned bias = OOM_NOT_LEAF | (a->extra[BIAS] ? OOM_BIAS : 0);
	struct oom_val h, m, y, weights, before = oom_none();

	if (t->plan->attn == OOM_ATTN_EAGER)
		before = oom_weights_before(t, i, a->n_heads, (enum oom_dtype)x.dt);
	h = oom_op_layer_norm(t, two ? "ln_attn" : "input_layernorm", oom_keep(x), 0, true, true);
	m = two ? oom_op_layer_norm(t, "ln_mlp", oom_keep(x), 0, true, true) : oom_share(t, h);
	y = attention(t, l, h, &weights);
	if (!side) {
		x = oom_op_add(t, x, oom_op_dropout(t, y, a->attn_dropout));
		oom_drop(t, m);
		m = oom_op_layer_norm(t, "post_attention_layernorm", oom_keep(x), 0, true, true);
	}
	h = oom_activation(t, a->act,
			   oom_op_linear(t, "dense_h_to_4h", oom_keep(m), D(a->d_ff), bias));
	h = oom_op_linear(t, "dense_4h_to_h", h, D(a->d_model), bias);
	if (side)
		h = oom_op_add_inplace(t, h, y);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	oom_drop(t, m);
	oom_drop(t, weights);
	oom_drop(t, before);
	return x;
}

/* A mask function is handed to create_causal_mask, so the mask is made even where the kernel's
 * causality would do. */
static struct oom_val make_mask(struct oom_tape *t, struct oom_val x)
{
	const bool grad = t->grad;
	struct oom_val b;

	if (t->plan->attn == OOM_ATTN_FLASH)
		return oom_none();
	if (t->plan->attn == OOM_ATTN_EAGER || t->plan->padding_mask)
		return oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	t->grad = false;
	b = oom_new(t, "mask", oom_mono_mul(t, t->m_s, t->m_s), D(1), OOM_U8);
	b.mono = t->m_bss;
	t->grad = grad;
	return b;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, positions,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a, .alibi = oom_none()};

	t->scope = "word_embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	if (a->extra[ALIBI])
		l.alibi = oom_new(t, "alibi", t->m_bs, D(a->n_heads), (enum oom_dtype)x.dt);
	/* position_ids: every layer's argument, and a local of the model until it returns */
	positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = make_mask(t, x);
	/* the bias is folded into a mask for every head */
	if (a->extra[ALIBI] && !oom_is_none(l.mask)) {
		struct oom_val wide = oom_new(t, "alibi mask", t->m_bss, D(a->n_heads),
					      (enum oom_dtype)x.dt);

		oom_drop(t, l.mask);
		l.mask = wide;
	}
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.alibi);
	x = oom_op_layer_norm(t, "ln_f", x, 0, true, true);
	oom_drop_shared(t, positions);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_falcon = {
	.name = "falcon",
	.summary = "parallel decoder, fused qkv with few key heads, rotary positions or ALiBi",
	.source = "transformers 5.12 models/falcon/modeling_falcon.py",
	.types = OOM_TYPE("falcon"),
	.lora_targets = "query_key_value",
	.parse = parse,
	.step = step,
};
