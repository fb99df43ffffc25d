/* OPT: pre-norm (or post-norm) decoder with learned positions counted from the mask.
 * Reference: transformers 5.12, models/opt/modeling_opt.py. */
#include "blocks/blocks.h"

enum { PRE_NORM, BIAS, AFFINE, NO_FINAL_NORM };         /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "ffn_dim", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->d_embed = oom_read_count_or(r, "word_embed_proj_dim", a->d_model);
	a->act = oom_read_act(r, "activation_function", "relu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[PRE_NORM] = oom_read_bool(r, "do_layer_norm_before", true);
	a->extra[BIAS] = oom_read_bool(r, "enable_bias", true);
	a->extra[AFFINE] = oom_read_bool(r, "layer_norm_elementwise_affine", true);
	a->extra[NO_FINAL_NORM] = oom_read_bool(r, "_remove_final_layer_norm", false);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	const unsigned bias = a->extra[BIAS] ? OOM_BIAS : 0;
	const bool pre = a->extra[PRE_NORM], affine = a->extra[AFFINE];
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val y, q, k, v, local[3];

	(void)i;
	at.layer_names_weights = true;
	at.mask = l->mask;
	y = pre ? oom_op_layer_norm(t, "self_attn_layer_norm", oom_keep(x), 0, affine, true) :
		  oom_share(t, x);
	q = oom_op_linear(t, "q_proj", oom_keep(y), h, bias);
	q = oom_op_heads(t, oom_op_unary(t, OOM_SCALE, q));
	k = oom_op_linear(t, "k_proj", oom_keep(y), h, bias);
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(y), h, bias));
	k = oom_op_heads(t, k);
	local[0] = oom_share(t, q);
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	q = oom_attention_core(t, &at, q, k, v);
	q = oom_op_linear(t, "out_proj", q, h, bias);
	for (int j = 2; j >= 0; j--)
		oom_drop(t, local[j]);
	oom_drop(t, y);
	x = oom_op_add(t, x, oom_op_dropout(t, q, a->dropout));
	if (!pre)
		x = oom_op_layer_norm(t, "self_attn_layer_norm", x, 0, affine, true);
	y = pre ? oom_op_layer_norm(t, "final_layer_norm", oom_keep(x), 0, affine, true) :
		  oom_share(t, x);
	y = oom_op_linear(t, "fc1", y, D(a->d_ff), bias);
	y = oom_op_linear(t, "fc2", oom_activation(t, a->act, y), h, bias);
	x = oom_op_add(t, x, oom_op_dropout(t, y, a->dropout));
	return pre ? x : oom_op_layer_norm(t, "final_layer_norm", x, 0, affine, true);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ones, positions, pos,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_embed));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	ones = oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32);
	positions = oom_new(t, "position ids", t->m_bs, D(1), OOM_I64);
	pos = oom_new(t, "position ids + 2", t->m_bs, D(1), OOM_I64);
	pos = oom_op_embedding(t, "embed_positions", pos, a->max_positions + 2, D(a->d_model), 0);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "project_in", x, D(a->d_model), 0);
	x = oom_op_add(t, x, oom_keep(pos));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, positions);
	if (a->extra[PRE_NORM] && !a->extra[NO_FINAL_NORM])
		x = oom_op_layer_norm(t, "final_layer_norm", x, 0, a->extra[AFFINE], true);
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "project_out", x, D(a->d_embed), 0);
	oom_drop(t, pos);
	oom_drop(t, ones);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_opt = {
	.name = "opt",
	.summary = "decoder with learned positions and ReLU feed-forward",
	.source = "transformers 5.12 models/opt/modeling_opt.py",
	.types = OOM_TYPE("opt"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
