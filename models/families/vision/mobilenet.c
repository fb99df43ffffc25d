/* MobileNet v1 and v2: depthwise and pointwise convolutions, each with batch norm and (mostly) an
 * activation. Reference: transformers 5.12, models/{mobilenet_v1,mobilenet_v2}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"

struct cfg {
	double multiplier, expand;
	uint64_t divisible, min_depth, output_stride;
	enum oom_act act;
	bool v2, tf, fine, first_expands;
};

static void read_cfg(struct oom_reader *r, const char *type, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->v2 = !strcmp(type, "mobilenet_v2");
	c->multiplier = oom_read_real(r, "depth_multiplier", 1);
	c->expand = oom_read_real(r, "expand_ratio", 6);
	c->divisible = oom_read_count_or(r, "depth_divisible_by", 8);
	c->min_depth = oom_read_count_or(r, "min_depth", 8);
	c->output_stride = oom_read_count_or(r, "output_stride", 32);
	c->act = oom_read_act(r, "hidden_act", "relu6");
	c->tf = oom_read_bool(r, "tf_padding", true);
	c->fine = oom_read_bool(r, "finegrained_output", true);
	c->first_expands = oom_read_bool(r, "first_layer_is_expansion", true);
	if (!(c->multiplier > 0 && c->multiplier <= 64) || !(c->expand > 0 && c->expand <= 64) ||
	    !c->divisible || c->divisible > 65536 || c->min_depth > 65536)
		oom_read_fail(r, "depth_multiplier, expand_ratio, depth_divisible_by or min_depth "
				 "out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, a->model_type, &c);
	a->classifier_dropout = oom_read_real(&a->rd, "classifier_dropout_prob", 0);
	a->n_layers = c.v2 ? 16 : 26;
}

static uint64_t scaled(const struct cfg *c, uint64_t channels)
{
	return oom_make_divisible(nearbyint((double)channels * c->multiplier), c->divisible,
			      c->min_depth);
}

/* TensorFlow's "same" padding along one side. */
static uint64_t padded(uint64_t n, uint64_t kernel, uint64_t stride, uint64_t dilation)
{
	const uint64_t rest = n % stride ? n % stride : stride;

	return n + (kernel > rest ? (kernel - rest) * dilation : 0);
}

/* Padding (a copy even where nothing is added), convolution, batch norm, activation; the caller
 * holds the input. */
static struct oom_map conv(struct oom_tape *t, const struct cfg *c, struct oom_map m, uint64_t out,
			   uint64_t kernel, uint64_t stride, uint64_t groups, uint64_t dilation,
			   bool act)
{
	const struct oom_conv v = {.out = out,
				   .kernel = kernel,
				   .stride = stride,
				   .groups = groups,
				   .dilation = dilation,
				   .pad = c->tf ? 0 : (kernel - 1) / 2 * dilation};
	struct oom_val held = oom_share(t, m.x);

	if (c->tf)
		m = oom_pad_map(t, m, padded(m.h, kernel, stride, dilation),
				padded(m.w, kernel, stride, dilation));
	m = oom_batch_norm(t, "normalization", oom_conv2d(t, "convolution", m, &v));
	if (act)
		m = oom_map_act(t, c->act, m);
	oom_drop(t, held);
	return m;
}

static struct oom_map v1(struct oom_tape *t, const struct cfg *c, struct oom_map m)
{
	static const uint8_t strides[] = {1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1};
	uint64_t depth = 32, out = (uint64_t)(32 * c->multiplier);

	out = out < c->min_depth ? c->min_depth : out;
	m = conv(t, c, m, out, 3, 2, 1, 1, true);
	for (size_t i = 0; i < sizeof(strides) && !t->status; i++) {
		if (strides[i] == 2 || !i) {
			depth *= 2;
			out = (uint64_t)((double)depth * c->multiplier);
			out = out < c->min_depth ? c->min_depth : out;
		}
		m = conv(t, c, m, m.c, 3, strides[i], m.c, 1, true);
		m = conv(t, c, m, out, 1, 1, 1, 1, true);
	}
	return m;
}

static struct oom_map inverted_residual(struct oom_tape *t, const struct cfg *c, struct oom_map m,
					uint64_t out, uint64_t stride, uint64_t dilation)
{
	const uint64_t wide = oom_make_divisible(nearbyint((double)m.c * c->expand), c->divisible,
					     c->min_depth);
	struct oom_map y;

	y = conv(t, c, oom_map_keep(m), wide, 1, 1, 1, 1, true);
	y = conv(t, c, y, wide, 3, stride, wide, dilation, true);
	y = conv(t, c, y, out, 1, 1, 1, 1, false);
	if (stride == 1 && m.c == out)
		y.x = oom_op_add(t, oom_keep(m.x), y.x);
	oom_drop(t, m.x);                       /* `residual`, and the model's loop variable */
	return y;
}

/* encoded: what went into the last convolution, a local of the model. */
static struct oom_map v2(struct oom_tape *t, const struct cfg *c, struct oom_map m,
			 struct oom_val *encoded)
{
	static const uint16_t channels[] = {16, 24, 24, 32, 32,	 32,  64,  64, 64,
					    64, 96, 96, 96, 160, 160, 160, 320};
	static const uint8_t strides[] = {2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1};
	const uint64_t stem = scaled(c, 32);
	uint64_t current = 2, dilation = 1;

	m = conv(t, c, m, stem, 3, 2, 1, 1, true);
	if (!c->first_expands)
		m = conv(t, c, m, stem, 1, 1, 1, 1, true);
	m = conv(t, c, m, stem, 3, 1, stem, 1, true);
	m = conv(t, c, m, scaled(c, channels[0]), 1, 1, 1, 1, false);
	for (size_t i = 0; i < sizeof(strides) && !t->status; i++) {
		/* dilated instead of smaller */
		const bool widen = current == c->output_stride;

		m = inverted_residual(t, c, m, scaled(c, channels[i + 1]), widen ? 1 : strides[i],
				      widen ? dilation : 1);
		if (widen)
			dilation *= strides[i];
		else
			current *= strides[i];
	}
	*encoded = oom_share(t, m.x);
	return conv(t, c, m, c->fine && c->multiplier < 1 ? 1280 : scaled(c, 1280), 1, 1, 1, 1,
		    true);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val pooled, encoded = oom_none();
	struct cfg c;

	read_cfg(&rd, a->model_type, &c);
	oom_no_checkpointing(t);
	m = c.v2 ? v2(t, &c, m, &encoded) : v1(t, &c, m);
	pooled = oom_global_pool(t, oom_map_keep(m));
	oom_drop(t, encoded);
	pooled = oom_op_dropout_inplace(t, pooled, a->classifier_dropout);
	return oom_image_head(t, a, pooled, m.x);
}

static const struct oom_family_type types[] = {
	{"mobilenet_v1", NULL}, {"mobilenet_v2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_mobilenet = {
	.name = "mobilenet",
	.summary = "depthwise separable convolutions and inverted residuals",
	.source = "transformers 5.12 models/mobilenet_v2/modeling_mobilenet_v2.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
