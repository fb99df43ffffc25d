/* ImageGPT: GPT-2 over the colour clusters of an image, norms without a mean, attention written
 * out; a classifier reads the mean of all tokens.
 * Reference: transformers 5.12, models/imagegpt/modeling_imagegpt.py. */
#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->d_ff = oom_read_count_or(r, "n_inner", 4 * a->d_model);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, "activation_function", "quick_gelu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->dropout = oom_read_real(r, "resid_pdrop", 0.1);
	a->embed_dropout = oom_read_real(r, "embd_pdrop", 0.1);
	a->attn_dropout = oom_read_real(r, "attn_pdrop", 0.1);
	a->default_task = OOM_TASK_IMAGE_CLS;
	if (a->max_positions > 1 << 20 || a->d_model % a->n_heads ||
	    oom_read_bool(r, "add_cross_attention", false))
		oom_read_fail(r, "imagegpt: n_positions (at most 2^20), n_embd (a multiple of "
				 "n_head) and add_cross_attention (false) "
				 "do not describe a model");
}

struct layer {
	const struct oom_arch *a;
	uint16_t m_tokens, m_len;
};

/* x / sqrt(mean(x^2) + eps) * weight, in x's type */
static struct oom_val norm(struct oom_tape *t, const char *name, struct oom_val x)
{
	const char *scope = t->scope;
	struct oom_val v, y;

	t->scope = name;
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(x)), x.mono, D(1));
	v = oom_op_unary(t, OOM_SQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_div(t, oom_keep(x), v);
	y = oom_op_mul(t, y, oom_param(t, "weight", 0, x.width, OOM_P_NORM));
	oom_done(t, x);
	t->scope = scope;
	return y;
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	struct oom_val q[3], s;

	oom_buffer(t, a->max_positions * a->max_positions, OOM_U8);
	oom_op_split(t, oom_op_linear(t, "c_attn", x, D(3 * a->d_model), OOM_BIAS), 3, parts, q);
	for (int i = 0; i < 3; i++)
		q[i] = oom_op_heads(t, q[i]);
	s = oom_op_bmm(t, "scores", oom_keep(q[0]), oom_keep(q[1]),
		       oom_mono_mul(t, l->m_tokens, l->m_len), D(a->n_heads), a->head_dim);
	s = oom_op_masked(t, "where", oom_op_unary(t, OOM_SCALE, s),
			  oom_input(t, "causal buffer", l->m_len, 1, OOM_U8));
	s = oom_op_cast(t, oom_op_softmax(t, s, false), (enum oom_dtype)q[2].dt);
	s = oom_op_dropout(t, s, a->attn_dropout);
	s = oom_op_merge_heads(t, oom_op_bmm(t, "attention", s, oom_keep(q[2]), l->m_tokens, h,
					     oom_mono_now(t, l->m_len)));
	for (int i = 0; i < 3; i++)
		oom_drop(t, q[i]);
	return oom_op_dropout(t, oom_op_linear(t, "c_proj", s, h, OOM_BIAS), a->dropout);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h;

	(void)i;
	x = oom_op_add(t, attention(t, l, norm(t, "ln_1", oom_keep(x))), x);
	h = oom_plain_mlp(t, norm(t, "ln_2", oom_keep(x)), "c_fc", "c_proj", a->act, D(a->d_ff),
			  true);
	return oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool image = t->task == OOM_TASK_IMAGE_CLS;
	struct layer l = {.a = a};
	struct oom_val embed, x, ids;

	l.m_len = image ? oom_len_const(t, OOM_MONO_ONE, a->max_positions) : t->m_s;
	l.m_tokens = oom_mono_mul(t, t->m_b, l.m_len);
	ids = oom_input(t, "input_ids", l.m_tokens, 1, OOM_I64);
	t->scope = "wte";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	x = oom_op_add(t, x,
		       oom_op_embedding(t, "wpe",
					oom_new(t, "position ids", l.m_len, D(1), OOM_I64),
					a->max_positions, D(a->d_model), 0));
	x = oom_op_dropout(t, x, a->embed_dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = norm(t, "ln_f", x);
	if (!image)
		return oom_causal_tail(t, a, x, embed);
	x = oom_op_mean(t, x, t->m_b, D(a->d_model));
	return oom_cls_loss(t, a,
			    oom_op_linear(t, "score", x,
					  (struct oom_dim){t->n_labels, "num_labels"},
					  OOM_NO_QUANT | OOM_IS_HEAD));
}

const struct oom_family oom_family_imagegpt = {
	.name = "imagegpt",
	.summary = "GPT-2 over colour clusters, norms without a mean",
	.source = "transformers 5.12 models/imagegpt/modeling_imagegpt.py",
	.types = OOM_TYPE("imagegpt"),
	.lora_targets = "c_attn",
	.parse = parse,
	.step = step,
};
