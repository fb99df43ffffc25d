/* PoolFormer: average pooling in attention's place, in stages.
 * Reference: transformers 5.12, models/poolformer/modeling_poolformer.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], patch[MAX_STAGES], stride[MAX_STAGES],
		pad[MAX_STAGES], pool, layers;
	double ratio, drop;
	enum oom_act act;
	bool scale;
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	double pad[MAX_STAGES];

	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_count_or(r, "num_encoder_blocks", c->n) < c->n)
		c->n = oom_read_count_or(r, "num_encoder_blocks", c->n);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) < c->n ||
	    oom_read_counts(r, "patch_sizes", c->patch, MAX_STAGES) < c->n ||
	    oom_read_counts(r, "strides", c->stride, MAX_STAGES) < c->n)
		oom_read_fail(r,
			      "depths, patch_sizes and strides must list a count for each of %llu "
			      "stages",
			      (unsigned long long)c->n);
	oom_read_reals(r, "padding", pad, c->n, 1);
	c->pool = oom_read_count_or(r, "pool_size", 3);
	c->ratio = oom_read_real(r, "mlp_ratio", 4);
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	c->act = oom_read_act(r, "hidden_act", "gelu");
	c->scale = oom_read_bool(r, "use_layer_scale", true);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		c->pad[i] = pad[i] >= 0 && pad[i] <= 4096 ? (uint64_t)pad[i] : 0;
		if (c->c[i] > 65536 || c->patch[i] > 4096)
			oom_read_fail(r, "hidden_sizes or patch_sizes out of range");
	}
	if (!c->n || c->layers > OOM_MAX_LAYERS || !c->pool || c->pool > 1024 ||
	    !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "num_encoder_blocks, depths, pool_size or mlp_ratio out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

/* pool(x) - x */
static struct oom_map pooling(struct oom_tape *t, const struct cfg *c, struct oom_map m)
{
	struct oom_map p = oom_avg_pool(t, oom_map_keep(m), c->pool, 1, c->pool / 2);

	if (!t->status)
		p.x = oom_op_add(t, p.x, m.x);
	return p;
}

static struct oom_map output(struct oom_tape *t, const struct cfg *c, struct oom_map m, bool path)
{
	struct oom_val held = oom_share(t, m.x);
	const uint64_t d = m.c;

	m = oom_conv2d(t, "conv1", m,
		       &(struct oom_conv){.out = (uint64_t)(c->ratio * (double)d),
					  .kernel = 1,
					  .bias = true});
	m = oom_map_act(t, c->act, m);
	if (path && !t->status)
		m.x = oom_drop_path(t, m.x);
	m = oom_conv2d(t, "conv2", m, &(struct oom_conv){.out = d, .kernel = 1, .bias = true});
	if (path && !t->status)
		m.x = oom_drop_path(t, m.x);
	oom_drop(t, held);
	return m;
}

static struct oom_map layer(struct oom_tape *t, const struct cfg *c, struct oom_map m, bool path)
{
	struct oom_val arg = oom_share(t, m.x), local = oom_none(), scale;
	struct oom_map y = pooling(t, c, oom_group_norm(t, "before_norm", oom_map_keep(m), 1));

	if (t->status)
		return m;
	if (c->scale) {
		local = oom_share(t, y.x);      /* pooling_output */
		scale = oom_param(t, "layer_scale_1", 0, m.c, 0);
		y.x = oom_op_mul(t, scale, y.x);
	}
	if (path)
		y.x = oom_drop_path(t, y.x);
	m.x = oom_op_add(t, oom_keep(y.x), m.x);
	{
		const struct oom_val scaled = y.x;      /* scaled_op or pooling_output */

		y = output(t, c, oom_group_norm(t, "after_norm", oom_map_keep(m), 1), path);
		if (t->status)
			return m;
		if (c->scale)
			y.x = oom_op_mul(t, oom_param(t, "layer_scale_2", 0, m.c, 0), y.x);
		oom_drop(t, scaled);
	}
	if (path)
		y.x = oom_drop_path(t, y.x);
	m.x = oom_op_add(t, y.x, m.x);
	oom_drop(t, local);
	oom_drop(t, arg);
	return m;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val held = oom_none();
	struct cfg c;
	uint64_t k = 0;

	read_cfg(&rd, &c);
	oom_no_checkpointing(t);
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		m = oom_conv2d(t, "projection", m,
			       &(struct oom_conv){.out = c.c[i],
						  .kernel = c.patch[i],
						  .stride = c.stride[i],
						  .pad = c.pad[i],
						  .bias = true});
		for (uint64_t j = 0; j < c.depth[i] && !t->status; j++, k++) {
			m = layer(t, &c, m, c.drop > 0 && k);
			oom_drop(t, held);      /* layer_outputs, until the next layer's */
			held = oom_share(t, m.x);
		}
	}
	oom_drop(t, held);
	held = m.x;
	m = oom_group_norm(t, "norm", oom_map_keep(m), 1);
	return oom_image_head(t, a, oom_global_pool(t, m), held);
}

const struct oom_family oom_family_poolformer = {
	.name = "poolformer",
	.summary = "average pooling in attention's place, in stages",
	.source = "transformers 5.12 models/poolformer/modeling_poolformer.py",
	.types = OOM_TYPE("poolformer"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
