/* MobileViT and MobileViT v2: inverted residuals, and blocks of transformer layers over the map
 * unfolded into patches. Reference: transformers 5.12,
 * models/{mobilevit,mobilevitv2}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"

enum { BLOCKS = 3, NECK = 7 };

struct cfg {
	uint64_t neck[NECK], hidden[BLOCKS], layers[BLOCKS], heads, patch, kernel, output_stride,
		dim[6];
	double expand, ratio;
	enum oom_act act;
	bool v2, qkv_bias;
};

static void read_v1(struct oom_reader *r, struct cfg *c)
{
	static const uint64_t layers[BLOCKS] = {2, 4, 3};

	memcpy(c->layers, layers, sizeof(layers));
	if (oom_read_counts(r, "neck_hidden_sizes", c->neck, NECK) != NECK ||
	    oom_read_counts(r, "hidden_sizes", c->hidden, BLOCKS) != BLOCKS)
		oom_read_fail(r, "neck_hidden_sizes must list %d counts and hidden_sizes %d", NECK,
			      BLOCKS);
	c->heads = oom_read_count_or(r, "num_attention_heads", 4);
	c->ratio = oom_read_real(r, "mlp_ratio", 2);
	c->qkv_bias = oom_read_bool(r, "qkv_bias", true);
	for (int i = 0; i < 6; i++)
		c->dim[i] = c->neck[i];
	for (int i = 0; i < BLOCKS; i++)
		if (c->hidden[i] > 65536 || !c->heads || c->heads > c->hidden[i])
			oom_read_fail(r, "num_attention_heads or hidden_sizes out of range");
}

static void read_v2(struct oom_reader *r, struct cfg *c)
{
	static const uint64_t base[6] = {32, 64, 128, 256, 384, 512};
	const double w = oom_read_real(r, "width_multiplier", 1);

	if (oom_read_counts(r, "base_attn_unit_dims", c->hidden, BLOCKS) != BLOCKS ||
	    oom_read_counts(r, "n_attn_blocks", c->layers, BLOCKS) != BLOCKS)
		oom_read_fail(r, "base_attn_unit_dims and n_attn_blocks must list %d counts",
			      BLOCKS);
	c->ratio = oom_read_real(r, "ffn_multiplier", 2);
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
}

static void read_cfg(struct oom_reader *r, const char *type, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->v2 = !strcmp(type, "mobilevitv2");
	c->patch = oom_read_count_or(r, "patch_size", 2);
	c->kernel = oom_read_count_or(r, "conv_kernel_size", 3);
	c->output_stride = oom_read_count_or(r, "output_stride", 32);
	c->expand = oom_read_real(r, "expand_ratio", c->v2 ? 2 : 4);
	c->act = oom_read_act(r, "hidden_act", "silu");
	if (c->v2)
		read_v2(r, c);
	else
		read_v1(r, c);
	for (int i = 0; i < BLOCKS; i++)
		if (c->layers[i] > 256)
			oom_read_fail(r, "n_attn_blocks beyond 256");
	if (!c->patch || c->patch > 256 || !c->kernel || c->kernel > 1024 ||
	    !(c->expand > 0 && c->expand <= 64) || !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "patch_size, conv_kernel_size, expand_ratio or mlp_ratio out of "
				 "range");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct cfg c;

	oom_read_image(a, 256);
	read_cfg(r, a->model_type, &c);
	a->dropout = oom_read_real(r, c.v2 ? "ffn_dropout" : "hidden_dropout_prob", c.v2 ? 0 : 0.1);
	a->attn_dropout = oom_read_real(r, c.v2 ? "attn_dropout" : "attention_probs_dropout_prob",
					0);
	a->classifier_dropout = c.v2 ? 0 : oom_read_real(r, "classifier_dropout_prob", 0.1);
	a->n_layers = c.layers[0] + c.layers[1] + c.layers[2];
	a->d_model = c.v2 ? c.dim[5] : c.neck[6];
}

static struct oom_map conv_bn(struct oom_tape *t, struct oom_map m, uint64_t out, uint64_t kernel,
			      uint64_t stride, uint64_t groups, uint64_t dilation, enum oom_act act)
{
	return oom_conv_bn_act(t, m,
			       &(struct oom_conv){.out = out,
						  .kernel = kernel,
						  .stride = stride,
						  .groups = groups,
						  .dilation = dilation,
						  .pad = (kernel - 1) / 2 * dilation},
			       act);
}

static struct oom_map plain_conv(struct oom_tape *t, struct oom_map m, uint64_t out, bool bias)
{
	return oom_conv2d(t, "convolution", m,
			  &(struct oom_conv){.out = out, .kernel = 1, .bias = bias});
}

static struct oom_map inverted_residual(struct oom_tape *t, const struct cfg *c, struct oom_map m,
					uint64_t out, uint64_t stride, uint64_t dilation)
{
	const uint64_t wide = oom_make_divisible(nearbyint((double)m.c * c->expand), 8, 8);
	struct oom_map y;

	y = conv_bn(t, oom_map_keep(m), wide, 1, 1, 1, 1, c->act);
	y = conv_bn(t, y, wide, 3, stride, wide, dilation, c->act);
	y = conv_bn(t, y, out, 1, 1, 1, 1, OOM_ACT_NONE);
	if (stride == 1 && m.c == out && !t->status)
		y.x = oom_op_add(t, oom_keep(m.x), y.x);
	oom_done(t, m.x);
	return y;
}

/* ---- version 1: self-attention over the same place of every patch ---- */

struct tokens {
	uint64_t d, area, patches;
};

static struct oom_val v1_layer(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			       const struct tokens *k, struct oom_val x)
{
	const struct oom_dim d = {k->d, "hidden_size"},
			     ff = {(uint64_t)((double)k->d * c->ratio), "intermediate"};
	struct oom_attn at = oom_attn_over(t, a, c->heads, k->d, k->area * k->patches, k->patches);
	struct oom_val arg = oom_share(t, x), q, kk, v, y, held;
	struct oom_val normed = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true,
						  true);

	at.mk = at.mq;
	q = oom_project_heads(t, "query", oom_keep(normed), k->d, c->qkv_bias, c->heads);
	kk = oom_project_heads(t, "key", oom_keep(normed), k->d, c->qkv_bias, c->heads);
	v = oom_project_heads(t, "value", oom_keep(normed), k->d, c->qkv_bias, c->heads);
	y = oom_op_linear(t, "dense", oom_written_attention(t, &at, q, kk, v, NULL, NULL), d,
			  OOM_BIAS);
	y = oom_op_dropout(t, y, a->dropout);
	oom_drop(t, normed);
	held = oom_share(t, y);                 /* attention_output */
	x = oom_op_add(t, y, x);
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = oom_activation(t, c->act, oom_op_linear(t, "dense", y, ff, OOM_BIAS));
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, d, OOM_BIAS), a->dropout);
	x = oom_op_add(t, y, x);
	oom_drop(t, held);
	oom_drop(t, arg);
	return x;
}

/* Two permuted copies each way; an interpolation when the map holds no whole number of patches. */
static struct oom_val refold(struct oom_tape *t, struct oom_val x, uint16_t m, struct oom_dim width,
			     bool resize)
{
	if (resize)
		x = oom_op_expand_copy(t, x, m, width);
	x = oom_op_expand_copy(t, x, m, width);
	return oom_op_expand_copy(t, x, m, width);
}

static struct oom_map v1_body(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			      uint64_t i, struct oom_map m)
{
	const uint64_t h = (m.h + c->patch - 1) / c->patch, w = (m.w + c->patch - 1) / c->patch;
	const struct tokens k = {c->hidden[i], c->patch * c->patch, h * w};
	const uint16_t mt = oom_mono_mul(t, oom_tokens_of(t, k.area), oom_length_of(t, k.patches));
	const bool resize = h * c->patch != m.h || w * c->patch != m.w;
	const struct oom_dim d = {k.d, "hidden_size"};
	struct oom_map residual = m, y;
	struct oom_val x, held[2], part;

	y = conv_bn(t, oom_map_keep(m), m.c, c->kernel, 1, 1, 1, c->act);
	y = plain_conv(t, y, k.d, false);
	if (t->status)
		return m;
	held[0] = oom_share(t, y.x);            /* features */
	x = refold(t, y.x, mt, d, resize);
	held[1] = oom_share(t, x);
	for (uint64_t j = 0; j < c->layers[i] && !t->status; j++)
		x = v1_layer(t, a, c, &k, x);
	oom_drop(t, held[1]);
	x = oom_op_layer_norm(t, "layernorm", x, 0, true, true);
	held[1] = oom_share(t, x);              /* patches, until the block returns */
	x = oom_op_expand_copy(t, oom_op_expand_copy(t, x, mt, d), mt, d);
	if (resize)
		x = oom_op_expand_copy(t, x, t->m_b, (struct oom_dim){k.d * m.h * m.w, NULL});
	oom_drop(t, held[0]);
	y = (struct oom_map){oom_op_view(t, x, t->m_b, (struct oom_dim){k.d * m.h * m.w, NULL}),
			     k.d, m.h, m.w};
	y = conv_bn(t, y, m.c, 1, 1, 1, 1, c->act);
	part = y.x;                             /* features, until the block returns */
	y = oom_cat_maps(t, (struct oom_map[]){oom_map_keep(residual), oom_map_keep(y)}, 2);
	y = conv_bn(t, y, m.c, c->kernel, 1, 1, 1, c->act);
	oom_drop(t, part);
	oom_drop(t, held[1]);
	oom_drop(t, residual.x);
	return y;
}

/* ---- version 2: separable attention, linear in the number of patches ---- */

static struct oom_map v2_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const uint16_t mt = oom_mono_mul(t, oom_tokens_of(t, m.h), oom_length_of(t, m.w)),
		       ma = oom_tokens_of(t, m.h);
	const struct oom_dim d = {m.c, "embed_dim"}, widths[3] = {D(1), d, d};
	struct oom_map y = plain_conv(t, m, 1 + 2 * m.c, true);
	struct oom_val part[3], qkv, scores, context, x;

	if (t->status)
		return m;
	qkv = oom_op_view(t, y.x, mt, (struct oom_dim){1 + 2 * m.c, "1 + 2 * embed_dim"});
	oom_op_split(t, oom_keep(qkv), 3, widths, part);
	scores = oom_op_dropout(t, oom_op_softmax(t, oom_keep(part[0]), false), a->attn_dropout);
	context = oom_op_mul(t, oom_keep(part[1]), oom_keep(scores));
	context = oom_op_sum(t, context, ma, d);
	x = oom_op_mul(t, oom_op_unary(t, OOM_RELU, oom_keep(part[2])),
		       oom_op_expand(t, oom_keep(context), mt, d));
	x = oom_op_view(t, x, t->m_b, (struct oom_dim){m.c * m.h * m.w, NULL});
	y = plain_conv(t, (struct oom_map){oom_keep(x), m.c, m.h, m.w}, m.c, true);
	oom_drop_all(t, (struct oom_val[]){qkv, part[0], part[1], part[2], scores, context, x}, 7);
	return y;
}

static struct oom_map v2_layer(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			       struct oom_map m)
{
	const uint64_t d = m.c, ff = (uint64_t)(c->ratio * (double)d) / 16 * 16;
	struct oom_val arg = oom_share(t, m.x), held[2];
	struct oom_map y = oom_group_norm(t, "layernorm_before", oom_map_keep(m), 1);

	held[0] = oom_share(t, y.x);            /* layernorm_1_out, attention_output */
	y = v2_attention(t, a, y);
	held[1] = oom_share(t, y.x);
	if (t->status)
		return m;
	m.x = oom_op_add(t, y.x, m.x);
	y = oom_group_norm(t, "layernorm_after", oom_map_keep(m), 1);
	{
		struct oom_val normed = oom_share(t, y.x);

		y = oom_map_act(t, c->act, plain_conv(t, y, ff, true));
		if (!t->status)
			y.x = oom_op_dropout(t, y.x, a->dropout);
		y = plain_conv(t, y, d, true);
		oom_drop(t, normed);
	}
	if (t->status)
		return m;
	m.x = oom_op_add(t, oom_op_dropout(t, y.x, a->dropout), m.x);
	oom_drop_all(t, held, 2);
	oom_drop(t, arg);
	return m;
}

static struct oom_map v2_body(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			      uint64_t i, struct oom_map m)
{
	const uint64_t area = c->patch * c->patch, patches = m.h / c->patch * (m.w / c->patch),
		       in = m.c, h = m.h, w = m.w;
	struct oom_val features, held;

	m = conv_bn(t, m, in, c->kernel, 1, in, 1, c->act);
	m = plain_conv(t, m, c->hidden[i], false);
	if (t->status)
		return m;
	features = oom_share(t, m.x);
	/* unfold */
	m.x = oom_op_expand_copy(t, m.x, t->m_b, (struct oom_dim){m.c * area * patches, NULL});
	m.h = area;
	m.w = patches;
	held = oom_share(t, m.x);
	for (uint64_t j = 0; j < c->layers[i] && !t->status; j++)
		m = v2_layer(t, a, c, m);
	oom_drop(t, held);
	m = oom_group_norm(t, "layernorm", m, 1);
	if (t->status)
		return m;
	held = oom_share(t, m.x);               /* patches */
	/* fold */
	m.x = oom_op_expand_copy(t, m.x, t->m_b, (struct oom_dim){m.c * h * w, NULL});
	m.h = h;
	m.w = w;
	oom_drop(t, features);
	m = conv_bn(t, m, in, 1, 1, 1, 1, OOM_ACT_NONE);
	oom_drop(t, held);
	return m;
}

/* ---- the network ---- */

/* A block of layers 3 to 5, the unit of checkpointing. */
struct body {
	const struct oom_arch *a;
	struct cfg c;
	uint64_t i, in, h, w, out, dilation;
};

static struct oom_map body_map(struct oom_tape *t, const struct body *b, struct oom_val x)
{
	struct oom_map m = {x, b->in, b->h, b->w};

	m = inverted_residual(t, &b->c, m, b->out, b->dilation == 1 ? 2 : 1,
			      b->dilation > 1 ? b->dilation / 2 : 1);
	if (t->status)
		return m;
	return b->c.v2 ? v2_body(t, b->a, &b->c, b->i, m) : v1_body(t, b->a, &b->c, b->i, m);
}

static struct oom_val body_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	struct oom_val arg = oom_share(t, x);

	(void)i;
	x = body_map(t, ctx, x).x;
	oom_drop(t, arg);
	return x;
}

static struct oom_map bodies(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			     struct oom_map m)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad;
	uint64_t dilation = 1;

	for (uint64_t i = 0; i < BLOCKS && !t->status; i++) {
		struct body b = {.a = a,
				 .c = *c,
				 .i = i,
				 .in = m.c,
				 .h = m.h,
				 .w = m.w,
				 .out = c->dim[3 + i]};
		const void *ctx;

		if ((i == 1 && c->output_stride == 8) ||
		    (i == 2 && (c->output_stride == 8 || c->output_stride == 16)))
			dilation *= 2;
		b.dilation = dilation;
		ctx = oom_layer_ctx(t, &b, sizeof(b));
		if (!ctx)
			break;
		m.x = ckpt ? oom_layer_alone(t, (uint32_t)i, body_block, ctx, m.x) :
			     body_block(t, ctx, (uint32_t)i, m.x);
		if (dilation == 1) {
			m.h = (m.h + 1) / 2;
			m.w = (m.w + 1) / 2;
		}
		m.c = b.out;
	}
	return m;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val embedding, pooled, encoded = oom_none();
	struct cfg c;

	read_cfg(&rd, a->model_type, &c);
	m = conv_bn(t, m, c.dim[0], 3, 2, 1, 1, c.act);
	embedding = oom_share(t, m.x);          /* a local of the model */
	m = inverted_residual(t, &c, m, c.dim[1], 1, 1);
	for (int i = 0; i < (c.v2 ? 2 : 3) && !t->status; i++)
		m = inverted_residual(t, &c, m, c.dim[2], i ? 1 : 2, 1);
	if (!t->status)
		m = bodies(t, a, &c, m);
	if (!c.v2) {
		encoded = oom_share(t, m.x);
		m = conv_bn(t, m, c.neck[6], 1, 1, 1, 1, c.act);
	}
	if (t->status)
		return m.x;
	pooled = oom_global_pool(t, oom_map_keep(m));
	oom_drop(t, embedding);
	oom_drop(t, encoded);
	pooled = oom_op_dropout_inplace(t, pooled, a->classifier_dropout);
	return oom_image_head(t, a, pooled, m.x);
}

static const struct oom_family_type types[] = {
	{"mobilevit", NULL}, {"mobilevitv2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_mobilevit = {
	.name = "mobilevit",
	.summary = "inverted residuals and transformer layers over unfolded maps",
	.source = "transformers 5.12 models/mobilevit/modeling_mobilevit.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
