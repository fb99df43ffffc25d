/* Whisper's encoder as speech-language models have it: recordings are cut into windows, each padded to
 * 2 x max_source_positions frames of a hundredth of a second; two convolutions halve them, a pool perhaps once more.
 * Reference: transformers 5.12, models/{qwen2_audio,voxtral,audioflamingo3}/modeling_*.py. */
#include "ops/conv.h"
#include "blocks/image.h"
#include "hearing.h"
#include "weights.h"

struct layer {
	struct oom_hearing h;
	struct oom_val mask;
	struct oom_rope rope;
	uint16_t m_tokens, m_len;
};

/* GlmAsrAttention: heads turned in part by the places of their frames. */
static struct oom_val turned_attention(struct oom_frame *caller, const struct layer *l, struct oom_val x)
{
	const uint64_t head = l->h.d / l->h.heads;
	const struct oom_dim d = {x.width, x.text}, kv = {head * l->h.kv_heads, "n_kv_heads * head_dim"};
	struct oom_attn at = {.heads = l->h.heads, .kv_heads = l->h.kv_heads, .d = head, .dv = head, .scale_after = true,
			      .mq = l->m_tokens, .mk = l->m_tokens, .sk = l->m_len, .mask = oom_none(),
			      .kv_from = oom_none(), .caller = caller, .dropout = l->h.attn_dropout};
	struct oom_tape *t = caller->t;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	q = oom_op_heads(t, oom_op_linear(t, "q_proj", x, d, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", x, kv, 0));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "v_proj", x, kv, OOM_BIAS)));
	oom_rope_pair(t, &q, &k, &l->rope, l->h.heads, l->h.kv_heads, head, l->h.turned);
	q = oom_name(&f, q);
	k = oom_name(&f, k);
	x = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), d, OOM_BIAS);
	return oom_leave(&f, x);
}

/* q_proj(x) * scale, k and v are each made contiguous as heads; the kernel scales by one. */
static struct oom_val attention(struct oom_frame *caller, const struct layer *l, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const uint64_t head = l->h.d / l->h.heads;
	struct oom_attn at = {.heads = l->h.heads, .kv_heads = l->h.heads, .d = head, .dv = head, .softmax_as_is = true,
			      .no_cast_back = true, .scale_after = true, .mq = l->m_tokens, .mk = l->m_tokens, .sk = l->m_len,
			      .mask = l->mask, .kv_from = oom_none(), .caller = caller, .dropout = l->h.attn_dropout};
	struct oom_tape *t = caller->t;
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	q = oom_op_unary(t, OOM_SCALE, oom_op_linear(t, "q_proj", x, h, OOM_BIAS));
	q = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_heads(t, q)));
	k = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_heads(t, oom_op_linear(t, "k_proj", x, h, 0))));
	v = oom_name(&f, oom_op_copy(t, "contiguous", oom_op_heads(t, oom_op_linear(t, "v_proj", x, h, OOM_BIAS))));
	x = oom_op_linear(t, "out_proj", oom_attention_core(t, &at, q, k, v), h, OOM_BIAS);
	return oom_leave(&f, x);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_dim d = {x.width, x.text}, ff = {l->h.ff, "encoder_ffn_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	h = oom_op_layer_norm(t, "self_attn_layer_norm", x, 0, true, true);
	h = oom_name(&f, l->h.turned ? turned_attention(&f, l, h) : attention(&f, l, h));
	h = oom_rename(&f, h, oom_op_dropout(t, h, l->h.dropout));
	x = oom_rename(&f, h, oom_op_add(t, x, h));
	h = oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
	h = oom_activation(t, l->h.act, oom_op_linear(t, "fc1", h, ff, OOM_BIAS));
	h = oom_op_linear(t, "fc2", oom_op_dropout(t, h, l->h.act_dropout), d, OOM_BIAS);
	h = oom_name(&f, oom_op_dropout(t, h, l->h.dropout));
	x = oom_rename(&f, h, oom_op_add(t, x, h));
	if (x.dt == OOM_DT_F16 && !l->h.turned)                 /* clamped to the type's largest numbers */
		x = oom_rename(&f, x, oom_op_unary(t, OOM_CLAMP, x));
	return oom_leave(&f, x);
}

/* gelu(conv1), gelu(conv2), frozen positions; the second's result has a name to the end. */
static struct oom_val stem(struct oom_frame *f, struct oom_emit *e, const struct oom_hearing *h)
{
	struct oom_tape *t = f->t;
	const struct oom_conv1d conv1 = {.in = h->mels, .out = h->d, .kernel = 3, .bias = true},
				conv2 = {.in = h->d, .out = h->d, .kernel = 3, .bias = true};
	const struct oom_dim d = {h->d, "d_model"};
	const uint16_t frames = oom_len_const(t, e->m_images, 2 * h->positions);
	struct oom_val x = oom_input(t, "input_features", frames, h->mels, oom_loaded_dtype(t->plan)), pos;

	if (e->merged) {
		t->pixels += h->windows * h->mels * 2 * h->positions;
		t->pixel_mask += h->masked ? h->windows * 2 * h->positions : 0;
	}
	x = oom_op_conv1d(t, "conv1", x, &conv1, frames);
	if (!h->turned)                         /* GLM-ASR's class names no input embeddings */
		x = oom_hooked(t, x);
	x = oom_op_unary(t, OOM_GELU, x);
	x = oom_op_unary(t, OOM_GELU, oom_op_conv1d(t, "conv2", x, &conv2, e->m_tokens));
	if (h->turned) {                        /* inv_freq and original_inv_freq */
		oom_buffer(t, h->turned / 2, OOM_F32);
		oom_buffer(t, h->turned / 2, OOM_F32);
		return x;
	}
	x = oom_name(f, x);
	t->scope = "embed_positions";
	pos = oom_param(t, "weight", h->positions, h->d, OOM_P_FROZEN | OOM_P_EMBEDDING | OOM_P_UNUSED);
	pos = oom_op_add(t, x, oom_op_view(t, pos, e->m_len, d));
	return h->cast ? oom_op_cast(t, pos, (enum oom_dtype)x.dt) : pos;
}

/* A mask of the frames that are there, where the last window is not full or a batch is padded. */
static struct oom_val mask_of(const struct oom_emit *e, const struct oom_hearing *h)
{
	struct oom_tape *t = e->t;
	const bool hides = h->masked && !h->turned && (h->partial || t->plan->padding_mask);

	if (!hides || t->plan->attn == OOM_ATTN_FLASH)
		return oom_none();
	return oom_new(t, "frames that are there", oom_mono_mul(t, e->m_tokens, e->m_len), D(1),
		       t->plan->attn == OOM_ATTN_SDPA ? OOM_U8 : oom_loaded_dtype(t->plan));
}

struct oom_val oom_hear(struct oom_emit *e, const struct oom_hearing *h)
{
	struct oom_tape *t = e->t;
	struct layer l = {.h = *h};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	e->m_images = oom_len_const(t, t->m_b, h->windows);
	oom_tower_tokens(e, h->positions);
	t->scope = "audio_tower";
	x = oom_op_dropout(t, stem(&f, e, h), h->dropout);
	if (h->turned) {
		const struct oom_dim part = {h->turned, "rotary_dim"};

		x = oom_name(&f, x);            /* inputs_embeds */
		l.rope.cos = oom_new(t, "cos", e->m_len, part, (enum oom_dtype)x.dt);
		l.rope.sin = oom_new(t, "sin", e->m_len, part, (enum oom_dtype)x.dt);
		l.rope = oom_name_tables(&f, l.rope);
	}
	l.mask = oom_name_shared(&f, mask_of(e, h));
	l.m_tokens = e->m_tokens;
	l.m_len = e->m_len;
	x = oom_layers(t, (uint32_t)h->layers, NULL, block, &l, x);
	oom_forget_shared(&f);
	t->scope = "audio_tower";
	if (h->pooled) {                        /* keeps its input, as a pool does */
		x = oom_name(&f, x);
		oom_tower_tokens(e, h->positions / 2 ? h->positions / 2 : 1);
		x = oom_op_gather(t, "avg_pool1d", x, x, e->m_tokens, (struct oom_dim){h->d, "d_model"});
	}
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
}
