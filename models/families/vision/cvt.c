/* CvT: queries, keys and values from depthwise convolutions of the tokens as a map, in stages.
 * Reference: transformers 5.12, models/cvt/modeling_cvt.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], heads[MAX_STAGES], patch[MAX_STAGES],
		stride[MAX_STAGES], kernel[MAX_STAGES], stride_kv[MAX_STAGES], stride_q[MAX_STAGES],
		layers;
	double pad[MAX_STAGES], pad_kv[MAX_STAGES], pad_q[MAX_STAGES], ratio[MAX_STAGES],
		p[MAX_STAGES], attn_p[MAX_STAGES], drop[MAX_STAGES], bias[MAX_STAGES],
		cls[MAX_STAGES];
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "depth", c->depth, MAX_STAGES);
	oom_read_stages(r, "embed_dim", c->c, MAX_STAGES, c->n);
	oom_read_stages(r, "num_heads", c->heads, MAX_STAGES, c->n);
	oom_read_stages(r, "patch_sizes", c->patch, MAX_STAGES, c->n);
	oom_read_stages(r, "patch_stride", c->stride, MAX_STAGES, c->n);
	oom_read_stages(r, "kernel_qkv", c->kernel, MAX_STAGES, c->n);
	oom_read_stages(r, "stride_kv", c->stride_kv, MAX_STAGES, c->n);
	oom_read_stages(r, "stride_q", c->stride_q, MAX_STAGES, c->n);
	oom_read_reals(r, "patch_padding", c->pad, c->n, 1);
	oom_read_reals(r, "padding_kv", c->pad_kv, c->n, 1);
	oom_read_reals(r, "padding_q", c->pad_q, c->n, 1);
	oom_read_reals(r, "mlp_ratio", c->ratio, c->n, 4);
	oom_read_reals(r, "drop_rate", c->p, c->n, 0);
	oom_read_reals(r, "attention_drop_rate", c->attn_p, c->n, 0);
	oom_read_reals(r, "drop_path_rate", c->drop, c->n, 0);
	oom_read_reals(r, "qkv_bias", c->bias, c->n, 1);
	oom_read_reals(r, "cls_token", c->cls, c->n, 0);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (c->c[i] > 65536 || c->heads[i] > c->c[i] || c->patch[i] > 4096 ||
		    c->kernel[i] > 1024 || !(c->ratio[i] > 0 && c->ratio[i] <= 1024) ||
		    !(c->pad[i] >= 0 && c->pad[i] <= 4096) ||
		    !(c->pad_kv[i] >= 0 && c->pad_kv[i] <= 4096) ||
		    !(c->pad_q[i] >= 0 && c->pad_q[i] <= 4096))
			oom_read_fail(r, "a size of stage %llu is out of range",
				      (unsigned long long)i);
	}
	if (!c->n || c->layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "depth out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

struct layer {
	const struct oom_arch *a;
	const struct cfg *c;
	uint64_t i, h, w;               /* stage, side of its map */
	bool cls, path;
};

/* Depthwise convolution and batch norm of the map, as tokens; the class token before them. */
static struct oom_val projection(struct oom_tape *t, const struct layer *l, struct oom_val map,
				 struct oom_val cls, uint64_t stride, uint64_t pad, uint64_t *n)
{
	const uint64_t c = l->c->c[l->i];
	struct oom_map m = oom_tokens_map(t, oom_keep(map), c, l->h, l->w);
	struct oom_val x;

	m = oom_conv2d(t, "convolution", m,
		       &(struct oom_conv){.out = c,
					  .kernel = l->c->kernel[l->i],
					  .stride = stride,
					  .pad = pad,
					  .groups = c});
	m = oom_batch_norm(t, "normalization", m);
	if (t->status)
		return map;
	x = oom_map_tokens(t, m);
	*n = m.h * m.w + l->cls;
	return l->cls ? oom_op_cat_into(t, oom_keep(cls), x, oom_tokens_of(t, *n),
					(struct oom_dim){c, "embed_dim"}) :
			x;
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct cfg *c = l->c;
	const uint64_t i = l->i, d = c->c[i], n = l->h * l->w;
	const struct oom_dim width = {d, "embed_dim"};
	struct oom_val cls = oom_none(), map = oom_share(t, x), q, k, v, held[5];
	uint64_t keys = 0, queries = 0;
	struct oom_attn at;

	if (l->cls) {
		cls = oom_op_slice(t, oom_keep(x), t->m_b, width);
		oom_drop(t, map);
		map = oom_op_slice(t, oom_keep(x), oom_tokens_of(t, n), width);
	}
	k = projection(t, l, map, cls, c->stride_kv[i], (uint64_t)c->pad_kv[i], &keys);
	q = projection(t, l, map, cls, c->stride_q[i], (uint64_t)c->pad_q[i], &queries);
	v = projection(t, l, map, cls, c->stride_kv[i], (uint64_t)c->pad_kv[i], &keys);
	if (t->status)
		return x;
	at = oom_attn_over(t, l->a, c->heads[i], d, queries, keys);
	at.dropout = c->attn_p[i];
	q = oom_project_heads(t, "projection_query", q, d, c->bias[i] != 0, c->heads[i]);
	k = oom_project_heads(t, "projection_key", k, d, c->bias[i] != 0, c->heads[i]);
	v = oom_project_heads(t, "projection_value", v, d, c->bias[i] != 0, c->heads[i]);
	q = oom_written_attention(t, &at, q, k, v, NULL, held);
	oom_drop_all(t, held, 5);
	oom_drop(t, map);
	oom_drop(t, cls);
	oom_done(t, x);
	return oom_op_dropout(t, oom_op_linear(t, "dense", q, width, OOM_BIAS), c->p[i]);
}

static struct oom_val block(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct cfg *c = l->c;
	const uint64_t d = c->c[l->i], ff = (uint64_t)(c->ratio[l->i] * (double)d);
	struct oom_val arg = oom_share(t, x), y, held;

	y = attention(t, l, oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true));
	held = oom_share(t, y);                 /* self_attention_output, attention_output */
	if (l->path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, y, x);
	y = oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true);
	y = oom_op_linear(t, "dense", y, (struct oom_dim){ff, "intermediate"}, OOM_BIAS);
	y = oom_activation(t, OOM_ACT_GELU, y);
	y = oom_op_dropout(t,
			   oom_op_linear(t, "dense", y, (struct oom_dim){d, "embed_dim"}, OOM_BIAS),
			   c->p[l->i]);
	x = oom_op_add(t, y, x);
	if (l->path)                            /* of the sum, as the code does */
		x = oom_drop_path(t, x);
	oom_drop(t, held);
	oom_drop(t, arg);
	return x;
}

/* The stage's map; a class token, when it has one, in *cls. */
static struct oom_map stage(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			    uint64_t i, struct oom_map m, struct oom_val *cls)
{
	const struct oom_dim width = {c->c[i], "embed_dim"};
	struct layer l = {.a = a,
			  .c = c,
			  .i = i,
			  .cls = c->cls[i] != 0,
			  .path = c->drop[i] > 0 && i &&
				  i < c->depth[i]}; /* linspace(0, rate, depth)[stage] */
	struct oom_val input = oom_share(t, m.x), token = oom_none(), x;

	if (l.cls)
		token = oom_param(t, "cls_token", 1, c->c[c->n - 1], 0);
	m = oom_conv2d(t, "projection", m,
		       &(struct oom_conv){.out = c->c[i],
					  .kernel = c->patch[i],
					  .stride = c->stride[i],
					  .pad = (uint64_t)c->pad[i],
					  .bias = true,
					  .channels_last = i > 0});
	if (t->status)
		return m;
	l.h = m.h;
	l.w = m.w;
	x = oom_op_dropout(t,
			   oom_op_layer_norm(t, "normalization", oom_map_tokens(t, m), 0, true,
					     true),
			   c->p[i]);
	if (l.cls) {
		token = oom_op_expand(t, token, t->m_b, width);
		token.perm = false;
		x = oom_op_cat_into(t, token, x, oom_tokens_of(t, l.h * l.w + 1), width);
	}
	for (uint64_t j = 0; j < c->depth[i] && !t->status; j++)
		x = block(t, &l, x);
	if (l.cls) {
		*cls = oom_op_slice(t, oom_keep(x), t->m_b, width);
		x = oom_op_slice(t, x, oom_tokens_of(t, l.h * l.w), width);
	}
	oom_drop(t, input);
	return oom_tokens_map(t, x, c->c[i], l.h, l.w);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val cls = oom_none(), x;
	struct cfg c;

	read_cfg(&rd, &c);
	oom_no_checkpointing(t);
	for (uint64_t i = 0; i < c.n && !t->status; i++) {
		oom_drop(t, cls);
		cls = oom_none();
		m = stage(t, a, &c, i, m, &cls);
	}
	if (t->status)
		return m.x;
	if (c.cls[c.n - 1] != 0) {
		x = oom_op_layer_norm(t, "layernorm", cls, 0, true, true);
	} else {
		oom_drop(t, cls);
		x = oom_op_layer_norm(t, "layernorm", oom_map_tokens(t, oom_map_keep(m)), 0, true,
				      true);
	}
	return oom_image_head(t, a, oom_op_mean(t, x, t->m_b, D(a->d_model)), m.x);
}

const struct oom_family oom_family_cvt = {
	.name = "cvt",
	.summary = "vision encoder with convolutional projections, in stages",
	.source = "transformers 5.12 models/cvt/modeling_cvt.py",
	.types = OOM_TYPE("cvt"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
