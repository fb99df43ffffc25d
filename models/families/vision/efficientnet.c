/* EfficientNet: inverted residuals with squeeze and excitation, scaled in width and depth.
 * Reference: transformers 5.12, models/efficientnet/modeling_efficientnet.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"

enum { MAX_BLOCKS = 16 };

struct cfg {
	uint64_t n, in[MAX_BLOCKS], out[MAX_BLOCKS], stride[MAX_BLOCKS], kernel[MAX_BLOCKS],
		expand[MAX_BLOCKS], repeat[MAX_BLOCKS];
	uint64_t divisor, hidden, blocks;
	double width, depth, squeeze, drop;
	enum oom_act act;
	bool mean;
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "in_channels", c->in, MAX_BLOCKS);
	if (oom_read_counts(r, "out_channels", c->out, MAX_BLOCKS) != c->n ||
	    oom_read_counts(r, "strides", c->stride, MAX_BLOCKS) != c->n ||
	    oom_read_counts(r, "kernel_sizes", c->kernel, MAX_BLOCKS) != c->n ||
	    oom_read_counts(r, "expand_ratios", c->expand, MAX_BLOCKS) != c->n ||
	    oom_read_counts(r, "num_block_repeats", c->repeat, MAX_BLOCKS) != c->n)
		oom_read_fail(r, "in_channels, out_channels, strides, kernel_sizes, expand_ratios "
				 "and num_block_repeats must "
				 "be as long as one another");
	c->divisor = oom_read_count_or(r, "depth_divisor", 8);
	c->hidden = oom_read_count_or(r, "hidden_dim", 2560);
	c->width = oom_read_real(r, "width_coefficient", 2);
	c->depth = oom_read_real(r, "depth_coefficient", 3.1);
	c->squeeze = oom_read_real(r, "squeeze_expansion_ratio", 0.25);
	c->drop = oom_read_real(r, "drop_connect_rate", 0.2);
	c->act = oom_read_act(r, "hidden_act", "swish");
	c->mean = strcmp(oom_read_string(r, "pooling_type", "mean"), "max") != 0;
	if (!(c->width > 0 && c->width <= 64) || !(c->depth > 0 && c->depth <= 64) ||
	    !(c->squeeze >= 0 && c->squeeze <= 64) || !c->divisor || c->divisor > 65536 ||
	    !c->hidden || c->hidden > 1 << 20) {
		oom_read_fail(r, "width_coefficient, depth_coefficient, squeeze_expansion_ratio, "
				 "depth_divisor or hidden_dim out "
				 "of range");
		c->n = 0;
	}
	for (uint64_t i = 0; i < c->n; i++) {
		c->repeat[i] = (uint64_t)ceil(c->depth * (double)c->repeat[i]);
		c->blocks += c->repeat[i];
		if (c->expand[i] > 64 || c->kernel[i] > 1024)
			oom_read_fail(r, "expand_ratios beyond 64 or kernel_sizes beyond 1024");
	}
	if (c->blocks > OOM_MAX_LAYERS)
		oom_read_fail(r, "more than %d blocks", OOM_MAX_LAYERS);
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 600);
	read_cfg(&a->rd, &c);
	a->classifier_dropout = oom_read_real(&a->rd, "dropout_rate", 0.5);
	a->n_layers = c.blocks;
	a->d_model = c.hidden;
	(void)oom_read_key(&a->rd, "depthwise_padding");
}

static uint64_t rounded(const struct cfg *c, uint64_t channels)
{
	const double x = (double)channels * c->width;
	uint64_t n = (uint64_t)(x + (double)c->divisor / 2) / c->divisor * c->divisor;

	if (n < c->divisor)
		n = c->divisor;
	return (double)n < 0.9 * x ? n + c->divisor : n;
}

/* Is this block's number in depthwise_padding?  Those are padded on all sides. */
static bool listed(struct oom_reader *r, uint64_t block)
{
	for (uint32_t i = 0;; i++) {
		const double x = oom_read_item_real(r, "depthwise_padding", i, -1);

		if (x < 0)
			return false;
		if (x == (double)block)
			return true;
	}
}

static struct oom_map squeeze_excite(struct oom_tape *t, const struct cfg *c, struct oom_map m,
				     uint64_t in)
{
	const uint64_t reduced = (uint64_t)((double)in * c->squeeze);
	struct oom_map p = {oom_global_pool(t, oom_map_keep(m)), m.c, 1, 1};

	p = oom_conv2d(t, "reduce", p,
		       &(struct oom_conv){.out = reduced ? reduced : 1, .kernel = 1, .bias = true});
	p = oom_map_act(t, c->act, p);
	p = oom_conv2d(t, "expand", p, &(struct oom_conv){.out = m.c, .kernel = 1, .bias = true});
	p = oom_map_act(t, OOM_ACT_SIGMOID, p);
	m.x = oom_op_mul(t, m.x, p.x);
	return m;
}

struct block {
	uint64_t out, stride, kernel, expand;
	double drop;
	bool first, all_sides;
};

static struct oom_map run(struct oom_tape *t, const struct cfg *c, const struct block *b,
			  struct oom_map m)
{
	const uint64_t in = m.c, wide = in * b->expand;
	struct oom_map y = oom_map_share(t, m);
	struct oom_val held;

	if (b->expand != 1)
		y = oom_conv_bn_act(t, y, &(struct oom_conv){.out = wide, .kernel = 1}, c->act);
	held = oom_share(t, y.x);
	/* correct_pad: k / 2 on all sides, or one less at the near ones */
	if (b->stride == 2) {
		const uint64_t more = b->kernel / 2 * 2 - (b->all_sides ? 0 : 1);

		y = oom_pad_map(t, y, y.h + more, y.w + more);
	}
	y = oom_conv2d(t, "depthwise_conv", y,
		       &(struct oom_conv){.out = wide,
					  .kernel = b->kernel,
					  .stride = b->stride,
					  .pad = b->stride == 2 ? 0 : b->kernel / 2,
					  .groups = wide});
	y = oom_map_act(t, c->act, oom_batch_norm(t, "depthwise_norm", y));
	oom_drop(t, held);
	y = squeeze_excite(t, c, y, in);
	held = oom_share(t, y.x);
	y = oom_batch_norm(t, "project_bn",
			   oom_conv2d(t, "project_conv", y,
				      &(struct oom_conv){.out = b->out, .kernel = 1}));
	if (b->stride == 1 && !b->first)
		y.x = oom_op_add(t, oom_op_dropout(t, y.x, b->drop), oom_keep(m.x));
	oom_drop(t, held);
	oom_drop(t, m.x);
	return y;
}

static struct oom_map blocks(struct oom_tape *t, struct oom_reader *r, const struct cfg *c,
			     struct oom_map m)
{
	uint64_t k = 0;

	for (uint64_t i = 0; i < c->n; i++) {
		const uint64_t in = rounded(c, c->in[i]);

		if (m.c != in && !t->status)
			oom_tape_fail(t, OOM_ERR_INVALID,
				      "in_channels.%llu gives %llu channels where %llu arrive",
				      (unsigned long long)i, (unsigned long long)in,
				      (unsigned long long)m.c);
		for (uint64_t j = 0; j < c->repeat[i] && !t->status; j++, k++)
			m = run(t, c,
				&(struct block){.out = rounded(c, c->out[i]),
						.stride = j ? 1 : c->stride[i],
						.kernel = c->kernel[i],
						.expand = c->expand[i],
						.first = !j,
						.drop = c->drop * (double)k / (double)c->blocks,
						.all_sides = listed(r, k)},
				m);
	}
	return m;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a), p;
	struct oom_val embedding, pooled, loss;
	struct cfg c;

	read_cfg(&rd, &c);
	oom_no_checkpointing(t);
	m = oom_pad_map(t, m, m.h + 1, m.w + 1);
	m = oom_conv2d(t, "convolution", m,
		       &(struct oom_conv){.out = rounded(&c, 32), .kernel = 3, .stride = 2});
	m = oom_map_act(t, c.act, oom_batch_norm(t, "batchnorm", m));
	embedding = oom_share(t, m.x);          /* a local of the model */
	m = blocks(t, &rd, &c, m);
	m = oom_conv2d(t, "top_conv", m, &(struct oom_conv){.out = rounded(&c, 1280), .kernel = 1});
	m = oom_declared(t, m, c.hidden);
	m = oom_batch_norm(t, "top_bn", m);
	m = oom_map_act(t, c.act, m);
	oom_drop(t, embedding);
	/* a window of hidden_dim places, ceil_mode: one result for any image that is smaller */
	p = oom_map_keep(m);
	p = c.mean ? oom_avg_pool(t, p, m.h, m.h, 0) : oom_max_pool(t, p, m.h, m.h, 0);
	pooled = oom_share(t, p.x);             /* in the base model's output, a local */
	p.x = oom_op_dropout(t, p.x, a->classifier_dropout);
	loss = oom_image_head(t, a, p.x, m.x);
	oom_drop(t, pooled);
	return loss;
}

const struct oom_family oom_family_efficientnet = {
	.name = "efficientnet",
	.summary = "inverted residuals with squeeze and excitation, scaled in width and depth",
	.source = "transformers 5.12 models/efficientnet/modeling_efficientnet.py",
	.types = OOM_TYPE("efficientnet"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
