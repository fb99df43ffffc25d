/* PoolFormer: average pooling in attention's place, in stages.
 * Reference: transformers 5.12, models/poolformer/modeling_poolformer.py. */
#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8 };

struct poolformer {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], patch[MAX_STAGES], stride[MAX_STAGES],
		pad[MAX_STAGES], pool;
	double ratio, drop;
	bool scale;
};
OOM_OWN(poolformer, struct poolformer);

static const struct oom_key_row poolformer_keys[] = {
	ACT(act, "hidden_act", "gelu"), OR_OWN(struct poolformer, pool, "pool_size", 3),
	REAL_OWN(struct poolformer, ratio, "mlp_ratio", 4),
	REAL_OWN(struct poolformer, drop, "drop_path_rate", 0),
	FLAG_OWN(struct poolformer, scale, "use_layer_scale", true), OOM_KEYS_END};

static void poolformer_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct poolformer *c = poolformer_own(a);
	double pad[MAX_STAGES];

	oom_read_image(a, 224);
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_count_or(r, "num_encoder_blocks", c->n) < c->n)
		c->n = oom_read_count_or(r, "num_encoder_blocks", c->n);
	oom_read_stages(r, "depths", c->depth, MAX_STAGES, c->n);
	oom_read_stages(r, "patch_sizes", c->patch, MAX_STAGES, c->n);
	oom_read_stages(r, "strides", c->stride, MAX_STAGES, c->n);
	oom_read_reals(r, "padding", pad, c->n, 1);
	for (uint64_t i = 0; i < c->n; i++) {
		a->n_layers += c->depth[i];
		c->pad[i] = pad[i] >= 0 && pad[i] <= 4096 ? (uint64_t)pad[i] : 0;
		if (c->c[i] > 65536 || c->patch[i] > 4096)
			oom_read_fail(r, "hidden_sizes or patch_sizes out of range");
	}
	a->d_model = c->n ? c->c[c->n - 1] : 1;
	if (!c->n || a->n_layers > OOM_MAX_LAYERS || !c->pool || c->pool > 1024 ||
	    !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "num_encoder_blocks, depths, pool_size or mlp_ratio out of range");
}

/* pool(x) - x */
static struct oom_map pooling(struct oom_tape *t, const struct poolformer *c, struct oom_map m)
{
	struct oom_frame f = {.t = t};
	struct oom_map p;

	m = oom_arg_map(&f, m);
	p = oom_avg_pool(t, m, c->pool, 1, c->pool / 2);
	p.x = oom_op_add(t, p.x, m.x);
	return oom_leave_map(&f, p);
}

static struct oom_map poolformer_output(struct oom_tape *t, const struct oom_arch *a,
					struct oom_map m, bool path)
{
	const struct oom_conv up = {.out = (uint64_t)(poolformer_of(a)->ratio * (double)m.c),
				    .kernel = 1, .bias = true},
			      down = {.out = m.c, .kernel = 1, .bias = true};
	struct oom_frame f = {.t = t};

	m = oom_arg_map(&f, m);
	m = oom_map_act(t, a->act, oom_conv2d(t, "conv1", m, &up));
	if (path)
		m.x = oom_drop_path(t, m.x);
	m = oom_conv2d(t, "conv2", m, &down);
	if (path)
		m.x = oom_drop_path(t, m.x);
	return oom_leave_map(&f, m);
}

/* m is the caller's. */
static struct oom_map poolformer_layer(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_map m, bool path)
{
	const struct poolformer *c = poolformer_of(a);
	struct oom_frame f = {.t = t};
	struct oom_map y = pooling(t, c, oom_group_norm(t, "before_norm", m, 1));
	struct oom_val scaled;

	if (c->scale) {
		y.x = oom_name(&f, y.x);        /* pooling_output */
		y.x = oom_op_mul(t, oom_param(t, "layer_scale_1", 0, m.c, 0), y.x);
	}
	/* scaled_op or pooling_output, until the second scaled_op */
	scaled = oom_name(&f, path ? oom_drop_path(t, y.x) : y.x);
	m.x = oom_name(&f, oom_op_add(t, scaled, m.x));
	y = poolformer_output(t, a, oom_group_norm(t, "after_norm", m, 1), path);
	if (c->scale)
		y.x = oom_op_mul(t, oom_param(t, "layer_scale_2", 0, m.c, 0), y.x);
	oom_forget(&f, scaled);
	if (path)
		y.x = oom_drop_path(t, y.x);
	y.x = oom_op_add(t, y.x, m.x);
	return oom_leave_map(&f, y);
}

/* The last layer's output has two names, hidden_states and layer_outputs: one is the embedding
 * already while the next stage's first layer runs. */
static struct oom_map poolformer_encoder(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_map m)
{
	const struct poolformer *c = poolformer_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val outputs = oom_none();
	uint64_t k = 0;

	for (uint64_t i = 0; i < c->n && !t->status; i++) {
		const struct oom_conv embed = {.out = c->c[i], .kernel = c->patch[i],
					       .stride = c->stride[i], .pad = c->pad[i],
					       .bias = true};

		m = oom_rename_map(&f, m, oom_conv2d(t, "projection", m, &embed));
		for (uint64_t j = 0; j < c->depth[i] && !t->status; j++, k++) {
			m = oom_rename_map(&f, m, poolformer_layer(t, a, m, c->drop > 0 && k));
			outputs = oom_rename(&f, outputs, m.x);
		}
	}
	return oom_leave_map(&f, m);
}

static struct oom_val poolformer_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_map m;

	oom_no_checkpointing(t);
	m = oom_name_map(&f, poolformer_encoder(t, a, oom_pixels(t, a)));
	m = oom_group_norm(t, "norm", m, 1);
	return oom_leave(&f, oom_image_loss(t, a, oom_global_pool(t, m)));
}

const struct oom_family oom_family_poolformer = {
	.name = "poolformer",
	.summary = "average pooling in attention's place, in stages",
	.source = "transformers 5.12 models/poolformer/modeling_poolformer.py",
	.types = OOM_TYPE("poolformer"),
	.lora_targets = "all-linear",
	.keys = poolformer_keys,
	.parse = poolformer_parse,
	.step = poolformer_step,
};
