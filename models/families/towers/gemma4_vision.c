/* Gemma 4's vision tower: patches as rows, padded to the most that an image may have, pooled k by k.
 * Reference: transformers 5.12, models/gemma4/modeling_gemma4.py Gemma4VisionModel, Gemma4MultimodalEmbedder. */
#include "families/text/gemma4.h"
#include "blocks/image.h"
#include "projector.h"

struct tower {
	uint64_t d, ff, heads, kv_heads, head, layers, patch, k, places;
	uint64_t patches, padded;               /* of an image */
	bool clipped;
	enum oom_act act;
	struct oom_rope rope;
	struct oom_val mask;
	uint16_t tokens, len;
};

/* Features that a frame of a video may have (max_soft_tokens of Gemma4VideoProcessor; no config has it). */
enum { OF_A_FRAME = 70 };

static bool read_tower(struct tower *w, struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	uint64_t most, side;

	*w = (struct tower){.d = oom_read_count(r, "hidden_size", 1), .ff = oom_read_count(r, "intermediate_size", 1),
			    .heads = oom_read_count(r, "num_attention_heads", 1),
			    .kv_heads = oom_read_count(r, "num_key_value_heads", 1), .head = oom_read_count(r, "head_dim", 1),
			    .layers = oom_read_count(r, "num_hidden_layers", 0), .patch = oom_read_count(r, "patch_size", 1),
			    .k = oom_read_count_or(r, "pooling_kernel_size", 3),
			    .places = oom_read_count(r, "position_embedding_size", 1),
			    .clipped = oom_read_bool(r, "use_clipped_linears", false),
			    .act = oom_read_act(r, "hidden_activation", "gelu_pytorch_tanh"), .mask = oom_none()};
	most = oom_read_count_or(&e->outer, "vision_soft_tokens_per_image", 280) * w->k * w->k;
	if (e->t->plan->video_frames > 0 && e->t->plan->images <= 0)
		most = (uint64_t)OF_A_FRAME * w->k * w->k;
	if (r->status || w->patch > 65536 || !w->k || w->k > 1024 || w->heads % w->kv_heads || w->layers > OOM_MAX_LAYERS ||
	    w->d > 1 << 24 || w->places > 1 << 24 || most > 1 << 24) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return false;
	}
	side = e->t->plan->image_size ? (uint64_t)e->t->plan->image_size / w->patch : 0;
	w->patches = side * side / (w->k * w->k) ? side * side : most;
	w->padded = w->patches > most ? w->patches : most;
	return true;
}

/* Gemma4ClippableLinear: without its clamps, whose limits are infinite where nothing else was saved. */
static struct oom_val linear(struct oom_tape *t, const struct tower *w, const char *name, struct oom_val x, uint64_t out)
{
	for (int i = 0; i < 4 && w->clipped; i++)
		oom_buffer(t, 1, oom_loaded_dtype(t->plan));
	return oom_op_linear(t, name, x, (struct oom_dim){out, NULL}, 0);
}

/* apply_multidimensional_rope: halves for columns and rows, joined again. */
static struct oom_val rotate(struct oom_tape *t, const struct tower *w, struct oom_val x, uint64_t heads)
{
	const struct oom_dim half = {x.width / 2, "n_heads * head_dim / 2"}, all = {x.width, x.text}, parts[2] = {half, half};
	struct oom_frame f = {.t = t};
	struct oom_val p[2];

	x = oom_arg(&f, x);
	oom_op_split(t, x, 2, parts, p);
	for (int i = 0; i < 2; i++)
		p[i] = oom_name(&f, oom_rope_apply(t, p[i], &w->rope, heads, w->head / 2, w->head / 2));
	return oom_leave(&f, oom_op_cat(t, p[0], p[1], all));
}

static struct oom_val attention(struct oom_frame *caller, const struct tower *w, struct oom_val x)
{
	struct oom_attn at = {.heads = w->heads, .kv_heads = w->kv_heads, .d = w->head, .dv = w->head, .norm = OOM_NORM_RMS,
			      .scale_after = true, .mq = w->tokens, .mk = w->tokens, .sk = w->len, .mask = w->mask,
			      .kv_from = oom_none(), .caller = caller};
	struct oom_tape *t = caller->t;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	q = oom_name(&f, linear(t, w, "q_proj", x, w->heads * w->head));
	q = oom_rename(&f, q, oom_gemma4_norm(t, "q_norm", q, w->head, true));
	q = oom_rename(&f, q, oom_op_heads(t, rotate(t, w, q, w->heads)));
	k = oom_name(&f, linear(t, w, "k_proj", x, w->kv_heads * w->head));
	k = oom_rename(&f, k, oom_gemma4_norm(t, "k_norm", k, w->head, true));
	k = oom_rename(&f, k, oom_op_heads(t, rotate(t, w, k, w->kv_heads)));
	v = oom_name(&f, linear(t, w, "v_proj", x, w->kv_heads * w->head));
	v = oom_rename(&f, v, oom_op_heads(t, oom_gemma4_norm(t, "v_norm", v, w->head, false)));
	x = oom_attention_core(t, &at, q, k, v);
	return oom_leave(&f, linear(t, w, "o_proj", x, w->d));
}

static struct oom_val feed_forward(struct oom_tape *t, const struct tower *w, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val gate, up;

	x = oom_arg(&f, x);
	gate = oom_activation(t, w->act, linear(t, w, "gate_proj", x, w->ff));
	up = linear(t, w, "up_proj", x, w->ff);
	return oom_leave(&f, linear(t, w, "down_proj", oom_op_mul(t, gate, up), w->d));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct tower *w = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	h = oom_name(&f, oom_gemma4_norm(t, "input_layernorm", x, 0, true));
	h = oom_rename(&f, h, attention(&f, w, h));
	h = oom_rename(&f, h, oom_gemma4_norm(t, "post_attention_layernorm", h, 0, true));
	x = oom_rename(&f, h, oom_op_add(t, x, h));
	h = oom_name(&f, oom_gemma4_norm(t, "pre_feedforward_layernorm", x, 0, true));
	h = oom_rename(&f, h, feed_forward(t, w, h));
	h = oom_rename(&f, h, oom_gemma4_norm(t, "post_feedforward_layernorm", h, 0, true));
	return oom_leave(&f, oom_op_add(t, x, h));
}

/* Gemma4VisionPatchEmbedder: a linear layer, and a place looked up for each axis, zero where there is padding. */
static struct oom_val patches(struct oom_emit *e, const struct tower *w)
{
	struct oom_tape *t = e->t;
	const uint64_t cut = 3 * w->patch * w->patch;
	const struct oom_dim d = {w->d, "hidden_size"}, table = {w->places * w->d, "places * hidden_size"};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_pixel_values(t, e->m_images, w->padded * cut), tables, ids, pad, p[2];

	if (e->merged) {
		t->pixels += e->pictures * w->padded * cut;
		t->pixel_mask += e->pictures * w->padded * 2;
	}
	t->scope = "patch_embedder";
	tables = oom_param(t, "position_embedding_table", 2 * w->places, w->d, 0);
	x = oom_op_view(t, x, w->tokens, (struct oom_dim){cut, "patch"});
	x = oom_name(&f, oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_ADD_SCALAR, x)));
	x = oom_name(&f, oom_op_linear(t, "input_proj", x, d, 0));
	ids = oom_name(&f, oom_new(t, "clamped positions", w->tokens, D(2), OOM_I64));
	for (int i = 0; i < 2; i++) {
		struct oom_val own = ids;

		own.width = 1;
		p[i] = oom_op_slice(t, oom_op_view(t, tables, OOM_MONO_ONE, (struct oom_dim){2 * table.n, NULL}), OOM_MONO_ONE, table);
		p[i] = oom_name(&f, oom_embedding_lookup(t, p[i], own, d));
	}
	pad = oom_name(&f, oom_new(t, "padding positions", w->tokens, D(1), OOM_U8));
	p[0] = oom_name(&f, oom_op_masked(t, "where", oom_op_add(t, p[0], p[1]), pad));
	return oom_leave(&f, oom_op_add(t, x, p[0]));
}

/* Gemma4VisionPooler, and the features that are no padding: weights of every patch for every feature, a product in fp32. */
static struct oom_val pooled(struct oom_emit *e, const struct tower *w, struct oom_val x)
{
	struct oom_tape *t = e->t;
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const uint64_t most = w->padded / (w->k * w->k), n = w->patches / (w->k * w->k);
	const struct oom_dim d = {w->d, "hidden_size"}, each = {most, "features"};
	const uint16_t features = oom_len_const(t, e->m_images, most);
	struct oom_frame f = {.t = t};
	struct oom_val pad, weights, index;

	pad = oom_name(&f, oom_new(t, "padding positions", w->tokens, D(1), OOM_U8));
	x = oom_name(&f, oom_op_masked(t, "masked_fill", x, pad));
	weights = oom_op_cast(t, oom_new(t, "one_hot", w->tokens, each, OOM_I64), OOM_F32);
	weights = oom_name(&f, oom_op_unary(t, OOM_SCALE, weights));
	x = oom_op_bmm(t, "pool", weights, oom_op_cast(t, x, OOM_F32), features, d, w->padded);
	x = oom_name(&f, oom_op_cast(t, x, dt));
	x = oom_name(&f, oom_op_unary(t, OOM_SCALE, oom_op_cast(t, x, OOM_F32)));
	oom_tower_tokens(e, n);
	index = oom_name(&f, oom_new(t, "nonzero", e->m_tokens, D(2), OOM_I64));
	x = oom_op_gather(t, "index", x, index, e->m_tokens, d);
	return oom_leave(&f, oom_op_cast(t, x, dt));
}

/* The mask of what is padding; of a batch of images that fill it none would be made. */
static struct oom_val mask_of(const struct oom_emit *e, const struct tower *w, enum oom_dtype dt)
{
	struct oom_tape *t = e->t;
	const uint16_t plane = oom_mono_mul(t, w->tokens, w->len);

	if (t->plan->attn == OOM_ATTN_FLASH || (w->padded == w->patches && !t->plan->padding_mask))
		return oom_none();
	return oom_new(t, "patches that are there", plane, D(1), t->plan->attn == OOM_ATTN_SDPA ? OOM_U8 : dt);
}

struct oom_val oom_gemma4_vision(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const char *const name = "embed_vision";
	struct oom_frame f = {.t = t};
	struct oom_dim head;
	struct tower w;
	struct oom_val x;

	if (!read_tower(&w, e))
		return oom_none();
	if (w.clipped && e->images)
		oom_tape_warn(t, "the clamps around the vision tower's linear layers are not counted: the run takes more");
	head = (struct oom_dim){w.head, "head_dim"};
	oom_tower_tokens(e, w.padded);
	w.tokens = e->m_tokens;
	w.len = e->m_len;
	x = oom_name(&f, patches(e, &w));
	w.mask = oom_name_shared(&f, mask_of(e, &w, (enum oom_dtype)x.dt));
	for (int i = 0; i < 2; i++)             /* frequencies, and those they began as */
		oom_buffer(t, w.head / 4, OOM_F32);
	w.rope.cos = oom_new(t, "cos", w.tokens, head, (enum oom_dtype)x.dt);
	w.rope.sin = oom_new(t, "sin", w.tokens, head, (enum oom_dtype)x.dt);
	w.rope = oom_name_tables(&f, w.rope);
	x = oom_layers(t, (uint32_t)w.layers, NULL, block, &w, x);
	oom_forget_shared(&f);
	t->scope = "vision_tower";
	x = pooled(e, &w, x);
	t->scope = name;
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_gemma4_norm(t, "embedding_pre_projection_norm", x, 0, false);
	t->selection.part = OOM_PART_TOWER;
	return oom_leave(&f, oom_project(e, "embedding_projection", x, e->a->d_model, false));
}
