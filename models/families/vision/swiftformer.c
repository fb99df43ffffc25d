/* SwiftFormer: convolution encoders, and in every stage's last block an additive attention, linear
 * in the map. Reference: transformers 5.12, models/swiftformer/modeling_swiftformer.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], patch, stride, pad, layers;
	double ratio, drop, conv_p, mlp_p, down[MAX_STAGES];
	enum oom_act act;
	bool scale;
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "embed_dims", c->c, MAX_STAGES);
	if (oom_read_counts(r, "depths", c->depth, MAX_STAGES) < c->n)
		oom_read_fail(r, "depths must list a count for each of %llu stages",
			      (unsigned long long)c->n);
	oom_read_reals(r, "downsamples", c->down, c->n, 1);
	c->patch = oom_read_count_or(r, "down_patch_size", 3);
	c->stride = oom_read_count_or(r, "down_stride", 2);
	c->pad = oom_read_count_or(r, "down_pad", 1);
	c->ratio = oom_read_real(r, "mlp_ratio", 4);
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	c->conv_p = oom_read_real(r, "drop_conv_encoder_rate", 0);
	c->mlp_p = oom_read_real(r, "drop_mlp_rate", 0);
	c->act = oom_read_act(r, "hidden_act", "gelu");
	c->scale = oom_read_bool(r, "use_layer_scale", true);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (c->c[i] > 65536 || c->c[i] < 2)
			oom_read_fail(r, "embed_dims out of range");
	}
	if (c->layers > OOM_MAX_LAYERS || !c->patch || c->patch > 1024 || !c->stride ||
	    c->pad > 1024 || !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "depths, down_patch_size, down_stride, down_pad or mlp_ratio out "
				 "of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

/* Depthwise 3 x 3, norm, two pointwise convolutions, scaled and added to the input. */
static struct oom_map conv_encoder(struct oom_tape *t, struct oom_map m, uint64_t hidden, double p)
{
	const uint64_t d = m.c;
	struct oom_map y;

	y = oom_conv2d(
		t, "depth_wise_conv", oom_map_keep(m),
		&(struct oom_conv){.out = d, .kernel = 3, .pad = 1, .groups = d, .bias = true});
	y = oom_batch_norm(t, "norm", y);
	y = oom_conv2d(t, "point_wise_conv1", y,
		       &(struct oom_conv){.out = hidden, .kernel = 1, .bias = true});
	y = oom_map_act(t, OOM_ACT_GELU, y);
	y = oom_conv2d(t, "point_wise_conv2", y,
		       &(struct oom_conv){.out = d, .kernel = 1, .bias = true});
	if (t->status)
		return m;
	{
		struct oom_val x = y.x, scaled = oom_op_mul(t, oom_param(t, "layer_scale", 0, d, 0),
							    oom_keep(x));

		y.x = oom_op_add(t, oom_keep(m.x), oom_op_dropout(t, scaled, p));
		oom_drop(t, x);
	}
	oom_done(t, m.x);
	return y;
}

/* One global query (a weighted sum) times every key. */
static struct oom_val attention(struct oom_tape *t, struct oom_val x, uint64_t d)
{
	const struct oom_dim width = {d, "dim"};
	struct oom_val q, k, w, global, y;

	/* the map seen as tokens is not contiguous: each product folds it into a copy
	 * (autocast's cast is that copy) */
	q = oom_op_linear(t, "to_query",
			  t->amp ? oom_keep(x) : oom_op_copy(t, "clone", oom_keep(x)), width,
			  OOM_BIAS);
	k = oom_op_linear(t, "to_key", t->amp ? oom_keep(x) : oom_op_copy(t, "clone", oom_keep(x)),
			  width, OOM_BIAS);
	q = oom_normalize(t, q, 1);
	k = oom_normalize(t, k, 1);
	w = oom_op_matmul_param(t, "w_g", oom_keep(q), oom_param(t, "w_g", d, 1, 0), oom_none(),
				D(1));
	y = oom_op_unary(t, OOM_SCALE, oom_keep(w));
	y = oom_op_softmax(t, y, false);
	global = oom_op_sum(t, oom_op_mul(t, oom_keep(y), oom_keep(q)), t->m_b, width);
	global = oom_op_expand_copy(t, global, x.mono, width);
	oom_drop(t, w);
	w = y;
	y = oom_op_linear(t, "proj", oom_op_mul(t, oom_keep(global), oom_keep(k)), width, OOM_BIAS);
	y = oom_op_add(t, y, oom_keep(q));
	y = oom_op_linear(t, "final", y, width, OOM_BIAS);
	oom_drop_all(t, (struct oom_val[]){q, k, w, global}, 4);
	oom_done(t, x);
	return y;
}

static struct oom_map mlp(struct oom_tape *t, const struct cfg *c, struct oom_map m)
{
	const uint64_t d = m.c;
	struct oom_val arg = oom_share(t, m.x);

	oom_done(t, m.x);
	m = oom_batch_norm(t, "norm1", oom_map_keep(m));
	m = oom_conv2d(t, "fc1", m,
		       &(struct oom_conv){.out = (uint64_t)((double)d * c->ratio),
					  .kernel = 1,
					  .bias = true});
	m = oom_map_act(t, c->act, m);
	if (!t->status)
		m.x = oom_op_dropout(t, m.x, c->mlp_p);
	m = oom_conv2d(t, "fc2", m, &(struct oom_conv){.out = d, .kernel = 1, .bias = true});
	if (!t->status)
		m.x = oom_op_dropout(t, m.x, c->mlp_p);
	oom_drop(t, arg);
	return m;
}

static struct oom_map encoder(struct oom_tape *t, const struct cfg *c, struct oom_map m, bool path)
{
	struct oom_val res, y;
	struct oom_map f;

	m = conv_encoder(t, m, m.c, 0);
	if (t->status)
		return m;
	res = attention(t, oom_map_tokens(t, oom_map_keep(m)), m.c);
	res = oom_op_view(t, res, t->m_b, (struct oom_dim){m.c * m.h * m.w, NULL});
	y = c->scale ? oom_op_mul(t, oom_param(t, "layer_scale_1", 0, m.c, 0), oom_keep(res)) :
		       oom_share(t, res);
	if (path)
		y = oom_drop_path(t, y);
	m.x = oom_op_add(t, m.x, y);
	f = mlp(t, c, oom_map_keep(m));
	if (t->status)
		return m;
	y = c->scale ? oom_op_mul(t, oom_param(t, "layer_scale_2", 0, m.c, 0), f.x) : f.x;
	if (path)
		y = oom_drop_path(t, y);
	m.x = oom_op_add(t, m.x, y);
	oom_drop(t, res);
	return m;
}

struct stage {
	struct cfg c;
	uint64_t i, h, w, first;
};

static struct oom_val run_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct stage *s = ctx;
	const struct cfg *c = &s->c;
	struct oom_map m = {x, c->c[s->i], s->h, s->w};
	struct oom_val input = oom_share(t, x);

	(void)j;
	for (uint64_t k = 0; k < c->depth[s->i] && !t->status; k++) {
		struct oom_val arg = oom_share(t, m.x);

		if (k + 1 < c->depth[s->i])
			m = conv_encoder(t, m, (uint64_t)(c->ratio * (double)m.c), c->conv_p);
		else
			m = encoder(t, c, m, c->drop > 0 && s->first + k);
		oom_drop(t, arg);
	}
	oom_drop(t, input);
	return m.x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad;
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct stage s = {.first = 0};
	struct oom_val held, x, y;

	read_cfg(&rd, &s.c);
	for (uint64_t i = 0; i < 2; i++) {
		m = oom_conv2d(t, "patch_embedding", m,
			       &(struct oom_conv){.out = i ? s.c.c[0] : s.c.c[0] / 2,
						  .kernel = 3,
						  .stride = 2,
						  .pad = 1,
						  .bias = true});
		m = oom_map_act(t, OOM_ACT_RELU, oom_batch_norm(t, "patch_embedding", m));
	}
	held = oom_share(t, m.x);               /* embedding_output, a local of the model */
	for (s.i = 0; s.i < s.c.n && !t->status; s.i++) {
		const void *ctx;

		s.h = m.h;
		s.w = m.w;
		ctx = oom_layer_ctx(t, &s, sizeof(s));
		if (!ctx)
			break;
		m.x = ckpt ? oom_layer_alone(t, (uint32_t)s.i, run_stage, ctx, m.x) :
			     run_stage(t, ctx, (uint32_t)s.i, m.x);
		s.first += s.c.depth[s.i];
		if (s.i + 1 < s.c.n && (s.c.down[s.i] != 0 || s.c.c[s.i] != s.c.c[s.i + 1])) {
			struct oom_val arg = oom_share(t, m.x);

			m = oom_conv2d(t, "proj", m,
				       &(struct oom_conv){.out = s.c.c[s.i + 1],
							  .kernel = s.c.patch,
							  .stride = s.c.stride,
							  .pad = s.c.pad,
							  .bias = true});
			m = oom_batch_norm(t, "norm", m);
			oom_drop(t, arg);
		}
	}
	oom_drop(t, held);
	if (t->status)
		return m.x;
	held = m.x;
	m = oom_batch_norm(t, "norm", oom_map_keep(m));
	x = oom_global_pool(t, m);
	y = x;
	if (t->n_labels) {                      /* two heads, their mean */
		const struct oom_dim labels = {t->n_labels, "num_labels"};
		struct oom_val d;

		y = oom_op_linear(t, "head", oom_keep(x), labels,
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
		d = oom_op_linear(t, "dist_head", x, labels, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
		y = oom_op_unary(t, OOM_SCALE, oom_op_add(t, y, d));
	}
	y = oom_cls_loss(t, a, y);
	oom_drop(t, held);
	return y;
}

const struct oom_family oom_family_swiftformer = {
	.name = "swiftformer",
	.summary = "convolution encoders and additive attention, in stages",
	.source = "transformers 5.12 models/swiftformer/modeling_swiftformer.py",
	.types = OOM_TYPE("swiftformer"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
