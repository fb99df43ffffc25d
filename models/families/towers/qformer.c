/* BLIP-2's Q-Former: learned queries attend to each other and, in every so-many-th layer, to an image.  It is written out
 * whatever the plan asks for.
 * Reference: transformers 5.12, models/blip_2/modeling_blip_2.py Blip2QFormerModel, Blip2ForConditionalGeneration. */
#include "blocks/encoder.h"
#include "projector.h"

struct layer {
	uint64_t d, ff, heads, every;
	double dropout, attn_dropout;
	enum oom_act act;
	struct oom_val image;
	uint16_t m_queries, m_len, m_image, m_image_len;
};

/* Blip2QFormerAttention: to the image, or of the queries among themselves. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x, bool cross)
{
	const struct oom_dim d = {l->d, "hidden_size"}, heads = {l->heads, "n_heads"};
	const uint16_t len = cross ? l->m_image_len : l->m_len;
	const struct oom_val from = cross ? l->image : x;
	struct oom_frame outer = {.t = t}, f = {.t = t};
	struct oom_val q, k, v, w, p, y;

	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "key", from, d, OOM_BIAS)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "value", from, d, OOM_BIAS)));
	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "query", x, d, OOM_BIAS)));
	w = oom_op_bmm(t, "scores", q, k, oom_mono_mul(t, l->m_queries, len), heads, l->d / l->heads);
	w = oom_name(&f, oom_op_unary(t, OOM_SCALE, w));
	w = oom_name(&f, oom_op_softmax(t, w, false));
	p = oom_name(&f, oom_op_cast(t, oom_op_dropout(t, w, l->attn_dropout), (enum oom_dtype)v.dt));
	y = oom_op_bmm(t, "attention", p, v, l->m_queries, d, oom_mono_now(t, len));
	y = oom_name(&f, oom_op_merge_heads(t, y));
	oom_name(&outer, oom_give(&f, w));
	y = oom_name(&outer, oom_leave(&f, y));
	return oom_leave(&outer, oom_output(t, l->dropout, "LayerNorm", y, x));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val h;

	x = oom_name(&f, attention(t, l, x, false));
	if (i % l->every == 0)
		x = oom_name(&f, attention(t, l, x, true));
	h = oom_op_linear(t, "dense", x, (struct oom_dim){l->ff, "intermediate_size"}, OOM_BIAS);
	h = oom_activation(t, l->act, h);
	return oom_leave(&f, oom_output(t, l->dropout, "LayerNorm", h, x));
}

static bool read_layer(struct layer *l, struct oom_emit *e, uint64_t *layers)
{
	struct oom_reader *r = &e->part[2];

	*l = (struct layer){.d = oom_read_count(r, "hidden_size", 1), .ff = oom_read_count(r, "intermediate_size", 1),
			    .heads = oom_read_count(r, "num_attention_heads", 1),
			    .every = oom_read_count_or(r, "cross_attention_frequency", 2),
			    .dropout = oom_read_real(r, "hidden_dropout_prob", 0.1),
			    .attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1),
			    .act = oom_read_act(r, "hidden_act", "gelu")};
	*layers = oom_read_count(r, "num_hidden_layers", 0);
	if (!r->status && (l->heads > l->d || *layers > OOM_MAX_LAYERS))
		oom_read_fail(r, "the Q-Former's sizes (%s) make no model", r->prefix);
	return !r->status && l->every;
}

struct oom_val oom_emit_blip2(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t n = oom_read_count_or(&e->outer, "num_query_tokens", 32);
	uint8_t kind[OOM_MAX_LAYERS] = {0};
	struct oom_frame f = {.t = t};
	struct oom_dim d;
	struct layer l;
	uint64_t layers;
	struct oom_tower w;
	struct oom_val x;

	if (!read_layer(&l, e, &layers) || oom_read_bool(&e->part[2], "use_qformer_text_input", false))
		return oom_emit_blip2_weights(e);
	d = (struct oom_dim){l.d, "hidden_size"};
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_op_view(t, oom_param(t, "query_tokens", n, l.d, 0), oom_len_const(t, OOM_MONO_ONE, n), d);
	t->selection.part = OOM_PART_TOWER;
	l.image = oom_name_shared(&f, oom_tower_part(e, 1, &w));
	l.m_image = e->m_tokens;
	l.m_image_len = e->m_len;
	oom_tower_tokens(e, n);
	l.m_queries = e->m_tokens;
	l.m_len = e->m_len;
	for (uint64_t i = 0; i < layers; i++)
		kind[i] = i % l.every == 0;
	t->scope = "qformer";
	x = oom_op_expand(t, x, l.m_queries, d);
	x.perm = false;
	x = oom_op_dropout(t, oom_op_layer_norm(t, "layernorm", x, 0, true, true), l.dropout);
	x = oom_layers(t, (uint32_t)layers, kind, block, &l, x);
	x = oom_name(&f, x);
	oom_forget_shared(&f);
	return oom_leave(&f, oom_project(e, "language_projection", x, e->a->d_model, true));
}
