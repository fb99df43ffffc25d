/* Conformer layers: a feed-forward by half, attention with positions, a convolution over frames, a feed-forward by half, a norm.
 * Attention is written out whatever the plan asks for.  wav2vec2-conformer's positions are rotated or relative (a table of sines of
 * which each layer makes keys of its own), wav2vec2-bert's a table of clamped distances; its convolution looks back alone.
 * Reference: transformers 5.12, models/{wav2vec2_conformer,wav2vec2_bert}/modeling_*.py. */
#include "ops/scan.h"
#include "ctc.h"

/* Wav2Vec2ConformerConvolutionModule, Wav2Vec2BertConvolutionModule */
static struct oom_val convolved(struct oom_tape *t, const struct ctc_stack *l, struct oom_val x)
{
	const struct oom_arch *a = l->s.a;
	const struct ctc *own = ctc_of(a);
	const bool causal = ctc_kind_of(a)->features;
	const struct oom_conv1d up = {.in = a->d_model, .out = 2 * a->d_model, .kernel = 1},
				across = {.in = a->d_model, .out = a->d_model, .kernel = 1};
	const uint16_t rows = l->s.m_tokens;
	const struct oom_dim d = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_map m = {.c = a->d_model, .h = l->frames, .w = 1};
	struct oom_val h = oom_name(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));

	if (causal && t->plan->padding_mask)
		h = oom_rename(&f, h, oom_op_masked(t, "masked_fill", h, oom_new(t, "padding", rows, D(1), OOM_U8)));
	h = oom_rename(&f, h, oom_op_conv1d(t, "pointwise_conv1", h, &up, rows));
	h = oom_rename(&f, h, oom_op_gather(t, "glu", h, h, rows, d));
	if (causal)
		h = oom_rename(&f, h, oom_op_pad(t, h, oom_tokens_of(t, l->frames + own->depth_kernel - 1), d));
	h = oom_rename(&f, h, oom_op_conv_depthwise(t, "depthwise_conv", h, own->depth_kernel, false, rows, d));
	if (causal) {
		h = oom_rename(&f, h, oom_op_layer_norm(t, "depthwise_layer_norm", h, 0, true, true));
	} else {
		m.x = oom_op_view(t, h, t->m_b, (struct oom_dim){a->d_model * l->frames, "hidden_size * frames"});
		m = oom_batch_norm(t, "batch_norm", m);
		h = oom_rename(&f, h, oom_op_view(t, m.x, rows, d));
	}
	h = oom_rename(&f, h, oom_activation(t, a->act, h));
	h = oom_rename(&f, h, oom_op_conv1d(t, "pointwise_conv2", h, &across, rows));
	return oom_leave(&f, oom_op_dropout(t, h, own->conv_dropout));
}

/* What queries and keys are made of: frames turned by their place, whose table is made once. */
static struct oom_val rotated(struct oom_tape *t, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val turned = oom_name(&f, oom_op_copy(t, "cat", oom_op_unary(t, OOM_SCALE, x)));

	return oom_leave(&f, oom_op_add(t, oom_op_unary(t, OOM_SCALE, x), oom_op_unary(t, OOM_SCALE, turned)));
}

/* q (queries without their places) over the keys that linear_pos makes of 2 L - 1 sines, moved so that the distance 0 comes to the
 * diagonal: L of 2 L in every row. */
static struct oom_val relative_scores(struct oom_tape *t, const struct ctc_stack *l, struct oom_val q, struct oom_val k)
{
	const struct oom_arch *a = l->s.a;
	const uint64_t n = l->frames, head = a->d_model / a->n_heads;
	const struct oom_dim d = D(a->d_model), heads = D(a->n_heads), wide = {a->n_heads * (2 * n - 1), NULL},
			     padded = {a->n_heads * 2 * n, NULL};
	const uint16_t rows = l->s.m_tokens, places = oom_length_of(t, 2 * n - 1), plane = oom_mono_mul(t, rows, l->s.m_len);
	struct oom_frame f = {.t = t};
	struct oom_val p, u, v, ac, bd;

	p = oom_input(t, "relative positions", places, a->d_model, OOM_F32);
	p.dt = (uint8_t)l->table;
	p = oom_name(&f, oom_op_linear(t, "linear_pos", p, d, 0));
	u = oom_op_add(t, q, oom_param(t, "pos_bias_u", 0, a->d_model, 0));
	u.perm = true;
	u = oom_name(&f, u);
	v = oom_op_add(t, q, oom_param(t, "pos_bias_v", 0, a->d_model, 0));
	v.perm = true;
	v = oom_name(&f, v);
	ac = oom_name(&f, oom_op_bmm(t, "scores_ac", u, k, plane, heads, head));
	p = oom_cond_above(t, t->m_b, 1) ? oom_op_expand_copy(t, p, oom_tokens_of(t, 2 * n - 1), d) : p;
	bd = oom_name(&f, oom_op_bmm(t, "scores_bd", v, p, rows, wide, head));
	oom_name(&f, oom_new(t, "zero_pad", rows, heads, (enum oom_dtype)bd.dt));
	p = oom_name(&f, oom_op_pad(t, bd, rows, padded));
	oom_forget(&f, bd);
	bd = oom_op_slice(t, oom_op_slice(t, p, rows, wide), plane, heads);
	return oom_leave(&f, oom_op_unary(t, OOM_SCALE, oom_op_add(t, ac, bd)));
}

/* Scores, and to them the queries' product with an embedded distance for every pair of frames. */
static struct oom_val keyed_scores(struct oom_frame *f, const struct ctc_stack *l, struct oom_val q, struct oom_val k)
{
	const struct oom_arch *a = l->s.a;
	const struct ctc *own = ctc_of(a);
	const uint64_t head = a->d_model / a->n_heads;
	const struct oom_dim heads = D(a->n_heads);
	struct oom_tape *t = f->t;
	const uint16_t length = l->s.m_len, pairs = oom_mono_mul(t, length, length), plane = oom_mono_mul(t, l->s.m_tokens, length);
	struct oom_val w, p, ids;

	w = oom_name(f, oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "scores", q, k, plane, heads, head)));
	oom_name(f, oom_new(t, "position_ids_l", length, D(1), OOM_I64));
	oom_name(f, oom_new(t, "position_ids_r", length, D(1), OOM_I64));
	oom_name(f, oom_new(t, "distance", pairs, D(1), OOM_I64));
	ids = oom_new(t, "distances", pairs, D(1), OOM_I64);
	p = oom_op_embedding(t, "distance_embedding", ids, own->left + own->right + 1, D(head), 0);
	if (p.node >= 0)                        /* einsum multiplies by their transpose */
		t->nodes[p.node].perm |= OOM_LOOKUP_TURNED;
	p = oom_name(f, oom_op_cast(t, p, (enum oom_dtype)q.dt));
	p = oom_op_bmm(t, "relative_position_attn_weights", oom_op_copy(t, "einsum", q), p, plane, heads, head);
	p = oom_name(f, p);
	return oom_rename(f, w, oom_op_add(t, w, oom_op_unary(t, OOM_SCALE, p)));
}

struct oom_val oom_ctc_conformer_attention(struct oom_tape *t, const struct ctc_stack *l, struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = l->s.a;
	const enum oom_ctc_places places = l->places;
	const uint16_t plane = oom_mono_mul(t, l->s.m_tokens, l->s.m_len);
	const struct oom_dim d = {l->width, "hidden_size"};
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, w, y = x;

	if (places == OOM_CTC_ROTATED)
		y = oom_name(&f, rotated(t, x));
	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "linear_q", y, d, OOM_BIAS)));
	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "linear_k", y, d, OOM_BIAS)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "linear_v", x, d, OOM_BIAS)));
	if (places == OOM_CTC_RELATIVE)
		w = oom_name(&f, relative_scores(t, l, q, k));
	else if (places == OOM_CTC_KEYED)
		w = keyed_scores(&f, l, q, k);
	else
		w = oom_name(&f, oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "scores", q, k, plane, D(a->n_heads), d.n / a->n_heads)));
	if (t->plan->padding_mask)
		w = oom_rename(&f, w, oom_op_add(t, w, l->s.mask));
	y = oom_name(&f, oom_op_softmax(t, w, false));
	y = oom_rename(&f, y, oom_op_dropout(t, y, a->attn_dropout));
	*weights = oom_give(&f, y);
	y = oom_name(&f, oom_op_bmm(t, "attention", y, v, l->s.m_tokens, d, oom_mono_now(t, l->s.m_len)));
	y = oom_rename(&f, y, oom_op_merge_heads(t, y));
	return oom_leave(&f, oom_op_linear(t, "linear_out", y, d, OOM_BIAS));
}

static struct oom_val conformer_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct ctc_stack *l = ctx;
	const struct oom_arch *a = l->s.a;
	struct oom_frame f = {.t = t};
	struct oom_val h, y, weights = oom_none();

	/* layer_outputs of the layer before, which autograd holds as well unless dropout made another tensor, of which a cast is kept */
	if (i && !t->recompute && (!t->grad || t->packing || (t->amp && t->train && a->attn_dropout > 0)))
		oom_name(&f, oom_new(t, "weights", oom_mono_mul(t, l->s.m_tokens, l->s.m_len), D(a->n_heads), l->weights));
	h = oom_name(&f, oom_op_layer_norm(t, "ffn1_layer_norm", x, 0, true, true));
	h = oom_rename(&f, h, oom_ctc_feed_forward(t, a, h, a->act));
	h = oom_rename(&f, h, oom_op_add(t, oom_op_unary(t, OOM_SCALE, h), x));
	y = oom_name(&f, oom_op_layer_norm(t, "self_attn_layer_norm", h, 0, true, true));
	y = oom_rename(&f, y, oom_ctc_conformer_attention(t, l, y, &weights));
	oom_block_returns(t, oom_name(&f, weights));
	y = oom_rename(&f, y, oom_op_dropout(t, y, a->attn_dropout));
	y = oom_rename(&f, y, oom_op_add(t, y, h));
	oom_forget(&f, h);
	h = oom_name(&f, convolved(t, l, y));
	h = oom_rename(&f, h, oom_op_add(t, y, h));
	oom_forget(&f, y);
	y = oom_name(&f, oom_op_layer_norm(t, "ffn2_layer_norm", h, 0, true, true));
	y = oom_rename(&f, y, oom_ctc_feed_forward(t, a, y, a->act));
	y = oom_rename(&f, y, oom_op_add(t, oom_op_unary(t, OOM_SCALE, y), h));
	return oom_leave(&f, oom_op_layer_norm(t, "final_layer_norm", y, 0, true, true));
}

/* pos_conv_embed, which the encoder makes and does not call. */
static void idle_positions(struct oom_tape *t, const struct oom_arch *a)
{
	const struct ctc *own = ctc_of(a);
	const uint64_t d = a->d_model, k = own->pos_kernel;

	t->scope = "pos_conv_embed.conv";
	oom_param(t, "bias", 0, d, OOM_P_UNUSED);
	t->scope = "pos_conv_embed.conv.parametrizations.weight";
	oom_param(t, "original0", 1, k, OOM_P_UNUSED);
	oom_param_stacked(t, oom_param(t, "original1", d * (d / own->pos_groups), k, OOM_P_UNUSED), d / own->pos_groups);
}

/* What the layers share: the mask, one row for the keys of every sample, and the table of positions, which the encoder keeps from
 * one step to the next. */
struct oom_val oom_ctc_conformer(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const struct ctc *own = ctc_of(a);
	const struct oom_encdec_kind kind = {.kernel = OOM_ED_MATMUL};
	struct ctc_stack l = {.s = oom_encoder_stack(t, a, &kind), .bias = oom_none(), .frames = frames,
			      .places = own->places, .width = a->d_model};
	struct oom_frame f = {.t = t};
	struct oom_val h = x, pad;

	if (!ctc_kind_of(a)->features)
		idle_positions(t, a);
	l.s.m_len = oom_length_of(t, frames);
	l.s.m_tokens = x.mono;
	l.table = (enum oom_dtype)x.dt;
	l.weights = t->amp ? OOM_F32 : (enum oom_dtype)x.dt;
	l.s.mask = oom_none();
	if (t->plan->padding_mask) {
		if (ctc_kind_of(a)->features) {
			pad = oom_new(t, "padding", x.mono, D(1), OOM_U8);
			h = oom_op_masked(t, "masked_fill", x, pad);
		} else {
			oom_name(&f, oom_new(t, "expanded mask", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8));
			pad = oom_new(t, "bitwise_not", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8);
			h = oom_op_masked_inplace(t, x, pad);
		}
		l.s.mask = oom_name_shared(&f, oom_new(t, "attention_mask", x.mono, D(1), l.table));
	}
	h = oom_op_dropout(t, h, a->dropout);   /* which the first layer's result takes the place of */
	/* The first forward pass leaves the table in the layers' type. */
	if (own->places == OOM_CTC_RELATIVE) {
		oom_buffer(t, (2 * own->max_places - 1) * a->d_model, l.table);
	} else if (own->places == OOM_CTC_ROTATED) {
		oom_buffer(t, a->d_model / a->n_heads / 2, OOM_F32);    /* inv_freq */
		oom_buffer(t, 2 * frames * (a->d_model / a->n_heads), l.table);
	}
	h = oom_name(&f, oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, conformer_block, &l, h));
	if (!ctc_kind_of(a)->features)
		h = oom_rename(&f, h, oom_op_layer_norm(t, "layer_norm", h, 0, true, true));
	oom_forget_shared(&f);
	return oom_leave(&f, h);
}
