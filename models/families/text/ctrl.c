/* CTRL: pre-norm decoder with sinusoidal positions and attention written out; intermediate scores
 * live as long as the function that names them.
 * Reference: transformers 5.12, models/ctrl/modeling_ctrl.py. */
#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "dff", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = OOM_ACT_RELU;
	a->dropout = oom_read_real(r, "resid_pdrop", 0.1);
	a->embed_dropout = oom_read_real(r, "embd_pdrop", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->head_bias = true;
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, padding;
};

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val *probs)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_val q, k, v, raw, w;

	q = oom_op_linear(t, "Wq", oom_keep(x), h, OOM_BIAS);
	k = oom_op_linear(t, "Wk", oom_keep(x), h, OOM_BIAS);
	v = oom_op_linear(t, "Wv", x, h, OOM_BIAS);
	q = oom_op_heads(t, q);
	k = oom_op_heads(t, k);
	v = oom_op_heads(t, v);
	raw = oom_op_bmm(t, "matmul_qk", oom_keep(q), oom_keep(k), t->m_bss, heads, a->head_dim);
	w = oom_op_unary(t, OOM_SCALE, oom_keep(raw));
	oom_scratch(t, "mask * -1e4", l->mask.mono, 1, (enum oom_dtype)l->mask.dt);
	if (!oom_is_none(l->padding))
		w = oom_op_add(t, w, oom_keep(l->padding));
	*probs = oom_op_softmax(t, oom_keep(w), false);
	x = oom_op_bmm(t, "attention", oom_keep(*probs), oom_keep(v), t->m_bs, h,
		       oom_mono_now(t, t->m_s));
	oom_drop(t, raw);
	oom_drop(t, w);
	x = oom_op_linear(t, "dense", oom_op_merge_heads(t, x), h, OOM_BIAS);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_val before = oom_weights_before(t, i, a->n_heads,
							 t->amp ? OOM_F32 : (enum oom_dtype)x.dt);
	struct oom_val h, probs,
		norm = oom_op_layer_norm(t, "layernorm1", oom_keep(x), 0, true, true);

	h = oom_op_dropout(t, attention(t, l, oom_keep(norm), &probs), a->dropout);
	x = oom_op_add(t, x, h);
	h = oom_op_layer_norm(t, "layernorm2", oom_keep(x), 0, true, true);
	h = oom_op_linear(t, "0", h, D(a->d_ff), OOM_BIAS);
	h = oom_op_linear(t, "2", oom_op_unary(t, OOM_RELU, h), D(a->d_model), OOM_BIAS);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	oom_drop(t, norm);
	oom_drop(t, probs);
	oom_drop(t, before);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t plane = oom_mono_mul(t, t->m_s, t->m_s);
	struct oom_val embed, x, first, pos, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a, .padding = oom_none()};
	enum oom_dtype dt;

	t->scope = "w";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	dt = (enum oom_dtype)x.dt;
	oom_buffer(t, a->max_positions * a->d_model, OOM_F32);
	if (t->plan->padding_mask)
		l.padding = oom_new(t, "attention mask", t->m_bs, D(1), dt);
	l.mask = oom_new(t, "mask", plane, D(1), OOM_F32);
	x = oom_input_grads(t, x);              /* inputs_embeds *= sqrt(d), in place */
	first = oom_share(t, x);
	/* the buffer is never cast */
	pos = oom_new(t, "pos_embeds", t->m_s, D(a->d_model), OOM_F32);
	x = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, x, oom_keep(pos)));
	x = oom_op_dropout(t, x, a->embed_dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = oom_op_layer_norm(t, "layernorm", x, 0, true, true);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.padding);
	oom_drop(t, pos);
	oom_drop(t, first);
	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_seq_cls_last(t, a, x, "classifier");
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_ctrl = {
	.name = "ctrl",
	.summary = "pre-norm decoder, sinusoidal positions, attention written out",
	.source = "transformers 5.12 models/ctrl/modeling_ctrl.py",
	.types = OOM_TYPE("ctrl"),
	.lora_targets = "Wq+Wv",
	.parse = parse,
	.step = step,
};
