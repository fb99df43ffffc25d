/* LayoutLMv3 on text and boxes: learned coordinates, relative biases read without gradients,
 * attention written out. Reference: transformers 5.12, models/layoutlmv3/modeling_layoutlmv3.py. */
#include <stdio.h>

#include "blocks/encoder.h"

struct layoutlmv3 {
	uint64_t coordinates, shape;    /* widths of a box's embeddings */
	uint64_t rows_2d;
	bool relative, spatial;         /* biases of the scores */
	uint64_t bins, bins_2d;
	bool image;                     /* an image's half, of so many patches a side */
	uint64_t side;
};
OOM_OWN(layoutlmv3, struct layoutlmv3);

static const struct oom_key_row layoutlmv3_keys[] = {
	OOM_BERT_KEYS, OR(channels, "num_channels", 3), OR(patch, "patch_size", 16),
	OR_OWN(struct layoutlmv3, coordinates, "coordinate_size", 128),
	OR_OWN(struct layoutlmv3, shape, "shape_size", 128),
	OR_OWN(struct layoutlmv3, rows_2d, "max_2d_position_embeddings", 1024),
	FLAG_OWN(struct layoutlmv3, image, "visual_embed", true),
	FLAG_OWN(struct layoutlmv3, relative, "has_relative_attention_bias", true),
	FLAG_OWN(struct layoutlmv3, spatial, "has_spatial_attention_bias", true),
	OR_OWN(struct layoutlmv3, bins, "rel_pos_bins", 32),
	OR_OWN(struct layoutlmv3, bins_2d, "rel_2d_pos_bins", 64), OOM_KEYS_END};

static void layoutlmv3_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct layoutlmv3 *v = layoutlmv3_own(a);
	const uint64_t side = a->patch ? oom_read_count_or(r, "input_size", 224) / a->patch : 0;

	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	v->side = side;
	if (!oom_read_bool(r, "text_embed", true))
		oom_read_fail(r, "layoutlmv3 without text_embed has no embeddings of words: no step on text runs so");
	if (4 * v->coordinates + 2 * v->shape != a->d_model)
		oom_warn(a, "four coordinate_size (%llu) and two shape_size (%llu) do not make "
			 "hidden_size (%llu): no step runs so.",
			 (unsigned long long)v->coordinates, (unsigned long long)v->shape,
			 (unsigned long long)a->d_model);
	if (!v->coordinates || !v->shape || !a->patch || side > 4096 || a->patch > 65536)
		oom_read_fail(r, "layoutlmv3: coordinate_size, shape_size and patch_size must be "
				 "at least 1, input_size at most 4096 patches");
}

struct layoutlmv3_layer {
	const struct oom_arch *a;
	struct oom_val mask, rel, rel_2d;
};

/* cogview_attention: scores / alpha, minus their maximum, times alpha; amax keeps what it looked
 * at and what it found (derivatives.yaml) */
static struct oom_val layoutlmv3_softmax(struct oom_tape *t, struct oom_val s, uint64_t heads)
{
	struct oom_frame f = {.t = t};
	struct oom_val scaled = oom_name(&f, oom_op_unary(t, OOM_SCALE, s)), max;

	max = oom_op_mean(t, scaled, t->m_bs, D(heads));
	if (max.node >= 0 && t->grad && scaled.rg) {
		oom_node_save(t, max.node, scaled);
		oom_node_save(t, max.node, max);
	}
	s = oom_op_unary(t, OOM_SCALE, oom_op_add(t, scaled, oom_name(&f, max)));
	return oom_leave(&f, oom_op_softmax(t, s, false));
}

/* LayoutLMv3SelfAttention.forward; the weights get a name of the caller's */
static struct oom_val layoutlmv3_self(struct oom_tape *t, const struct layoutlmv3_layer *l,
				      struct oom_val x, struct oom_frame *caller)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], s, y;

	for (int i = 0; i < 3; i++)
		p[i] = oom_name(&f, oom_op_heads(t, oom_op_linear(t, names[i], x, h, OOM_BIAS)));
	s = oom_op_unary(t, OOM_SCALE, p[0]);
	s = oom_op_bmm(t, "scores", s, p[1], t->m_bss, heads, a->head_dim);
	if (layoutlmv3_of(a)->relative) {
		y = layoutlmv3_of(a)->spatial ? oom_op_add(t, l->rel, l->rel_2d) : l->rel;
		s = oom_op_add_inplace(t, s, oom_op_unary(t, OOM_SCALE, y));
	}
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, l->mask);
	s = oom_name(&f, s);                    /* a local until the context is made */
	y = oom_op_dropout(t, layoutlmv3_softmax(t, s, a->n_heads), a->attn_dropout);
	y = oom_name(caller, y);
	y = oom_op_bmm(t, "context", y, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_merge_heads(t, y));
}

static struct oom_val layoutlmv3_attention(struct oom_tape *t, const struct layoutlmv3_layer *l,
					   struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val y = layoutlmv3_self(t, l, x, &f);

	return oom_leave(&f, oom_output(t, l->a->dropout, "LayerNorm", y, x));
}

static struct oom_val layoutlmv3_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct layoutlmv3_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	x = oom_name(&f, layoutlmv3_attention(t, l, x));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	return oom_leave(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
}

/* Six embeddings of a box, side by side. */
static struct oom_val layoutlmv3_box(struct oom_tape *t, const struct oom_arch *a)
{
	const struct layoutlmv3 *v = layoutlmv3_of(a);
	const struct oom_dim c = D(v->coordinates), s = D(v->shape), width[4] = {c, c, s, s};
	struct oom_frame f = {.t = t};
	struct oom_val e[6], x;

	oom_box_embeddings(&f, v->rows_2d, width, "clip", e);
	x = e[0];
	for (int i = 1; i < 6; i++)
		x = oom_op_cat(t, x, e[i], D(x.width + e[i].width));
	return oom_leave(&f, x);
}

static struct oom_val layoutlmv3_embeddings(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val pos = oom_positions_from_ids(t), word, w, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	w = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", h, &word));
	x = oom_op_add(t, w, oom_name(&f, oom_zero_types(t, a, h)));
	pos = oom_op_embedding(t, "position_embeddings", pos, a->max_positions, h, 0);
	x = oom_op_add_inplace(t, x, pos);
	x = oom_op_add(t, x, oom_name(&f, layoutlmv3_box(t, a)));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

/* The image's half, idle without pixels. */
static void layoutlmv3_image(struct oom_tape *t, const struct oom_arch *a)
{
	const struct layoutlmv3 *v = layoutlmv3_of(a);
	const uint64_t tokens = v->side * v->side + 1;

	if (!v->image)
		return;
	oom_param(t, "patch_embed", a->d_model, a->channels * a->patch * a->patch, OOM_P_UNUSED);
	oom_param(t, "patch_embed", 0, a->d_model, OOM_P_UNUSED);
	oom_param(t, "cls_token", 0, a->d_model, OOM_P_UNUSED);
	oom_param(t, "pos_embed", 0, tokens * a->d_model, OOM_P_UNUSED);
	for (int i = 0; i < 4; i++)
		oom_param(t, "LayerNorm", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED);
	if (v->relative || v->spatial)
		oom_buffer(t, tokens * 4, OOM_I64);
}

/* A bias of every pair of tokens and every head, from tables that get no gradient. */
static struct oom_val layoutlmv3_bias(struct oom_tape *t, const struct oom_arch *a, int tables,
				      uint64_t bins)
{
	const bool grad = t->grad;
	const size_t first = t->cursor;
	struct oom_val x = oom_none();

	for (int i = 0; i < tables; i++)
		oom_linear_unused(t, tables == 1 ? "rel_pos_bias" : i ? "rel_pos_y_bias" : "rel_pos_x_bias", bins,
				  a->n_heads, OOM_NO_QUANT);
	if (t->status)
		return x;
	t->grad = false;
	x = oom_new(t, "relative bias", t->m_bss, D(a->n_heads),
		    (enum oom_dtype)t->params[first].dt);
	t->grad = grad;
	return x;
}

static struct oom_val layoutlmv3_model(struct oom_tape *t, const struct oom_arch *a)
{
	const struct layoutlmv3 *v = layoutlmv3_of(a);
	struct layoutlmv3_layer l = {.a = a, .rel = oom_none(), .rel_2d = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	/* made where the batch has none: token_type_ids, bbox */
	oom_name(&f, oom_new(t, "zeros", t->m_bs, D(1), OOM_I64));
	oom_name(&f, oom_new(t, "zeros", t->m_bs, D(4), OOM_I64));
	x = oom_name(&f, layoutlmv3_embeddings(t, a));
	layoutlmv3_image(t, a);
	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.mask = oom_name_shared(&f, l.mask);
	if (v->relative)
		l.rel = oom_name_shared(&f, layoutlmv3_bias(t, a, 1, v->bins));
	if (v->spatial)
		l.rel_2d = oom_name_shared(&f, layoutlmv3_bias(t, a, 2, v->bins_2d));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, layoutlmv3_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val layoutlmv3_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_cls_head(t, a, OOM_ACT_TANH, layoutlmv3_model(t, a));
}

const struct oom_family oom_family_layoutlmv3 = {
	.name = "layoutlmv3",
	.summary = "encoder of words and boxes with relative biases",
	.source = "transformers 5.12 models/layoutlmv3/modeling_layoutlmv3.py",
	.types = OOM_TYPE("layoutlmv3"),
	.task = OOM_TASK_SEQ_CLS,
	.lora_targets = "query+value",
	.keys = layoutlmv3_keys,
	.parse = layoutlmv3_parse,
	.step = layoutlmv3_step,
};
