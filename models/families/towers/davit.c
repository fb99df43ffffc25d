/* DaViT, Florence 2's tower: in every stage convolutions make patches of patches, and blocks attend to windows of the map,
 * then to the channels, each half after a depthwise convolution and before another with a feed-forward.  No block is
 * checkpointed.
 * Reference: transformers 5.12, models/florence2/modeling_florence2.py, Florence2VisionBackbone, Florence2MultiModalProjector. */
#include "blocks/image.h"
#include "ops/scan.h"
#include "projector.h"

enum { MAX_STAGES = 8 };
struct davit {
	uint64_t n, d[MAX_STAGES], depth[MAX_STAGES], kernel[MAX_STAGES], heads[MAX_STAGES], groups[MAX_STAGES], window, channels;
	double stride[MAX_STAGES], pad[MAX_STAGES], first[MAX_STAGES], ratio, drop;
	enum oom_act act;
	bool bias;
};

static bool davit_read(struct davit *v, struct oom_reader *r)
{
	*v = (struct davit){.window = oom_read_count_or(r, "window_size", 12), .channels = oom_read_count_or(r, "in_channels", 3),
			    .ratio = oom_read_real(r, "mlp_ratio", 4), .drop = oom_read_real(r, "drop_path_rate", 0.1),
			    .act = oom_read_act(r, "activation_function", "gelu"), .bias = oom_read_bool(r, "qkv_bias", true)};
	v->n = oom_read_counts(r, "embed_dim", v->d, MAX_STAGES);
	oom_read_stages(r, "depths", v->depth, MAX_STAGES, v->n);
	oom_read_stages(r, "patch_size", v->kernel, MAX_STAGES, v->n);
	oom_read_stages(r, "num_heads", v->heads, MAX_STAGES, v->n);
	oom_read_stages(r, "num_groups", v->groups, MAX_STAGES, v->n);
	oom_read_reals(r, "patch_stride", v->stride, v->n, 2);
	oom_read_reals(r, "patch_padding", v->pad, v->n, 1);
	oom_read_reals(r, "patch_prenorm", v->first, v->n, 1);
	for (uint64_t i = 0; i < v->n && !r->status; i++)
		if (v->d[i] > 65536 || v->heads[i] > v->d[i] || v->groups[i] > v->d[i] || v->kernel[i] > 1024 || v->depth[i] > 1000 ||
		    !(v->stride[i] >= 1 && v->stride[i] <= 1024) || !(v->pad[i] >= 0 && v->pad[i] <= 1024))
			oom_read_fail(r, "a size of stage %llu (%s) is out of range", (unsigned long long)i, r->prefix);
	if (!r->status && (!v->n || !v->window || v->window > 4096 || !(v->ratio > 0 && v->ratio < 1e4)))
		oom_read_fail(r, "embed_dim, depths and patch_size (%s) must list as many stages", r->prefix);
	return !r->status;
}

struct half {
	const struct davit *v;
	uint64_t i, h, w;               /* stage, sides of its map */
	bool channels, path;            /* it attends to channels; it may be left out */
};

static struct oom_attn attn_of(uint64_t heads, uint64_t width, uint16_t queries, uint16_t len)
{
	return (struct oom_attn){.heads = heads, .kv_heads = heads, .d = width, .dv = width, .mq = queries, .mk = queries,
				 .sk = len, .mask = oom_none(), .kv_from = oom_none(), .scale_after = true,
				 .softmax_as_is = true, .no_cast_back = true};
}

static void project(struct oom_tape *t, const struct davit *v, struct oom_val x, uint64_t c, struct oom_val p[3])
{
	const struct oom_dim d = {c, "embed_dim"}, parts[3] = {d, d, d};

	oom_op_split(t, oom_op_linear(t, "qkv", x, (struct oom_dim){3 * c, "3 * embed_dim"}, v->bias ? OOM_BIAS : 0), 3, parts, p);
}

/* Florence2VisionWindowAttention: x padded to whole windows and cut. */
static struct oom_val over_windows(struct oom_tape *t, const struct half *l, struct oom_val x)
{
	const uint64_t c = l->v->d[l->i], side = l->v->window, rows = (l->h + side - 1) / side * side,
		       columns = (l->w + side - 1) / side * side;
	const uint16_t tokens = x.mono, all = oom_tokens_of(t, rows * columns);
	const struct oom_dim d = {c, "embed_dim"};
	const struct oom_attn at = attn_of(l->v->heads[l->i], c / l->v->heads[l->i], all, oom_length_of(t, side * side));
	struct oom_frame f = {.t = t};
	struct oom_val p[3], padded;

	x = oom_arg(&f, x);
	padded = oom_name(&f, oom_op_pad(t, x, all, d));
	x = oom_name(&f, oom_op_copy(t, "contiguous", padded));
	project(t, l->v, x, c, p);
	for (int k = 0; k < 3; k++)
		p[k] = oom_name(&f, oom_op_heads(t, p[k]));
	x = oom_rename(&f, x, oom_attention_core(t, &at, p[0], p[1], p[2]));
	x = oom_rename(&f, x, oom_op_linear(t, "proj", x, d, OOM_BIAS));
	x = oom_rename(&f, padded, oom_op_copy(t, "contiguous", x));
	if (rows > l->h || columns > l->w)
		x = oom_op_copy(t, "contiguous", oom_op_slice(t, x, tokens, d));
	return oom_leave(&f, x);
}

/* Florence2VisionChannelAttention: the channels of a group attend to each other; what they are to the kernels lies across. */
static struct oom_val over_channels(struct oom_tape *t, const struct half *l, struct oom_val x)
{
	const uint64_t c = l->v->d[l->i], groups = l->v->groups[l->i], n = l->h * l->w, each = c / groups;
	const struct oom_dim d = {c, "embed_dim"}, across = {groups * n, "groups * tokens"};
	const uint16_t tokens = x.mono, channels = oom_tokens_of(t, each);
	struct oom_attn at = attn_of(groups, n, channels, oom_length_of(t, each));
	struct oom_frame f = {.t = t};
	struct oom_val p[3];

	at.across = true;
	x = oom_arg(&f, x);
	project(t, l->v, x, c, p);
	for (int k = 0; k < 3; k++)
		p[k] = oom_name(&f, oom_op_heads(t, oom_op_view(t, p[k], channels, across)));
	x = oom_name(&f, oom_attention_core(t, &at, p[0], p[1], p[2]));
	x = oom_rename(&f, x, oom_op_view(t, oom_op_copy(t, "reshape", x), tokens, d));
	return oom_leave(&f, oom_op_linear(t, "proj", x, d, OOM_BIAS));
}

/* x, which has a name, and its depthwise convolution, as rows. */
static struct oom_val convolved(struct oom_tape *t, const struct half *l, const char *name, struct oom_val x)
{
	const uint64_t c = l->v->d[l->i];
	const struct oom_conv conv = {.out = c, .kernel = 3, .stride = 1, .pad = 1, .groups = c, .bias = true};
	struct oom_map m = oom_tokens_map(t, x, c, l->h, l->w);

	m = oom_conv2d(t, name, m, &conv);
	return oom_op_add(t, oom_map_tokens(t, m), x);
}

/* Florence2VisionSpatialBlock, Florence2VisionChannelBlock. */
static struct oom_val half_block(struct oom_tape *t, const struct half *l, struct oom_val x)
{
	const uint64_t c = l->v->d[l->i];
	const struct oom_dim ff = {(uint64_t)((double)c * l->v->ratio), "embed_dim * mlp_ratio"};
	struct oom_frame f = {.t = t};
	struct oom_val h;

	x = oom_arg(&f, x);
	x = oom_name(&f, convolved(t, l, "conv1", x));
	h = oom_name(&f, oom_op_layer_norm(t, "norm1", x, 0, true, true));
	h = oom_rename(&f, h, l->channels ? over_channels(t, l, h) : over_windows(t, l, h));
	h = oom_rename(&f, h, oom_op_add(t, x, l->path ? oom_drop_path(t, h) : h));
	x = oom_rename(&f, x, convolved(t, l, "conv2", h));
	h = oom_rename(&f, h, oom_op_layer_norm(t, "norm2", x, 0, true, true));
	h = oom_rename(&f, h, oom_plain_mlp(t, h, "fc1", "fc2", l->v->act, ff, true));
	return oom_leave(&f, oom_op_add(t, x, l->path ? oom_drop_path(t, h) : h));
}

/* Florence2VisionConvEmbed; the norm is before the convolution or behind it. */
static struct oom_val stage_begins(struct oom_tape *t, const struct davit *v, struct half *l, struct oom_val x)
{
	const uint64_t in = l->i ? v->d[l->i - 1] : v->channels;
	const struct oom_conv conv = {.out = v->d[l->i], .kernel = v->kernel[l->i], .stride = (uint64_t)v->stride[l->i],
				      .pad = (uint64_t)v->pad[l->i], .bias = true};
	struct oom_map m;

	if (v->first[l->i])
		x = oom_op_layer_norm(t, "norm", oom_op_view(t, x, oom_tokens_of(t, l->h * l->w), (struct oom_dim){in, NULL}), 0, true,
				      true);
	m = oom_conv2d(t, "conv", oom_tokens_map(t, x, in, l->h, l->w), &conv);
	l->h = m.h;
	l->w = m.w;
	x = oom_map_tokens(t, m);
	return v->first[l->i] ? x : oom_op_layer_norm(t, "norm", x, 0, true, true);
}

static struct oom_val stages(struct oom_tape *t, const struct davit *v, struct half *l, struct oom_val x)
{
	uint64_t done = 0;
	struct oom_frame f = {.t = t};

	for (l->i = 0; l->i < v->n && !t->status; l->i++) {
		x = oom_name(&f, stage_begins(t, v, l, x));
		for (uint64_t k = 0; k < 2 * v->depth[l->i]; k++, done++) {
			l->channels = k % 2;
			l->path = v->drop > 0 && done > 0;      /* linspace(0, rate, all) */
			x = oom_rename(&f, x, half_block(t, l, x));
		}
		x = oom_take(&f, x);
	}
	return oom_leave(&f, x);
}

/* Places by row and column, a place in time, the mean of all rows before them, a layer and a norm. */
static struct oom_val florence_projected(struct oom_emit *e, struct oom_val x, const struct half *l, uint64_t d)
{
	struct oom_tape *t = e->t;
	const uint64_t places = oom_read_count_or(&e->part[1], "max_position_embeddings", 50),
		       times = oom_read_count_or(&e->part[1], "max_temporal_embeddings", 100),
		       out = oom_read_count_or(&e->part[1], "projection_dim", 1024), n = l->h * l->w;
	const struct oom_dim halves[2] = {{d - d / 2, "embed_dim / 2"}, {d / 2, "embed_dim / 2"}}, whole = {d, "embed_dim"};
	static const char *const names[2] = {"column_embeddings", "row_embeddings"};
	const uint16_t one = oom_length_of(t, n), tokens = x.mono;
	struct oom_frame f = {.t = t};
	struct oom_val p[2], mean;

	t->scope = "multi_modal_projector";
	oom_buffer(t, times * d, oom_loaded_dtype(t->plan));
	x = oom_name(&f, x);
	for (int i = 0; i < 2; i++) {
		const uint16_t side = oom_length_of(t, i ? l->h : l->w);

		p[i] = oom_op_embedding(t, names[i], oom_new(t, "arange", side, D(1), OOM_I64), places, halves[i], 0);
		p[i] = oom_op_expand_copy(t, p[i], one, halves[i]);
	}
	p[0] = oom_op_cat(t, p[0], p[1], whole);
	p[0] = oom_op_expand_copy(t, p[0], tokens, whole);
	x = oom_name(&f, oom_op_add(t, x, p[0]));
	x = oom_name(&f, oom_op_add(t, x, oom_input(t, "pos_idx_to_embed", OOM_MONO_ONE, d, oom_loaded_dtype(t->plan))));
	mean = oom_name(&f, oom_op_mean(t, x, e->m_images, whole));
	x = oom_name(&f, oom_op_mean(t, x, tokens, whole));
	oom_tower_tokens(e, n + 1);
	x = oom_op_cat_into(t, mean, x, e->m_tokens, whole);
	x = oom_project(e, "image_projection", x, out, false);
	return oom_leave(&f, oom_project_norm(e, OOM_NORM_LAYER, "image_proj_norm", x));
}

struct oom_val oom_emit_florence(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size : 768;
	const uint16_t b = t->m_b;
	struct davit v;
	struct half l = {.v = &v, .h = side, .w = side};
	struct oom_val x;

	if (!davit_read(&v, &e->part[1]))
		return oom_none();
	t->scope = "vision_tower";
	x = oom_pixel_values(t, e->m_images, v.channels * side * side);
	if (e->merged)
		t->pixels += (uint64_t)t->plan->images * v.channels * side * side;
	t->m_b = e->m_images;                   /* whose samples are images */
	x = stages(t, &v, &l, x);
	x = florence_projected(e, x, &l, v.d[v.n - 1]);
	t->m_b = b;
	return x;
}
