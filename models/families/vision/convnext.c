/* ConvNeXt and ConvNeXt v2: depthwise 7x7 convolution, layer norm and a two-layer MLP over the
 * channels, in stages. Reference: transformers 5.12, models/{convnext,convnextv2}/modeling_*.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], patch, layers;
	enum oom_act act;
	bool v2, scale;
	double drop;
};

static void read_cfg(struct oom_reader *r, const char *type, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->v2 = !strcmp(type, "convnextv2");
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) != c->n)
		oom_read_fail(r, "depths and hidden_sizes must list as many stages");
	if (oom_read_count_or(r, "num_stages", c->n) < c->n)
		c->n = oom_read_count_or(r, "num_stages", c->n);
	c->patch = oom_read_count_or(r, "patch_size", 4);
	c->act = oom_read_act(r, "hidden_act", "gelu");
	c->scale = !c->v2 && oom_read_real(r, "layer_scale_init_value", 1e-6) > 0;
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (c->c[i] > 1 << 16)
			oom_read_fail(r, "hidden_sizes beyond 65536");
	}
	if (!c->n || !c->patch || c->patch > 65536 || c->layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "num_stages, patch_size or depths out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, a->model_type, &c);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

/* weight * (x * (|x| / (mean |x| + eps))) + bias + x */
static struct oom_val grn(struct oom_tape *t, struct oom_val x, uint64_t c)
{
	struct oom_val w = oom_param(t, "grn.weight", 0, c, 0),
		       b = oom_param(t, "grn.bias", 0, c, 0), g, m, y;

	g = oom_vector_norm(t, oom_keep(x), t->m_b, (struct oom_dim){c, NULL});
	m = oom_op_mean(t, oom_keep(g), t->m_b, D(1));
	m = oom_op_div(t, oom_keep(g), oom_op_unary(t, OOM_ADD_SCALAR, m));
	y = oom_op_mul(t, w, oom_op_mul(t, oom_keep(x), oom_keep(m)));
	y = oom_op_add(t, y, b);
	y = oom_op_add(t, y, x);
	oom_drop(t, m);
	oom_drop(t, g);
	return y;
}

static struct oom_map layer(struct oom_tape *t, const struct cfg *c, struct oom_map m, bool path)
{
	const uint64_t d = m.c;
	struct oom_map y;

	y = oom_conv2d(
		t, "dwconv", oom_map_keep(m),
		&(struct oom_conv){.out = d, .kernel = 7, .pad = 3, .groups = d, .bias = true});
	if (t->status)
		return m;
	y = oom_channel_norm(t, "layernorm", y);
	y.x = oom_op_linear_in(t, "pwconv1", y.x, d, (struct oom_dim){4 * d, "4 * channels"},
			       OOM_BIAS);
	y.x = oom_activation(t, c->act, y.x);
	if (c->v2)
		y.x = grn(t, y.x, 4 * d);
	y.x = oom_op_linear_in(t, "pwconv2", y.x, 4 * d, (struct oom_dim){d, "channels"}, OOM_BIAS);
	if (c->scale)
		y.x = oom_op_mul(t, oom_param(t, "layer_scale_parameter", 0, d, 0), y.x);
	if (path)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, oom_keep(m.x), y.x);
	oom_drop(t, m.x);
	return y;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val embedding, x;
	struct cfg c;
	uint64_t k = 0;

	read_cfg(&rd, a->model_type, &c);
	oom_no_checkpointing(t);
	m = oom_conv2d(t, "patch_embeddings", m,
		       &(struct oom_conv){
			       .out = c.c[0], .kernel = c.patch, .stride = c.patch, .bias = true});
	m = oom_channel_norm(t, "layernorm", m);
	embedding = oom_share(t, m.x);
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		struct oom_val input = oom_share(t, m.x);       /* the encoder's loop variable */

		if (i) {
			struct oom_val held;

			m = oom_channel_norm(t, "downsampling_layer.0", m);
			held = oom_share(t, m.x);
			m = oom_conv2d(t, "downsampling_layer.1", m,
				       &(struct oom_conv){.out = c.c[i],
							  .kernel = 2,
							  .stride = 2,
							  .bias = true,
							  .channels_last = true});
			oom_drop(t, held);
		}
		for (uint64_t j = 0; j < c.depth[i] && !t->status; j++, k++)
			m = layer(t, &c, m, c.drop > 0 && k);
		oom_drop(t, input);
	}
	oom_drop(t, embedding);
	x = oom_op_layer_norm(t, "layernorm", oom_global_pool(t, oom_map_keep(m)), 0, true, true);
	return oom_image_head(t, a, x, m.x);
}

static const struct oom_family_type types[] = {
	{"convnext", NULL}, {"convnextv2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_convnext = {
	.name = "convnext",
	.summary = "depthwise convolutions with channel MLPs in stages",
	.source = "transformers 5.12 models/convnext/modeling_convnext.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
