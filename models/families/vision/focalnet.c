/* FocalNet: focal modulation (depthwise convolutions of growing reach, gated and summed) in
 * attention's place, in stages. Reference: transformers 5.12,
 * models/focalnet/modeling_focalnet.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8, MAX_LEVELS = 16 };

struct cfg {
	uint64_t n, depth[MAX_STAGES], window[MAX_STAGES], levels[MAX_STAGES], embed, layers;
	double ratio, drop;
	bool conv_embed, scale, post, post_inner, normalize;
};

static void read_cfg(struct oom_reader *r, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->n = oom_read_counts(r, "depths", c->depth, MAX_STAGES);
	if (oom_read_counts(r, "focal_windows", c->window, MAX_STAGES) < c->n ||
	    oom_read_counts(r, "focal_levels", c->levels, MAX_STAGES) < c->n)
		oom_read_fail(r,
			      "focal_windows and focal_levels must list a count for each of %llu "
			      "stages",
			      (unsigned long long)c->n);
	c->embed = oom_read_count_or(r, "embed_dim", 96);
	c->ratio = oom_read_real(r, "mlp_ratio", 4);
	c->drop = oom_read_real(r, "drop_path_rate", 0.1);
	c->conv_embed = oom_read_bool(r, "use_conv_embed", false);
	c->scale = oom_read_bool(r, "use_layerscale", false);
	c->post = oom_read_bool(r, "use_post_layernorm", false);
	c->post_inner = oom_read_bool(r, "use_post_layernorm_in_modulation", false);
	c->normalize = oom_read_bool(r, "normalize_modulator", false);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (c->levels[i] > MAX_LEVELS || c->window[i] > 1024)
			oom_read_fail(r, "focal_levels beyond %d or focal_windows beyond 1024",
				      MAX_LEVELS);
	}
	if (c->layers > OOM_MAX_LAYERS || !c->embed || c->embed > 65536 ||
	    !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "depths, embed_dim or mlp_ratio out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, &c);
	a->patch = oom_read_count_or(&a->rd, "patch_size", 4);
	a->act = oom_read_act(&a->rd, "hidden_act", "gelu");
	a->dropout = oom_read_real(&a->rd, "hidden_dropout_prob", 0);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.embed << (c.n - 1) : 1;
	if (!a->patch || a->patch > a->image_size)
		oom_read_fail(&a->rd, "patch_size does not fit image_size");
}

struct stage {
	const struct oom_arch *a;
	uint64_t c, ff, h, w, depth, first, window, levels;
	bool drop, last, scale, post, post_inner, normalize, conv_embed;
};

static struct oom_val modulation(struct oom_tape *t, const struct stage *s, struct oom_val x)
{
	const struct oom_dim c = {s->c, "channels"}, widths[3] = {c, c, D(s->levels + 1)},
			     one = D(1);
	const uint16_t m = oom_tokens_of(t, s->h * s->w);
	struct oom_val part[3], all = oom_none(), ctx, global, mod, y;
	struct oom_map map;

	y = oom_op_linear(t, "projection_in", oom_keep(x),
			  (struct oom_dim){2 * s->c + s->levels + 1, "2 * channels + levels + 1"},
			  OOM_BIAS);
	y = oom_op_copy(t, "contiguous", y);
	oom_op_split(t, y, 3, widths, part);
	ctx = oom_share(t, part[1]);
	for (uint64_t l = 0; l < s->levels && !t->status; l++) {
		const uint64_t kernel = 2 * l + s->window;
		struct oom_val term;

		map = oom_conv2d(t, "focal_layers", oom_tokens_map(t, ctx, s->c, s->h, s->w),
				 &(struct oom_conv){.out = s->c,
						    .kernel = kernel,
						    .pad = kernel / 2,
						    .groups = s->c});
		if (t->status)
			return x;
		ctx = oom_activation(t, OOM_ACT_GELU, oom_map_tokens(t, map));
		term = oom_op_mul(t, oom_keep(ctx), oom_op_slice(t, oom_keep(part[2]), m, one));
		all = l ? oom_op_add(t, all, term) : oom_op_unary(t, OOM_ADD_SCALAR, term);
	}
	global = oom_op_mean(t, oom_keep(ctx), oom_tokens_of(t, s->w), c);
	global = oom_activation(t, OOM_ACT_GELU, oom_op_mean(t, global, t->m_b, c));
	y = oom_op_mul(t, oom_op_expand(t, oom_keep(global), m, c),
		       oom_op_slice(t, oom_keep(part[2]), m, one));
	all = oom_op_add(t, all, y);
	if (s->normalize)
		all = oom_op_unary(t, OOM_SCALE, all);
	map = oom_conv2d(t, "projection_context",
			 oom_tokens_map(t, oom_keep(all), s->c, s->h, s->w),
			 &(struct oom_conv){.out = s->c, .kernel = 1, .bias = true});
	if (t->status)
		return x;
	mod = oom_map_tokens(t, map);
	y = oom_op_copy(t, "contiguous", oom_op_mul(t, oom_keep(part[0]), oom_keep(mod)));
	if (s->post_inner)
		y = oom_op_layer_norm(t, "layernorm", y, 0, true, true);
	y = oom_op_linear(t, "projection_out", y, c, OOM_BIAS);
	oom_drop_all(t, (struct oom_val[]){part[0], part[1], part[2], all, ctx, global, mod}, 7);
	oom_done(t, x);
	return oom_op_dropout(t, y, s->a->dropout);
}

static struct oom_val mlp(struct oom_tape *t, const struct stage *s, struct oom_val x)
{
	struct oom_val y = oom_op_linear(t, "fc1", oom_keep(x),
					 (struct oom_dim){s->ff, "intermediate"}, OOM_BIAS);

	y = oom_op_dropout(t, oom_activation(t, s->a->act, y), s->a->dropout);
	y = oom_op_linear(t, "fc2", y, (struct oom_dim){s->c, "channels"}, OOM_BIAS);
	oom_done(t, x);
	return oom_op_dropout(t, y, s->a->dropout);
}

/* gamma * x, gamma a parameter or the number 1 */
static struct oom_val scaled(struct oom_tape *t, const struct stage *s, const char *name,
			     struct oom_val x)
{
	return s->scale ? oom_op_mul(t, oom_param(t, name, 0, s->c, 0), x) :
			  oom_op_unary(t, OOM_SCALE, x);
}

static struct oom_val block(struct oom_tape *t, const struct stage *s, uint64_t i, struct oom_val x)
{
	const bool path = s->drop && s->first + i;
	struct oom_val y = s->post ? oom_share(t, x) :
				     oom_op_layer_norm(t, "norm1", oom_keep(x), 0, true, true),
		       held;

	y = modulation(t, s, y);
	if (s->post)
		y = oom_op_layer_norm(t, "norm1", y, 0, true, true);
	held = oom_share(t, y);                 /* hidden_state until it is the sum */
	y = scaled(t, s, "gamma_1", y);
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, x, y);
	oom_drop(t, held);
	if (s->post)
		y = oom_op_layer_norm(t, "norm2", mlp(t, s, oom_keep(x)), 0, true, true);
	else
		y = mlp(t, s, oom_op_layer_norm(t, "norm2", oom_keep(x), 0, true, true));
	y = scaled(t, s, "gamma_2", y);
	if (path)
		y = oom_drop_path(t, y);
	return oom_op_add(t, x, y);
}

static struct oom_conv embed_conv(uint64_t out, bool conv, bool stem, uint64_t patch)
{
	if (conv && stem)
		return (struct oom_conv){
			.out = out, .kernel = 7, .pad = 2, .stride = 4, .bias = true};
	if (conv)
		return (struct oom_conv){
			.out = out, .kernel = 3, .pad = 1, .stride = 2, .bias = true};
	return (struct oom_conv){.out = out, .kernel = patch, .stride = patch, .bias = true};
}

static struct oom_val run_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct stage *s = ctx;
	struct oom_val input = oom_share(t, x), before;

	(void)j;
	for (uint64_t i = 0; i < s->depth && !t->status; i++) {
		const struct oom_val arg = oom_share(t, x);

		x = block(t, s, i, x);
		oom_drop(t, arg);
	}
	before = oom_share(t, x);
	if (!s->last && !t->status) {
		struct oom_conv v = embed_conv(2 * s->c, s->conv_embed, false, 2);
		struct oom_map m = oom_tokens_map(t, x, s->c, s->h, s->w);

		if (m.h % 2 || m.w % 2)
			m = oom_pad_map(t, m, m.h + m.h % 2, m.w + m.w % 2);
		v.channels_last = true;         /* tokens seen as a map */
		m = oom_conv2d(t, "downsample.projection", m, &v);
		if (!t->status)
			x = oom_op_layer_norm(t, "downsample.norm", oom_map_tokens(t, m), 0, true,
					      true);
	}
	oom_drop(t, input);
	before.node = -1;
	t->side = before;
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad;
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x, first, held = oom_none(), encoded;
	struct oom_conv v;
	struct stage s;
	struct cfg c;

	read_cfg(&rd, &c);
	v = embed_conv(c.embed, c.conv_embed, true, a->patch);
	if (m.h % a->patch)
		m = oom_pad_map(t, m, m.h + a->patch - m.h % a->patch,
				m.w + a->patch - m.w % a->patch);
	m = oom_conv2d(t, "projection", m, &v);
	if (t->status)
		return m.x;
	s = (struct stage){.a = a,
			   .h = m.h,
			   .w = m.w,
			   .drop = c.drop > 0,
			   .scale = c.scale,
			   .post = c.post,
			   .post_inner = c.post_inner,
			   .normalize = c.normalize,
			   .conv_embed = c.conv_embed};
	x = oom_op_dropout(t, oom_op_layer_norm(t, "norm", oom_map_tokens(t, m), 0, true, true),
			   a->dropout);
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	for (uint64_t j = 0; j < c.n && !t->status; j++) {
		const void *ctx;

		s.c = c.embed << j;
		s.ff = (uint64_t)(c.ratio * (double)s.c);
		s.depth = c.depth[j];
		s.window = c.window[j];
		s.levels = c.levels[j];
		s.last = j + 1 == c.n;
		ctx = oom_layer_ctx(t, &s, sizeof(s));
		if (!ctx)
			break;
		x = ckpt ? oom_layer_alone(t, (uint32_t)j, run_stage, ctx, x) :
			   run_stage(t, ctx, (uint32_t)j, x);
		oom_drop(t, held);
		held = t->side;
		t->side = oom_none();
		s.first += s.depth;
		s.h = (s.h + 1) / 2;
		s.w = (s.w + 1) / 2;
	}
	oom_drop(t, held);
	encoded = x;
	if (t->status)
		return x;
	x = oom_op_layer_norm(t, "layernorm", oom_keep(encoded), 0, true, true);
	m.x = oom_op_mean(t, oom_keep(x), t->m_b, D(a->d_model));
	oom_drop(t, first);
	oom_drop(t, encoded);
	return oom_image_head(t, a, m.x, x);
}

const struct oom_family oom_family_focalnet = {
	.name = "focalnet",
	.summary = "focal modulation in attention's place, in stages",
	.source = "transformers 5.12 models/focalnet/modeling_focalnet.py",
	.types = OOM_TYPE("focalnet"),
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
