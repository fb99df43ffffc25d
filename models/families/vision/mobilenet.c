/* MobileNet v1 and v2: depthwise and pointwise convolutions, each with batch norm and (mostly) an
 * activation. Reference: transformers 5.12, models/{mobilenet_v1,mobilenet_v2}/modeling_*.py. */
#include <math.h>

#include "blocks/image.h"
#include "config/keys.h"

struct mobilenet {
	double multiplier, expand;
	uint64_t divisible, min_depth, output_stride;
	bool tf, fine, first_expands;
};
OOM_OWN(mobilenet, struct mobilenet);

/* What sets the types apart: the base model. */
struct mobilenet_kind {
	uint64_t n_layers;
	/* last_hidden_state and, in *pooled, pooler_output */
	struct oom_map (*model)(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				struct oom_val *pooled);
};

static const struct oom_key_row mobilenet_keys[] = {
	ACT(act, "hidden_act", "relu6"), REAL(classifier_dropout, "classifier_dropout_prob", 0),
	REAL_OWN(struct mobilenet, multiplier, "depth_multiplier", 1),
	REAL_OWN(struct mobilenet, expand, "expand_ratio", 6),
	OR_OWN(struct mobilenet, divisible, "depth_divisible_by", 8),
	OR_OWN(struct mobilenet, min_depth, "min_depth", 8),
	OR_OWN(struct mobilenet, output_stride, "output_stride", 32),
	FLAG_OWN(struct mobilenet, tf, "tf_padding", true),
	FLAG_OWN(struct mobilenet, fine, "finegrained_output", true),
	FLAG_OWN(struct mobilenet, first_expands, "first_layer_is_expansion", true), OOM_KEYS_END};

static void mobilenet_parse(struct oom_arch *a)
{
	const struct mobilenet_kind *kind = a->type->kind;
	const struct mobilenet *c = mobilenet_of(a);

	oom_read_image(a, 224);
	a->n_layers = kind->n_layers;
	if (!(c->multiplier > 0 && c->multiplier <= 64) || !(c->expand > 0 && c->expand <= 64) ||
	    !c->divisible || c->divisible > 65536 || c->min_depth > 65536)
		oom_read_fail(&a->rd, "depth_multiplier, expand_ratio, depth_divisible_by or "
				      "min_depth out of range");
}

static uint64_t scaled(const struct mobilenet *c, uint64_t channels)
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

/* Padding (a copy even where nothing is added), convolution, batch norm, activation. */
static struct oom_map mobilenet_conv(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				     struct oom_conv v, bool act)
{
	const bool tf = mobilenet_of(a)->tf;
	struct oom_frame f = {.t = t};

	v.dilation = v.dilation ? v.dilation : 1;
	v.stride = v.stride ? v.stride : 1;
	v.pad = tf ? 0 : (v.kernel - 1) / 2 * v.dilation;
	m = oom_arg_map(&f, m);
	if (tf)
		m = oom_pad_map(t, m, padded(m.h, v.kernel, v.stride, v.dilation),
				padded(m.w, v.kernel, v.stride, v.dilation));
	m = oom_batch_norm(t, "normalization", oom_conv2d(t, "convolution", m, &v));
	return oom_leave_map(&f, act ? oom_map_act(t, a->act, m) : m);
}

static struct oom_map pointwise(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				uint64_t out, bool act)
{
	return mobilenet_conv(t, a, m, (struct oom_conv){.out = out, .kernel = 1}, act);
}

static struct oom_map depthwise(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				uint64_t stride, uint64_t dilation)
{
	return mobilenet_conv(t, a, m,
			      (struct oom_conv){.out = m.c, .kernel = 3, .stride = stride,
						.groups = m.c, .dilation = dilation},
			      true);
}

static struct oom_map v1_model(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
			       struct oom_val *pooled)
{
	static const uint8_t strides[] = {1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1};
	const struct mobilenet *c = mobilenet_of(a);
	uint64_t depth = 32, out = (uint64_t)(32 * c->multiplier);
	struct oom_frame f = {.t = t};

	out = out < c->min_depth ? c->min_depth : out;
	m = mobilenet_conv(t, a, m, (struct oom_conv){.out = out, .kernel = 3, .stride = 2}, true);
	for (size_t i = 0; i < sizeof(strides) && !t->status; i++) {
		if (strides[i] == 2 || !i) {
			depth *= 2;
			out = (uint64_t)((double)depth * c->multiplier);
			out = out < c->min_depth ? c->min_depth : out;
		}
		m = pointwise(t, a, depthwise(t, a, m, strides[i], 1), out, true);
	}
	m = oom_name_map(&f, m);
	*pooled = oom_global_pool(t, m);
	return oom_leave_map(&f, m);
}

/* m is the caller's. */
static struct oom_map inverted_residual(struct oom_tape *t, const struct oom_arch *a,
					struct oom_map m, uint64_t out, uint64_t stride,
					uint64_t dilation)
{
	const struct mobilenet *c = mobilenet_of(a);
	const uint64_t wide = oom_make_divisible(nearbyint((double)m.c * c->expand), c->divisible,
						 c->min_depth);
	struct oom_map y = pointwise(t, a, m, wide, true);

	y = pointwise(t, a, depthwise(t, a, y, stride, dilation), out, false);
	if (stride == 1 && m.c == out)
		y.x = oom_op_add(t, m.x, y.x);
	return y;
}

static struct oom_map v2_stem(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const struct mobilenet *c = mobilenet_of(a);
	const uint64_t stem = scaled(c, 32);

	m = mobilenet_conv(t, a, m, (struct oom_conv){.out = stem, .kernel = 3, .stride = 2}, true);
	if (!c->first_expands)
		m = pointwise(t, a, m, stem, true);
	return pointwise(t, a, depthwise(t, a, m, 1, 1), scaled(c, 16), false);
}

static struct oom_map v2_model(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
			       struct oom_val *pooled)
{
	static const uint16_t channels[] = {24, 24, 32, 32, 32,	 64,  64,  64,
					    64, 96, 96, 96, 160, 160, 160, 320};
	static const uint8_t strides[] = {2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1};
	const struct mobilenet *c = mobilenet_of(a);
	uint64_t current = 2, dilation = 1;
	struct oom_frame f = {.t = t};

	m = oom_name_map(&f, v2_stem(t, a, m));
	for (size_t i = 0; i < sizeof(strides) && !t->status; i++) {
		/* dilated instead of smaller */
		const bool widen = current == c->output_stride;

		m = oom_rename_map(&f, m,
				   inverted_residual(t, a, m, scaled(c, channels[i]),
						     widen ? 1 : strides[i],
						     widen ? dilation : 1));
		if (widen)
			dilation *= strides[i];
		else
			current *= strides[i];
	}
	/* the last convolution's input stays the encoder's name */
	m = pointwise(t, a, m, c->fine && c->multiplier < 1 ? 1280 : scaled(c, 1280), true);
	m = oom_name_map(&f, m);
	*pooled = oom_global_pool(t, m);
	return oom_leave_map(&f, m);
}

static struct oom_val mobilenet_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct mobilenet_kind *kind = a->type->kind;
	struct oom_frame f = {.t = t};
	struct oom_val pooled = oom_none();
	struct oom_map m;

	oom_no_checkpointing(t);
	m = kind->model(t, a, oom_pixels(t, a), &pooled);
	oom_name(&f, m.x);                      /* in the base model's output */
	pooled = oom_op_dropout_inplace(t, pooled, a->classifier_dropout);
	return oom_leave(&f, oom_image_loss(t, a, pooled));
}

static const struct mobilenet_kind v1 = {.n_layers = 26, .model = v1_model};
static const struct mobilenet_kind v2 = {.n_layers = 16, .model = v2_model};
static const struct oom_family_type mobilenet_types[] = {
	{"mobilenet_v1", &v1}, {"mobilenet_v2", &v2}, {NULL, NULL},
};

const struct oom_family oom_family_mobilenet = {
	.name = "mobilenet",
	.summary = "depthwise separable convolutions and inverted residuals",
	.source = "transformers 5.12 models/mobilenet_v2/modeling_mobilenet_v2.py",
	.types = mobilenet_types,
	.lora_targets = "all-linear",
	.keys = mobilenet_keys,
	.parse = mobilenet_parse,
	.step = mobilenet_step,
};
