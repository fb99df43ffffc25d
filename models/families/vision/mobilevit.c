/* MobileViT and MobileViT v2: inverted residuals, and blocks of transformer layers over the map
 * unfolded into patches. Reference: transformers 5.12,
 * models/{mobilevit,mobilevitv2}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "config/keys.h"
#include "mobilevit.h"

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
	static const uint64_t layers[MOBILEVIT_BLOCKS] = {2, 4, 3};
	struct oom_reader *r = &a->rd;
	struct mobilevit *c = mobilevit_own(a);

	oom_read_rows(a, v1_keys);
	memcpy(c->layers, layers, sizeof(layers));
	if (oom_read_counts(r, "neck_hidden_sizes", c->neck, MOBILEVIT_NECK) != MOBILEVIT_NECK ||
	    oom_read_counts(r, "hidden_sizes", c->hidden, MOBILEVIT_BLOCKS) != MOBILEVIT_BLOCKS)
		oom_read_fail(r, "neck_hidden_sizes must list %d counts and hidden_sizes %d",
			      MOBILEVIT_NECK,
			      MOBILEVIT_BLOCKS);
	memcpy(c->dim, c->neck, sizeof(c->dim));
	a->d_model = c->neck[MOBILEVIT_NECK - 1];
	for (int i = 0; i < MOBILEVIT_BLOCKS; i++)
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
	if (oom_read_counts(r, "base_attn_unit_dims", c->hidden,
			    MOBILEVIT_BLOCKS) != MOBILEVIT_BLOCKS ||
	    oom_read_counts(r, "n_attn_blocks", c->layers, MOBILEVIT_BLOCKS) != MOBILEVIT_BLOCKS)
		oom_read_fail(r, "base_attn_unit_dims and n_attn_blocks must list %d counts",
			      MOBILEVIT_BLOCKS);
	if (!(w > 0 && w <= 64)) {
		oom_read_fail(r, "width_multiplier out of range");
		return;
	}
	c->dim[0] = oom_make_divisible(fmax(16, fmin(64, 32 * w)), 8, 16);
	for (int i = 1; i < 6; i++)
		c->dim[i] = oom_make_divisible((double)base[i] * w, i == 1 ? 16 : 8,
					       i == 1 ? 16 : 8);
	for (int i = 0; i < MOBILEVIT_BLOCKS; i++)
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
	for (int i = 0; i < MOBILEVIT_BLOCKS; i++) {
		a->n_layers += c->layers[i];
		if (c->layers[i] > 256)
			oom_read_fail(r, "n_attn_blocks beyond 256");
	}
	if (!c->patch || c->patch > 256 || !c->kernel || c->kernel > 1024 ||
	    !(c->expand > 0 && c->expand <= 64) || !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "patch_size, conv_kernel_size, expand_ratio, mlp_ratio or "
				 "ffn_multiplier out of range");
}

struct oom_map mobilevit_conv_bn(struct oom_tape *t, struct oom_map m, struct oom_conv v,
				 enum oom_act act)
{
	v.pad = (v.kernel - 1) / 2 * (v.dilation ? v.dilation : 1);
	return oom_conv_bn_act(t, m, &v, act);
}

struct oom_map mobilevit_pointwise(struct oom_tape *t, struct oom_map m, uint64_t out,
				   enum oom_act act)
{
	return mobilevit_conv_bn(t, m, (struct oom_conv){.out = out, .kernel = 1}, act);
}

struct oom_map mobilevit_plain_conv(struct oom_tape *t, struct oom_map m, uint64_t out, bool bias)
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
	y = mobilevit_conv_bn(t, mobilevit_pointwise(t, m, wide, a->act), depthwise, a->act);
	y = mobilevit_pointwise(t, y, out, OOM_ACT_NONE);
	if (stride == 1 && m.c == out)
		y.x = oom_op_add(t, m.x, y.x);
	return oom_leave_map(&f, y);
}

/* ---- version 1: self-attention over the same place of every patch ---- */

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

	for (b.i = 0; b.i < MOBILEVIT_BLOCKS && !t->status; b.i++) {
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

	m = oom_name_map(&f, mobilevit_conv_bn(t, oom_pixels(t, a), stem, a->act));
	m = mobilevit_encoder(t, a, m);
	if (kind->neck)
		m = mobilevit_pointwise(t, oom_name_map(&f, m), a->d_model, a->act);
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
	.parse = v1_parse, .body = mobilevit_v1_body, .small = 3, .neck = true};
static const struct mobilevit_kind v2 = {.parse = v2_parse, .body = mobilevit_v2_body, .small = 2};
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
