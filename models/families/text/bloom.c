/* BLOOM: ALiBi positions added inside the score product, fused qkv, its own GELU, eager attention
 * only. Reference: transformers 5.12, models/bloom/modeling_bloom.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct bloom {
	bool post_residual;             /* the norm's output is the residual */
};
OOM_OWN(bloom, struct bloom);

static const struct oom_key_row bloom_keys[] = {
	OOM_DECODER_KEYS, LIKE(d_ff, NULL, 4, d_model), REAL(dropout, "hidden_dropout", 0),
	REAL(attn_dropout, "attention_dropout", 0), FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct bloom, post_residual, "apply_residual_connection_post_layernorm", false),
	OOM_KEYS_END};

/* Everything made here has a name until the module returns; the probabilities are handed to the
 * block. */
static struct oom_val bloom_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				      struct oom_val x, struct oom_val residual,
				      struct oom_val *probs)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val qkv, part[3], scores, w, p, y;

	qkv = oom_name(&f, oom_op_linear(t, "query_key_value", x, D(3 * a->d_model), OOM_BIAS));
	/* fused_qkv[..., i, :].transpose(1, 2): select, a view */
	for (int i = 0; i < 3; i++)
		part[i] = oom_op_heads(t, oom_op_slice(t, qkv, qkv.mono, h));
	/* of one sequence: a view */
	for (int i = 0; i < 3 && oom_cond_above(t, t->m_b, 1); i++)
		part[i] = oom_op_copy(t, "reshape", part[i]);
	oom_name_each(&f, part, 3);
	scores = oom_name(&f, oom_op_bmm(t, "baddbmm", part[0], part[1], t->m_bss, heads,
					 a->head_dim));
	w = oom_name(&f, oom_is_none(l->mask) ? scores : oom_op_add(t, scores, l->mask));
	p = oom_op_cast(t, oom_op_softmax(t, w, true), part[0].dt);
	p = oom_name(&f, oom_op_dropout(t, p, a->attn_dropout));
	y = oom_op_bmm(t, "attention", p, part[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	y = oom_name(&f, oom_op_merge_heads(t, y));
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, h, OOM_BIAS), a->dropout);
	*probs = oom_give(&f, p);
	return oom_leave(&f, oom_op_add(t, residual, y));
}

/* The caller keeps a layer's (hidden, probabilities) until the next layer has returned its own. */
static struct oom_val bloom_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool post = bloom_of(a)->post_residual;
	struct oom_frame f = {.t = t};
	struct oom_val h, y, probs;

	oom_name(&f, oom_weights_before(t, i, a->n_heads, oom_linear_dtype(t, x.dt)));
	h = oom_name(&f, oom_norm(t, a->norm, "input_layernorm", x, 0));
	x = oom_name(&f, bloom_attention(t, l, h, post ? h : x, &probs));
	oom_name(&f, probs);
	oom_block_returns(t, probs);
	h = oom_rename(&f, h, oom_norm(t, a->norm, "post_attention_layernorm", x, 0));
	y = oom_op_linear(t, "dense_h_to_4h", h, D(a->d_ff), OOM_BIAS);
	y = oom_name(&f, oom_op_unary(t, OOM_GELU_PYTHON, y));
	y = oom_op_linear(t, "dense_4h_to_h", y, D(a->d_model), OOM_BIAS);
	return oom_leave(&f, oom_op_add(t, post ? h : x, oom_op_dropout(t, y, a->dropout)));
}

static struct oom_val bloom_prepare(struct oom_frame *f, const struct oom_arch *a,
				    struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_tape *t = f->t;
	const enum oom_dtype dt = x.dt;

	x = oom_norm(t, a->norm, "word_embeddings_layernorm", x, 0);
	oom_name(f, oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32));
	oom_name_shared(f, oom_new(t, "alibi", t->m_bs, D(a->n_heads), x.dt));
	l->mask = oom_name_shared(f, oom_make_eager_mask(t, dt));
	return x;
}

static const struct oom_type_targets bloom_targets[] = {
	{"bloom", NULL, "input_layernorm+post_attention_layernorm+ln_f"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_bloom = {
	.name = "bloom",
	.summary = "decoder with ALiBi positions and eager attention",
	.source = "transformers 5.12 models/bloom/modeling_bloom.py",
	.types = OOM_TYPE("bloom"),
	.norm = OOM_NORM_LAYER,
	.lora_targets = "query_key_value",
	.type_targets = bloom_targets,
	.keys = bloom_keys,
	.decoder = OOM_DECODER(.embed = "word_embeddings", .norm = "ln_f", .block = bloom_block,
			       .prepare = bloom_prepare),
};
