/* FocalNet: focal modulation (depthwise convolutions of growing reach, gated and summed) in
 * attention's place, in stages. Reference: transformers 5.12,
 * models/focalnet/modeling_focalnet.py. */
#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8, MAX_LEVELS = 16 };

struct focalnet {
	uint64_t n, depth[MAX_STAGES], window[MAX_STAGES], levels[MAX_STAGES];
	double ratio, drop;
	bool conv_embed, scale, post, post_inner, normalize;
};
OOM_OWN(focalnet, struct focalnet);

static const struct oom_key_row focalnet_keys[] = {
	OR(d_embed, "embed_dim", 96), OR(patch, "patch_size", 4), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout_prob", 0), REAL_OWN(struct focalnet, ratio, "mlp_ratio", 4),
	REAL_OWN(struct focalnet, drop, "drop_path_rate", 0.1),
	FLAG_OWN(struct focalnet, conv_embed, "use_conv_embed", false),
	FLAG_OWN(struct focalnet, scale, "use_layerscale", false),
	FLAG_OWN(struct focalnet, post, "use_post_layernorm", false),
	FLAG_OWN(struct focalnet, post_inner, "use_post_layernorm_in_modulation", false),
	FLAG_OWN(struct focalnet, normalize, "normalize_modulator", false), OOM_KEYS_END};

static void focalnet_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct focalnet *c = focalnet_own(a);

	oom_read_image(a, 224);
	c->n = oom_read_counts(r, "depths", c->depth, MAX_STAGES);
	oom_read_stages(r, "focal_windows", c->window, MAX_STAGES, c->n);
	oom_read_stages(r, "focal_levels", c->levels, MAX_STAGES, c->n);
	for (uint64_t i = 0; i < c->n; i++) {
		a->n_layers += c->depth[i];
		if (c->levels[i] > MAX_LEVELS || c->window[i] > 1024)
			oom_read_fail(r, "focal_levels beyond %d or focal_windows beyond 1024",
				      MAX_LEVELS);
	}
	a->d_model = c->n ? a->d_embed << (c->n - 1) : 1;
	if (a->n_layers > OOM_MAX_LAYERS || !a->d_embed || a->d_embed > 65536 ||
	    !(c->ratio > 0 && c->ratio <= 1024))
		oom_read_fail(r, "depths, embed_dim or mlp_ratio out of range");
	if (!a->patch || a->patch > a->image_size)
		oom_read_fail(r, "patch_size does not fit image_size");
}

struct focalnet_stage {
	const struct oom_arch *a;
	const struct focalnet *f;
	uint64_t i, c, h, w, first;
};

static struct oom_val focal_layer(struct oom_tape *t, const struct focalnet_stage *s,
				  uint64_t level, struct oom_val ctx)
{
	const uint64_t kernel = 2 * level + s->f->window[s->i];
	const struct oom_conv conv = {
		.out = s->c, .kernel = kernel, .pad = kernel / 2, .groups = s->c};
	struct oom_map map = oom_tokens_map(t, ctx, s->c, s->h, s->w);

	map = oom_conv2d(t, "focal_layers", map, &conv);
	return oom_activation(t, OOM_ACT_GELU, oom_map_tokens(t, map));
}

/* ctx of every reach times its gate, and their mean over the map, added up. */
static struct oom_val focal_context(struct oom_frame *f, const struct focalnet_stage *s,
				    struct oom_val ctx, struct oom_val gates)
{
	struct oom_tape *t = f->t;
	const struct oom_dim c = {s->c, "channels"}, one = D(1);
	const uint16_t m = oom_tokens_of(t, s->h * s->w);
	struct oom_val all = oom_none(), term;

	for (uint64_t l = 0; l < s->f->levels[s->i] && !t->status; l++) {
		ctx = oom_name(f, focal_layer(t, s, l, oom_take(f, ctx)));
		term = oom_op_mul(t, ctx, oom_op_slice(t, gates, m, one));
		all = l ? oom_op_add(t, all, term) : oom_op_unary(t, OOM_ADD_SCALAR, term);
	}
	term = oom_op_mean(t, oom_op_mean(t, ctx, oom_tokens_of(t, s->w), c), t->m_b, c);
	term = oom_name(f, oom_activation(t, OOM_ACT_GELU, term));      /* ctx_global */
	term = oom_op_mul(t, oom_op_expand(t, term, m, c), oom_op_slice(t, gates, m, one));
	all = oom_op_add(t, all, term);
	return oom_name(f, s->f->normalize ? oom_op_unary(t, OOM_SCALE, all) : all);
}

static struct oom_val focal_modulation(struct oom_tape *t, const struct focalnet_stage *s,
				       struct oom_val x)
{
	const uint64_t levels = s->f->levels[s->i];
	const struct oom_dim c = {s->c, "channels"}, widths[3] = {c, c, D(levels + 1)},
			     in = {2 * s->c + levels + 1, "2 * channels + levels + 1"};
	const struct oom_conv conv = {.out = s->c, .kernel = 1, .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_val part[3], all, ctx, mod, y;
	struct oom_map map;

	x = oom_arg(&f, x);
	y = oom_op_copy(t, "contiguous", oom_op_linear(t, "projection_in", x, in, OOM_BIAS));
	oom_op_split(t, y, 3, widths, part);
	oom_name_each(&f, part, 3);
	ctx = oom_name(&f, part[1]);
	all = focal_context(&f, s, ctx, part[2]);
	map = oom_tokens_map(t, all, s->c, s->h, s->w);
	mod = oom_name(&f, oom_map_tokens(t, oom_conv2d(t, "projection_context", map, &conv)));
	y = oom_op_copy(t, "contiguous", oom_op_mul(t, part[0], mod));
	if (s->f->post_inner)
		y = oom_op_layer_norm(t, "layernorm", y, 0, true, true);
	y = oom_leave(&f, oom_op_linear(t, "projection_out", y, c, OOM_BIAS));
	return oom_op_dropout(t, y, s->a->dropout);
}

static struct oom_val focalnet_mlp(struct oom_tape *t, const struct focalnet_stage *s,
				   struct oom_val x)
{
	const struct oom_dim c = {s->c, "channels"},
			     ff = {(uint64_t)(s->f->ratio * (double)s->c), "intermediate"};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_activation(t, s->a->act, oom_op_linear(t, "fc1", x, ff, OOM_BIAS));
	y = oom_op_linear(t, "fc2", oom_op_dropout(t, y, s->a->dropout), c, OOM_BIAS);
	return oom_op_dropout(t, oom_leave(&f, y), s->a->dropout);
}

/* [drop path of] gamma * x, gamma a parameter or the number 1 */
static struct oom_val scaled(struct oom_tape *t, const struct focalnet_stage *s, const char *name,
			     struct oom_val x, bool path)
{
	x = s->f->scale ? oom_op_mul(t, oom_param(t, name, 0, s->c, 0), x) :
			  oom_op_unary(t, OOM_SCALE, x);
	return path ? oom_drop_path(t, x) : x;
}

/* x is the caller's. */
static struct oom_val focalnet_layer(struct oom_tape *t, const struct focalnet_stage *s,
				     uint64_t i, struct oom_val x)
{
	const bool path = s->f->drop > 0 && s->first + i, post = s->f->post;
	struct oom_frame f = {.t = t};
	struct oom_val y = x, h;

	if (!post)
		y = oom_op_layer_norm(t, "norm1", x, 0, true, true);
	y = focal_modulation(t, s, y);
	if (post)
		y = oom_op_layer_norm(t, "norm1", y, 0, true, true);
	h = oom_name(&f, y);
	h = oom_rename(&f, h, oom_op_add(t, x, scaled(t, s, "gamma_1", h, path)));
	if (post)
		y = oom_op_layer_norm(t, "norm2", focalnet_mlp(t, s, h), 0, true, true);
	else
		y = focalnet_mlp(t, s, oom_op_layer_norm(t, "norm2", h, 0, true, true));
	return oom_leave(&f, oom_op_add(t, h, scaled(t, s, "gamma_2", y, path)));
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

/* x is the caller's. */
static struct oom_val downsample(struct oom_tape *t, const struct focalnet_stage *s,
				 struct oom_val x)
{
	struct oom_conv v = embed_conv(2 * s->c, s->f->conv_embed, false, 2);
	struct oom_map m = oom_tokens_map(t, x, s->c, s->h, s->w);

	if (m.h % 2 || m.w % 2)
		m = oom_pad_map(t, m, m.h + m.h % 2, m.w + m.w % 2);
	v.channels_last = true;                 /* tokens seen as a map */
	m = oom_conv2d(t, "downsample.projection", m, &v);
	return oom_op_layer_norm(t, "downsample.norm", oom_map_tokens(t, m), 0, true, true);
}

/* Layers and merge; what came before the merge is returned too. */
static struct oom_val focalnet_stage(struct oom_tape *t, const void *ctx, uint32_t j,
				     struct oom_val x)
{
	const struct focalnet_stage *s = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val before;

	(void)j;
	for (uint64_t i = 0; i < s->f->depth[s->i] && !t->status; i++)
		x = oom_rename(&f, x, focalnet_layer(t, s, i, x));
	before = x;
	before.node = -1;
	if (s->i + 1 < s->f->n && !t->status)
		x = oom_name(&f, downsample(t, s, x));
	oom_give_beside(&f, before);
	return oom_leave(&f, x);
}

/* What a stage had before its merge lives until the next stage has returned. */
static struct oom_val focalnet_encoder(struct oom_tape *t, const struct oom_arch *a,
				       const struct oom_map *m, struct oom_val x)
{
	struct focalnet_stage s = {.a = a, .f = focalnet_of(a), .h = m->h, .w = m->w};
	struct oom_frame f = {.t = t};
	struct oom_val before = oom_none();

	for (uint64_t j = 0; j < s.f->n && !t->status; j++) {
		s.i = j;
		s.c = a->d_embed << j;
		x = oom_rename(&f, x, oom_run_stage(t, j, focalnet_stage, &s, sizeof(s), x));
		before = oom_rename(&f, before, oom_take_beside(t));
		s.first += s.f->depth[j];
		s.h = (s.h + 1) / 2;
		s.w = (s.w + 1) / 2;
	}
	return oom_leave(&f, x);
}

static struct oom_val focalnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_conv conv =
		embed_conv(a->d_embed, focalnet_of(a)->conv_embed, true, a->patch);
	/* of the classifier, which holds the base model's output, and of the model */
	struct oom_frame f = {.t = t}, model = {.t = t};
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x;

	if (m.h % a->patch)
		m = oom_pad_map(t, m, m.h + a->patch - m.h % a->patch,
				m.w + a->patch - m.w % a->patch);
	m = oom_conv2d(t, "projection", m, &conv);
	x = oom_op_layer_norm(t, "norm", oom_map_tokens(t, m), 0, true, true);
	x = oom_name(&model, oom_op_dropout(t, x, a->dropout));         /* embedding_output */
	x = oom_name(&model, focalnet_encoder(t, a, &m, x));
	x = oom_name(&f, oom_op_layer_norm(t, "layernorm", x, 0, true, true));
	x = oom_leave(&model, oom_op_mean(t, x, t->m_b, D(a->d_model)));
	return oom_leave(&f, oom_image_loss(t, a, x));
}

const struct oom_family oom_family_focalnet = {
	.name = "focalnet",
	.summary = "focal modulation in attention's place, in stages",
	.source = "transformers 5.12 models/focalnet/modeling_focalnet.py",
	.types = OOM_TYPE("focalnet"),
	.lora_targets = "all-linear",
	.keys = focalnet_keys,
	.parse = focalnet_parse,
	.step = focalnet_step,
};
