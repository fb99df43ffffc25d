/* EfficientNet: inverted residuals with squeeze and excitation, scaled in width and depth.
 * Reference: transformers 5.12, models/efficientnet/modeling_efficientnet.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 16 };

struct efficientnet {
	uint64_t n, in[MAX_STAGES], out[MAX_STAGES], stride[MAX_STAGES], kernel[MAX_STAGES],
		expand[MAX_STAGES], repeat[MAX_STAGES];
	uint64_t divisor;
	double width, depth, squeeze, drop;
	bool mean;
	/* the blocks that are padded on all sides, one bit each */
	uint8_t all_sides[OOM_MAX_LAYERS / 8];
};
OOM_OWN(efficientnet, struct efficientnet);

static const struct oom_key_row efficientnet_keys[] = {
	OR(d_model, "hidden_dim", 2560), ACT(act, "hidden_act", "swish"),
	REAL(classifier_dropout, "dropout_rate", 0.5),
	OR_OWN(struct efficientnet, divisor, "depth_divisor", 8),
	REAL_OWN(struct efficientnet, width, "width_coefficient", 2),
	REAL_OWN(struct efficientnet, depth, "depth_coefficient", 3.1),
	REAL_OWN(struct efficientnet, squeeze, "squeeze_expansion_ratio", 0.25),
	REAL_OWN(struct efficientnet, drop, "drop_connect_rate", 0.2), OOM_KEYS_END};

static void read_stages(struct oom_reader *r, struct efficientnet *c)
{
	c->n = oom_read_counts(r, "in_channels", c->in, MAX_STAGES);
	if (oom_read_counts(r, "out_channels", c->out, MAX_STAGES) != c->n ||
	    oom_read_counts(r, "strides", c->stride, MAX_STAGES) != c->n ||
	    oom_read_counts(r, "kernel_sizes", c->kernel, MAX_STAGES) != c->n ||
	    oom_read_counts(r, "expand_ratios", c->expand, MAX_STAGES) != c->n ||
	    oom_read_counts(r, "num_block_repeats", c->repeat, MAX_STAGES) != c->n)
		oom_read_fail(r, "in_channels, out_channels, strides, kernel_sizes, expand_ratios "
				 "and num_block_repeats must "
				 "be as long as one another");
}

/* The list of numbers of blocks. */
static void read_padding(struct oom_reader *r, struct efficientnet *c)
{
	double x;

	for (uint32_t i = 0; (x = oom_read_item_real(r, "depthwise_padding", i, -1)) >= 0; i++)
		if (x < OOM_MAX_LAYERS && x == floor(x))
			c->all_sides[(uint32_t)x / 8] |= (uint8_t)(1 << (uint32_t)x % 8);
}

static void efficientnet_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct efficientnet *c = efficientnet_own(a);

	oom_read_image(a, 600);
	read_stages(r, c);
	read_padding(r, c);
	c->mean = strcmp(oom_read_string(r, "pooling_type", "mean"), "max") != 0;
	if (!(c->width > 0 && c->width <= 64) || !(c->depth > 0 && c->depth <= 64) ||
	    !(c->squeeze >= 0 && c->squeeze <= 64) || !c->divisor || c->divisor > 65536 ||
	    !a->d_model || a->d_model > 1 << 20) {
		oom_read_fail(r, "width_coefficient, depth_coefficient, squeeze_expansion_ratio, "
				 "depth_divisor or hidden_dim out "
				 "of range");
		return;
	}
	for (uint64_t i = 0; i < c->n; i++) {
		c->repeat[i] = (uint64_t)ceil(c->depth * (double)c->repeat[i]);
		a->n_layers += c->repeat[i];
		if (c->expand[i] > 64 || c->kernel[i] > 1024)
			oom_read_fail(r, "expand_ratios beyond 64 or kernel_sizes beyond 1024");
	}
	if (a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "more than %d blocks", OOM_MAX_LAYERS);
}

static uint64_t rounded(const struct efficientnet *c, uint64_t channels)
{
	return oom_make_divisible((double)channels * c->width, c->divisor, c->divisor);
}

static struct oom_map squeeze_excite(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
				     uint64_t in)
{
	const uint64_t reduced = (uint64_t)((double)in * efficientnet_of(a)->squeeze);
	const struct oom_conv reduce = {.out = reduced ? reduced : 1, .kernel = 1, .bias = true},
			      expand = {.out = m.c, .kernel = 1, .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_map p;

	m = oom_arg_map(&f, m);
	p = (struct oom_map){oom_global_pool(t, m), m.c, 1, 1};
	p = oom_map_act(t, a->act, oom_conv2d(t, "reduce", p, &reduce));
	p = oom_map_act(t, OOM_ACT_SIGMOID, oom_conv2d(t, "expand", p, &expand));
	m.x = oom_op_mul(t, m.x, p.x);
	return oom_leave_map(&f, m);
}

struct efficientnet_layer {
	const struct oom_arch *a;
	uint64_t out, stride, kernel, expand;
	double drop;
	bool first, all_sides;
};

static struct oom_map depthwise(struct oom_tape *t, const struct efficientnet_layer *b,
				struct oom_map m)
{
	const struct oom_conv conv = {.out = m.c, .kernel = b->kernel, .stride = b->stride,
				      .pad = b->stride == 2 ? 0 : b->kernel / 2, .groups = m.c};
	struct oom_frame f = {.t = t};

	m = oom_arg_map(&f, m);
	/* correct_pad: k / 2 on all sides, or one less at the near ones */
	if (b->stride == 2) {
		const uint64_t more = b->kernel / 2 * 2 - (b->all_sides ? 0 : 1);

		m = oom_pad_map(t, m, m.h + more, m.w + more);
	}
	m = oom_batch_norm(t, "depthwise_norm", oom_conv2d(t, "depthwise_conv", m, &conv));
	return oom_leave_map(&f, oom_map_act(t, b->a->act, m));
}

/* m is the caller's. */
static struct oom_map efficientnet_block(struct oom_tape *t, const struct efficientnet_layer *b,
					 struct oom_map m)
{
	const struct oom_arch *a = b->a;
	const struct oom_conv expand = {.out = m.c * b->expand, .kernel = 1},
			      project = {.out = b->out, .kernel = 1};
	struct oom_frame f = {.t = t};
	struct oom_map y = m;

	if (b->expand != 1)
		y = oom_conv_bn_act(t, y, &expand, a->act);
	y = squeeze_excite(t, a, depthwise(t, b, y), m.c);
	y = oom_name_map(&f, y);
	y = oom_batch_norm(t, "project_bn", oom_conv2d(t, "project_conv", y, &project));
	if (b->stride == 1 && !b->first)
		y.x = oom_op_add(t, oom_op_dropout(t, y.x, b->drop), m.x);
	return oom_leave_map(&f, y);
}

/* The blocks of a map that stays the caller's. */
static struct oom_map efficientnet_encoder(struct oom_tape *t, const struct oom_arch *a,
					   struct oom_map m)
{
	const struct efficientnet *c = efficientnet_of(a);
	struct oom_frame f = {.t = t};
	uint64_t k = 0;

	for (uint64_t i = 0; i < c->n; i++) {
		const uint64_t in = rounded(c, c->in[i]);
		struct efficientnet_layer b = {.a = a, .out = rounded(c, c->out[i]),
					       .stride = c->stride[i], .kernel = c->kernel[i],
					       .expand = c->expand[i], .first = true};

		if (m.c != in && !t->status)
			oom_tape_impossible(t, OOM_ERR_INVALID,
				      "in_channels.%llu gives %llu channels where %llu arrive",
				      (unsigned long long)i, (unsigned long long)in,
				      (unsigned long long)m.c);
		for (uint64_t j = 0; j < c->repeat[i] && !t->status; j++, k++) {
			b.drop = c->drop * (double)k / (double)a->n_layers;
			b.all_sides = c->all_sides[k / 8] >> k % 8 & 1;
			m = oom_rename_map(&f, m, efficientnet_block(t, &b, m));
			b.first = false;
			b.stride = 1;
		}
	}
	return oom_leave_map(&f, m);
}

static struct oom_map efficientnet_model(struct oom_tape *t, const struct oom_arch *a)
{
	const struct efficientnet *c = efficientnet_of(a);
	const struct oom_conv stem = {.out = rounded(c, 32), .kernel = 3, .stride = 2},
			      top = {.out = rounded(c, 1280), .kernel = 1};
	struct oom_frame f = {.t = t};
	struct oom_map m = oom_pixels(t, a);

	m = oom_conv2d(t, "convolution", oom_pad_map(t, m, m.h + 1, m.w + 1), &stem);
	m = oom_name_map(&f, oom_map_act(t, a->act, oom_batch_norm(t, "batchnorm", m)));
	m = oom_conv2d(t, "top_conv", efficientnet_encoder(t, a, m), &top);
	m = oom_batch_norm(t, "top_bn", oom_declared(t, m, a->d_model));
	return oom_leave_map(&f, oom_map_act(t, a->act, m));
}

static struct oom_val efficientnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_map m, p;

	oom_no_checkpointing(t);
	m = oom_name_map(&f, efficientnet_model(t, a));
	/* a window of hidden_dim places, ceil_mode: one result for any image that is smaller */
	p = efficientnet_of(a)->mean ? oom_avg_pool(t, m, m.h, m.h, 0) :
				       oom_max_pool(t, m, m.h, m.h, 0);
	p = oom_name_map(&f, p);                /* in the base model's output */
	p.x = oom_op_dropout(t, p.x, a->classifier_dropout);
	return oom_leave(&f, oom_image_loss(t, a, p.x));
}

const struct oom_family oom_family_efficientnet = {
	.name = "efficientnet",
	.summary = "inverted residuals with squeeze and excitation, scaled in width and depth",
	.source = "transformers 5.12 models/efficientnet/modeling_efficientnet.py",
	.types = OOM_TYPE("efficientnet"),
	.lora_targets = "all-linear",
	.keys = efficientnet_keys,
	.parse = efficientnet_parse,
	.step = efficientnet_step,
};
