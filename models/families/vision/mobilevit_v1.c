/* MobileViT's blocks: patches unfolded, a transformer over the places of each, folded again.
 * Reference: transformers 5.12, models/mobilevit/modeling_mobilevit.py MobileViTMobileNetLayer. */
#include "mobilevit.h"

/* x is the caller's. */
static struct oom_val v1_attention(struct oom_tape *t, const struct oom_arch *a, uint64_t area,
				   uint64_t patches, struct oom_val x)
{
	const struct mobilevit *c = mobilevit_of(a);
	struct oom_attn at = oom_attn_over(t, a, c->heads, x.width, area * patches, patches);
	const struct oom_dim d = {x.width, "hidden_size"};
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	at.mk = at.mq;
	x = oom_arg(&f, x);
	q = oom_project_heads(t, "query", x, d.n, c->qkv_bias, c->heads);
	k = oom_project_heads(t, "key", x, d.n, c->qkv_bias, c->heads);
	v = oom_project_heads(t, "value", x, d.n, c->qkv_bias, c->heads);
	q = oom_written_attention(t, &at, q, k, v, NULL);
	return oom_leave(&f, oom_op_dropout(t, oom_op_linear(t, "dense", q, d, OOM_BIAS),
					    a->dropout));
}

/* x is the caller's. */
static struct oom_val v1_layer(struct oom_tape *t, const struct oom_arch *a, uint64_t area,
			       uint64_t patches, struct oom_val x)
{
	const struct oom_dim d = {x.width, "hidden_size"},
			     ff = {(uint64_t)((double)d.n * mobilevit_of(a)->ratio),
				   "intermediate"};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	y = oom_op_layer_norm(t, "layernorm_before", x, 0, true, true);
	y = oom_name(&f, v1_attention(t, a, area, patches, y));  /* attention_output */
	x = oom_name(&f, oom_op_add(t, y, x));
	y = oom_op_layer_norm(t, "layernorm_after", x, 0, true, true);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", y, ff, OOM_BIAS));
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, d, OOM_BIAS), a->dropout);
	return oom_leave(&f, oom_op_add(t, y, x));
}

/* Unfolding makes two permuted copies, and an interpolation where the map holds no whole number of
 * patches. */
static struct oom_val unfold(struct oom_tape *t, struct oom_val x, uint16_t m, struct oom_dim width,
			     bool resize)
{
	for (int i = resize ? 0 : 1; i < 3; i++)
		x = oom_op_expand_copy(t, x, m, width);
	return x;
}

/* The transformer's layers; x is the caller's. */
static struct oom_val v1_transformer(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				     uint64_t area, uint64_t patches, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	for (uint64_t j = 0; j < mobilevit_of(a)->layers[i] && !t->status; j++)
		x = oom_rename(&f, x, v1_layer(t, a, area, patches, x));
	return oom_leave(&f, x);
}

struct oom_map mobilevit_v1_body(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				 struct oom_map m)
{
	const struct mobilevit *c = mobilevit_of(a);
	const uint64_t h = (m.h + c->patch - 1) / c->patch, w = (m.w + c->patch - 1) / c->patch,
		       area = c->patch * c->patch;
	const uint16_t mt = oom_mono_mul(t, oom_tokens_of(t, area), oom_length_of(t, h * w));
	const bool resize = h * c->patch != m.h || w * c->patch != m.w;
	const struct oom_dim d = {c->hidden[i], "hidden_size"},
			     map = {d.n * m.h * m.w, NULL};
	const struct oom_conv local = {.out = m.c, .kernel = c->kernel};
	struct oom_frame f = {.t = t};
	struct oom_map y;
	struct oom_val features, patches, x;

	m = oom_arg_map(&f, m);                 /* residual */
	y = mobilevit_plain_conv(t, mobilevit_conv_bn(t, m, local, a->act), d.n, false);
	features = oom_name(&f, y.x);
	patches = oom_name(&f, unfold(t, features, mt, d, resize));
	x = v1_transformer(t, a, i, area, h * w, patches);
	oom_forget(&f, patches);
	x = oom_name(&f, oom_op_layer_norm(t, "layernorm", x, 0, true, true));
	x = oom_op_expand_copy(t, oom_op_expand_copy(t, x, mt, d), mt, d);      /* folding */
	if (resize)
		x = oom_op_expand_copy(t, x, t->m_b, map);
	oom_forget(&f, features);
	y = (struct oom_map){oom_op_view(t, x, t->m_b, map), d.n, m.h, m.w};
	y = oom_name_map(&f, mobilevit_pointwise(t, y, m.c,
						 a->act));     /* features from here on */
	y = oom_cat_maps(t, (struct oom_map[]){m, y}, 2);
	return oom_leave_map(&f, mobilevit_conv_bn(t, y, local, a->act));
}

/* ---- version 2: separable attention, linear in the number of patches ---- */
