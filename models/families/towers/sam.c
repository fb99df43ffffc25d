/* SAM's encoder and what stands on it.  Its attention is written out whatever the plan asks for (SAM's own class has a fused one as
 * well, with the biases as its mask): over windows of the image,
 * or all of it, with biases that are products of the queries and learned places (relative positions by rows and columns).
 * Reference: transformers 5.12, models/{got_ocr2,deepseek_vl_hybrid,pp_formulanet}/modeling_*.py. */
#include "blocks/image.h"
#include "ops/scan.h"
#include "projector.h"
#include "vision.h"
#include "weights.h"

enum { DEEPEST = 256, LARGEST = 32 };   /* layers; those of the largest that there is */
struct sam {
	uint64_t d, ff, heads, layers, out, window, grid, patch, channels;
	bool bias, relative, places;
	bool kernels;                           /* SamVisionSdpaAttention is there: attention is fused where the plan asks for it */
	enum oom_act act;
	bool whole[DEEPEST];                    /* layers that attend to all of the image */
	uint16_t m_images;
};

/* mlp_dim absent or null: mlp_ratio * hidden_size */
static struct sam sam_read(struct oom_reader *r)
{
	struct sam s = {.d = oom_read_count(r, "hidden_size", 1), .heads = oom_read_count(r, "num_attention_heads", 1),
			.layers = oom_read_count(r, "num_hidden_layers", 0), .out = oom_read_count_or(r, "output_channels", 256),
			.window = oom_read_count_or(r, "window_size", 14), .patch = oom_read_side(r, "patch_size", 16),
			.channels = oom_read_count_or(r, "num_channels", 3), .bias = oom_read_bool(r, "qkv_bias", true),
			.relative = oom_read_bool(r, "use_rel_pos", true), .places = oom_read_bool(r, "use_abs_pos", true),
			.act = oom_read_act(r, "hidden_act", "gelu")};
	const uint64_t global = oom_read_items(r, "global_attn_indexes", 0);

	s.grid = oom_read_side(r, "image_size", 1024) / (s.patch ? s.patch : 1);
	s.ff = oom_read_count_or(r, "mlp_dim", (uint64_t)((double)s.d * oom_read_real(r, "mlp_ratio", 4)));
	for (uint32_t i = 0; i < global && i < DEEPEST; i++) {
		const double at = oom_read_item_real(r, "global_attn_indexes", i, -1);

		if (at >= 0 && at < DEEPEST)
			s.whole[(size_t)at] = true;
	}
	if (!r->status && (s.heads > s.d || !s.patch || !s.grid || !s.window || !s.ff || s.layers > DEEPEST ||
			   s.channels > 65536 || s.window > 65536 || s.grid > 65536 || s.out > 1 << 20))
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
	if (r->status)                          /* the smallest there is, so that the emission comes to its end */
		s = (struct sam){.d = 1, .ff = 1, .heads = 1, .out = 1, .window = 1, .grid = 1, .patch = 1, .channels = 1};
	return s;
}

/* einsum("bhwc,hkc->bhwk", queries, places): the product of the queries, by rows (a copy) or by columns (a view), and of
 * the places of 2 side - 1, stretched, that belong to each pair. */
static struct oom_val by_places(struct oom_tape *t, const char *name, struct oom_val q, uint64_t side, uint64_t heads,
				uint64_t head)
{
	const struct oom_dim d = {head, "head_dim"}, out = {heads * side, "n_heads * side"};
	const uint16_t pairs = oom_len_const(t, oom_len_const(t, OOM_MONO_ONE, side), side);
	struct oom_frame f = {.t = t};
	struct oom_val p = oom_param(t, name, 2 * side - 1, head, 0), index;

	p = oom_op_view(t, p, oom_len_const(t, OOM_MONO_ONE, 2 * side - 1), d);
	p = oom_name(&f, oom_op_copy(t, "interpolate", p));
	index = oom_name(&f, oom_new(t, "relative_coords", pairs, D(1), OOM_I64));
	p = oom_name(&f, oom_op_gather(t, "index", p, index, pairs, d));
	return oom_leave(&f, oom_op_bmm(t, name, q, p, q.mono, out, head));
}

/* get_decomposed_rel_pos, reshaped: the biases of both axes for pairs of `tokens` in squares of side x side. */
static struct oom_val biases(struct oom_tape *t, const struct sam *s, struct oom_val q, uint16_t m, uint64_t side)
{
	const uint64_t head = s->d / s->heads;
	struct oom_val rows, columns;

	rows = by_places(t, "rel_pos_h", oom_op_copy(t, "einsum", q), side, s->heads, head);
	columns = by_places(t, "rel_pos_w", q, side, s->heads, head);
	rows = oom_op_add_into(t, rows, columns, m, (struct oom_dim){s->heads, "n_heads"});
	return oom_op_copy(t, "reshape", rows);
}

/* Scores, with the biases of both axes, of `tokens` in squares of side x side. */
static struct oom_val scored(struct oom_frame *f, const struct sam *s, struct oom_val q, struct oom_val k, uint64_t side)
{
	const uint16_t m = oom_len_const(f->t, q.mono, side * side);
	const struct oom_dim heads = {s->heads, "n_heads"};
	struct oom_tape *t = f->t;
	struct oom_val w, rows;

	w = oom_name(f, oom_op_bmm(t, "scores", oom_op_unary(t, OOM_SCALE, q), k, m, heads, s->d / s->heads));
	if (!s->relative)
		return w;
	rows = oom_name(f, biases(t, s, q, m, side));           /* decomposed_rel_pos */
	return oom_rename(f, w, oom_op_add(t, w, rows));
}

static bool is_fused(const struct oom_tape *t, const struct sam *s)
{
	return s->kernels && t->plan->attn != OOM_ATTN_EAGER;
}

/* SamVisionSdpaAttention of queries, keys and values p: the biases are the kernel's mask, which takes a gradient. */
static struct oom_val fused(struct oom_frame *f, const struct sam *s, struct oom_val p[3], uint64_t side)
{
	const uint64_t head = s->d / s->heads;
	const uint16_t m = oom_len_const(f->t, p[0].mono, side * side);
	const uint16_t len = oom_len_const(f->t, OOM_MONO_ONE, side * side);
	const struct oom_sdpa at = {.heads = s->heads, .kv_heads = s->heads, .d = head, .dv = head, .mq = p[0].mono,
				    .mk = p[0].mono, .sk = len, .sq = len};
	struct oom_val bias = s->relative ? oom_name(f, biases(f->t, s, p[0], m, side)) : oom_none();
	struct oom_val x = oom_name(f, oom_op_sdpa(f->t, p[0], p[1], p[2], bias, &at));

	return oom_rename(f, x, oom_op_merge_heads(f->t, x));
}

/* GotOcr2VisionAttention: x in squares, whose weights get a name in the caller's frame. */
static struct oom_val attention(struct oom_frame *caller, const struct sam *s, struct oom_val x, uint64_t side)
{
	const struct oom_dim d = {s->d, "hidden_size"}, all = {3 * s->d, "3 * hidden_size"}, parts[3] = {d, d, d};
	struct oom_tape *t = caller->t;
	struct oom_frame f = {.t = t};
	const uint16_t m = x.mono;
	struct oom_val qkv, p[3], w;

	x = oom_arg(&f, x);
	qkv = oom_name(&f, oom_op_linear(t, "qkv", x, all, s->bias ? OOM_BIAS : 0));
	oom_op_split(t, oom_op_copy(t, "reshape", qkv), 3, parts, p);
	oom_name_each(&f, p, 3);
	if (is_fused(t, s)) {
		x = fused(&f, s, p, side);
		return oom_leave(&f, oom_op_linear(t, "proj", x, d, OOM_BIAS));
	}
	w = scored(&f, s, p[0], p[1], side);
	w = oom_rename(&f, w, oom_op_cast(t, oom_op_softmax(t, w, true), (enum oom_dtype)p[2].dt));
	oom_name(caller, oom_give(&f, w));
	x = oom_op_bmm(t, "attention", w, p[2], m, d, side * side);
	x = oom_name(&f, oom_op_copy(t, "reshape", x));
	return oom_leave(&f, oom_op_linear(t, "proj", x, d, OOM_BIAS));
}

/* GotOcr2VisionLayer */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct sam *s = ctx;
	const bool whole = s->whole[i % DEEPEST];
	const uint64_t side = whole ? s->grid : s->window, padded = (s->grid + s->window - 1) / s->window * s->window;
	const struct oom_dim d = {s->d, "hidden_size"}, ff = {s->ff, "mlp_dim"};
	const uint64_t each = s->window * s->window, all = padded * padded;
	/* kernels round up a window's length, which is a factor of its own then */
	const uint16_t tokens = x.mono, windows = is_fused(t, s) ? oom_len_const(t, oom_len_const(t, s->m_images, all / each), each) :
								 oom_len_const(t, s->m_images, all);
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_name(&f, oom_op_layer_norm(t, "layer_norm1", x, 0, true, true));

	if (!whole)                             /* padded, which copies, and cut */
		h = oom_rename(&f, h, oom_op_copy(t, "contiguous", oom_op_pad(t, h, windows, d)));
	h = oom_rename(&f, h, attention(&f, s, h, side));
	if (!whole) {
		struct oom_val y = oom_op_copy(t, "contiguous", h);

		if (padded > s->grid)
			y = oom_op_copy(t, "contiguous", oom_op_slice(t, y, tokens, d));
		h = oom_rename(&f, h, y);
	}
	h = oom_rename(&f, h, oom_op_add(t, x, h));
	x = oom_name(&f, oom_op_layer_norm(t, "layer_norm2", h, 0, true, true));
	return oom_leave(&f, oom_op_add(t, h, oom_plain_mlp(t, x, "lin1", "lin2", s->act, ff, true)));
}

/* A convolution without a bias of n tokens an image. */
static struct oom_val conv(struct oom_emit *e, const char *name, struct oom_val x, uint64_t out, uint64_t kernel, uint64_t n)
{
	const uint64_t in = x.width;

	oom_tower_tokens(e, n ? n : 1);
	return oom_op_conv_square(e->t, name, x, in, kernel, false, e->m_tokens, (struct oom_dim){out, "channels"});
}

static struct oom_val sam_neck(struct oom_emit *e, const struct sam *s, struct oom_val x)
{
	const uint64_t n = s->grid * s->grid;
	struct oom_tape *t = e->t;

	t->scope = "neck";
	x = oom_op_layer_norm(t, "layer_norm1", conv(e, "conv1", x, s->out, 1, n), 0, true, true);
	return oom_op_layer_norm(t, "layer_norm2", conv(e, "conv2", x, s->out, 3, n), 0, true, true);
}

/* Reads the tower of part i and emits what its first layer takes. */
static struct oom_val sam_begin(struct oom_emit *e, size_t i, struct sam *s)
{
	struct oom_tape *t = e->t;
	struct oom_dim d = {0, "hidden_size"};
	uint64_t cut;
	struct oom_val x, places = oom_none();

	*s = sam_read(&e->part[i]);
	s->m_images = e->m_images;
	d.n = s->d;
	cut = s->channels * s->patch * s->patch;
	x = oom_pixel_values(t, e->m_images, s->grid * s->grid * cut);
	if (e->merged)
		t->pixels += (uint64_t)t->plan->images * s->grid * s->grid * cut;
	t->scope = "embeddings";
	oom_tower_tokens(e, s->grid * s->grid);
	if (s->places)
		places = oom_param(t, "pos_embed", s->grid * s->grid, s->d, 0);
	x = oom_hooked(t, oom_op_conv_square(t, "projection", x, s->channels, s->patch, true, e->m_tokens, d));
	return s->places ? oom_op_add(t, x, oom_op_view(t, places, e->m_len, d)) : x;
}

/* The same up to its neck. */
static struct oom_val sam_run(struct oom_emit *e, size_t i, struct sam *s)
{
	struct oom_tape *t = e->t;
	struct oom_val x = sam_begin(e, i, s);
	uint8_t kind[DEEPEST];

	for (size_t k = 0; k < DEEPEST; k++)
		kind[k] = s->whole[k];
	x = oom_layers_sized(t, (uint32_t)s->layers, kind, block, s, sizeof(*s), x);
	return sam_neck(e, s, x);
}

/* GotOcr2MultiModalProjector: two convolutions halve the sides, which are padded by one. */
struct oom_val oom_emit_sam(struct oom_emit *e)
{
	const uint64_t d = e->a->d_model;
	struct sam s;
	struct oom_val x = sam_run(e, 1, &s);
	const uint64_t half = (s.grid + 1) / 2, quarter = (half + 1) / 2;

	e->t->scope = "multi_modal_projector";
	e->t->selection.part = OOM_PART_PROJECTOR;
	x = conv(e, "conv_upsampler1", x, 2 * s.out, 3, half * half);
	x = conv(e, "conv_upsampler2", x, d, 3, quarter * quarter);
	e->t->selection.part = OOM_PART_TOWER;
	return oom_project(e, "multimodal_projector", x, d, true);
}

/* Convolutions that halve the sides of a map twice (DeepseekVLSamVisionProj): opened once, run on two maps. */
struct halves {
	struct oom_val w[2];
	uint64_t side, out;             /* of the result; channels of the map */
};

static struct halves halves_open(struct oom_emit *e, uint64_t side, uint64_t out)
{
	static const char *const names[2] = {"conv1", "conv2"};
	struct halves h = {.side = side, .out = out};

	for (uint64_t i = 0; i < 2; i++) {
		e->t->scope = names[i];
		h.w[i] = oom_param(e->t, "weight", (2 << i) * out * ((1 + i) * out) * 3, 3, 0);
		oom_param_stacked(e->t, h.w[i], 3);
	}
	e->t->scope = "high_res_vision_proj";
	return h;
}

/* The map is stretched to four times the result's sides first. */
static struct oom_val halves_run(struct oom_emit *e, const struct halves *h, struct oom_val x)
{
	struct oom_tape *t = e->t;
	const uint64_t n = h->side * h->side;

	oom_tower_tokens(e, 16 * n);
	x = oom_op_expand_copy(t, x, e->m_tokens, (struct oom_dim){h->out, "output_channels"}); /* interpolate */
	oom_tower_tokens(e, 4 * n);
	x = oom_op_conv_param(t, x, h->w[0], oom_none(), e->m_tokens, (struct oom_dim){2 * h->out, "2 * output_channels"});
	oom_tower_tokens(e, n);
	return oom_op_conv_param(t, x, h->w[1], oom_none(), e->m_tokens, (struct oom_dim){4 * h->out, "4 * output_channels"});
}

/* get_high_res_image_features: the neck's map, and a second neck's of an inner layer, scaled.  The caller gets the states
 * of all layers (output_hidden_states=True). */
static struct oom_val high_res(struct oom_emit *e, struct oom_frame *caller, uint64_t side)
{
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	struct oom_val x, inner = oom_none(), alpha;
	struct halves h;
	struct sam s;
	uint64_t at = 0;
	const void *ctx;

	alpha = oom_param(t, "high_res_vision_alpha", 0, 1, 0);
	x = oom_name(caller, sam_begin(e, 2, &s));
	s.kernels = true;
	ctx = oom_layer_ctx(t, &s, sizeof(s));
	while (at + 1 < s.layers && !s.whole[at])
		at++;
	for (uint32_t i = 0; i < s.layers && ctx; i++) {
		x = oom_layer_alone(t, i, block, ctx, x);
		if (i < LARGEST || i == at)     /* a frame has no more names */
			x = oom_name(caller, x);
		if (i == at)
			inner = x;
	}
	x = sam_neck(e, &s, x);
	h = halves_open(e, side, s.out);
	x = oom_name(&f, halves_run(e, &h, x));
	t->scope = "high_res_vision_neck";
	inner = oom_is_none(inner) ? x : inner;
	inner = oom_name(&f, sam_neck(e, &s, inner));
	inner = oom_name(&f, halves_run(e, &h, inner));
	x = oom_op_add(t, x, oom_op_mul(t, inner, alpha));
	x = oom_op_copy(t, "reshape", x);       /* channels last */
	return oom_leave(&f, x);
}

/* DeepseekVLHybridModel: a SAM encoder beside SigLIP, each projected to half the width. */
struct oom_val oom_emit_hybrid(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model;
	const struct oom_dim all = {d, "hidden_size"};
	struct oom_frame f = {.t = t};
	struct oom_tower w;
	struct oom_val x = oom_name(&f, oom_tower_part(e, 1, &w)), y;

	y = oom_name(&f, high_res(e, &f, w.patch ? w.side / w.patch : 1));
	t->scope = "aligner";
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_name(&f, oom_op_linear(t, "vision_proj", x, (struct oom_dim){d / 2, "hidden_size / 2"}, OOM_BIAS));
	y = oom_name(&f, oom_op_linear(t, "high_res_vision_proj", y, (struct oom_dim){d / 2, "hidden_size / 2"}, OOM_BIAS));
	x = oom_name(&f, oom_op_cat(t, y, x, all));
	x = oom_rename(&f, x, oom_op_unary(t, OOM_GELU, x));
	x = oom_leave(&f, oom_op_linear(t, "proj", x, all, OOM_BIAS));
	t->selection.part = OOM_PART_TOWER;
	return x;
}

/* PPFormulaNetVisionModel: SAM's encoder, two convolutions, two linear layers. */
struct oom_val oom_emit_formula(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t mid = oom_read_count_or(r, "post_conv_mid_channels", 512),
		       out = oom_read_count_or(r, "post_conv_out_channels", 1024);
	struct sam s;
	uint64_t in;

	oom_discard(e->t, sam_run(e, 1, &s));
	in = s.out;

	oom_weight_conv(e->t, "conv1", mid, in * 9, false);
	oom_weight_conv(e->t, "conv2", out, mid * 9, false);
	oom_weight_linear(e->t, "linear_1", out, out, true);
	oom_weight_linear(e->t, "linear_2", out,
			  oom_read_count_or(r, "decoder_hidden_size", e->a->d_model), true);
	return oom_none();
}
