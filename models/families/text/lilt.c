/* LiLT: a text and a narrower layout encoder side by side that share their attention scores.
 * Reference: transformers 5.12, models/lilt/modeling_lilt.py. */
#include "blocks/encoder.h"

/* extra[]: how much narrower the layout is; rows of the coordinates' tables */
enum { SHRINK, ROWS_2D };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_SEQ_CLS;
	oom_bert_sizes(a);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->extra[SHRINK] = oom_read_count_or(r, "channel_shrink_ratio", 4);
	a->extra[ROWS_2D] = oom_read_count_or(r, "max_2d_position_embeddings", 1024);
	if (!a->extra[SHRINK] || a->head_dim % a->extra[SHRINK] || a->d_model % a->n_heads ||
	    a->d_model < 6)
		oom_read_fail(r,
			      "lilt: hidden_size (%llu) does not divide by heads and "
			      "channel_shrink_ratio",
			      (unsigned long long)a->d_model);
}

/* Both streams ride in one value, split and joined at a layer's ends. */
struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
	uint32_t layers;
};

/* softmax(scores) v, merged; scores and probabilities stay the caller's */
static struct oom_val weigh(struct oom_tape *t, const struct layer *l, struct oom_val s,
			    struct oom_val v, uint64_t width, struct oom_val *probs)
{
	*probs = oom_op_dropout(t, oom_op_softmax(t, oom_keep(s), false), l->a->attn_dropout);
	return oom_op_merge_heads(t, oom_op_bmm(t, "context", oom_keep(*probs), oom_keep(v),
						t->m_bs, D(width), oom_mono_now(t, t->m_s)));
}

static struct oom_val masked(struct oom_tape *t, const struct layer *l, struct oom_val s)
{
	return oom_is_none(l->mask) ? s : oom_op_add(t, s, oom_keep(l->mask));
}

/* What the layout's graph keeps of its weights although no gradient will come: softmax, its
 * dropout's mask, autocast's copy.  All of it goes when the model returns. */
static void keep_idle(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt,
		      struct oom_val idle[3])
{
	const struct oom_dim heads = D(a->n_heads);

	if (t->train && a->attn_dropout > 0) {
		idle[0] = oom_new(t, "softmax", t->m_bss, heads,
				  dt);
		idle[1] = oom_new(t, "dropout mask", t->m_bss, heads, OOM_U8);
	}
	if (t->amp)
		idle[2] = oom_new(t, "_to_copy", t->m_bss, heads, (enum oom_dtype)t->amp_dt);
}

/* LiltSelfAttention: out[0] of the text, out[1] of the layout. */
static void attend(struct oom_tape *t, const struct layer *l, bool last, struct oom_val x,
		   struct oom_val lay, struct oom_val out[2], struct oom_val idle[3])
{
	static const char *const names[2][3] = {{"query", "key", "value"},
						{"layout_query", "layout_key", "layout_value"}};
	const struct oom_arch *a = l->a;
	const uint64_t w[2] = {a->d_model, a->d_model / a->extra[SHRINK]};
	const struct oom_dim heads = D(a->n_heads);
	const bool grad = t->grad;
	struct oom_val p[2][3], s[2], scaled[2], probs[2];

	for (int k = 1; k >= 0; k--)
		for (int i = 2; i >= 0; i--) {
			t->grad = grad && !(last && k && i == 2);
			p[k][i] = oom_op_heads(t,
					       oom_op_linear(t, names[k][i], oom_keep(k ? lay : x),
							     D(w[k]), OOM_BIAS));
		}
	t->grad = grad;
	for (int k = 0; k < 2; k++)
		s[k] = oom_op_bmm(t, "scores", oom_keep(p[k][0]), oom_keep(p[k][1]), t->m_bss,
				  heads, w[k] / a->n_heads);
	for (int k = 0; k < 2; k++)
		scaled[k] = oom_op_unary(t, OOM_SCALE, oom_keep(s[k]));
	/* each sum takes the name of the scores it replaces */
	for (int k = 0; k < 2; k++) {
		struct oom_val sum = oom_op_add(t, oom_keep(scaled[0]), oom_keep(scaled[1]));

		oom_drop(t, s[k]);
		s[k] = sum;
	}
	for (int k = 1; k >= 0; k--) {
		t->grad = grad && !(last && k);
		s[k] = masked(t, l, s[k]);
		out[k] = weigh(t, l, s[k], p[k][2], w[k], &probs[k]);
		if (last && k && grad && t->plan->grad_ckpt == OOM_CKPT_NONE)
			keep_idle(t, a, (enum oom_dtype)probs[k].dt, idle);
	}
	for (int k = 0; k < 2; k++) {
		oom_drop(t, s[k]);
		oom_drop(t, probs[k]);
		oom_drop(t, scaled[k]);
		for (int i = 0; i < 3; i++)
			oom_drop(t, p[k][i]);
	}
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				   uint64_t ff)
{
	struct oom_val y = oom_activation(t, a->act,
					  oom_op_linear(t, "dense", oom_keep(x), D(ff), OOM_BIAS));

	return oom_output(t, a->dropout, "LayerNorm", y, x);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t narrow = a->d_model / a->extra[SHRINK];
	const struct oom_dim parts[2] = {D(a->d_model), D(narrow)};
	/* nothing of the loss comes from the last layer's layout: its graph goes with its output */
	const bool last = i + 1 == l->layers, grad = t->grad;
	struct oom_val in[2], out[2], idle[3] = {oom_none(), oom_none(), oom_none()};

	oom_op_split(t, x, 2, parts, in);
	attend(t, l, last, in[0], in[1], out, idle);
	out[0] = oom_output(t, a->dropout, "LayerNorm", out[0], in[0]);
	t->grad = grad && !last;
	out[1] = oom_output(t, a->dropout, "LayerNorm", out[1], in[1]);
	t->grad = grad;
	out[0] = feed_forward(t, a, out[0], a->d_ff);
	t->grad = grad && !last;
	out[1] = feed_forward(t, a, out[1], a->d_ff / a->extra[SHRINK]);
	t->grad = grad;
	for (int k = 0; k < 3; k++)
		oom_drop(t, idle[k]);
	return oom_op_cat(t, out[0], out[1], D(a->d_model + narrow));
}

static struct oom_val text(struct oom_tape *t, const struct oom_arch *a, struct oom_val pos)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val x, tt, e;

	t->scope = "word_embeddings";
	x = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, x, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), a->vocab,
				   h);
	x = oom_input_grads(t, x);
	tt = oom_op_embedding(t, "token_type_embeddings",
			      oom_new(t, "zeros", t->m_bs, D(1), OOM_I64), a->type_vocab, h, 0);
	x = oom_op_add(t, x, tt);
	e = oom_op_embedding(t, "position_embeddings", oom_keep(pos), a->max_positions, h, 0);
	x = oom_op_add_inplace(t, x, e);
	return oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
}

static struct oom_val layout(struct oom_tape *t, const struct oom_arch *a, struct oom_val pos)
{
	static const char *const names[] = {"x_position_embeddings", "y_position_embeddings",
					    "h_position_embeddings", "w_position_embeddings"};
	static const uint8_t order[] = {0, 1, 0, 1, 2, 3};
	const struct oom_dim sixth = D(a->d_model / 6), narrow = D(a->d_model / a->extra[SHRINK]);
	struct oom_val table[4], box = oom_new(t, "bbox", t->m_bs, D(4), OOM_I64), e[6], x;

	for (int i = 0; i < 4; i++) {
		t->scope = names[i];
		table[i] = oom_param(t, "weight", a->extra[ROWS_2D], sixth.n, OOM_P_EMBEDDING);
	}
	for (int i = 0; i < 6; i++) {
		struct oom_val ids = i < 4 ? oom_share(t, box) :
					     oom_new(t, "sub", t->m_bs, D(1), OOM_I64);

		ids.width = 1;
		e[i] = oom_op_embedding_param(t, table[order[i]], ids, a->extra[ROWS_2D], sixth);
	}
	x = oom_op_cat(t, e[0], e[1], D(2 * sixth.n));
	for (int i = 2; i < 6; i++)
		x = oom_op_cat(t, x, e[i], D((uint64_t)(i + 1) * sixth.n));
	x = oom_op_linear(t, "box_linear_embeddings", x, narrow, OOM_BIAS);
	x = oom_op_add(t, x,
		       oom_op_embedding(t, "box_position_embeddings", oom_keep(pos),
					a->max_positions, narrow, 0));
	oom_drop(t, box);
	return oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t narrow = a->d_model / a->extra[SHRINK];
	struct layer l = {.a = a, .layers = (uint32_t)oom_depth(t, a->n_layers)};
	uint8_t kind[OOM_MAX_LAYERS] = {0};
	struct oom_val pos = oom_positions_from_ids(t), x, lay, first;

	oom_buffer(t, a->max_positions, OOM_I64);
	x = text(t, a, pos);
	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	lay = layout(t, a, pos);
	x = oom_op_cat(t, x, lay, D(a->d_model + narrow));
	first = oom_share(t, x);
	if (l.layers && l.layers <= OOM_MAX_LAYERS)
		kind[l.layers - 1] = 1;
	x = oom_layers(t, l.layers, kind, block, &l, x);
	oom_drop_shared(t, l.mask);
	x = oom_op_slice(t, x, t->m_bs, D(a->d_model));
	oom_drop(t, first);
	oom_drop(t, pos);
	return oom_cls_head(t, a, OOM_ACT_TANH, x);
}

const struct oom_family oom_family_lilt = {
	.name = "lilt",
	.summary = "text and layout encoders that share attention scores",
	.source = "transformers 5.12 models/lilt/modeling_lilt.py",
	.types = OOM_TYPE("lilt"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
