/* LiLT: a text and a narrower layout encoder side by side that share their attention scores.
 * Reference: transformers 5.12, models/lilt/modeling_lilt.py. */
#include "blocks/encoder.h"

struct lilt {
	uint64_t shrink;                /* how much narrower the layout is */
	uint64_t rows_2d;               /* of the coordinates' tables */
};
OOM_OWN(lilt, struct lilt);

static const struct oom_key_row lilt_keys[] = {
	OOM_BERT_KEYS, OR_OWN(struct lilt, shrink, "channel_shrink_ratio", 4),
	OR_OWN(struct lilt, rows_2d, "max_2d_position_embeddings", 1024), OOM_KEYS_END};

static void lilt_parse(struct oom_arch *a)
{
	const uint64_t shrink = lilt_of(a)->shrink;

	a->classifier_dropout = oom_read_real(&a->rd, "classifier_dropout", a->dropout);
	if (!shrink || a->head_dim % shrink || a->d_model % a->n_heads || a->d_model < 6)
		oom_read_fail(&a->rd,
			      "lilt: hidden_size (%llu) does not divide by heads and "
			      "channel_shrink_ratio",
			      (unsigned long long)a->d_model);
}

/* Both streams ride in one value, split and joined at a layer's ends. */
struct lilt_layer {
	const struct oom_arch *a;
	struct oom_val mask;
	uint32_t layers;
};

static uint64_t lilt_narrow(const struct oom_arch *a)
{
	return a->d_model / lilt_of(a)->shrink;
}

/* What the layout's graph keeps of its weights although no gradient will come: softmax, its
 * dropout's mask, autocast's copy.  All of it goes when the layer returns. */
static void lilt_keep_idle(struct oom_frame *f, const struct oom_arch *a, enum oom_dtype dt)
{
	const struct oom_dim heads = D(a->n_heads);
	struct oom_tape *t = f->t;

	if (t->train && a->attn_dropout > 0) {
		oom_name(f, oom_new(t, "softmax", t->m_bss, heads, dt));
		oom_name(f, oom_new(t, "dropout mask", t->m_bss, heads, OOM_U8));
	}
	if (t->amp)
		oom_name(f, oom_new(t, "_to_copy", t->m_bss, heads, (enum oom_dtype)t->amp_dt));
}

/* LiltSelfAttention.forward: in and out of the text [0] and of the layout [1]; caller is the
 * layer's frame. */
static void lilt_attention(struct oom_frame *caller, const struct lilt_layer *l, bool last,
			   const struct oom_val in[2], struct oom_val out[2])
{
	static const char *const names[2][3] = {{"query", "key", "value"},
						{"layout_query", "layout_key", "layout_value"}};
	const struct oom_arch *a = l->a;
	const uint64_t w[2] = {a->d_model, lilt_narrow(a)};
	const struct oom_dim heads = D(a->n_heads);
	struct oom_tape *t = caller->t;
	const bool grad = t->grad;
	struct oom_frame f = {.t = t};
	struct oom_val p[2][3], s[2], scaled[2], y;

	for (int k = 1; k >= 0; k--)
		for (int i = 2; i >= 0; i--) {
			t->grad = grad && !(last && k && i == 2);
			y = oom_op_linear(t, names[k][i], in[k], D(w[k]), OOM_BIAS);
			p[k][i] = oom_name(&f, oom_op_heads(t, y));
		}
	t->grad = grad;
	for (int k = 0; k < 2; k++)
		s[k] = oom_name(&f, oom_op_bmm(t, "scores", p[k][0], p[k][1], t->m_bss, heads,
					       w[k] / a->n_heads));
	for (int k = 0; k < 2; k++)
		scaled[k] = oom_name(&f, oom_op_unary(t, OOM_SCALE, s[k]));
	for (int k = 0; k < 2; k++)
		s[k] = oom_rename(&f, s[k], oom_op_add(t, scaled[0], scaled[1]));
	for (int k = 1; k >= 0; k--) {
		t->grad = grad && !(last && k);
		if (!oom_is_none(l->mask))
			s[k] = oom_rename(&f, s[k], oom_op_add(t, s[k], l->mask));
		y = oom_op_dropout(t, oom_op_softmax(t, s[k], false), a->attn_dropout);
		y = oom_name(&f, y);
		out[k] = oom_op_bmm(t, "context", y, p[k][2], t->m_bs, D(w[k]),
				    oom_mono_now(t, t->m_s));
		out[k] = oom_op_merge_heads(t, out[k]);
		if (last && k && grad)
			lilt_keep_idle(caller, a, (enum oom_dtype)y.dt);
	}
	oom_leave(&f, oom_none());
}

static struct oom_val lilt_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			       uint64_t ff)
{
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(ff), OOM_BIAS));
	return oom_leave(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
}

static struct oom_val lilt_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct lilt_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t narrow = lilt_narrow(a);
	const struct oom_dim parts[2] = {D(a->d_model), D(narrow)};
	/* nothing of the loss comes from the last layer's layout: its graph goes with its output, that of a
	 * recomputed layer when all of it has run */
	const bool end = i + 1 == l->layers, last = end && t->plan->grad_ckpt == OOM_CKPT_NONE,
		   grad = t->grad;
	struct oom_frame f = {.t = t};
	struct oom_val in[2], out[2];

	oom_op_split(t, x, 2, parts, in);
	oom_name_each(&f, in, 2);
	lilt_attention(&f, l, last, in, out);
	for (int k = 0; k < 2; k++) {
		t->grad = grad && !(last && k);
		out[k] = oom_output(t, a->dropout, "LayerNorm", out[k], in[k]);
	}
	for (int k = 0; k < 2; k++) {
		t->grad = grad && !(last && k);
		out[k] = lilt_mlp(t, a, out[k], k ? a->d_ff / lilt_of(a)->shrink : a->d_ff);
	}
	t->grad = grad;
	if (end) {
		oom_name(&f, out[1]);
		return oom_leave(&f, out[0]);
	}
	oom_leave(&f, oom_none());
	return oom_op_cat(t, out[0], out[1], D(a->d_model + narrow));
}

static struct oom_val lilt_text(struct oom_tape *t, const struct oom_arch *a, struct oom_val pos)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val word, x = oom_word_embeddings(t, a, "word_embeddings", h, &word);

	x = oom_op_add(t, x, oom_zero_types(t, a, h));
	pos = oom_op_embedding(t, "position_embeddings", pos, a->max_positions, h, 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add_inplace(t, x, pos), 0, true, true);
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val lilt_layout(struct oom_tape *t, const struct oom_arch *a, struct oom_val pos)
{
	const struct oom_dim sixth = D(a->d_model / 6), width[4] = {sixth, sixth, sixth, sixth},
			     narrow = D(lilt_narrow(a));
	struct oom_frame f = {.t = t};
	struct oom_val e[6], x;

	oom_box_embeddings(&f, lilt_of(a)->rows_2d, width, "sub", e);
	x = e[0];
	for (int i = 1; i < 6; i++)
		x = oom_op_cat(t, x, e[i], D(x.width + sixth.n));
	x = oom_op_linear(t, "box_linear_embeddings", x, narrow, OOM_BIAS);
	pos = oom_op_embedding(t, "box_position_embeddings", pos, a->max_positions, narrow, 0);
	x = oom_op_add(t, x, pos);
	oom_leave(&f, oom_none());
	return oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
}

static struct oom_val lilt_model(struct oom_tape *t, const struct oom_arch *a)
{
	struct lilt_layer l = {.a = a, .layers = (uint32_t)oom_depth(t, a->n_layers)};
	uint8_t kind[OOM_MAX_LAYERS] = {0};
	struct oom_frame f = {.t = t};
	struct oom_val pos = oom_name(&f, oom_positions_from_ids(t)), x, lay;

	oom_buffer(t, a->max_positions, OOM_I64);
	x = lilt_text(t, a, pos);
	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.mask = oom_name_shared(&f, l.mask);
	lay = lilt_layout(t, a, pos);
	x = oom_name(&f, oom_op_cat(t, x, lay, D(a->d_model + lilt_narrow(a))));
	if (l.layers && l.layers <= OOM_MAX_LAYERS)
		kind[l.layers - 1] = 1;
	return oom_leave(&f, oom_layers(t, l.layers, kind, lilt_block, &l, x));
}

static struct oom_val lilt_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_cls_head(t, a, OOM_ACT_TANH, lilt_model(t, a));
}

const struct oom_family oom_family_lilt = {
	.name = "lilt",
	.summary = "text and layout encoders that share attention scores",
	.source = "transformers 5.12 models/lilt/modeling_lilt.py",
	.types = OOM_TYPE("lilt"),
	.task = OOM_TASK_SEQ_CLS,
	.lora_targets = "query+value",
	.keys = lilt_keys,
	.parse = lilt_parse,
	.step = lilt_step,
};
