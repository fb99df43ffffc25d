/* ImageGPT: GPT-2 over the colour clusters of an image, norms without a mean, attention written
 * out; a classifier reads the mean of all tokens.
 * Reference: transformers 5.12, models/imagegpt/modeling_imagegpt.py. */
#include "blocks/blocks.h"
#include "config/keys.h"

static const struct oom_key_row imagegpt_keys[] = {
	OOM_DECODER_KEYS, LIKE(d_ff, "n_inner", 4, d_model),
	MUST(max_positions, "max_position_embeddings"),
	ACT(act, "activation_function", "quick_gelu"), FLAG(tie, "tie_word_embeddings", false),
	REAL(dropout, "resid_pdrop", 0.1), REAL(embed_dropout, "embd_pdrop", 0.1),
	REAL(attn_dropout, "attn_pdrop", 0.1), OOM_KEYS_END};

static void imagegpt_parse(struct oom_arch *a)
{
	if (a->max_positions > 1 << 20 || a->d_model % a->n_heads ||
	    oom_read_bool(&a->rd, "add_cross_attention", false))
		oom_read_fail(&a->rd, "imagegpt: n_positions (at most 2^20), n_embd (a multiple of "
				      "n_head) and add_cross_attention (false) "
				      "do not describe a model");
}

struct imagegpt_layer {
	const struct oom_arch *a;
	uint16_t m_tokens, m_len;
};

/* x / sqrt(mean(x^2) + eps) * weight, in x's type */
static struct oom_val imagegpt_norm(struct oom_tape *t, const char *name, struct oom_val x)
{
	const char *scope = t->scope;
	struct oom_frame f = {.t = t};
	struct oom_val v;

	t->scope = name;
	x = oom_arg(&f, x);
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, x), x.mono, D(1));
	v = oom_op_unary(t, OOM_SQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	v = oom_op_div(t, x, v);
	v = oom_op_mul(t, v, oom_norm_param(t, "weight", x.width));
	t->scope = scope;
	return oom_leave(&f, v);
}

static struct oom_val imagegpt_attention(struct oom_tape *t, const struct imagegpt_layer *l,
					 struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const uint16_t scores = oom_mono_mul(t, l->m_tokens, l->m_len);
	struct oom_frame f = {.t = t};
	struct oom_val q[3], s;

	oom_buffer(t, a->max_positions * a->max_positions, OOM_U8);
	oom_op_split(t, oom_op_linear(t, "c_attn", x, D(3 * a->d_model), OOM_BIAS), 3, parts, q);
	for (int i = 0; i < 3; i++)
		q[i] = oom_name(&f, oom_op_heads(t, q[i]));
	s = oom_op_bmm(t, "scores", q[0], q[1], scores, D(a->n_heads), a->head_dim);
	s = oom_op_masked(t, "where", oom_op_unary(t, OOM_SCALE, s),
			  oom_input(t, "causal buffer", l->m_len, 1, OOM_U8));
	s = oom_op_cast(t, oom_op_softmax(t, s, false), (enum oom_dtype)q[2].dt);
	s = oom_op_dropout(t, s, a->attn_dropout);
	s = oom_op_bmm(t, "attention", s, q[2], l->m_tokens, h, oom_mono_now(t, l->m_len));
	s = oom_leave(&f, oom_op_merge_heads(t, s));
	return oom_op_dropout(t, oom_op_linear(t, "c_proj", s, h, OOM_BIAS), a->dropout);
}

static struct oom_val imagegpt_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct imagegpt_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	h = imagegpt_attention(t, l, imagegpt_norm(t, "ln_1", x));
	x = oom_name(&f, oom_op_add(t, h, x));
	h = imagegpt_norm(t, "ln_2", x);
	h = oom_plain_mlp(t, h, "c_fc", "c_proj", a->act, D(a->d_ff), true);
	return oom_leave(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
}

static struct oom_val imagegpt_step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool image = t->task == OOM_TASK_IMAGE_CLS;
	const struct oom_dim h = D(a->d_model), labels = {t->n_labels, "num_labels"};
	struct imagegpt_layer l = {.a = a};
	struct oom_val embed, x, y;

	l.m_len = image ? oom_len_const(t, OOM_MONO_ONE, a->max_positions) : t->m_s;
	l.m_tokens = oom_mono_mul(t, t->m_b, l.m_len);
	t->scope = "wte";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, oom_input(t, "input_ids", l.m_tokens, 1, OOM_I64),
				   a->vocab, h);
	x = oom_input_grads(t, x);
	y = oom_new(t, "position ids", l.m_len, D(1), OOM_I64);
	x = oom_op_add(t, x, oom_op_embedding(t, "wpe", y, a->max_positions, h, 0));
	x = oom_op_dropout(t, x, a->embed_dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, imagegpt_block, &l, x);
	x = imagegpt_norm(t, "ln_f", x);
	if (!image)
		return oom_causal_tail(t, a, x, embed);
	x = oom_op_linear(t, "score", oom_op_mean(t, x, t->m_b, h), labels,
			  OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

const struct oom_family oom_family_imagegpt = {
	.name = "imagegpt",
	.summary = "GPT-2 over colour clusters, norms without a mean",
	.source = "transformers 5.12 models/imagegpt/modeling_imagegpt.py",
	.types = OOM_TYPE("imagegpt"),
	.task = OOM_TASK_IMAGE_CLS,
	.lora_targets = "c_attn",
	.keys = imagegpt_keys,
	.parse = imagegpt_parse,
	.step = imagegpt_step,
};
