/* CTRL: pre-norm decoder with sinusoidal positions and attention written out; intermediate scores
 * live as long as the function that names them.
 * Reference: transformers 5.12, models/ctrl/modeling_ctrl.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

static const struct oom_key_row ctrl_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "dff"), MUST(max_positions, "max_position_embeddings"),
	REAL(dropout, "resid_pdrop", 0.1), REAL(embed_dropout, "embd_pdrop", 0.1),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static void ctrl_parse(struct oom_arch *a)
{
	a->act = OOM_ACT_RELU;
	a->head_bias = true;
	oom_check_heads(a);
}

/* MultiHeadAttention.forward, and scaled_dot_product_attention within it. */
static struct oom_val ctrl_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				     struct oom_val x, struct oom_val *probs)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_frame f = {.t = t}, inner = {.t = t};
	struct oom_val q, k, v, w;

	q = oom_name(&f, oom_op_linear(t, "Wq", x, h, OOM_BIAS));
	k = oom_name(&f, oom_op_linear(t, "Wk", x, h, OOM_BIAS));
	v = oom_name(&f, oom_op_linear(t, "Wv", x, h, OOM_BIAS));
	q = oom_rename(&f, q, oom_op_heads(t, q));
	k = oom_rename(&f, k, oom_op_heads(t, k));
	v = oom_rename(&f, v, oom_op_heads(t, v));
	w = oom_name(&inner, oom_op_bmm(t, "matmul_qk", q, k, t->m_bss, heads, a->head_dim));
	w = oom_name(&inner, oom_op_unary(t, OOM_SCALE, w));
	oom_scratch(t, "mask * -1e4", l->mask.mono, 1, l->mask.dt);
	if (!oom_is_none(l->bias))
		w = oom_rename(&inner, w, oom_op_add(t, w, l->bias));
	w = oom_name(&inner, oom_op_softmax(t, w, false));
	*probs = oom_give(&inner, w);
	w = oom_op_bmm(t, "attention", w, v, t->m_bs, h, oom_mono_now(t, t->m_s));
	w = oom_op_merge_heads(t, oom_leave(&inner, w));
	return oom_leave(&f, oom_op_linear(t, "dense", w, h, OOM_BIAS));
}

static struct oom_val ctrl_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h, probs;

	oom_name(&f, oom_weights_before(t, i, a->n_heads, t->amp ? OOM_F32 : x.dt));
	h = oom_name(&f, oom_norm(t, a->norm, "layernorm1", x, 0));
	h = oom_op_dropout(t, ctrl_attention(t, l, h, &probs), a->dropout);
	oom_name(&f, probs);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = oom_norm(t, a->norm, "layernorm2", x, 0);
	h = oom_op_unary(t, OOM_RELU, oom_op_linear(t, "0", h, D(a->d_ff), OOM_BIAS));
	h = oom_op_linear(t, "2", h, D(a->d_model), OOM_BIAS);
	return oom_leave(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
}

static struct oom_val ctrl_prepare(struct oom_frame *f, const struct oom_arch *a,
				   struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_tape *t = f->t;
	struct oom_val pos;

	oom_buffer(t, a->max_positions * a->d_model, OOM_F32);
	if (t->plan->padding_mask)
		l->bias = oom_name_shared(f, oom_new(t, "attention mask", t->m_bs, D(1), x.dt));
	l->mask = oom_new(t, "mask", oom_mono_mul(t, t->m_s, t->m_s), D(1), OOM_F32);
	l->mask = oom_name_shared(f, l->mask);
	/* inputs_embeds *= sqrt(d), in place; the buffer is never cast */
	pos = oom_name(f, oom_new(t, "pos_embeds", t->m_s, D(a->d_model), OOM_F32));
	x = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, x, pos));
	return oom_op_dropout(t, x, a->embed_dropout);
}

static struct oom_val ctrl_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x = oom_decoder_model(t, a, a->family->decoder, &embed);

	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_seq_cls_last(t, a, x, "classifier");
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_ctrl = {
	.name = "ctrl",
	.summary = "pre-norm decoder, sinusoidal positions, attention written out",
	.source = "transformers 5.12 models/ctrl/modeling_ctrl.py",
	.types = OOM_TYPE("ctrl"),
	.norm = OOM_NORM_LAYER,
	.lora_targets = "Wq+Wv",
	.keys = ctrl_keys,
	.parse = ctrl_parse,
	.decoder = OOM_DECODER(.embed = "w", .norm = "layernorm",
			       .block = ctrl_block, .prepare = ctrl_prepare),
	.step = ctrl_step,
};
