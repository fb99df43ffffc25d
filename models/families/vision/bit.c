/* BiT (Big Transfer): residual bottlenecks with group norms and standardised weights.
 * Reference: transformers 5.12, models/bit/modeling_bit.py. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8 };

struct bit {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], embed, groups, output_stride;
	double width, drop;
	bool bottleneck, same, valid, dynamic_pool;
};
OOM_OWN(bit, struct bit);

static const struct oom_key_row bit_keys[] = {
	OR_OWN(struct bit, embed, "embedding_size", 64),
	OR_OWN(struct bit, groups, "num_groups", 32),
	OR_OWN(struct bit, output_stride, "output_stride", 32),
	REAL_OWN(struct bit, width, "width_factor", 1),
	REAL_OWN(struct bit, drop, "drop_path_rate", 0), ACT(act, "hidden_act", "relu"),
	FLAG_OWN(struct bit, dynamic_pool, "embedding_dynamic_padding", false), OOM_KEYS_END};

static void bit_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *pad = oom_read_string(r, "global_padding", NULL);
	struct bit *c = bit_own(a);

	oom_read_image(a, 224);
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) != c->n)
		oom_read_fail(r, "depths and hidden_sizes must list as many stages");
	c->bottleneck = !strcmp(oom_read_string(r, "layer_type", "preactivation"), "bottleneck");
	c->same = pad && !strcasecmp(pad, "same");
	c->valid = pad && !strcasecmp(pad, "valid");
	for (uint64_t i = 0; i < c->n; i++)
		a->n_layers += c->depth[i];
	a->d_model = c->n ? c->c[c->n - 1] : 1;
	if (a->n_layers > OOM_MAX_LAYERS || !c->groups || !(c->width > 0 && c->width <= 64) ||
	    c->embed > 1 << 16)
		oom_read_fail(r, "depths, num_groups, width_factor or embedding_size out of range");
	else if (c->width != 1)                 /* BitModel.norm has the channels of width 1 */
		oom_warn(a, "bit: its last norm does not follow width_factor: no step runs so.");
}

/* TensorFlow's "same" size: ceil(n / stride) windows. */
static uint64_t same_side(uint64_t n, uint64_t kernel, uint64_t stride, uint64_t dilation)
{
	const uint64_t need = ((n + stride - 1) / stride - 1) * stride + (kernel - 1) * dilation +
			      1;

	return need > n ? need : n;
}

static struct oom_map bit_conv(struct oom_tape *t, const struct bit *c, struct oom_map m,
			       uint64_t out, uint64_t kernel, uint64_t stride, uint64_t dilation)
{
	struct oom_conv v = {.out = out, .kernel = kernel, .stride = stride, .dilation = dilation,
			     .standardized = true,
			     .pad = c->valid ? 0 : (stride - 1 + dilation * (kernel - 1)) / 2};

	if (c->same && !(stride == 1 && dilation * (kernel - 1) % 2 == 0)) {
		const uint64_t h = same_side(m.h, kernel, stride, dilation),
			       w = same_side(m.w, kernel, stride, dilation);

		v.pad = 0;
		if (h > m.h || w > m.w)
			m = oom_pad_map(t, m, h, w);
	}
	return oom_conv2d(t, "conv", m, &v);
}

static struct oom_map bit_norm(struct oom_tape *t, const struct oom_arch *a, struct oom_map m,
			       bool act)
{
	struct oom_frame f = {.t = t};

	m = oom_group_norm(t, "norm", oom_arg_map(&f, m), bit_of(a)->groups);
	return oom_leave_map(&f, act ? oom_map_act(t, a->act, m) : m);
}

struct bit_layer {
	const struct oom_arch *a;
	uint64_t out, mid, stride, dilation;
	bool first, drop;
};

/* norm, convolution three times over, on what the first norm has made */
static struct oom_map bit_preactivation(struct oom_tape *t, const struct bit_layer *b,
					struct oom_map m)
{
	const struct bit *c = bit_of(b->a);
	struct oom_frame f = {.t = t};
	struct oom_map pre = oom_name_map(&f, bit_norm(t, b->a, m, true)), shortcut = m, y;

	if (b->first)
		shortcut = bit_conv(t, c, pre, b->out, 1, b->stride, 1);
	y = bit_conv(t, c, pre, b->mid, 1, 1, 1);
	y = bit_conv(t, c, bit_norm(t, b->a, y, true), b->mid, 3, b->stride, 1);
	y = bit_conv(t, c, bit_norm(t, b->a, y, true), b->out, 1, 1, 1);
	if (b->drop)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, y.x, shortcut.x);
	return oom_leave_map(&f, y);
}

static struct oom_map bit_bottleneck(struct oom_tape *t, const struct bit_layer *b,
				     struct oom_map m)
{
	const struct bit *c = bit_of(b->a);
	struct oom_frame f = {.t = t};
	struct oom_map shortcut = m, y;

	if (b->first) {
		shortcut = bit_conv(t, c, m, b->out, 1, b->stride, 1);
		shortcut = oom_name_map(&f, bit_norm(t, b->a, shortcut, false));
	}
	y = bit_norm(t, b->a, bit_conv(t, c, m, b->mid, 1, 1, 1), true);
	y = bit_norm(t, b->a, bit_conv(t, c, y, b->mid, 3, b->stride, b->dilation), true);
	y = bit_norm(t, b->a, bit_conv(t, c, y, b->out, 1, 1, 1), false);
	if (b->drop)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, y.x, shortcut.x);
	return oom_leave_map(&f, oom_map_act(t, b->a->act, y));
}

/* Stage i, whose input is its caller's: its first layer strides, unless dilation does. */
static struct oom_map bit_stage(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				uint64_t stride, uint64_t dilation, struct oom_map m)
{
	const struct bit *c = bit_of(a);
	const uint64_t out = oom_make_divisible((double)c->c[i] * c->width, 8, 8);
	struct bit_layer b = {.a = a, .out = out,
			      .mid = oom_make_divisible((double)out * 0.25, 8, 8), .stride = stride,
			      .dilation = dilation <= 2 ? 1 : 2, .first = true,
			      .drop = c->drop > 0 && i};
	struct oom_frame f = {.t = t};

	for (uint64_t j = 0; j < c->depth[i] && !t->status; j++) {
		m = oom_rename_map(&f, m, c->bottleneck ? bit_bottleneck(t, &b, m) :
							  bit_preactivation(t, &b, m));
		b.stride = 1;
		b.dilation = dilation;
		b.first = false;
		b.drop = c->drop > 0;
	}
	return oom_leave_map(&f, m);
}

static struct oom_map bit_encoder(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const struct bit *c = bit_of(a);
	uint64_t current = 4, dilation = 1;
	struct oom_frame f = {.t = t};

	/* embedding_output, and the loop's variable */
	m = oom_name_map(&f, oom_arg_map(&f, m));
	for (uint64_t i = 0; i < c->n && !t->status; i++) {
		uint64_t stride = i ? 2 : 1;

		if (current >= c->output_stride) {
			dilation *= stride;
			stride = 1;
		}
		current *= stride;
		m = oom_rename_map(&f, m, bit_stage(t, a, i, stride, dilation, m));
	}
	return oom_leave_map(&f, m);
}

static struct oom_map bit_stem(struct oom_tape *t, const struct oom_arch *a, struct oom_map m)
{
	const struct bit *c = bit_of(a);

	m = bit_conv(t, c, m, c->embed, 7, 2, 1);
	if (!c->same)
		m = oom_pad_map(t, m, m.h + 2, m.w + 2);
	if (c->bottleneck)
		m = bit_norm(t, a, m, true);
	if (c->dynamic_pool)
		m = oom_pad_map(t, m, same_side(m.h, 3, 2, 1), same_side(m.w, 3, 2, 1));
	return oom_max_pool(t, m, 3, 2, 0);
}

static struct oom_val bit_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_map m;

	oom_no_checkpointing(t);
	m = bit_encoder(t, a, bit_stem(t, a, oom_pixels(t, a)));
	if (!bit_of(a)->bottleneck)
		m = bit_norm(t, a, m, true);
	m = oom_name_map(&f, m);
	return oom_leave(&f, oom_image_loss(t, a, oom_global_pool(t, m)));
}

const struct oom_family oom_family_bit = {
	.name = "bit",
	.summary = "residual bottlenecks with group norms and standardised weights",
	.source = "transformers 5.12 models/bit/modeling_bit.py",
	.types = OOM_TYPE("bit"),
	.lora_targets = "all-linear",
	.keys = bit_keys,
	.parse = bit_parse,
	.step = bit_step,
};
