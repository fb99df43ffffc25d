/* Encoder and decoder layers of the BART line, with the lifetimes of their Python locals.
 * Reference: transformers 5.12, models/{bart,m2m_100,whisper,trocr}/modeling_*.py. */
#include "encdec.h"

void oom_encdec_sizes(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(r,
									  "encoder_attention_heads",
									  1);
	a->extra[DEC_HEADS] = oom_read_count(r, "decoder_attention_heads", 1);
	a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	a->extra[DEC_FF] = oom_read_count(r, "decoder_ffn_dim", 1);
	a->head_dim = a->d_model / a->n_heads;
}

/* q_proj(x) * scale, k_proj, v_proj, each reshaped to [b x heads, s, d] by a copy; bmm, mask,
 * softmax, dropout, bmm. */
static struct oom_val bmm_attention(struct oom_tape *t, const struct oom_encdec *s,
				    struct oom_val x, bool cross)
{
	const uint64_t d = s->a->d_model;
	const struct oom_dim h = {d, "d_model"}, heads = {s->heads, "n_heads"};
	const uint16_t len = cross ? s->m_src_len : s->m_len,
		       scores = oom_mono_mul(t, s->m_tokens, len);
	const unsigned bias = s->flags & OOM_ED_NO_BIAS ? 0 : OOM_BIAS;
	struct oom_val q, k, v, w, p, y, mask = oom_keep(cross ? s->cross_mask : s->mask);
	struct oom_frame f = {.t = t};
	struct oom_val src;

	x = oom_arg(&f, x);
	src = cross ? oom_keep(s->encoded) : x;
	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", x, h, bias));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", src, h, bias));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", src, h, bias));
	q = oom_name(&f, oom_op_copy(t, "clone", oom_op_heads(t, q)));
	k = oom_name(&f, oom_op_copy(t, "clone", k));
	v = oom_name(&f, oom_op_copy(t, "clone", v));
	w = oom_op_bmm(t, "scores", q, k, scores, heads, d / s->heads);
	if (!oom_is_none(mask))
		w = oom_op_add(t, w, mask);
	w = oom_name(&f, oom_op_softmax(t, w, false));
	p = oom_name(&f, oom_op_dropout(t, w, s->a->attn_dropout));
	y = oom_op_bmm(t, "attention", p, v, s->m_tokens, h, oom_mono_now(t, len));
	return oom_leave(&f, oom_op_linear(t, "out_proj", oom_op_merge_heads(t, y), h, bias));
}

/* Whisper's: (q_proj(x) * scale), k and v are each made contiguous as heads; the kernel scales
 * by one. */
static struct oom_val contiguous_attention(struct oom_tape *t, const struct oom_encdec *s,
					   const struct oom_attn *at, struct oom_val x, bool cross)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val src, q, k, v;

	x = oom_arg(&f, x);
	src = cross ? oom_keep(s->encoded) : x;
	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", x, h, OOM_BIAS));
	q = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_heads(t, q)));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", src, h, 0));
	k = oom_name(&f, oom_op_copy(t, "contiguous", k));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", src, h, OOM_BIAS));
	v = oom_name(&f, oom_op_copy(t, "contiguous", v));
	x = oom_op_linear(t, "out_proj", oom_attention_core(t, at, q, k, v), h, OOM_BIAS);
	return oom_leave(&f, x);
}

struct oom_val oom_encdec_attention(struct oom_tape *t, const struct oom_encdec *s,
				    struct oom_val x, bool cross, struct oom_val *weights)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	if (s->flags & OOM_ED_BMM)
		return bmm_attention(t, s, x, cross);
	at.heads = s->heads;
	at.kv_heads = s->kv_heads ? s->kv_heads : s->heads;
	at.d = at.dv = s->a->d_model / s->heads;
	at.causal = s->decoder && !cross;
	at.qkv_bias = at.o_bias = !(s->flags & OOM_ED_NO_BIAS);
	at.softmax_as_is = at.no_cast_back = at.scale_after = !(s->flags & OOM_ED_FP32_SOFTMAX);
	at.written_out = s->flags & OOM_ED_EAGER;
	at.o = "out_proj";
	at.weights = weights;
	at.mask = cross ? s->cross_mask : s->mask;
	at.mq = s->m_tokens;
	at.mk = cross ? s->m_src : s->m_tokens;
	at.sk = cross ? s->m_src_len : s->m_len;
	if (s->flags & OOM_ED_CONTIGUOUS)
		return contiguous_attention(t, s, &at, x, cross);
	if (cross)
		at.kv_from = s->encoded;
	return oom_attention(t, &at, x);
}

/* One sub-layer around attention: norm before or after, dropout, residual.  `hidden, _ =
 * attn(...)`: the name `_`, *held of the layer, holds the probabilities until the next such line has
 * run. */
static struct oom_val attend(struct oom_frame *layer, const struct oom_encdec *s, uint32_t i,
			     struct oom_val x, const char *norm, bool cross, struct oom_val *held)
{
	const bool pre = s->flags & OOM_ED_PRE_NORM;
	struct oom_val h, weights = oom_none();
	struct oom_tape *t = layer->t;

	h = pre ? oom_op_layer_norm(t, norm, oom_keep(x), 0, true, true) : oom_keep(x);
	h = !cross && s->self_attention ? s->self_attention(t, s, i, h, &weights) :
					  oom_encdec_attention(t, s, h, cross, &weights);
	*held = oom_rename(layer, *held, weights);
	h = oom_op_add(t, x, oom_op_dropout(t, h, s->a->dropout));
	return pre ? h : oom_op_layer_norm(t, norm, h, 0, true, true);
}

struct oom_val oom_encdec_mask(struct oom_tape *t, unsigned flags, bool causal, enum oom_dtype dt,
			       uint16_t mq, uint16_t mk)
{
	if (flags & (OOM_ED_EAGER | OOM_ED_BMM))
		return oom_make_written_mask(t, causal, dt, t->m_b, mq, mk);
	return oom_make_mask(t, causal, 0, dt, t->m_b, mq, mk);
}

/* The parameters of a cross-attention that is never called: they get no gradient. */
static void idle_cross_attention(struct oom_tape *t, const struct oom_encdec *s)
{
	const uint64_t d = s->a->d_model, src = s->cross_width ? s->cross_width : d;
	const unsigned bias = s->flags & OOM_ED_NO_BIAS ? 0 : OOM_BIAS;

	oom_linear_unused(t, "k_proj", src, d, s->flags & OOM_ED_CONTIGUOUS ? 0 : bias);
	oom_linear_unused(t, "v_proj", src, d, bias);
	oom_linear_unused(t, "q_proj", d, d, bias);
	oom_linear_unused(t, "out_proj", d, d, bias);
	oom_param(t, "encoder_attn_layer_norm.weight", 0, d, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "encoder_attn_layer_norm.bias", 0, d, OOM_P_UNUSED | OOM_P_NORM);
}

struct oom_val oom_encdec_feed_forward(struct oom_tape *t, const struct oom_encdec *s,
				       struct oom_val x)
{
	const struct oom_dim h = {s->a->d_model, "d_model"};
	struct oom_val y = oom_op_linear(t, "fc1", oom_keep(x), (struct oom_dim){s->ff, "ffn_dim"},
					 OOM_BIAS);

	/* activation_fn(fc1(x)): one line, x is reassigned after it */
	y = oom_activation(t, s->a->act, y);
	oom_done(t, x);
	y = oom_op_dropout(t, y, s->a->act_dropout);
	if (s->flags & OOM_ED_NLLB && t->amp && !oom_plan_quantised(t->plan) &&
	    oom_plan_stores(t->plan) == OOM_FP32)
		y = oom_op_cast(t, y, OOM_F32);
	return oom_op_linear(t, "fc2", y, h, OOM_BIAS);
}

struct oom_val oom_encdec_layer(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_encdec *s = ctx;
	const bool pre = s->flags & OOM_ED_PRE_NORM;
	const double p = s->flags & OOM_ED_NLLB ? s->a->act_dropout : s->a->dropout;
	struct oom_frame f = {.t = t};
	struct oom_val held = oom_none(), n;

	x = oom_name(&f, attend(&f, s, i, x, "self_attn_layer_norm", false, &held));
	if (s->alone)
		idle_cross_attention(t, s);
	else if (s->decoder)
		x = oom_name(&f, attend(&f, s, i, oom_take(&f, x), "encoder_attn_layer_norm", true,
					&held));
	n = pre ? oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true) : x;
	n = s->feed_forward ? s->feed_forward(t, s, i, n) : oom_encdec_feed_forward(t, s, n);
	x = oom_op_add(t, oom_take(&f, x), oom_op_dropout(t, n, p));
	oom_forget(&f, held);
	if (s->flags & OOM_ED_CLAMP && !s->decoder && x.dt == OOM_DT_F16)
		x = oom_op_unary(t, OOM_CLAMP, x);
	return oom_leave(&f, pre ? x : oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true));
}
