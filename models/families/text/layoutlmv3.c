/* LayoutLMv3 on text and boxes: learned coordinates, relative biases read without gradients,
 * attention written out. Reference: transformers 5.12, models/layoutlmv3/modeling_layoutlmv3.py. */
#include <stdio.h>

#include "blocks/encoder.h"

enum { COORD, SHAPE, ROWS_2D, REL, SPATIAL, BINS, BINS_2D, TOKENS };    /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	uint64_t side;

	a->default_task = OOM_TASK_SEQ_CLS;
	oom_bert_sizes(a);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->channels = oom_read_count_or(r, "num_channels", 3);
	a->patch = oom_read_count_or(r, "patch_size", 16);
	a->extra[COORD] = oom_read_count_or(r, "coordinate_size", 128);
	a->extra[SHAPE] = oom_read_count_or(r, "shape_size", 128);
	a->extra[ROWS_2D] = oom_read_count_or(r, "max_2d_position_embeddings", 1024);
	a->extra[REL] = oom_read_bool(r, "has_relative_attention_bias", true);
	a->extra[SPATIAL] = oom_read_bool(r, "has_spatial_attention_bias", true);
	a->extra[BINS] = oom_read_count_or(r, "rel_pos_bins", 32);
	a->extra[BINS_2D] = oom_read_count_or(r, "rel_2d_pos_bins", 64);
	side = a->patch ? oom_read_count_or(r, "input_size", 224) / a->patch : 0;
	a->extra[TOKENS] = oom_read_bool(r, "visual_embed", true) ? side * side + 1 : 0;
	if (4 * a->extra[COORD] + 2 * a->extra[SHAPE] != a->d_model)
		snprintf(a->warning, sizeof(a->warning),
			 "four coordinate_size (%llu) and two shape_size (%llu) do not make "
			 "hidden_size (%llu): "
			 "no step runs so.",
			 (unsigned long long)a->extra[COORD], (unsigned long long)a->extra[SHAPE],
			 (unsigned long long)a->d_model);
	if (!a->extra[COORD] || !a->extra[SHAPE] || !a->patch || side > 4096 || a->patch > 65536)
		oom_read_fail(r, "layoutlmv3: coordinate_size, shape_size and patch_size must be "
				 "at least 1, input_size at most 4096 patches");
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, rel, rel_2d;
};

/* scores / alpha, minus their maximum, times alpha: amax keeps what it looked at */
static struct oom_val cogview(struct oom_tape *t, struct oom_val s, uint64_t heads)
{
	struct oom_val scaled = oom_op_unary(t, OOM_SCALE, oom_keep(s)), max, y;

	max = oom_op_mean(t, oom_keep(scaled), t->m_bs, D(heads));
	if (max.node >= 0 && t->grad && scaled.rg)
		oom_node_save(t, max.node, scaled);
	y = oom_op_unary(t, OOM_SCALE, oom_op_add(t, oom_keep(scaled), oom_keep(max)));
	y = oom_op_softmax(t, y, false);
	oom_drop(t, max);
	oom_drop(t, scaled);
	return y;
}

static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x,
			     struct oom_val *weights)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_val p[3], s, w, y;

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, oom_op_linear(t, names[i], oom_keep(x), h, OOM_BIAS));
	s = oom_op_bmm(t, "scores", oom_op_unary(t, OOM_SCALE, oom_keep(p[0])), oom_keep(p[1]),
		       t->m_bss, heads, a->head_dim);
	if (a->extra[REL]) {
		y = a->extra[SPATIAL] ? oom_op_add(t, oom_keep(l->rel), oom_keep(l->rel_2d)) :
					oom_share(t, l->rel);
		s = oom_op_add_inplace(t, s, oom_op_unary(t, OOM_SCALE, y));
	}
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, oom_keep(l->mask));
	/* scores: a local until the context is made */
	w = oom_op_dropout(t, cogview(t, s, a->n_heads), a->attn_dropout);
	*weights = oom_share(t, w);
	y = oom_op_merge_heads(t, oom_op_bmm(t, "context", w, oom_keep(p[2]), t->m_bs, h,
					     oom_mono_now(t, t->m_s)));
	oom_drop(t, s);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val y, weights;

	(void)i;
	y = attend(t, l, x, &weights);
	x = oom_output(t, a->dropout, "LayerNorm", y, x);
	oom_drop(t, weights);                   /* "attention_output, _", of LayoutLMv3Attention */
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", oom_keep(x), D(a->d_ff), OOM_BIAS));
	return oom_output(t, a->dropout, "LayerNorm", y, x);
}

/* Six embeddings of a box, side by side. */
static struct oom_val spatial(struct oom_tape *t, const struct oom_arch *a)
{
	static const char *const names[] = {"x_position_embeddings", "y_position_embeddings",
					    "h_position_embeddings", "w_position_embeddings"};
	static const uint8_t order[] = {0, 1, 0, 1, 2, 3};
	const uint64_t w[4] = {a->extra[COORD], a->extra[COORD], a->extra[SHAPE], a->extra[SHAPE]};
	struct oom_val table[4], box = oom_new(t, "bbox", t->m_bs, D(4), OOM_I64), e[6], x;
	uint64_t n;

	for (int i = 0; i < 4; i++) {
		t->scope = names[i];
		table[i] = oom_param(t, "weight", a->extra[ROWS_2D], w[i], OOM_P_EMBEDDING);
	}
	for (int i = 0; i < 6; i++) {
		struct oom_val ids = i < 4 ? oom_share(t, box) :
					     oom_new(t, "clip", t->m_bs, D(1), OOM_I64);

		ids.width = 1;
		e[i] = oom_op_embedding_param(t, table[order[i]], ids, a->extra[ROWS_2D],
					      D(w[order[i]]));
	}
	n = w[0] + w[1];
	x = oom_op_cat(t, e[0], e[1], D(n));
	for (int i = 2; i < 6; i++) {
		n += w[order[i]];
		x = oom_op_cat(t, x, e[i], D(n));
	}
	oom_drop(t, box);
	return x;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val pos = oom_positions_from_ids(t), w, tt, x, s;

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	w = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, w, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), a->vocab,
				   h);
	w = oom_input_grads(t, w);
	tt = oom_op_embedding(t, "token_type_embeddings",
			      oom_new(t, "zeros", t->m_bs, D(1), OOM_I64), a->type_vocab, h, 0);
	x = oom_op_add(t, oom_keep(w), oom_keep(tt));
	x = oom_op_add_inplace(t, x,
			       oom_op_embedding(t, "position_embeddings", pos, a->max_positions, h,
						0));
	s = spatial(t, a);
	x = oom_op_add(t, x, oom_keep(s));
	x = oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
	oom_drop(t, w);
	oom_drop(t, tt);
	oom_drop(t, s);
	return x;
}

/* The image's half, idle without pixels. */
static void image_half(struct oom_tape *t, const struct oom_arch *a)
{
	if (!a->extra[TOKENS])
		return;
	oom_drop(t, oom_param(t, "patch_embed", a->d_model, a->channels * a->patch * a->patch,
			      OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "patch_embed", 0, a->d_model, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "cls_token", 0, a->d_model, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "pos_embed", 0, a->extra[TOKENS] * a->d_model, OOM_P_UNUSED));
	for (int i = 0; i < 4; i++)
		oom_drop(t, oom_param(t, "LayerNorm", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED));
	if (a->extra[REL] || a->extra[SPATIAL])
		oom_buffer(t, a->extra[TOKENS] * 4, OOM_I64);
}

/* A bias of every pair of tokens and every head, from tables that get no gradient. */
static struct oom_val bias(struct oom_tape *t, const struct oom_arch *a, int tables, uint64_t bins)
{
	const bool grad = t->grad;
	const size_t first = t->cursor;
	struct oom_val x = oom_none();

	for (int i = 0; i < tables; i++)
		oom_linear_unused(t, "rel_pos_bias", bins, a->n_heads, OOM_NO_QUANT);
	if (t->status)
		return x;
	t->grad = false;
	x = oom_new(t, "relative bias", t->m_bss, D(a->n_heads),
		    (enum oom_dtype)t->params[first].dt);
	t->grad = grad;
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct layer l = {.a = a, .rel = oom_none(), .rel_2d = oom_none()};
	struct oom_val x = embeddings(t, a), first = oom_share(t, x);

	image_half(t, a);
	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	if (a->extra[REL])
		l.rel = bias(t, a, 1, a->extra[BINS]);
	if (a->extra[SPATIAL])
		l.rel_2d = bias(t, a, 2, a->extra[BINS_2D]);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.rel);
	oom_drop_shared(t, l.rel_2d);
	oom_drop(t, first);
	return oom_cls_head(t, a, OOM_ACT_TANH, x);
}

const struct oom_family oom_family_layoutlmv3 = {
	.name = "layoutlmv3",
	.summary = "encoder of words and boxes with relative biases",
	.source = "transformers 5.12 models/layoutlmv3/modeling_layoutlmv3.py",
	.types = OOM_TYPE("layoutlmv3"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
