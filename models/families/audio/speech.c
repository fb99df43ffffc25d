/* SpeechT5 (speech to text) and Moonshine: convolutions over raw samples, an encoder, a text
 * decoder.
 *
 * seq_len counts samples, tgt_len labels.  The convolutions and layers have their real sizes; norms
 * inside the stems, weight normalisation and relative positions are approximated, and the warning
 * says so. Reference: transformers 5.12, models/{speecht5,moonshine}/modeling_*.py. */
#include <string.h>

#include "blocks/audio.h"
#include "blocks/encdec.h"
#include "blocks/image.h"
#include "families/towers/weights.h"

/* extra[] */
enum {
	MOONSHINE = ENCDEC_EXTRA,
	RELATIVE,
	POS_KERNEL,
	POS_GROUPS,
	ENC_KV,
	DEC_KV,
};
enum { MAX_CONVS = 16 };

static void parse_speecht5(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = a->n_kv_heads = oom_read_count(r,
									  "encoder_attention_heads",
									  1);
	a->extra[DEC_HEADS] = oom_read_count(r, "decoder_attention_heads", 1);
	a->extra[ENC_FF] = oom_read_count(r, "encoder_ffn_dim", 1);
	a->d_ff = oom_read_count(r, "decoder_ffn_dim", 1);
	a->extra[RELATIVE] = oom_read_count_or(r, "encoder_max_relative_position", 160);
	a->extra[POS_KERNEL] = oom_read_count_or(r, "num_conv_pos_embeddings", 128);
	a->extra[POS_GROUPS] = oom_read_count_or(r, "num_conv_pos_embedding_groups", 16);
	a->max_positions = oom_read_count_or(r, "max_text_positions", 450);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0.1);
	a->act_dropout = oom_read_real(r, "activation_dropout", 0.1);
	if (!a->extra[POS_GROUPS] || a->d_model % a->extra[POS_GROUPS])
		oom_read_fail(r, "num_conv_pos_embedding_groups does not divide hidden_size");
}

static void parse_moonshine(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[ENC_LAYERS] = oom_read_count(r, "encoder_num_hidden_layers", 1);
	a->n_layers = a->dec_layers = oom_read_count(r, "decoder_num_hidden_layers", 1);
	a->extra[ENC_HEADS] = a->n_heads = oom_read_count(r, "encoder_num_attention_heads", 1);
	a->extra[ENC_KV] = a->n_kv_heads = oom_read_count_or(r, "encoder_num_key_value_heads",
							     a->n_heads);
	a->extra[DEC_HEADS] = oom_read_count(r, "decoder_num_attention_heads", 1);
	a->extra[DEC_KV] = oom_read_count_or(r, "decoder_num_key_value_heads", a->extra[DEC_HEADS]);
	a->extra[ENC_FF] = a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 512);
	a->rotary_share = oom_read_real(r, "partial_rotary_factor",
					oom_read_real(r, "rope_parameters.partial_rotary_factor",
						      0.9));
	a->act = oom_read_act(r, "encoder_hidden_act", "gelu");
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->qkv_bias = oom_read_bool(r, "attention_bias", false);
	if (!a->extra[ENC_KV] || !a->extra[DEC_KV] ||
	    a->extra[DEC_HEADS] % (a->extra[DEC_KV] ? a->extra[DEC_KV] : 1))
		oom_read_fail(r, "the heads of %s make no model", a->model_type);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->extra[MOONSHINE] = !strcmp(a->model_type, "moonshine");
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->frame = 1;
	if (a->extra[MOONSHINE])
		parse_moonshine(a);
	else
		parse_speecht5(a);
	a->head_dim = a->d_model / a->n_heads;
	a->approximate = true;
}

/* One convolution of the stem and its activation; *shrink is how many samples a frame has come
 * to stand for. */
static struct oom_val conv(struct oom_tape *t, struct oom_val x, const struct oom_conv1d *c,
			   uint64_t stride, uint64_t *shrink, enum oom_act act)
{
	*shrink *= stride;
	if (*shrink > UINT32_MAX) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "the strides of the convolutions multiply to more than 2^32");
		return x;
	}
	x = oom_op_conv1d(t, "conv", x, c, oom_len_ceil(t, t->m_b, *shrink));
	return oom_activation(t, act, x);
}

static struct oom_val moonshine_stem(struct oom_tape *t, const struct oom_arch *a, uint64_t *shrink)
{
	const uint64_t d = a->d_model;
	struct oom_val x = oom_features(t, a, t->m_bs);

	x = conv(t, x, &(struct oom_conv1d){.in = 1, .out = d, .kernel = 127}, 64, shrink,
		 OOM_ACT_TANH);
	x = oom_op_layer_norm(t, "groupnorm", x, 0, true, true);
	x = conv(t, x, &(struct oom_conv1d){.in = d, .out = 2 * d, .kernel = 7, .bias = true}, 3,
		 shrink, OOM_ACT_GELU);
	return conv(t, x, &(struct oom_conv1d){.in = 2 * d, .out = d, .kernel = 3, .bias = true}, 2,
		    shrink, OOM_ACT_GELU);
}

/* wav2vec 2.0's feature encoder, projection and convolutional positions. */
static struct oom_val speecht5_stem(struct oom_tape *t, const struct oom_arch *a, uint64_t *shrink)
{
	uint64_t dims[MAX_CONVS], kernels[MAX_CONVS], strides[MAX_CONVS], n;
	const uint64_t d = a->d_model;
	struct oom_reader r = a->rd;
	const bool layer = !strcmp(oom_read_string(&r, "feat_extract_norm", "group"), "layer");
	struct oom_val x = oom_features(t, a, t->m_bs);

	n = oom_read_counts(&r, "conv_dim", dims, MAX_CONVS);
	if (!n || oom_read_counts(&r, "conv_kernel", kernels, MAX_CONVS) != n ||
	    oom_read_counts(&r, "conv_stride", strides, MAX_CONVS) != n) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "conv_dim, conv_kernel and conv_stride must list as many numbers");
		return x;
	}
	oom_drop(t, oom_param(t, "masked_spec_embed", 0, d, OOM_P_UNUSED));
	for (uint64_t i = 0; i < n && !t->status; i++) {
		x = conv(t, x,
			 &(struct oom_conv1d){.in = i ? dims[i - 1] : 1,
					      .out = dims[i],
					      .kernel = kernels[i],
					      .bias = oom_read_bool(&r, "conv_bias", false)},
			 strides[i], shrink, OOM_ACT_GELU);
		if (layer || !i)
			x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	}
	x = oom_op_layer_norm(t, "feature_projection.layer_norm", x, 0, true, true);
	x = oom_op_linear(t, "projection", x, D(d), OOM_BIAS);
	t->scope = "pos_conv_embed";
	oom_drop(t, oom_param(t, "bias", 0, d, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "original0", 1, a->extra[POS_KERNEL], OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "original1", d * (d / a->extra[POS_GROUPS]), a->extra[POS_KERNEL],
			      OOM_P_UNUSED));
	x = oom_op_layer_norm(t, "layer_norm", oom_op_dropout(t, x, a->dropout), 0, true, true);
	t->scope = "pe_k";
	oom_drop(t, oom_param(t, "weight", 2 * a->extra[RELATIVE], a->head_dim,
			      OOM_P_UNUSED | OOM_P_EMBEDDING));
	return x;
}

/* ---- Moonshine's layers: norms without biases, rotary positions, a gated feed-forward in the
 * decoder ---- */

struct stack {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val encoded;
	uint64_t heads, kv_heads;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	bool decoder;
};

static struct oom_val attend(struct oom_tape *t, const struct stack *s, struct oom_val x,
			     const char *norm, bool cross)
{
	struct oom_attn at = oom_attn_of(t, s->a);
	struct oom_rope rope = s->rope;
	struct oom_val h = oom_op_layer_norm(t, norm, oom_keep(x), 0, true, false);

	at.heads = s->heads;
	at.kv_heads = s->kv_heads;
	at.d = at.dv = s->a->d_model / s->heads;
	at.causal = s->decoder && !cross;
	at.rope = cross ? NULL : &rope;
	at.rot_dim = (uint64_t)((double)at.d * s->a->rotary_share);
	at.mq = s->m_tokens;
	at.mk = cross ? s->m_src : s->m_tokens;
	at.sk = cross ? s->m_src_len : s->m_len;
	if (cross)
		at.kv_from = s->encoded;
	return oom_op_add(t, x, oom_attention(t, &at, h));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_dim d = {x.width, x.text}, ff = {s->a->d_ff, "intermediate_size"};
	struct oom_val h;

	(void)i;
	x = attend(t, s, x, "input_layernorm", false);
	if (s->decoder)
		x = attend(t, s, x, "post_attention_layernorm", true);
	h = oom_op_layer_norm(t, "final_layernorm", oom_keep(x), 0, true, false);
	if (s->decoder) {
		const struct oom_dim halves[2] = {ff, ff};
		struct oom_val p[2];

		oom_op_split(t,
			     oom_op_linear(t, "fc1", h,
					   (struct oom_dim){2 * ff.n, "2 * intermediate_size"},
					   OOM_BIAS),
			     2, halves, p);
		h = oom_op_mul(t, oom_op_unary(t, OOM_SILU, p[1]), p[0]);
	} else {
		h = oom_activation(t, s->a->act, oom_op_linear(t, "fc1", h, ff, OOM_BIAS));
	}
	return oom_op_add(t, x, oom_op_linear(t, "fc2", h, d, OOM_BIAS));
}

static struct oom_val moonshine_stack(struct oom_tape *t, struct stack *s, uint64_t layers,
				      struct oom_val x)
{
	const uint64_t rot = (uint64_t)((double)(s->a->d_model / s->heads) * s->a->rotary_share);
	const uint16_t m_s = t->m_s;

	t->m_s = s->m_len;
	s->rope = oom_rope_tables(t, rot ? rot : 2, (enum oom_dtype)x.dt, 2);
	t->m_s = m_s;
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, block, s, x);
	oom_drop_shared(t, s->rope.cos);
	oom_drop_shared(t, s->rope.sin);
	return oom_op_layer_norm(t, "norm", x, 0, true, false);
}

static struct oom_val moonshine(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				struct oom_val embed, struct oom_val ids, uint16_t m_t,
				uint16_t m_len)
{
	struct stack enc = {.a = a,
			    .heads = a->extra[ENC_HEADS],
			    .kv_heads = a->extra[ENC_KV],
			    .m_tokens = oom_mono_mul(t, t->m_b, m_len),
			    .m_len = m_len,
			    .encoded = oom_none()};
	struct stack dec = {.a = a,
			    .heads = a->extra[DEC_HEADS],
			    .kv_heads = a->extra[DEC_KV],
			    .m_tokens = oom_mono_mul(t, t->m_b, m_t),
			    .m_len = m_t,
			    .m_src = enc.m_tokens,
			    .m_src_len = m_len,
			    .decoder = true};

	dec.encoded = moonshine_stack(t, &enc, a->extra[ENC_LAYERS], x);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	x = moonshine_stack(t, &dec, a->dec_layers, x);
	oom_returns_shared(t, dec.encoded);
	return x;
}

static struct oom_val speecht5(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			       struct oom_val embed, struct oom_val ids, uint16_t m_t,
			       uint16_t m_len)
{
	struct oom_encdec enc = {.a = a,
				 .heads = a->extra[ENC_HEADS],
				 .ff = a->extra[ENC_FF],
				 .m_tokens = oom_mono_mul(t, t->m_b, m_len),
				 .m_len = m_len,
				 .mask = oom_none(),
				 .cross_mask = oom_none(),
				 .encoded = oom_none(),
				 .flags = OOM_ED_BMM};
	struct oom_encdec dec = {.a = a,
				 .heads = a->extra[DEC_HEADS],
				 .ff = a->d_ff,
				 .m_tokens = oom_mono_mul(t, t->m_b, m_t),
				 .m_len = m_t,
				 .m_src = enc.m_tokens,
				 .m_src_len = m_len,
				 .cross_mask = oom_none(),
				 .decoder = true,
				 .flags = OOM_ED_BMM};

	dec.encoded = oom_layers(t, (uint32_t)oom_depth(t, a->extra[ENC_LAYERS]), NULL,
				 oom_encdec_layer, &enc, x);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	dec.mask = oom_encdec_mask(t, dec.flags, true, (enum oom_dtype)embed.dt, m_t, m_t);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->dec_layers), NULL, oom_encdec_layer, &dec,
		       oom_op_dropout(t, x, a->dropout));
	oom_drop_shared(t, dec.mask);
	oom_returns_shared(t, dec.encoded);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t m_t = oom_len_targets(t), m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_val embed, ids, x, hidden, loss;
	uint64_t shrink = 1;
	uint16_t m_len;

	if (t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq",
			      a->model_type);
		return oom_none();
	}
	t->warning = "the convolutional stem and the positions of this speech model are "
		     "approximated";
	x = a->extra[MOONSHINE] ? moonshine_stem(t, a, &shrink) : speecht5_stem(t, a, &shrink);
	if (t->status)
		return oom_none();
	m_len = oom_len_ceil(t, OOM_MONO_ONE, shrink);
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = a->extra[MOONSHINE] ? moonshine(t, a, x, embed, oom_keep(ids), m_t, m_len) :
				  speecht5(t, a, x, embed, oom_keep(ids), m_t, m_len);
	hidden = oom_share(t, x);
	loss = oom_plain_lm_loss(t, oom_lm_head(t, a, x, embed, "lm_head", false), false, m_bt);
	oom_drop(t, hidden);
	oom_drop(t, ids);
	return loss;
}

static const struct oom_family_type types[] = {
	{"speecht5", NULL}, {"moonshine", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_speech = {
	.name = "speech",
	.summary = "speech recognition from raw samples: convolutions, encoder, text decoder",
	.source = "transformers 5.12 models/moonshine/modeling_moonshine.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
