/* Vision transformers: a patch embedding, class tokens, learned positions, pre-norm encoder, linear
 * classifier. The sequence is fixed by the image: its length enters as a constant (size variables
 * with op 6). Reference: transformers 5.12, models/{vit,deit,vit_msn,ijepa}/modeling_*.py. */
#include <string.h>

#include "ops/conv.h"

/* extra[]: tokens before the patches; layer scale and two-part classifier; its gated MLP,
 * stochastic depth, registers */
enum { EXTRA_TOKENS, QKV_BIAS, DINO, SWIGLU, DROP_PATH, REGISTERS };

static void read_dino(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const double ratio = oom_read_real(r, "mlp_ratio", 4);

	if (!(ratio > 0 && ratio <= 1024) || a->d_model > 1 << 20) {
		oom_read_fail(r, "mlp_ratio or hidden_size out of range (model type %s)",
			      r->family);
		return;
	}
	a->d_ff = (uint64_t)((double)a->d_model * ratio);
	a->extra[SWIGLU] = oom_read_bool(r, "use_swiglu_ffn", false);
	if (a->extra[SWIGLU])                   /* Dinov2SwiGLUFFN */
		a->d_ff = (a->d_ff * 2 / 3 + 7) / 8 * 8;
	a->extra[DROP_PATH] = oom_read_real(r, "drop_path_rate", 0) > 0;
	if (strcmp(a->model_type, "dinov2"))
		a->extra[REGISTERS] = oom_read_count_or(r, "num_register_tokens", 4);
	if (a->extra[REGISTERS] > 65536)
		oom_read_fail(r, "num_register_tokens beyond 65536");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_IMAGE_CLS;
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->extra[DINO] = !strncmp(a->model_type, "dinov2", 6);
	if (a->extra[DINO])
		read_dino(a);
	else
		a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->image_size = oom_read_count(r, "image_size", 1);
	a->patch = oom_read_count(r, "patch_size", 1);
	a->channels = oom_read_count_or(r, "num_channels", 3);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0);
	a->extra[QKV_BIAS] = oom_read_bool(r, "qkv_bias", true);
	a->extra[EXTRA_TOKENS] = !strcmp(a->model_type, "deit") ? 2 :
				 strcmp(a->model_type, "ijepa") ? 1 :
								  0;
	if (a->image_size > 65536 || a->patch > a->image_size)
		oom_read_fail(r, "patch_size %llu does not fit image_size %llu",
			      (unsigned long long)a->patch, (unsigned long long)a->image_size);
}

struct layer {
	const struct oom_arch *a;
	uint16_t m_tokens, m_len;
};

/* weights_out(silu(x1) * x2) of one projection's two halves */
static struct oom_val swiglu(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, half[2] = {D(a->d_ff), D(a->d_ff)};
	struct oom_val part[2],
		both = oom_op_linear(t, "weights_in", oom_keep(x),
				     (struct oom_dim){2 * a->d_ff, "2 * d_ff"}, OOM_BIAS);
	struct oom_val y;

	oom_op_split(t, oom_keep(both), 2, half, part);
	y = oom_op_mul(t, oom_activation(t, OOM_ACT_SILU, part[0]), part[1]);
	y = oom_op_linear(t, "weights_out", y, h, OOM_BIAS);
	oom_drop(t, both);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	const unsigned bias = a->extra[QKV_BIAS] ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val y, q, k, v, normed, scaled = oom_none();

	(void)i;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = a->extra[DINO];
	/* "hidden_states, _ = self.attention(...)" */
	at.layer_names_weights = !a->extra[DINO];
	at.mq = at.mk = l->m_tokens;
	at.sk = l->m_len;
	y = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true);
	q = oom_op_heads(t, oom_op_linear(t, a->extra[DINO] ? "query" : "q_proj", oom_keep(y), h,
					  bias));
	k = oom_op_heads(t,
			 oom_op_linear(t, a->extra[DINO] ? "key" : "k_proj", oom_keep(y), h, bias));
	v = oom_op_heads(t, oom_op_linear(t, a->extra[DINO] ? "value" : "v_proj", oom_keep(y), h,
					  bias));
	q = oom_op_linear(t, a->extra[DINO] ? "dense" : "o_proj",
			  oom_attention_core(t, &at, q, k, v), h, OOM_BIAS);
	normed = y;
	/* hidden_states_norm and self_attention_output live until the layer returns */
	if (a->extra[DINO]) {
		q = oom_op_mul(t, oom_op_dropout(t, q, a->dropout),
			       oom_param(t, "layer_scale1", 0, a->d_model, 0));
		scaled = oom_share(t, q);
		x = oom_op_add(t, a->extra[DROP_PATH] ? oom_drop_path(t, q) : q, x);
	} else {
		oom_drop(t, normed);
		normed = oom_none();
		x = oom_op_add(t, oom_op_dropout(t, q, a->dropout), x);
	}
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = a->extra[SWIGLU] ? swiglu(t, a, y) :
			       oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(a->d_ff), true);
	if (a->extra[DINO])
		y = oom_op_mul(t, y, oom_param(t, "layer_scale2", 0, a->d_model, 0));
	else
		y = oom_op_dropout(t, y, a->dropout);
	if (a->extra[DROP_PATH])
		y = oom_drop_path(t, y);
	x = oom_op_add(t, y, x);
	oom_drop(t, normed);
	oom_drop(t, scaled);
	return x;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct layer *l,
				 uint64_t *n)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_map m = oom_pixels(t, a);
	struct oom_val token[2], pos, x, registers = oom_none();

	t->scope = "embeddings";
	for (uint64_t i = 0; i < a->extra[EXTRA_TOKENS]; i++)
		token[i] = oom_param(t, i ? "distillation_token" : "cls_token", 1, a->d_model, 0);
	if (a->extra[DINO])
		oom_drop(t, oom_param(t, "mask_token", 1, a->d_model, OOM_P_UNUSED));
	if (a->extra[REGISTERS])
		registers = oom_param(t, "register_tokens", a->extra[REGISTERS], a->d_model, 0);
	m = oom_conv2d(t, "projection", m,
		       &(struct oom_conv){.out = a->d_model,
					  .kernel = a->patch,
					  .stride = a->patch,
					  .bias = true});
	if (t->status)
		return m.x;
	*n = m.h * m.w + a->extra[EXTRA_TOKENS];
	l->m_tokens = oom_tokens_of(t, *n);
	l->m_len = oom_length_of(t, *n);
	pos = oom_param_tokens(t, "position_embeddings", *n, a->d_model);
	x = oom_input_grads(t, oom_map_tokens(t, m));
	if (a->extra[EXTRA_TOKENS]) {
		struct oom_val tokens = oom_op_expand(t, token[0], t->m_b, h);

		if (a->extra[EXTRA_TOKENS] > 1)
			tokens = oom_op_cat(t, tokens, oom_op_expand(t, token[1], t->m_b, h),
					    D(2 * a->d_model));
		tokens.perm = false;
		x = oom_op_cat_into(t, tokens, x, l->m_tokens, h);
	}
	x = oom_op_add(t, x, pos);
	if (a->extra[REGISTERS]) {              /* cat(x[:, :1], registers, x[:, 1:]) */
		struct oom_val r = oom_op_expand(t, registers, t->m_b,
						 (struct oom_dim){a->extra[REGISTERS] * h.n, NULL});
		struct oom_val first = oom_op_slice(t, oom_keep(x), t->m_b, h),
			       rest = oom_op_slice(t, x, oom_tokens_of(t, *n - 1), h);

		r.perm = false;
		*n += a->extra[REGISTERS];
		l->m_tokens = oom_tokens_of(t, *n);
		l->m_len = oom_length_of(t, *n);
		x = oom_cat3(t, first, r, rest, l->m_tokens, h);
	}
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	struct layer l = {.a = a};
	struct oom_val first, out, loss, x;
	uint64_t n = 0;

	x = embeddings(t, a, &l, &n);
	if (t->status)
		return x;
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = oom_op_layer_norm(t, "layernorm", x, 0, true, true);
	oom_drop(t, first);
	/* the model's output, a local until the loss is returned */
	out = oom_share(t, x);
	if (a->extra[DINO]) {                   /* class token beside the mean of the patches */
		struct oom_val cls = oom_op_slice(t, oom_keep(x), t->m_b, h);
		const uint16_t m_patches = oom_tokens_of(t, n - a->extra[EXTRA_TOKENS] -
								    a->extra[REGISTERS]);
		struct oom_val rest = oom_op_mean(t, oom_op_slice(t, x, m_patches, h), t->m_b, h);

		x = oom_op_cat(t, cls, rest, D(2 * a->d_model));
	} else {
		x = a->extra[EXTRA_TOKENS] ? oom_op_slice(t, x, t->m_b, h) :
					     oom_op_mean(t, x, t->m_b, h);
	}
	if (t->n_labels || a->extra[DINO])
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, x);
	oom_drop(t, out);
	return loss;
}

static const struct oom_family_type types[] = {
	{"vit", NULL}, {"deit", NULL}, {"vit_msn", NULL}, {"ijepa", NULL}, {"dinov2", NULL},
	{"dinov2_with_registers", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_vit = {
	.name = "vit",
	.summary = "pre-norm vision encoder over image patches",
	.source = "transformers 5.12 models/vit/modeling_vit.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
