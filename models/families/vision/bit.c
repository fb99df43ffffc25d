/* BiT (Big Transfer): residual bottlenecks with group norms and standardised weights.
 * Reference: transformers 5.12, models/bit/modeling_bit.py. */
#include <strings.h>
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], embed, groups, output_stride, layers;
	double width, drop;
	enum oom_act act;
	bool bottleneck, same, valid, dynamic_pool;
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	const char *pad = oom_read_string(r, "global_padding", NULL);

	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) != c->n)
		oom_read_fail(r, "depths and hidden_sizes must list as many stages");
	c->embed = oom_read_count_or(r, "embedding_size", 64);
	c->groups = oom_read_count_or(r, "num_groups", 32);
	c->output_stride = oom_read_count_or(r, "output_stride", 32);
	c->width = oom_read_real(r, "width_factor", 1);
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	c->act = oom_read_act(r, "hidden_act", "relu");
	c->bottleneck = !strcmp(oom_read_string(r, "layer_type", "preactivation"), "bottleneck");
	c->same = pad && !strcasecmp(pad, "same");
	c->valid = pad && !strcasecmp(pad, "valid");
	c->dynamic_pool = oom_read_bool(r, "embedding_dynamic_padding", false);
	for (uint64_t i = 0; i < c->n; i++)
		c->layers += c->depth[i];
	if (c->layers > OOM_MAX_LAYERS || !c->groups || !(c->width > 0 && c->width <= 64) ||
	    c->embed > 1 << 16)
		oom_read_fail(r, "depths, num_groups, width_factor or embedding_size out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

static uint64_t make_div(double value)
{
	uint64_t n = (uint64_t)(value + 4) / 8 * 8;

	if (n < 8)
		n = 8;
	return (double)n < 0.9 * value ? n + 8 : n;
}

/* TensorFlow's "same" size: ceil(n / stride) windows. */
static uint64_t same_side(uint64_t n, uint64_t kernel, uint64_t stride, uint64_t dilation)
{
	const uint64_t need = ((n + stride - 1) / stride - 1) * stride + (kernel - 1) * dilation +
			      1;

	return need > n ? need : n;
}

static struct oom_map conv(struct oom_tape *t, const struct cfg *c, struct oom_map m, uint64_t out,
			   uint64_t kernel, uint64_t stride, uint64_t dilation)
{
	struct oom_conv v = {.out = out,
			     .kernel = kernel,
			     .stride = stride,
			     .dilation = dilation,
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

static struct oom_map norm(struct oom_tape *t, const struct cfg *c, struct oom_map m, bool act)
{
	struct oom_val arg = oom_share(t, m.x);

	m = oom_group_norm(t, "norm", m, c->groups);
	if (act)
		m = oom_map_act(t, c->act, m);
	oom_drop(t, arg);
	return m;
}

struct block {
	uint64_t out, stride, dilation;
	bool first, drop;
};

/* norm, convolution three times over, on what the first norm has made */
static struct oom_map preactivation(struct oom_tape *t, const struct cfg *c, const struct block *b,
				    struct oom_map m)
{
	const uint64_t mid = make_div((double)b->out * 0.25);
	struct oom_map pre = norm(t, c, oom_map_keep(m), true), shortcut, y;

	shortcut = b->first ? conv(t, c, oom_map_keep(pre), b->out, 1, b->stride, 1) :
			      oom_map_share(t, m);
	y = conv(t, c, oom_map_keep(pre), mid, 1, 1, 1);
	y = conv(t, c, norm(t, c, y, true), mid, 3, b->stride, 1);
	y = conv(t, c, norm(t, c, y, true), b->out, 1, 1, 1);
	if (t->status)
		return m;
	if (b->drop)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, y.x, shortcut.x);
	oom_drop(t, pre.x);
	oom_drop(t, m.x);
	return y;
}

static struct oom_map bottleneck(struct oom_tape *t, const struct cfg *c, const struct block *b,
				 struct oom_map m)
{
	const uint64_t mid = make_div((double)b->out * 0.25);
	struct oom_map shortcut, y;

	shortcut = b->first ?
			   norm(t, c, conv(t, c, oom_map_keep(m), b->out, 1, b->stride, 1), false) :
			   oom_map_share(t, m);
	y = norm(t, c, conv(t, c, oom_map_keep(m), mid, 1, 1, 1), true);
	y = norm(t, c, conv(t, c, y, mid, 3, b->stride, b->dilation), true);
	y = norm(t, c, conv(t, c, y, b->out, 1, 1, 1), false);
	if (t->status)
		return m;
	if (b->drop)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, y.x, oom_keep(shortcut.x));
	y = oom_map_act(t, c->act, y);
	oom_drop(t, shortcut.x);
	oom_drop(t, m.x);
	return y;
}

static struct oom_map stem(struct oom_tape *t, const struct cfg *c, struct oom_map m)
{
	m = conv(t, c, m, c->embed, 7, 2, 1);
	if (!c->same)
		m = oom_pad_map(t, m, m.h + 2, m.w + 2);
	if (c->bottleneck)
		m = norm(t, c, m, true);
	if (c->dynamic_pool)
		m = oom_pad_map(t, m, same_side(m.h, 3, 2, 1), same_side(m.w, 3, 2, 1));
	return oom_max_pool(t, m, 3, 2, 0);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	uint64_t current = 4, dilation = 1, k = 0;
	struct oom_val embedding;
	struct cfg c;

	read_cfg(&rd, &c);
	oom_no_checkpointing(t);
	m = stem(t, &c, m);
	embedding = oom_share(t, m.x);          /* a local of the model */
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		uint64_t stride = i ? 2 : 1, first;
		struct oom_val input = oom_share(t, m.x);

		if (current >= c.output_stride) {
			dilation *= stride;
			stride = 1;
		}
		current *= stride;
		first = dilation <= 2 ? 1 : 2;
		for (uint64_t j = 0; j < c.depth[i] && !t->status; j++, k++) {
			const struct block b = {.out = make_div((double)c.c[i] * c.width),
						.stride = j ? 1 : stride,
						.dilation = j ? dilation : first,
						.first = !j,
						.drop = c.drop > 0 && k};

			m = c.bottleneck ? bottleneck(t, &c, &b, m) : preactivation(t, &c, &b, m);
		}
		oom_drop(t, input);
	}
	oom_drop(t, embedding);
	if (t->status)
		return m.x;
	if (!c.bottleneck)
		m = norm(t, &c, m, true);
	return oom_image_head(t, a, oom_global_pool(t, oom_map_keep(m)), m.x);
}

const struct oom_family oom_family_bit = {
	.name = "bit",
	.summary = "residual bottlenecks with group norms and standardised weights",
	.source = "transformers 5.12 models/bit/modeling_bit.py",
	.types = OOM_TYPE("bit"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
