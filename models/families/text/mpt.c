/* MPT: ALiBi added to written-out scores in fp32, norms without bias, fused Wqkv; no other
 * attention. Reference: transformers 5.12, models/mpt/modeling_mpt.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct mpt {
	double clip_qkv;                /* 0: not clamped */
};
OOM_OWN(mpt, struct mpt);

static const struct oom_key_row mpt_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "d_model"), LIKE(d_ff, NULL, 4, d_model),
	MUST(n_layers, "n_layers"), MUST(n_heads, "n_heads"), MUST(max_positions, "max_seq_len"),
	REAL(attn_dropout, "attn_config.attn_pdrop", 0), FLAG(tie, "tie_word_embeddings", true),
	REAL_OWN(struct mpt, clip_qkv, "attn_config.clip_qkv", 0), OOM_KEYS_END};

static struct oom_val mpt_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				    struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads), parts[3] = {h, h, h};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], scores, y;
	enum oom_dtype dt;

	y = oom_op_linear(t, "Wqkv", x, D(3 * a->d_model), 0);
	dt = y.dt;
	if (mpt_of(a)->clip_qkv > 0)
		y = oom_op_unary(t, OOM_CLAMP, y);
	oom_op_split(t, y, 3, parts, p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_name(&f, oom_op_heads(t, p[i]));
	scores = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, heads, a->head_dim);
	scores = oom_op_add(t, oom_op_unary(t, OOM_SCALE, scores), l->bias);
	scores = oom_name(&f, oom_op_masked(t, "masked_fill", scores, l->mask));
	y = oom_op_softmax(t, oom_op_cast(t, scores, OOM_F32), false);
	y = oom_name(&f, oom_op_dropout(t, oom_op_cast(t, y, dt), a->attn_dropout));
	*weights = oom_give(&f, y);
	y = oom_op_bmm(t, "attention", y, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_linear(t, "out_proj", oom_op_merge_heads(t, y), h, 0));
}

/* The caller keeps a layer's (hidden, weights) until the next layer has returned its own. */
static struct oom_val mpt_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h, y, weights;

	oom_name(&f, oom_weights_before(t, i, a->n_heads, oom_linear_dtype(t, x.dt)));
	h = oom_name(&f, oom_norm(t, a->norm, "norm_1", x, 0));
	y = oom_name(&f, mpt_attention(t, l, h, &weights));
	oom_name(&f, weights);
	oom_block_returns(t, weights);
	x = oom_name(&f, oom_op_add(t, oom_op_dropout(t, y, a->attn_dropout), x));
	h = oom_rename(&f, h, oom_norm(t, a->norm, "norm_2", x, 0));
	y = oom_op_linear(t, "up_proj", h, D(a->d_ff), 0);
	y = oom_name(&f, oom_op_unary(t, OOM_GELU, y));
	y = oom_name(&f, oom_op_linear(t, "down_proj", y, D(a->d_model), 0));
	return oom_leave(&f, oom_op_add(t, oom_op_dropout(t, y, a->attn_dropout), x));
}

static struct oom_val mpt_prepare(struct oom_frame *f, const struct oom_arch *a,
				  struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_tape *t = f->t;
	struct oom_val mask;

	l->bias = oom_name_shared(f, oom_new(t, "alibi", OOM_MONO_ONE,
					     D(a->n_heads * a->max_positions), OOM_F32));
	mask = oom_name(f, oom_make_eager_mask(t, x.dt));
	l->mask = oom_name_shared(f, oom_new_like(t, "causal mask", mask, OOM_U8));
	oom_forget(f, mask);                    /* .to(torch.bool) */
	return x;
}

const struct oom_family oom_family_mpt = {
	.name = "mpt",
	.summary = "pre-norm decoder with ALiBi, norms without bias, eager attention",
	.source = "transformers 5.12 models/mpt/modeling_mpt.py",
	.types = OOM_TYPE("mpt"),
	.norm = OOM_NORM_LAYER_NO_BIAS,
	.lora_targets = "Wqkv",
	.keys = mpt_keys,
	.decoder = OOM_DECODER(.embed = "wte", .norm = "norm_f",
			       .block = mpt_block, .prepare = mpt_prepare),
};
