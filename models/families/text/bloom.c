/* BLOOM: ALiBi positions added inside the score product, fused qkv, its own GELU, eager attention
 * only. Reference: transformers 5.12, models/bloom/modeling_bloom.py. */
#include "blocks/blocks.h"

enum { POST_RESIDUAL };                 /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = 4 * a->d_model;
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->dropout = oom_read_real(r, "hidden_dropout", 0);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[POST_RESIDUAL] = oom_read_bool(r, "apply_residual_connection_post_layernorm",
						false);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* Everything made here has a name until the module returns; the probabilities are handed to the
 * block. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val residual, struct oom_val *probs)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_val qkv, part[3], scores, w, p, context;
	enum oom_dtype dt;

	qkv = oom_op_linear(t, "query_key_value", x, D(3 * a->d_model), OOM_BIAS);
	/* fused_qkv[..., i, :].transpose(1, 2): select, a view */
	for (int i = 0; i < 3; i++)
		part[i] = oom_op_heads(t, oom_op_slice(t, oom_keep(qkv), qkv.mono, h));
	/* of one sequence: a view */
	for (int i = 0; i < 3 && oom_cond_above(t, t->m_b, 1); i++)
		part[i] = oom_op_copy(t, "reshape", part[i]);
	dt = (enum oom_dtype)part[0].dt;
	scores = oom_op_bmm(t, "baddbmm", oom_keep(part[0]), oom_keep(part[1]), t->m_bss, heads,
			    a->head_dim);
	w = oom_is_none(l->mask) ? oom_share(t, scores) :
				   oom_op_add(t, oom_keep(scores), oom_keep(l->mask));
	p = oom_op_cast(t, oom_op_softmax(t, oom_keep(w), true), dt);
	p = oom_op_dropout(t, p, a->attn_dropout);
	*probs = oom_share(t, p);
	context = oom_op_merge_heads(t, oom_op_bmm(t, "attention", p, oom_keep(part[2]), t->m_bs,
						   h, oom_mono_now(t, t->m_s)));
	p = oom_op_linear(t, "dense", oom_keep(context), h, OOM_BIAS);
	p = oom_op_add(t, residual, oom_op_dropout(t, p, a->dropout));
	oom_drop(t, context);
	for (int i = 0; i < 3; i++)
		oom_drop(t, part[i]);
	oom_drop(t, qkv);
	oom_drop(t, scores);
	oom_drop(t, w);
	return p;
}

/* The caller keeps a layer's (hidden, probabilities) until the next layer has returned its own. */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h, y, g, probs, before;

	before = oom_weights_before(t, i, a->n_heads, oom_linear_dtype(t, (enum oom_dtype)x.dt));
	h = oom_op_layer_norm(t, "input_layernorm", oom_keep(x), 0, true, true);
	x = attention(t, l, oom_keep(h), a->extra[POST_RESIDUAL] ? oom_keep(h) : x, &probs);
	y = oom_op_layer_norm(t, "post_attention_layernorm", oom_keep(x), 0, true, true);
	oom_drop(t, h);
	h = y;
	g = oom_op_linear(t, "dense_h_to_4h", oom_keep(h), D(a->d_ff), OOM_BIAS);
	g = oom_op_unary(t, OOM_GELU_PYTHON, g);
	y = oom_op_linear(t, "dense_4h_to_h", oom_keep(g), D(a->d_model), OOM_BIAS);
	x = oom_op_add(t, a->extra[POST_RESIDUAL] ? oom_keep(h) : x,
		       oom_op_dropout(t, y, a->dropout));
	oom_drop(t, g);
	oom_drop(t, h);
	oom_drop(t, probs);
	oom_drop(t, before);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, alibi, ones,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct oom_plan eager = *t->plan;
	const struct oom_plan *real = t->plan;
	struct layer l = {.a = a};

	t->scope = "word_embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	x = oom_op_layer_norm(t, "word_embeddings_layernorm", x, 0, true, true);
	ones = oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32);
	alibi = oom_new(t, "alibi", t->m_bs, D(a->n_heads), (enum oom_dtype)x.dt);
	eager.attn = OOM_ATTN_EAGER;            /* BLOOM has no other attention */
	t->plan = &eager;
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	t->plan = real;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, alibi);
	x = oom_op_layer_norm(t, "ln_f", x, 0, true, true);
	oom_drop(t, ones);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_bloom = {
	.name = "bloom",
	.summary = "decoder with ALiBi positions and eager attention",
	.source = "transformers 5.12 models/bloom/modeling_bloom.py",
	.types = OOM_TYPE("bloom"),
	.lora_targets = "query_key_value",
	.parse = parse,
	.step = step,
};
