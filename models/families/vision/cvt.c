/* CvT: queries, keys and values from depthwise convolutions of the tokens as a map, in stages.
 * Reference: transformers 5.12, models/cvt/modeling_cvt.py. */
#include "blocks/image.h"

enum { MAX_STAGES = 8 };

struct cvt {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], heads[MAX_STAGES], patch[MAX_STAGES],
		stride[MAX_STAGES], kernel[MAX_STAGES], stride_kv[MAX_STAGES], stride_q[MAX_STAGES];
	double pad[MAX_STAGES], pad_kv[MAX_STAGES], pad_q[MAX_STAGES], ratio[MAX_STAGES],
		p[MAX_STAGES], attn_p[MAX_STAGES], drop[MAX_STAGES], bias[MAX_STAGES],
		cls[MAX_STAGES];
};
OOM_OWN(cvt, struct cvt);

static void read_stages(struct oom_reader *r, struct cvt *c)
{
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
}

static bool within(double pad)
{
	return pad >= 0 && pad <= 4096;
}

static void cvt_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct cvt *c = cvt_own(a);

	oom_read_image(a, 224);
	read_stages(r, c);
	for (uint64_t i = 0; i < c->n; i++) {
		a->n_layers += c->depth[i];
		if (c->c[i] > 65536 || c->heads[i] > c->c[i] || c->patch[i] > 4096 ||
		    c->kernel[i] > 1024 || !(c->ratio[i] > 0 && c->ratio[i] <= 1024) ||
		    !within(c->pad[i]) || !within(c->pad_kv[i]) || !within(c->pad_q[i]))
			oom_read_fail(r, "a size of stage %llu is out of range",
				      (unsigned long long)i);
	}
	a->d_model = c->n ? c->c[c->n - 1] : 1;
	if (!c->n || a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "depth out of range");
}

struct cvt_layer {
	const struct oom_arch *a;
	const struct cvt *c;
	uint64_t i, h, w;               /* stage, sides of its map */
	bool cls, path;
};

/* Depthwise convolution and batch norm of the map, as tokens; the class token before them. */
static struct oom_val projection(struct oom_tape *t, const struct cvt_layer *l, struct oom_val map,
				 struct oom_val cls, uint64_t stride, double pad, uint64_t *n)
{
	const struct oom_dim width = {l->c->c[l->i], "embed_dim"};
	const struct oom_conv conv = {.out = width.n, .kernel = l->c->kernel[l->i],
				      .stride = stride, .pad = (uint64_t)pad, .groups = width.n};
	struct oom_map m = oom_tokens_map(t, map, width.n, l->h, l->w);
	struct oom_val x;

	m = oom_batch_norm(t, "normalization", oom_conv2d(t, "convolution", m, &conv));
	x = oom_map_tokens(t, m);
	*n = m.h * m.w + l->cls;
	return l->cls ? oom_op_cat_into(t, cls, x, oom_tokens_of(t, *n), width) : x;
}

static struct oom_val cvt_attention(struct oom_tape *t, const struct cvt_layer *l, struct oom_val x)
{
	const struct cvt *c = l->c;
	const uint64_t i = l->i, heads = c->heads[i];
	const struct oom_dim width = {c->c[i], "embed_dim"};
	const bool bias = c->bias[i] != 0;
	struct oom_frame f = {.t = t};
	struct oom_val cls = oom_none(), map, q, k, v;
	uint64_t keys = 0, queries = 0;
	struct oom_attn at;

	map = x = oom_arg(&f, x);
	if (l->cls) {
		cls = oom_name(&f, oom_op_slice(t, x, t->m_b, width));
		map = oom_name(&f, oom_op_slice(t, x, oom_tokens_of(t, l->h * l->w), width));
	}
	k = projection(t, l, map, cls, c->stride_kv[i], c->pad_kv[i], &keys);
	q = projection(t, l, map, cls, c->stride_q[i], c->pad_q[i], &queries);
	v = projection(t, l, map, cls, c->stride_kv[i], c->pad_kv[i], &keys);
	if (t->status)
		return oom_leave(&f, x);
	at = oom_attn_over(t, l->a, heads, width.n, queries, keys);
	at.dropout = c->attn_p[i];
	q = oom_project_heads(t, "projection_query", q, width.n, bias, heads);
	k = oom_project_heads(t, "projection_key", k, width.n, bias, heads);
	v = oom_project_heads(t, "projection_value", v, width.n, bias, heads);
	/* the output projection is a module of its own */
	q = oom_leave(&f, oom_written_attention(t, &at, q, k, v, NULL));
	return oom_op_dropout(t, oom_op_linear(t, "dense", q, width, OOM_BIAS), c->p[i]);
}

/* x is the caller's. */
static struct oom_val cvt_block(struct oom_tape *t, const struct cvt_layer *l, struct oom_val x)
{
	const struct cvt *c = l->c;
	const struct oom_dim d = {c->c[l->i], "embed_dim"},
			     ff = {(uint64_t)(c->ratio[l->i] * (double)d.n), "intermediate"};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	y = cvt_attention(t, l, oom_op_layer_norm(t, "layernorm_before", x, 0, true, true));
	y = oom_name(&f, y);                    /* self_attention_output, attention_output */
	x = oom_name(&f, oom_op_add(t, l->path ? oom_drop_path(t, y) : y, x));
	y = oom_op_layer_norm(t, "layernorm_after", x, 0, true, true);
	y = oom_activation(t, OOM_ACT_GELU, oom_op_linear(t, "dense", y, ff, OOM_BIAS));
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, d, OOM_BIAS), c->p[l->i]);
	y = oom_op_add(t, y, oom_take(&f, x));
	if (l->path)                            /* of the sum, as the code does */
		y = oom_drop_path(t, y);
	return oom_leave(&f, y);
}

static struct oom_map cvt_embeddings(struct oom_tape *t, const struct cvt *c, uint64_t i,
				     struct oom_map m)
{
	const struct oom_dim width = {c->c[i], "embed_dim"};
	const struct oom_conv conv = {.out = width.n, .kernel = c->patch[i], .stride = c->stride[i],
				      .pad = (uint64_t)c->pad[i], .bias = true,
				      .channels_last = i > 0};
	const bool cls = c->cls[i] != 0;
	struct oom_val token = oom_none(), x;

	if (cls)
		token = oom_param(t, "cls_token", 1, c->c[c->n - 1], 0);
	m = oom_conv2d(t, "projection", m, &conv);
	x = oom_op_layer_norm(t, "normalization", oom_map_tokens(t, m), 0, true, true);
	m.x = oom_op_dropout(t, x, c->p[i]);
	if (cls) {
		token = oom_op_expand(t, token, t->m_b, width);
		token.perm = false;
		m.x = oom_op_cat_into(t, token, m.x, oom_tokens_of(t, m.h * m.w + 1), width);
	}
	return m;
}

/* Stage i of a map that is the caller's; a class token, when it has one, in *cls. */
static struct oom_map cvt_stage(struct oom_tape *t, const struct oom_arch *a, uint64_t i,
				struct oom_map m, struct oom_val *cls)
{
	const struct cvt *c = cvt_of(a);
	const struct oom_dim width = {c->c[i], "embed_dim"};
	struct cvt_layer l = {.a = a,
			      .c = c,
			      .i = i,
			      .cls = c->cls[i] != 0,
			      .path = c->drop[i] > 0 && i &&
				      i < c->depth[i]}; /* linspace(0, rate, depth)[stage] */
	struct oom_frame f = {.t = t};
	struct oom_val x;

	m = cvt_embeddings(t, c, i, m);
	if (t->status)
		return m;
	l.h = m.h;
	l.w = m.w;
	x = oom_name(&f, m.x);
	for (uint64_t j = 0; j < c->depth[i] && !t->status; j++)
		x = oom_rename(&f, x, cvt_block(t, &l, x));
	if (l.cls) {
		*cls = oom_op_slice(t, x, t->m_b, width);
		x = oom_name(&f, oom_op_slice(t, x, oom_tokens_of(t, l.h * l.w), width));
	}
	return oom_leave_map(&f, oom_tokens_map(t, x, width.n, l.h, l.w));
}

static struct oom_val cvt_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct cvt *c = cvt_of(a);
	struct oom_frame f = {.t = t};
	struct oom_map m = oom_pixels(t, a);
	struct oom_val cls = oom_none(), x;

	oom_no_checkpointing(t);
	for (uint64_t i = 0; i < c->n && !t->status; i++) {
		oom_forget(&f, cls);
		cls = oom_none();
		m = oom_rename_map(&f, m, cvt_stage(t, a, i, m, &cls));
		cls = oom_name(&f, cls);
	}
	if (t->status)
		return oom_leave(&f, m.x);
	x = c->cls[c->n - 1] != 0 ? oom_take(&f, cls) : oom_map_tokens(t, m);
	x = oom_op_mean(t, oom_op_layer_norm(t, "layernorm", x, 0, true, true), t->m_b,
			D(a->d_model));
	return oom_leave(&f, oom_image_loss(t, a, x));
}

const struct oom_family oom_family_cvt = {
	.name = "cvt",
	.summary = "vision encoder with convolutional projections, in stages",
	.source = "transformers 5.12 models/cvt/modeling_cvt.py",
	.types = OOM_TYPE("cvt"),
	.lora_targets = "all-linear",
	.parse = cvt_parse,
	.step = cvt_step,
};
