/* OPT: pre-norm (or post-norm) decoder with learned positions counted from the mask.
 * Reference: transformers 5.12, models/opt/modeling_opt.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct opt {
	bool pre_norm, bias, affine, no_final_norm;
};
OOM_OWN(opt, struct opt);

static const struct oom_key_row opt_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "ffn_dim"), MUST(max_positions, "max_position_embeddings"),
	LIKE(d_embed, "word_embed_proj_dim", 1, d_model), ACT(act, "activation_function", "relu"),
	REAL(dropout, "dropout", 0.1), REAL(attn_dropout, "attention_dropout", 0),
	FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct opt, pre_norm, "do_layer_norm_before", true),
	FLAG_OWN(struct opt, bias, "enable_bias", true),
	FLAG_OWN(struct opt, affine, "layer_norm_elementwise_affine", true),
	FLAG_OWN(struct opt, no_final_norm, "_remove_final_layer_norm", false), OOM_KEYS_END};

static struct oom_val opt_norm(struct oom_tape *t, const struct oom_arch *a, const char *name,
			       struct oom_val x)
{
	return oom_op_layer_norm(t, name, x, 0, opt_of(a)->affine, true);
}

/* OPTAttention.forward; hidden, _ = self.self_attn(...): the weights get a name in the layer's
 * frame. */
static struct oom_val opt_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				    struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	const unsigned bias = opt_of(a)->bias ? OOM_BIAS : 0;
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	at.caller = layer;
	at.mask = l->mask;
	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", x, h, bias));
	q = oom_name(&f, oom_op_heads(t, q));
	k = oom_op_linear(t, "k_proj", x, h, bias);
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "v_proj", x, h, bias)));
	k = oom_name(&f, oom_op_heads(t, k));
	return oom_leave(&f, oom_op_linear(t, "out_proj", oom_attention_core(t, &at, q, k, v), h,
					   bias));
}

static struct oom_val opt_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const unsigned bias = opt_of(a)->bias ? OOM_BIAS : 0;
	const bool pre = opt_of(a)->pre_norm;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	y = opt_attention(&f, l, pre ? opt_norm(t, a, "self_attn_layer_norm", x) : x);
	y = oom_op_add(t, x, oom_op_dropout(t, y, a->dropout));
	x = oom_name(&f, pre ? y : opt_norm(t, a, "self_attn_layer_norm", y));
	y = oom_op_linear(t, "fc1", pre ? opt_norm(t, a, "final_layer_norm", x) : x, D(a->d_ff),
			  bias);
	y = oom_op_linear(t, "fc2", oom_activation(t, a->act, y), D(a->d_model), bias);
	y = oom_op_add(t, x, oom_op_dropout(t, y, a->dropout));
	return oom_leave(&f, pre ? y : opt_norm(t, a, "final_layer_norm", y));
}

static struct oom_val opt_prepare(struct oom_frame *f, const struct oom_arch *a,
				  struct oom_decoder_layer *l, struct oom_val x)
{
	struct oom_tape *t = f->t;
	struct oom_val pos;

	if (!t->plan->padding_mask)             /* ones, where the batch has no mask of its own */
		oom_name(f, oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32));
	if (!t->plan->packing)
		oom_name_shared(f, oom_new(t, "position ids", t->m_bs, D(1), OOM_I64));
	pos = oom_new(t, "position ids + 2", t->m_bs, D(1), OOM_I64);
	pos = oom_name(f, oom_op_embedding(t, "embed_positions", pos, a->max_positions + 2,
					   D(a->d_model), 0));
	l->mask = oom_name_shared(f, oom_causal_mask(t, 0, x.dt));
	if (a->d_embed != a->d_model)
		x = oom_rename(f, x, oom_op_linear(t, "project_in", x, D(a->d_model), 0));      /* inputs_embeds */
	return oom_op_add(t, x, pos);
}

static struct oom_val opt_finish(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct opt *o = opt_of(a);

	if (o->pre_norm && !o->no_final_norm)
		x = opt_norm(t, a, "final_layer_norm", x);
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "project_out", x, D(a->d_embed), 0);
	return x;
}

const struct oom_family oom_family_opt = {
	.name = "opt",
	.summary = "decoder with learned positions and ReLU feed-forward",
	.source = "transformers 5.12 models/opt/modeling_opt.py",
	.one_sample = true,
	.types = OOM_TYPE("opt"),
	.lora_targets = "q_proj+v_proj",
	.keys = opt_keys,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .block = opt_block, .prepare = opt_prepare,
			       .finish = opt_finish),
};
