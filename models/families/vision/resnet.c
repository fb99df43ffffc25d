/* ResNet and RegNet: stages of residual blocks out of convolution, batch norm and activation.
 * Reference: transformers 5.12, models/{resnet,regnet}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], embed, groups_width;
	enum oom_act act;
	bool reg, basic, first, down_in_bottleneck, squeeze;
};

static void read_cfg(struct oom_reader *r, const char *type, struct cfg *c)
{
	const char *layer;
	uint64_t sum = 0;

	memset(c, 0, sizeof(*c));
	c->reg = !strcmp(type, "regnet");
	layer = oom_read_string(r, "layer_type", c->reg ? "y" : "bottleneck");
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) != c->n)
		oom_read_fail(r, "depths and hidden_sizes must list as many stages");
	c->embed = oom_read_count(r, "embedding_size", 1);
	c->act = oom_read_act(r, "hidden_act", "relu");
	c->first = oom_read_bool(r, "downsample_in_first_stage", c->reg);
	c->down_in_bottleneck = oom_read_bool(r, "downsample_in_bottleneck", false);
	c->basic = !strcmp(layer, "basic");
	c->squeeze = !strcmp(layer, "y");
	c->groups_width = c->reg ? oom_read_count_or(r, "groups_width", 64) : 1;
	for (uint64_t i = 0; i < c->n; i++)
		sum += c->depth[i];
	if (sum > OOM_MAX_LAYERS || !c->groups_width || c->embed > 65536)
		oom_read_fail(r, "depths, groups_width or embedding_size out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, a->model_type, &c);
	for (uint64_t i = 0; i < c.n; i++)
		a->n_layers += c.depth[i];
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

static struct oom_map conv(struct oom_tape *t, struct oom_map m, uint64_t out, uint64_t kernel,
			   uint64_t stride, uint64_t groups, enum oom_act act)
{
	return oom_conv_bn_act(t, m,
			       &(struct oom_conv){.out = out,
						  .kernel = kernel,
						  .stride = stride,
						  .pad = kernel / 2,
						  .groups = groups},
			       act);
}

/* x * sigmoid(expand(relu(reduce(mean(x))))) */
static struct oom_map squeeze_excite(struct oom_tape *t, struct oom_map m, uint64_t reduced)
{
	struct oom_map p = {oom_global_pool(t, oom_map_keep(m)), m.c, 1, 1};
	struct oom_val pooled = oom_share(t, p.x);

	p = oom_conv2d(t, "attention.0", p,
		       &(struct oom_conv){.out = reduced, .kernel = 1, .bias = true});
	p = oom_map_act(t, OOM_ACT_RELU, p);
	p = oom_conv2d(t, "attention.2", p,
		       &(struct oom_conv){.out = m.c, .kernel = 1, .bias = true});
	p = oom_map_act(t, OOM_ACT_SIGMOID, p);
	m.x = oom_op_mul(t, m.x, p.x);
	oom_drop(t, pooled);
	return m;
}

static struct oom_map layer(struct oom_tape *t, const struct cfg *c, struct oom_map m, uint64_t out,
			    uint64_t stride)
{
	const uint64_t in = m.c, groups = out > c->groups_width ? out / c->groups_width : 1,
		       mid = out / 4;
	const bool project = in != out || stride != 1;
	/* the stage's loop holds the input as well */
	struct oom_map y, shortcut = oom_map_share(t, m);

	if (c->reg) {
		y = conv(t, oom_map_keep(m), out, 1, 1, 1, c->act);
		y = conv(t, y, out, 3, stride, groups, c->act);
		if (c->squeeze)
			y = squeeze_excite(t, y, (uint64_t)nearbyint((double)in / 4));
		y = conv(t, y, out, 1, 1, 1, OOM_ACT_NONE);
	} else if (c->basic) {
		y = conv(t, oom_map_keep(m), out, 3, stride, 1, c->act);
		y = conv(t, y, out, 3, 1, 1, OOM_ACT_NONE);
	} else {
		y = conv(t, oom_map_keep(m), mid, 1, c->down_in_bottleneck ? stride : 1, 1, c->act);
		y = conv(t, y, mid, 3, c->down_in_bottleneck ? 1 : stride, 1, c->act);
		y = conv(t, y, out, 1, 1, 1, OOM_ACT_NONE);
	}
	if (project) {
		shortcut = oom_conv2d(t, "shortcut.convolution", shortcut,
				      &(struct oom_conv){.out = out,
							 .kernel = 1,
							 .stride = stride});
		shortcut = oom_batch_norm(t, "shortcut.normalization", shortcut);
	}
	y.x = oom_op_add_inplace(t, y.x, oom_keep(shortcut.x));
	y = oom_map_act(t, c->act, y);
	oom_drop(t, shortcut.x);
	oom_drop(t, m.x);
	return y;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val embedding;
	struct cfg c;

	read_cfg(&rd, a->model_type, &c);
	oom_no_checkpointing(t);
	m = conv(t, m, c.embed, c.reg ? 3 : 7, 2, 1, c.act);
	if (!c.reg)
		m = oom_max_pool(t, m, 3, 2, 1);
	embedding = oom_share(t, m.x);          /* locals of the model, of the stage */
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		struct oom_val input = oom_share(t, m.x);

		for (uint64_t j = 0; j < c.depth[i] && !t->status; j++)
			m = layer(t, &c, m, c.c[i], j || (!i && !c.first) ? 1 : 2);
		oom_drop(t, input);
	}
	oom_drop(t, embedding);
	return oom_image_head(t, a, oom_global_pool(t, oom_map_keep(m)), m.x);
}

static const struct oom_family_type types[] = {
	{"resnet", NULL}, {"regnet", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_resnet = {
	.name = "resnet",
	.summary = "residual convolution blocks in stages",
	.source = "transformers 5.12 models/resnet/modeling_resnet.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
