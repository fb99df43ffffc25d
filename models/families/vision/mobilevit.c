/* MobileViT and MobileViT v2: inverted residuals, and blocks of transformer layers over the map
 * unfolded into patches. Reference: transformers 5.12,
 * models/{mobilevit,mobilevitv2}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { BLOCKS = 3, NECK = 7 };

struct mobilevit {
	uint64_t neck[NECK], hidden[BLOCKS], layers[BLOCKS], heads, patch, kernel, output_stride,
		dim[6];
	double expand, ratio;
	bool qkv_bias;
};
OOM_OWN(mobilevit, struct mobilevit);

/* What sets the versions apart. */
struct mobilevit_kind {
	void (*parse)(struct oom_arch *a);
	/* what follows the inverted residual of layers 3 to 5 */
	struct oom_map (*body)(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
			       struct oom_map m);
	int small;                      /* inverted residuals of layer 2 */
	bool neck;                      /* a last convolution after the encoder */
};

static const struct oom_key_row v1_keys[] = {
	REAL(dropout, "hidden_dropout_prob", 0.1),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	REAL(classifier_dropout, "classifier_dropout_prob", 0.1),
	OR_OWN(struct mobilevit, heads, "num_attention_heads", 4),
	REAL_OWN(struct mobilevit, expand, "expand_ratio", 4),
	REAL_OWN(struct mobilevit, ratio, "mlp_ratio", 2),
	FLAG_OWN(struct mobilevit, qkv_bias, "qkv_bias", true), OOM_KEYS_END};
static const struct oom_key_row v2_keys[] = {
	REAL(dropout, "ffn_dropout", 0), REAL(attn_dropout, "attn_dropout", 0),
	REAL_OWN(struct mobilevit, expand, "expand_ratio", 2),
	REAL_OWN(struct mobilevit, ratio, "ffn_multiplier", 2), OOM_KEYS_END};
static const struct oom_key_row mobilevit_keys[] = {
	ACT(act, "hidden_act", "silu"), OR_OWN(struct mobilevit, patch, "patch_size", 2),
	OR_OWN(struct mobilevit, kernel, "conv_kernel_size", 3),
	OR_OWN(struct mobilevit, output_stride, "output_stride", 32), OOM_KEYS_END};

static void v1_parse(struct oom_arch *a)
{
	static const uint64_t layers[BLOCKS] = {2, 4, 3};
	struct oom_reader *r = &a->rd;
	struct mobilevit *c = mobilevit_own(a);

	oom_read_rows(a, v1_keys);
	memcpy(c->layers, layers, sizeof(layers));
	if (oom_read_counts(r, "neck_hidden_sizes", c->neck, NECK) != NECK ||
	    oom_read_counts(r, "hidden_sizes", c->hidden, BLOCKS) != BLOCKS)
		oom_read_fail(r, "neck_hidden_sizes must list %d counts and hidden_sizes %d", NECK,
			      BLOCKS);
	memcpy(c->dim, c->neck, sizeof(c->dim));
	a->d_model = c->neck[NECK - 1];
	for (int i = 0; i < BLOCKS; i++)
		if (c->hidden[i] > 65536 || !c->heads || c->heads > c->hidden[i])
			oom_read_fail(r, "num_attention_heads or hidden_sizes out of range");
}

static void v2_parse(struct oom_arch *a)
{
	static const uint64_t base[6] = {32, 64, 128, 256, 384, 512};
	struct oom_reader *r = &a->rd;
	const double w = oom_read_real(r, "width_multiplier", 1);
	struct mobilevit *c = mobilevit_own(a);

	oom_read_rows(a, v2_keys);
	if (oom_read_counts(r, "base_attn_unit_dims", c->hidden, BLOCKS) != BLOCKS ||
	    oom_read_counts(r, "n_attn_blocks", c->layers, BLOCKS) != BLOCKS)
		oom_read_fail(r, "base_attn_unit_dims and n_attn_blocks must list %d counts",
			      BLOCKS);
	if (!(w > 0 && w <= 64)) {
		oom_read_fail(r, "width_multiplier out of range");
		return;
	}
	c->dim[0] = oom_make_divisible(fmax(16, fmin(64, 32 * w)), 8, 16);
	for (int i = 1; i < 6; i++)
		c->dim[i] = oom_make_divisible((double)base[i] * w, i == 1 ? 16 : 8,
					       i == 1 ? 16 : 8);
	for (int i = 0; i < BLOCKS; i++)
		c->hidden[i] = oom_make_divisible((double)c->hidden[i] * w, 8, 8);
	a->d_model = c->dim[5];
}

static void mobilevit_parse(struct oom_arch *a)
{
	const struct mobilevit_kind *kind = a->type->kind;
	const struct mobilevit *c = mobilevit_of(a);
	struct oom_reader *r = &a->rd;

	oom_read_image(a, 256);
	kind->parse(a);
	for (int i = 0; i < BLOCKS; i++) {
		a->n_layers += c->layers[i];
		if (c->layers[i] > 256)
			oom_read_fail(r, "n_attn_blocks beyond 256");
	}
	if (!c->patch || c->patch > 256 || !c->kernel || c->kernel > 1024 ||
	    !(c->expand > 0 && c->expand <= 64) || !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "patch_size, conv_kernel_size, expand_ratio, mlp_ratio or "
				 "ffn_multiplier out of range");
}

static struct oom_map conv_bn(struct oom_tape *t, struct oom_map m, struct oom_conv v,
			      enum oom_act act)
{
	v.pad = (v.kernel - 1) / 2 * (v.dilation ? v.dilation : 1);
	return oom_conv_bn_act(t, m, &v, act);
}

static struct oom_map pointwise(struct oom_tape *t, struct oom_map m, uint64_t out,
				enum oom_act act)
{
	return conv_bn(t, m, (struct oom_conv){.out = out, .kernel = 1}, act);
}

static struct oom_map plain_conv(struct oom_tape *t, struct oom_map m, uint64_t out, bool bias)
{
	return oom_conv2d(t, "convolution", m,
			  &(struct oom_conv){.out = out, .kernel = 1, .bias = bias});
}

static struct oom_map inverted_residual(struct oom_tape *t, const struct oom_arch *a,
					struct oom_map m, uint64_t out, uint64_t stride,
					uint64_t dilation)
{
	const double expand = mobilevit_of(a)->expand;
	const uint64_t wide = oom_make_divisible(nearbyint((double)m.c * expand), 8, 8);
	const struct oom_conv depthwise = {
		.out = wide, .kernel = 3, .stride = stride, .groups = wide, .dilation = dilation};
	struct oom_frame f = {.t = t};
	struct oom_map y;

	m = oom_arg_map(&f, m);
	y = conv_bn(t, pointwise(t, m, wide, a->act), depthwise, a->act);
	y = pointwise(t, y, out, OOM_ACT_NONE);
	if (stride == 1 && m.c == out)
		y.x = oom_op_add(t, m.x, y.x);
	return oom_leave_map(&f, y);
}

/* ---- version 1: self-attention over the same place of every patch ---- */

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

static struct oom_map v1_body(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
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
	y = plain_conv(t, conv_bn(t, m, local, a->act), d.n, false);
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
	y = oom_name_map(&f, pointwise(t, y, m.c, a->act));     /* features from here on */
	y = oom_cat_maps(t, (struct oom_map[]){m, y}, 2);
	return oom_leave_map(&f, conv_bn(t, y, local, a->act));
}

/* ---- version 2: separable attention, linear in the number of patches ---- */

static struct oom_map v2_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const uint16_t ma = oom_tokens_of(t, m.h),
		       mt = oom_mono_mul(t, ma, oom_length_of(t, m.w));
	const struct oom_dim d = {m.c, "embed_dim"}, widths[3] = {D(1), d, d},
			     qkv = {1 + 2 * m.c, "1 + 2 * embed_dim"};
	struct oom_map y = plain_conv(t, m, qkv.n, true);
	struct oom_frame f = {.t = t};
	struct oom_val part[3], scores, context, x;

	oom_op_split(t, oom_name(&f, oom_op_view(t, y.x, mt, qkv)), 3, widths, part);
	oom_name_each(&f, part, 3);
	scores = oom_op_dropout(t, oom_op_softmax(t, part[0], false), a->attn_dropout);
	scores = oom_name(&f, scores);
	context = oom_op_sum(t, oom_op_mul(t, part[1], scores), ma, d);
	context = oom_name(&f, context);
	x = oom_op_mul(t, oom_op_unary(t, OOM_RELU, part[2]), oom_op_expand(t, context, mt, d));
	m.x = oom_name(&f, oom_op_view(t, x, t->m_b, (struct oom_dim){m.c * m.h * m.w, NULL}));
	return oom_leave_map(&f, plain_conv(t, m, d.n, true));
}

static struct oom_map v2_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const uint64_t d = m.c, ff = (uint64_t)(mobilevit_of(a)->ratio * (double)d) / 16 * 16;
	struct oom_frame f = {.t = t};

	m = oom_arg_map(&f, m);
	m = oom_map_act(t, a->act, plain_conv(t, m, ff, true));
	m.x = oom_op_dropout(t, m.x, a->dropout);
	return oom_leave_map(&f, plain_conv(t, m, d, true));
}

/* m is the caller's. */
static struct oom_map v2_layer(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	struct oom_frame f = {.t = t};
	struct oom_map y;

	y = oom_name_map(&f, oom_group_norm(t, "layernorm_before", m, 1));
	y = oom_name_map(&f, v2_attention(t, a, y));            /* attention_output */
	m.x = oom_name(&f, oom_op_add(t, y.x, m.x));
	y = v2_mlp(t, a, oom_group_norm(t, "layernorm_after", m, 1));
	y.x = oom_op_add(t, oom_op_dropout(t, y.x, a->dropout), m.x);
	return oom_leave_map(&f, y);
}

/* The transformer's layers; m is the caller's. */
static struct oom_map v2_transformer(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				     struct oom_map m)
{
	struct oom_frame f = {.t = t};

	for (uint64_t j = 0; j < mobilevit_of(a)->layers[i] && !t->status; j++)
		m = oom_rename_map(&f, m, v2_layer(t, a, m));
	return oom_leave_map(&f, m);
}

static struct oom_map v2_body(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
			      struct oom_map m)
{
	const struct mobilevit *c = mobilevit_of(a);
	const uint64_t area = c->patch * c->patch, patches = m.h / c->patch * (m.w / c->patch),
		       in = m.c, h = m.h, w = m.w;
	const struct oom_conv depthwise = {.out = in, .kernel = c->kernel, .groups = in};
	struct oom_frame f = {.t = t};
	struct oom_val features, unfolded;

	m = plain_conv(t, conv_bn(t, m, depthwise, a->act), c->hidden[i], false);
	features = oom_name(&f, m.x);
	/* unfold */
	m.x = oom_op_expand_copy(t, features, t->m_b, (struct oom_dim){m.c * area * patches, NULL});
	m.h = area;
	m.w = patches;
	m.x = unfolded = oom_name(&f, m.x);
	m = v2_transformer(t, a, i, m);
	oom_forget(&f, unfolded);
	m = oom_name_map(&f, oom_group_norm(t, "layernorm", m, 1));     /* patches */
	/* fold */
	m.x = oom_op_expand_copy(t, m.x, t->m_b, (struct oom_dim){m.c * h * w, NULL});
	m.h = h;
	m.w = w;
	oom_forget(&f, features);
	return oom_leave_map(&f, pointwise(t, m, in, OOM_ACT_NONE));
}

/* ---- the network ---- */

/* A block of layers 3 to 5, the unit of checkpointing. */
struct mobilevit_block {
	const struct oom_arch *a;
	struct oom_map in;              /* its sizes alone */
	uint64_t i, dilation;
};

static struct oom_val mobilevit_block(struct oom_tape *t, const void *ctx, uint32_t i,
				      struct oom_val x)
{
	const struct mobilevit_block *b = ctx;
	const struct mobilevit_kind *kind = b->a->type->kind;
	const uint64_t out = mobilevit_of(b->a)->dim[3 + b->i], dilation = b->dilation;
	struct oom_map m = b->in;
	struct oom_frame f = {.t = t};

	(void)i;
	m.x = oom_arg(&f, x);
	m = inverted_residual(t, b->a, m, out, dilation == 1 ? 2 : 1,
			      dilation > 1 ? dilation / 2 : 1);
	return oom_leave(&f, kind->body(t, b->a, b->i, m).x);
}

static struct oom_map mobilevit_blocks(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_map m)
{
	const struct mobilevit *c = mobilevit_of(a);
	struct mobilevit_block b = {.a = a, .dilation = 1};

	for (b.i = 0; b.i < BLOCKS && !t->status; b.i++) {
		if ((b.i == 1 && c->output_stride == 8) ||
		    (b.i == 2 && (c->output_stride == 8 || c->output_stride == 16)))
			b.dilation *= 2;
		b.in = m;
		m.x = oom_run_stage(t, b.i, mobilevit_block, &b, sizeof(b), m.x);
		if (b.dilation == 1) {
			m.h = (m.h + 1) / 2;
			m.w = (m.w + 1) / 2;
		}
		m.c = c->dim[3 + b.i];
	}
	return m;
}

static struct oom_map mobilevit_encoder(struct oom_tape *t, const struct oom_arch *a,
					struct oom_map m)
{
	const struct mobilevit_kind *kind = a->type->kind;
	const struct mobilevit *c = mobilevit_of(a);

	m = inverted_residual(t, a, m, c->dim[1], 1, 1);
	for (int i = 0; i < kind->small && !t->status; i++)
		m = inverted_residual(t, a, m, c->dim[2], i ? 1 : 2, 1);
	return mobilevit_blocks(t, a, m);
}

/* last_hidden_state and, in *pooled, pooler_output. */
static struct oom_map mobilevit_model(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val *pooled)
{
	const struct mobilevit_kind *kind = a->type->kind;
	const struct mobilevit *c = mobilevit_of(a);
	const struct oom_conv stem = {.out = c->dim[0], .kernel = 3, .stride = 2};
	struct oom_frame f = {.t = t};
	struct oom_map m;

	m = oom_name_map(&f, conv_bn(t, oom_pixels(t, a), stem, a->act));
	m = mobilevit_encoder(t, a, m);
	if (kind->neck)
		m = pointwise(t, oom_name_map(&f, m), a->d_model, a->act);
	m = oom_name_map(&f, m);
	*pooled = oom_global_pool(t, m);
	return oom_leave_map(&f, m);
}

static struct oom_val mobilevit_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val pooled;

	oom_name(&f, mobilevit_model(t, a, &pooled).x);         /* in the base model's output */
	pooled = oom_op_dropout_inplace(t, pooled, a->classifier_dropout);
	return oom_leave(&f, oom_image_loss(t, a, pooled));
}

static const struct mobilevit_kind v1 = {
	.parse = v1_parse, .body = v1_body, .small = 3, .neck = true};
static const struct mobilevit_kind v2 = {.parse = v2_parse, .body = v2_body, .small = 2};
static const struct oom_family_type mobilevit_types[] = {
	{"mobilevit", &v1}, {"mobilevitv2", &v2}, {NULL, NULL},
};

const struct oom_family oom_family_mobilevit = {
	.name = "mobilevit",
	.summary = "inverted residuals and transformer layers over unfolded maps",
	.source = "transformers 5.12 models/mobilevit/modeling_mobilevit.py",
	.types = mobilevit_types,
	.lora_targets = "all-linear",
	.keys = mobilevit_keys,
	.parse = mobilevit_parse,
	.step = mobilevit_step,
};
