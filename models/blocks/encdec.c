/* Encoder and decoder layers of the BART line, with the lifetimes of their Python locals.
 * Reference: transformers 5.12, models/{bart,m2m_100,whisper,trocr}/modeling_*.py. */
#include "encdec.h"

struct oom_encdec oom_encoder_stack(const struct oom_tape *t, const struct oom_arch *a,
				    const struct oom_encdec_kind *kind)
{
	return (struct oom_encdec){.a = a, .kind = *kind, .mask = oom_none(),
				   .cross_mask = oom_none(), .encoded = oom_none(),
				   .layers = a->enc_layers, .heads = a->n_heads, .ff = a->d_ff,
				   .m_tokens = t->m_bs, .m_len = t->m_s};
}

struct oom_encdec oom_decoder_stack(struct oom_tape *t, const struct oom_arch *a,
				    const struct oom_encdec_kind *kind, uint16_t m_t)
{
	struct oom_encdec s = oom_encoder_stack(t, a, kind);

	s.layers = a->dec_layers;
	s.heads = a->dec_heads;
	s.ff = a->dec_ff;
	s.m_tokens = oom_mono_mul(t, t->m_b, m_t);
	s.m_len = m_t;
	s.m_src = t->m_bs;
	s.m_src_len = t->m_s;
	s.decoder = true;
	return s;
}

struct oom_encdec_tables oom_encdec_tables(struct oom_tape *t, const struct oom_arch *a,
					   const char *const names[3], bool encoder)
{
	static const char *const bart[3] = {"shared", "encoder.embed_tokens",
					    "decoder.embed_tokens"};
	const uint32_t idle = a->tie ? 0 : OOM_P_UNUSED;
	struct oom_encdec_tables e;

	names = names ? names : bart;
	t->scope = names[0];
	e.shared = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING | idle);
	if (names == bart)
		oom_lora_idle_table(t, e.shared, "shared");
	e.encoder = e.decoder = e.shared;
	if (a->tie)
		return e;
	if (encoder) {
		t->scope = names[1];
		e.encoder = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	}
	t->scope = names[2];
	e.decoder = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	return e;
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
	const unsigned bias = s->kind.no_bias ? 0 : OOM_BIAS;
	const struct oom_val mask = cross ? s->cross_mask : s->mask;
	struct oom_val src, q, k, v, w, p, y;
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	src = cross ? s->encoded : x;
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
	src = cross ? s->encoded : x;
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

	if (s->kind.kernel == OOM_ED_BMM)
		return bmm_attention(t, s, x, cross);
	at.heads = s->heads;
	at.kv_heads = s->kv_heads ? s->kv_heads : s->heads;
	at.d = at.dv = s->a->d_model / s->heads;
	at.causal = s->decoder && !cross;
	at.qkv_bias = at.o_bias = !s->kind.no_bias;
	at.softmax_as_is = at.no_cast_back = at.scale_after = !s->kind.fp32_softmax;
	at.written_out = s->kind.kernel == OOM_ED_MATMUL;
	at.o = "out_proj";
	at.weights = weights;
	at.mask = cross ? s->cross_mask : s->mask;
	at.mq = s->m_tokens;
	at.mk = cross ? s->m_src : s->m_tokens;
	at.sk = cross ? s->m_src_len : s->m_len;
	if (s->kind.kernel == OOM_ED_CONTIGUOUS)
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
	const bool pre = s->kind.pre_norm;
	struct oom_tape *t = layer->t;
	struct oom_frame f = {.t = t};
	struct oom_val h, weights = oom_none();

	x = oom_arg(&f, x);
	h = pre ? oom_op_layer_norm(t, norm, x, 0, true, true) : x;
	h = !cross && s->self_attention ? s->self_attention(t, s, i, h, &weights) :
					  oom_encdec_attention(t, s, h, cross, &weights);
	*held = oom_rename(layer, *held, weights);
	h = oom_op_add(t, oom_take(&f, x), oom_op_dropout(t, h, s->a->dropout));
	return pre ? h : oom_op_layer_norm(t, norm, h, 0, true, true);
}

struct oom_val oom_encdec_mask(struct oom_tape *t, const struct oom_encdec *s, bool causal,
			       enum oom_dtype dt, uint16_t mq, uint16_t mk)
{
	if (s->kind.kernel == OOM_ED_MATMUL || s->kind.kernel == OOM_ED_BMM)
		return oom_make_written_mask(t, causal, dt, t->m_b, mq, mk);
	return oom_make_mask(t, causal, 0, dt, t->m_b, mq, mk);
}

void oom_encdec_masks(struct oom_frame *f, struct oom_encdec *dec, enum oom_dtype dt)
{
	const uint16_t m = dec->m_len;
	struct oom_tape *t = f->t;

	dec->mask = oom_name_shared(f, oom_encdec_mask(t, dec, true, dt, m, m));
	dec->cross_mask = oom_name_shared(f,
					  oom_encdec_mask(t, dec, false, dt, m, dec->m_src_len));
}

/* The parameters of a cross-attention that is never called: they get no gradient. */
static void idle_cross_attention(struct oom_tape *t, const struct oom_encdec *s)
{
	const uint64_t d = s->a->d_model, src = s->cross_width ? s->cross_width : d;
	const unsigned bias = s->kind.no_bias ? 0 : OOM_BIAS;

	oom_linear_unused(t, "k_proj", src, d, s->kind.kernel == OOM_ED_CONTIGUOUS ? 0 : bias);
	oom_linear_unused(t, "v_proj", src, d, bias);
	oom_linear_unused(t, "q_proj", d, d, bias);
	oom_linear_unused(t, "out_proj", d, d, bias);
	oom_param(t, "encoder_attn_layer_norm.weight", 0, d, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "encoder_attn_layer_norm.bias", 0, d, OOM_P_UNUSED | OOM_P_NORM);
}

struct oom_val oom_encdec_feed_forward(struct oom_tape *t, const struct oom_encdec *s,
				       struct oom_val x)
{
	const struct oom_dim h = {s->a->d_model, "d_model"}, ff = {s->ff, "ffn_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_activation(t, s->a->act, oom_op_linear(t, "fc1", x, ff, OOM_BIAS));
	oom_forget(&f, x);                      /* one line, x is reassigned after it */
	y = oom_op_dropout(t, y, s->a->act_dropout);
	if (s->kind.cast_to_fc2 && t->amp && !oom_plan_quantised(t->plan) &&
	    oom_plan_stores(t->plan) == OOM_FP32)
		y = oom_op_cast(t, y, OOM_F32);
	return oom_op_linear(t, "fc2", y, h, OOM_BIAS);
}

struct oom_val oom_encdec_layer(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_encdec *s = ctx;
	const bool pre = s->kind.pre_norm;
	const double p = s->kind.cast_to_fc2 ? s->a->act_dropout : s->a->dropout;
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
	x = oom_op_add(t, x, oom_op_dropout(t, n, p));          /* residual, a name to the end */
	if (s->kind.clamp && !s->decoder && x.dt == OOM_DT_F16)
		x = oom_op_unary(t, OOM_CLAMP, x);
	return oom_leave(&f, pre ? x : oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true));
}

struct oom_val oom_encdec_layers(struct oom_tape *t, const struct oom_encdec *s, struct oom_val x)
{
	return oom_layers(t, (uint32_t)oom_depth(t, s->layers), NULL, oom_encdec_layer, s, x);
}

bool oom_seq2seq_only(struct oom_tape *t, const struct oom_arch *a)
{
	if (t->task == OOM_TASK_SEQ2SEQ)
		return true;
	oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq", a->model_type);
	return false;
}

struct oom_val oom_seq2seq_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				struct oom_val embed, const char *head, uint16_t m_tokens)
{
	return oom_plain_lm_loss(t, oom_lm_head(t, a, x, embed, head, false), false, m_tokens);
}

enum oom_task oom_encdec_task(struct oom_tape *t, bool has_images)
{
	if (has_images && t->task == OOM_TASK_IMAGE_TEXT)
		t->task = OOM_TASK_SEQ2SEQ;
	return t->task;
}
