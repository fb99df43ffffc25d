/* Mllama's vision tower: every image is max_num_tiles tiles of image_size, which the text model's cross-attention layers
 * attend to.  Its layers are no GradientCheckpointingLayer: checkpointing leaves them as they are.
 * Reference: transformers 5.12, models/mllama/modeling_mllama.py MllamaVisionModel, MllamaModel. */
#include "blocks/encoder.h"
#include "blocks/image.h"
#include "ops/scan.h"
#include "projector.h"

enum { MOST_TAKEN = 8 };                /* layers whose outputs the features hold besides the last one's */

struct sizes {
	uint64_t d, ff, heads, layers, globals, side, patch, channels, tiles, places, padded, kinds;
	uint64_t n_taken, taken[MOST_TAKEN], out;
	enum oom_act act;
};

static void read_sizes(struct sizes *m, struct oom_reader *r)
{
	uint64_t grid;

	*m = (struct sizes){.d = oom_read_count(r, "hidden_size", 1), .ff = oom_read_count(r, "intermediate_size", 1),
			    .heads = oom_read_count_or(r, "attention_heads", 16),
			    .layers = oom_read_count(r, "num_hidden_layers", 0),
			    .globals = oom_read_count_or(r, "num_global_layers", 8),
			    .side = oom_read_side(r, "image_size", 448), .patch = oom_read_side(r, "patch_size", 14),
			    .channels = oom_read_count_or(r, "num_channels", 3),
			    .tiles = oom_read_count_or(r, "max_num_tiles", 4),
			    .kinds = oom_read_items(r, "supported_aspect_ratios", 8) + 1,
			    .act = oom_read_act(r, "hidden_act", "gelu")};
	m->n_taken = oom_read_items(r, "intermediate_layers_indices", 5);
	if (r->status || !m->patch || m->patch > 65536 || m->side > 65536 || !m->channels || m->channels > 65536 ||
	    !m->tiles || m->tiles > 65536 || m->d > 1 << 24 || m->layers > OOM_MAX_LAYERS || m->globals > OOM_MAX_LAYERS ||
	    m->n_taken > MOST_TAKEN || m->heads > m->d) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		*m = (struct sizes){.d = 1, .ff = 1, .heads = 1, .side = 1, .patch = 1, .channels = 1, .tiles = 1, .kinds = 1};
	}
	for (uint32_t i = 0; i < m->n_taken; i++) {
		static const double usual[] = {3, 7, 15, 23, 30, -1, -1, -1};
		const double at = oom_read_item_real(r, "intermediate_layers_indices", i, usual[i]);

		m->taken[i] = at >= 0 && at < (double)m->layers ? (uint64_t)at : m->layers;
	}
	grid = m->side / m->patch;
	m->places = grid * grid + 1;
	m->padded = (m->places + 7) / 8 * 8;
	m->out = oom_read_count_or(r, "vision_output_dim", m->d * (1 + m->n_taken));
}

/* ---- layers ---- */

struct layer {
	struct sizes m;
	bool gated;
	struct oom_val mask;
	uint16_t m_tokens, m_len;
	/* of the tower: who holds what is taken, and what that is; every layer's output besides */
	struct oom_frame *model;
	struct oom_val *taken;
	struct oom_kept *kept;
};

/* gate.tanh() * x */
static struct oom_val gated(struct oom_tape *t, const struct layer *l, const char *name, struct oom_val x)
{
	return l->gated ? oom_op_mul(t, oom_op_unary(t, OOM_TANH, oom_param(t, name, 0, 1, 0)), x) : x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct sizes *m = &l->m;
	const uint64_t head = m->d / m->heads;
	struct oom_frame f = {.t = t};
	struct oom_attn at = {.heads = m->heads, .kv_heads = m->heads, .d = head, .dv = head, .norm = OOM_NORM_LAYER,
			      .scale_after = true, .mq = l->m_tokens, .mk = l->m_tokens, .sk = l->m_len, .mask = l->mask,
			      .kv_from = oom_none(), .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "o_proj",
			      .views_late = true, .caller = &f};
	struct oom_val h;

	h = oom_name(&f, oom_attention(t, &at, oom_norm(t, OOM_NORM_LAYER, "input_layernorm", x, 0)));
	h = oom_rename(&f, h, gated(t, l, "gate_attn", h));
	x = oom_name(&f, oom_op_add(t, x, h));
	oom_forget(&f, h);
	h = oom_norm(t, OOM_NORM_LAYER, "post_attention_layernorm", x, 0);
	h = oom_plain_mlp(t, h, "fc1", "fc2", m->act, (struct oom_dim){m->ff, "intermediate_size"}, true);
	x = oom_leave(&f, oom_op_add(t, x, gated(t, l, "gate_ffn", h)));
	oom_kept_add(t, l->kept, x);
	for (uint64_t j = 0; j < m->n_taken && !l->gated; j++)
		if (m->taken[j] == i) {
			x = oom_name(l->model, x);
			l->taken[j] = x;
		}
	return x;
}

/* MllamaVisionEncoder, of so many layers; those that are taken stand apart. */
static struct oom_val encoder(struct oom_tape *t, struct layer *l, bool global, struct oom_val x)
{
	uint8_t kind[OOM_MAX_LAYERS] = {0};

	l->gated = global;
	for (uint64_t j = 0; j < l->m.n_taken && !global; j++)
		kind[l->m.taken[j] < OOM_MAX_LAYERS ? l->m.taken[j] : 0] = 1;
	return oom_plain_layers(t, global ? l->m.globals : l->m.layers, kind, block, l, sizeof(*l), x);
}

/* ---- positions ---- */

/* MllamaPrecomputedAspectRatioEmbedding: one row for every tile. */
static struct oom_val with_tiles(struct oom_emit *e, const struct sizes *m, struct oom_val x, struct oom_val ids)
{
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	struct oom_val gate = oom_param(t, "gate", 0, 1, 0), y;

	y = oom_name(&f, oom_op_embedding(t, "embedding", ids, m->kinds, (struct oom_dim){m->tiles * m->d, "tiles * hidden_size"}, 0));
	y = oom_rename(&f, y, oom_op_mul(t, y, oom_op_unary(t, OOM_TANH, gate)));
	return oom_leave(&f, oom_op_add(t, x, y));
}

/* MllamaPrecomputedPositionEmbedding: one row for every patch, and one for every patch of every tile. */
static struct oom_val with_places(struct oom_emit *e, const struct sizes *m, struct oom_val x, struct oom_val ids)
{
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	struct oom_val gate = oom_param(t, "gate", 0, 1, 0), table = oom_param(t, "embedding", m->places, m->d, 0), y;

	y = oom_op_view(t, table, OOM_MONO_ONE, (struct oom_dim){m->places * m->d, "patches * hidden_size"});
	y = oom_op_mul(t, oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_TANH, gate)), y);
	y = oom_name(&f, y);
	x = oom_name(&f, oom_op_add(t, x, y));
	y = oom_op_embedding(t, "tile_embedding", ids, m->kinds,
			     (struct oom_dim){m->tiles * m->places * m->d, "tiles * patches * hidden_size"}, 0);
	y = oom_name(&f, y);
	y = oom_name(&f, oom_op_mul(t, oom_op_unary(t, OOM_TANH, gate), y));
	return oom_leave(&f, oom_op_add(t, x, y));
}

/* Patches of all tiles behind a class token each, with both kinds of positions and the first norm, padded to a multiple
 * of eight; the convolution's result has a name to the end. */
static struct oom_val patches(struct oom_frame *f, struct oom_emit *e, const struct sizes *m, struct oom_val ids)
{
	struct oom_tape *t = e->t;
	const struct oom_dim d = {m->d, "hidden_size"};
	const uint64_t pixels = m->tiles * m->channels * m->side * m->side, grid = m->tiles * (m->places - 1);
	struct oom_val token = oom_param(t, "class_embedding", 0, m->d, 0), x, y;

	if (e->images) {
		t->pixels += (uint64_t)t->plan->images * pixels;
		t->pixel_mask += (uint64_t)t->plan->images * (1 + m->tiles);
		t->token_mask += (uint64_t)t->plan->images * m->tiles;
	}
	x = oom_pixel_values(t, e->m_images, pixels);
	x = oom_op_conv_square(t, "patch_embedding", x, m->channels, m->patch, false,
			       oom_len_const(t, e->m_images, grid ? grid : 1), d);
	x = oom_name(f, oom_hooked(t, x));
	t->scope = "pre_tile_positional_embedding";
	x = oom_name(f, with_tiles(e, m, x, ids));
	token = oom_op_expand(t, token, oom_len_const(t, e->m_images, m->tiles), d);
	token.perm = false;
	y = oom_name(f, oom_op_cat_into(t, token, x, oom_len_const(t, e->m_images, m->tiles * m->places), d));
	oom_forget(f, x);
	t->scope = "gated_positional_embedding";
	x = oom_rename(f, y, with_places(e, m, y, ids));
	t->scope = "vision_model";
	x = oom_rename(f, x, oom_norm(t, OOM_NORM_LAYER, "layernorm_pre", x, 0));
	return oom_rename(f, x, oom_op_pad(t, x, oom_len_const(t, e->m_images, m->tiles * m->padded), d));
}

/* _prepare_aspect_ratio_attention_mask: an outer product, times the smallest number. */
static struct oom_val tile_mask(struct oom_emit *e, const struct sizes *m)
{
	struct oom_tape *t = e->t;
	const uint64_t n = m->tiles * m->padded;
	const enum oom_dtype dt = t->amp ? (enum oom_dtype)t->amp_dt : oom_loaded_dtype(t->plan);
	const uint16_t plane = oom_len_const(t, oom_len_const(t, e->m_images, n), n);
	struct oom_val x = oom_new(t, "matmul", plane, D(1), dt), y = oom_new(t, "mul", plane, D(1), dt);

	oom_discard(t, x);
	return y;
}

/* The last layer's features beside those of the layers that are taken, both without the padding. */
static struct oom_val features(struct oom_frame *f, struct oom_emit *e, const struct sizes *m, const struct oom_val *taken,
			       struct oom_val x)
{
	struct oom_tape *t = e->t;
	const struct oom_dim d = {m->d, "hidden_size"}, side = {m->d * m->n_taken, "hidden_size * layers"};
	const uint16_t padded = oom_len_const(t, e->m_images, m->tiles * m->padded),
		       tokens = oom_len_const(t, e->m_images, m->tiles * m->places);
	struct oom_val y;

	x = oom_name(f, oom_op_slice(t, x, tokens, d));
	if (!m->n_taken)
		return oom_op_copy(t, "cat", x);
	/* a node has so many edges */
	y = oom_op_stack(t, taken, (int)(m->n_taken < OOM_MAX_EDGES ? m->n_taken : OOM_MAX_EDGES), padded, side);
	y = oom_name(f, oom_op_slice(t, y, tokens, side));
	return oom_op_cat(t, x, y, (struct oom_dim){m->d * (1 + m->n_taken), "hidden_size * (1 + layers)"});
}

static struct oom_val vision_model(struct oom_emit *e, const struct sizes *m)
{
	struct oom_tape *t = e->t;
	struct oom_val taken[MOST_TAKEN], x, ids;
	struct oom_frame f = {.t = t};
	struct oom_kept kept = {.without_grad = true, .n = 0};
	struct layer l = {.m = *m, .model = &f, .taken = taken, .kept = &kept};

	for (int i = 0; i < MOST_TAKEN; i++)
		taken[i] = oom_none();
	t->scope = "vision_model";
	ids = oom_input(t, "aspect_ratio_ids", e->m_images, 1, OOM_I64);
	x = patches(&f, e, m, ids);
	l.m_tokens = oom_len_const(t, e->m_images, m->tiles * m->padded);
	l.m_len = oom_len_const(t, OOM_MONO_ONE, m->tiles * m->padded);
	l.mask = oom_name(&f, tile_mask(e, m));
	x = oom_rename(&f, x, encoder(t, &l, false, x));
	t->scope = "vision_model";
	x = oom_rename(&f, x, oom_norm(t, OOM_NORM_LAYER, "layernorm_post", x, 0));
	t->scope = "post_tile_positional_embedding";
	x = oom_rename(&f, x, with_tiles(e, m, x, ids));
	x = oom_rename(&f, x, encoder(t, &l, true, x));
	x = features(&f, e, m, taken, x);
	oom_kept_drop(t, &kept);
	return oom_leave(&f, x);
}

/* _prepare_cross_attention_mask: what is repeated for every patch is whole numbers first; the text's rows that attend to
 * nothing are zeros.  Both are picked by the tokens' places afterwards, which copies them. */
static void text_masks(struct oom_emit *e, const struct sizes *m)
{
	struct oom_tape *t = e->t;
	const uint64_t images = (uint64_t)t->plan->images, keys = images * m->tiles * m->places;
	const uint16_t plane = oom_len_const(t, t->m_bs, keys);
	const enum oom_dtype dt = oom_loaded_dtype(t->plan);
	struct oom_frame f = {.t = t};
	struct oom_val mask, x, y, rows;

	mask = oom_name(&f, oom_new(t, "repeat_interleave", plane, D(1), OOM_I64));
	x = oom_name(&f, oom_op_cast(t, oom_new(t, "rsub", plane, D(1), OOM_F32), dt));
	y = oom_new(t, "to bool", plane, D(1), OOM_U8);
	mask = oom_rename(&f, mask, oom_new(t, "masked_fill", plane, D(1), dt));
	oom_discard(t, y);
	y = oom_new(t, "ne", plane, D(1), OOM_U8);
	rows = oom_name(&f, oom_new(t, "rows", t->m_bs, D(1), dt));
	oom_discard(t, y);
	oom_forget(&f, x);
	x = oom_new(t, "cross attention mask", plane, D(1), dt);
	e->t->crossed.mask = oom_name_shared(e->output, x);
	oom_forget(&f, mask);
	x = oom_new(t, "full_text_row_masked_out_mask", t->m_bs, D(1), dt);
	e->t->crossed.rows = oom_name_shared(e->output, x);
	oom_forget(&f, rows);
	oom_discard(t, oom_leave(&f, oom_none()));
}

/* MllamaModel has returned. */
static void over(struct oom_tape *t, void *ctx)
{
	struct oom_emit *e = ctx;

	t->crossed.there = false;
	oom_forget_shared(e->output);
	oom_forget(e->output, e->tokens);
}

struct oom_val oom_emit_mllama(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_val x;
	struct sizes m;

	read_sizes(&m, &e->part[1]);
	x = vision_model(e, &m);
	if (e->images)                          /* vision_outputs */
		x = e->tokens = oom_name(e->output, x);
	t->scope = "model";
	x = oom_op_view(t, x, x.mono, (struct oom_dim){m.out, "vision_output_dim"});
	x = oom_project(e, "multi_modal_projector", x, e->a->d_model, true);
	if (!e->images)
		return x;
	t->crossed = (struct oom_crossed){.there = true, .x = oom_name_shared(e->output, x), .tokens = x.mono, .over = over, .ctx = e,
					  .len = oom_len_const(t, OOM_MONO_ONE, (uint64_t)t->plan->images * m.tiles * m.places)};
	text_masks(e, &m);
	return oom_none();
}
