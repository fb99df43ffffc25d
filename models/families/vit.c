/* Vision transformers: a patch embedding, class tokens, learned positions, pre-norm encoder, linear classifier.
 * The sequence is fixed by the image: its length enters as a constant (size variables with op 6).
 * Reference: transformers 5.12, models/{vit,deit,vit_msn,ijepa}/modeling_*.py. */
#include <string.h>

#include "../blocks.h"

enum { EXTRA_TOKENS, QKV_BIAS, DINO };  /* extra[]: tokens before the patches; layer scale and two-part classifier */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_IMAGE_CLS;
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->extra[DINO] = !strcmp(a->model_type, "dinov2");
	a->d_ff = a->extra[DINO] ? a->d_model * oom_read_count(r, "mlp_ratio", 1) : oom_read_count(r, "intermediate_size", 1);
	if (a->extra[DINO] && oom_read_bool(r, "use_swiglu_ffn", false))
		oom_read_fail(r, "dinov2 with use_swiglu_ffn is not modelled");
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
	a->extra[EXTRA_TOKENS] = !strcmp(a->model_type, "deit") ? 2 : strcmp(a->model_type, "ijepa") ? 1 : 0;
	if (a->image_size > 65536 || a->patch > a->image_size)
		oom_read_fail(r, "patch_size %llu does not fit image_size %llu", (unsigned long long)a->patch,
			      (unsigned long long)a->image_size);
}

struct layer {
	const struct oom_arch *a;
	uint16_t m_tokens, m_len;
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	const unsigned bias = a->extra[QKV_BIAS] ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val y, q, k, v;

	(void)i;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = a->extra[DINO];
	at.mq = at.mk = l->m_tokens;
	at.sk = l->m_len;
	y = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true);
	q = oom_op_heads(t, oom_op_linear(t, "q_proj", oom_keep(y), h, bias));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", oom_keep(y), h, bias));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(y), h, bias));
	q = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), h, OOM_BIAS);
	oom_drop(t, y);
	if (a->extra[DINO])
		q = oom_op_mul(t, q, oom_param(t, "layer_scale1", 0, a->d_model, 0));
	x = oom_op_add(t, oom_op_dropout(t, q, a->dropout), x);
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = oom_plain_mlp(t, y, "fc1", "fc2", a->act, D(a->d_ff), true);
	if (a->extra[DINO])
		y = oom_op_mul(t, y, oom_param(t, "layer_scale2", 0, a->d_model, 0));
	return oom_op_add(t, oom_op_dropout(t, y, a->dropout), x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size : a->image_size;
	const uint64_t patches = side / a->patch * (side / a->patch), n = patches + a->extra[EXTRA_TOKENS];
	const uint16_t m_patches = oom_mono_of(t, t->m_b, OOM_VAR_S, 6, (uint32_t)patches);
	const struct oom_dim h = D(a->d_model);
	struct layer l = {.a = a, .m_tokens = oom_mono_of(t, t->m_b, OOM_VAR_S, 6, (uint32_t)n),
			  .m_len = oom_mono_of(t, OOM_MONO_ONE, OOM_VAR_S, 6, (uint32_t)n)};
	struct oom_val pixels = oom_input(t, "pixel_values", t->m_b, a->channels * side * side, OOM_F32);
	struct oom_val token[2], pos, first, x;

	if (!n) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID, "an image of %llu pixels holds no patch of %llu",
					  (unsigned long long)side, (unsigned long long)a->patch);
		return pixels;
	}
	pixels.dt = t->plan->precision == OOM_FP16 ? OOM_DT_F16 :
		    t->plan->precision == OOM_BF16 || t->plan->precision == OOM_BF16_AMP ? OOM_DT_BF16 : OOM_F32;
	t->scope = "embeddings";
	for (uint64_t i = 0; i < a->extra[EXTRA_TOKENS]; i++)
		token[i] = oom_param(t, i ? "distillation_token" : "cls_token", 0, a->d_model, 0);
	if (a->extra[DINO])
		oom_drop(t, oom_param(t, "mask_token", 0, a->d_model, OOM_P_UNUSED));
	pos = oom_param(t, "position_embeddings", 0, n * a->d_model, 0);
	x = oom_op_conv(t, "projection", pixels, a->d_model, a->channels * a->patch * a->patch, true, m_patches, h);
	if (a->extra[EXTRA_TOKENS]) {
		struct oom_val tokens = oom_op_expand(t, token[0], t->m_b, h);

		if (a->extra[EXTRA_TOKENS] > 1)
			tokens = oom_op_cat(t, tokens, oom_op_expand(t, token[1], t->m_b, h), D(2 * a->d_model));
		tokens.perm = false;
		x = oom_op_cat_into(t, tokens, x, l.m_tokens, h);
	}
	pos.mono = l.m_len;
	pos.width = a->d_model;
	x = oom_op_add(t, x, pos);
	x = oom_op_dropout(t, x, a->dropout);
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = oom_op_layer_norm(t, "layernorm", x, 0, true, true);
	oom_drop(t, first);
	if (a->extra[DINO]) {                   /* class token beside the mean of the patches */
		struct oom_val cls = oom_op_slice(t, oom_keep(x), t->m_b, h);
		struct oom_val rest = oom_op_mean(t, oom_op_slice(t, x, m_patches, h), t->m_b, h);

		x = oom_op_cat(t, cls, rest, D(2 * a->d_model));
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){a->n_labels, "num_labels"}, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
		return oom_cls_loss(t, a, x);
	}
	x = a->extra[EXTRA_TOKENS] ? oom_op_slice(t, x, t->m_b, h) : oom_op_mean(t, x, t->m_b, h);
	if (a->n_labels)
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){a->n_labels, "num_labels"}, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

static const char *const types[] = {"vit", "deit", "vit_msn", "ijepa", "dinov2", NULL};

const struct oom_family oom_family_vit = {
	.name = "vit",
	.summary = "pre-norm vision encoder over image patches",
	.source = "transformers 5.12 models/vit/modeling_vit.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
