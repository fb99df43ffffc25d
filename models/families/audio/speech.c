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
#include "config/keys.h"
#include "families/towers/weights.h"

enum { MAX_CONVS = 16 };
struct speech {
	uint64_t enc_ff;        /* of SpeechT5's encoder */
	uint64_t relative, pos_kernel, pos_groups;
	uint64_t convs, dims[MAX_CONVS], kernels[MAX_CONVS], strides[MAX_CONVS];
	bool conv_bias, layer_norms;    /* a norm after every convolution, not after the first alone */
	uint64_t dec_kv_heads;  /* of Moonshine's decoder */
};
OOM_OWN(speech, struct speech);

struct speech_kind {
	void (*parse)(struct oom_arch *a);
	/* from the samples to the encoder's first layer; *shrink: samples that a frame stands for */
	struct oom_val (*stem)(struct oom_tape *t, const struct oom_arch *a, uint64_t *shrink);
	struct oom_val (*encoder)(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				  uint16_t m_len);
	struct oom_val (*decoder)(struct oom_tape *t, const struct oom_encdec *s,
				  struct oom_val embed, struct oom_val ids);
	bool wide_loss;         /* loss_function's: logits.float() first (loss/loss_utils.py ForCausalLMLoss) */
};
static const struct speech_kind *kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

static const struct oom_key_row speech_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};
static const struct oom_key_row speecht5_keys[] = {
	MUST(enc_layers, "encoder_layers"), MUST(dec_layers, "decoder_layers"),
	MUST(n_heads, "encoder_attention_heads"), MUST(dec_heads, "decoder_attention_heads"),
	MUST_OWN(struct speech, enc_ff, "encoder_ffn_dim"), MUST(d_ff, "decoder_ffn_dim"),
	OR_OWN(struct speech, relative, "encoder_max_relative_position", 160),
	OR_OWN(struct speech, pos_kernel, "num_conv_pos_embeddings", 128),
	OR_OWN(struct speech, pos_groups, "num_conv_pos_embedding_groups", 16),
	FLAG_OWN(struct speech, conv_bias, "conv_bias", false),
	OR(max_positions, "max_text_positions", 450), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout", 0.1), REAL(attn_dropout, "attention_dropout", 0.1),
	REAL(act_dropout, "activation_dropout", 0.1), OOM_KEYS_END};
static const struct oom_key_row moonshine_keys[] = {
	MUST(enc_layers, "encoder_num_hidden_layers"),
	MUST(dec_layers, "decoder_num_hidden_layers"), MUST(n_heads, "encoder_num_attention_heads"),
	LIKE(n_kv_heads, "encoder_num_key_value_heads", 1, n_heads),
	MUST(dec_heads, "decoder_num_attention_heads"),
	LIKE_OWN(struct speech, dec_kv_heads, "decoder_num_key_value_heads", 1, dec_heads),
	MUST(d_ff, "intermediate_size"), OR(max_positions, "max_position_embeddings", 512),
	REAL(rotary_share, "rope_parameters.partial_rotary_factor", 0.9),
	ACT(act, "encoder_hidden_act", "gelu"), REAL(attn_dropout, "attention_dropout", 0),
	FLAG(qkv_bias, "attention_bias", false), OOM_KEYS_END};

static void speecht5_parse(struct oom_arch *a)
{
	struct speech *own = speech_own(a);
	struct oom_reader *r = &a->rd;
	const uint64_t n = oom_read_counts(r, "conv_dim", own->dims, MAX_CONVS);

	oom_read_rows(a, speecht5_keys);
	own->convs = n;
	own->layer_norms = !strcmp(oom_read_string(r, "feat_extract_norm", "group"), "layer");
	if (!n || oom_read_counts(r, "conv_kernel", own->kernels, MAX_CONVS) != n ||
	    oom_read_counts(r, "conv_stride", own->strides, MAX_CONVS) != n)
		oom_read_fail(r, "conv_dim, conv_kernel and conv_stride must list as many numbers");
	if (!own->pos_groups || a->d_model % own->pos_groups)
		oom_read_fail(r, "num_conv_pos_embedding_groups does not divide hidden_size");
}

static void moonshine_parse(struct oom_arch *a)
{
	const struct speech *own = speech_of(a);

	oom_read_rows(a, moonshine_keys);
	a->rotary_share = oom_read_real(&a->rd, "partial_rotary_factor", a->rotary_share);
	if (!a->n_kv_heads || !own->dec_kv_heads || a->dec_heads % own->dec_kv_heads)
		oom_read_fail(&a->rd, "the heads of %s make no model", a->model_type);
}

static void speech_parse(struct oom_arch *a)
{
	a->frame = 1;
	a->approximate = true;
	kind_of(a)->parse(a);
	a->n_layers = a->dec_layers;
}

/* One convolution of the stem and its activation; hooked: get_input_embeddings names it. */
static struct oom_val conv(struct oom_tape *t, struct oom_val x, const struct oom_conv1d *c,
			   uint64_t stride, uint64_t *shrink, enum oom_act act, bool hooked)
{
	*shrink *= stride;
	if (*shrink > UINT32_MAX) {
		oom_tape_impossible(t, OOM_ERR_INVALID,
			      "the strides of the convolutions multiply to more than 2^32");
		return x;
	}
	x = oom_op_conv1d(t, "conv", x, c, oom_len_ceil(t, t->m_b, *shrink));
	return oom_activation(t, act, hooked ? oom_hooked(t, x) : x);
}

static struct oom_val moonshine_stem(struct oom_tape *t, const struct oom_arch *a, uint64_t *shrink)
{
	const uint64_t d = a->d_model;
	struct oom_val x = oom_features(t, a, t->m_bs);

	x = conv(t, x, &(struct oom_conv1d){.in = 1, .out = d, .kernel = 127}, 64, shrink,
		 OOM_ACT_TANH, true);
	x = oom_op_layer_norm(t, "groupnorm", x, 0, true, true);
	x = conv(t, x, &(struct oom_conv1d){.in = d, .out = 2 * d, .kernel = 7, .bias = true}, 3,
		 shrink, OOM_ACT_GELU, false);
	return conv(t, x, &(struct oom_conv1d){.in = 2 * d, .out = d, .kernel = 3, .bias = true}, 2,
		    shrink, OOM_ACT_GELU, false);
}

/* wav2vec 2.0's feature encoder, projection and convolutional positions. */
static struct oom_val speecht5_stem(struct oom_tape *t, const struct oom_arch *a, uint64_t *shrink)
{
	const struct speech *own = speech_of(a);
	const uint64_t d = a->d_model;
	struct oom_val x = oom_features(t, a, t->m_bs);

	oom_param(t, "masked_spec_embed", 0, d, OOM_P_UNUSED);
	for (uint64_t i = 0; i < own->convs && !t->status; i++) {
		x = conv(t, x,
			 &(struct oom_conv1d){.in = i ? own->dims[i - 1] : 1, .out = own->dims[i],
					      .kernel = own->kernels[i], .bias = own->conv_bias},
			 own->strides[i], shrink, OOM_ACT_GELU, false);
		if (own->layer_norms || !i)
			x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	}
	x = oom_op_layer_norm(t, "feature_projection.layer_norm", x, 0, true, true);
	x = oom_op_linear(t, "projection", x, D(d), OOM_BIAS);
	t->scope = "pos_conv_embed";
	oom_param(t, "bias", 0, d, OOM_P_UNUSED);
	oom_param(t, "original0", 1, own->pos_kernel, OOM_P_UNUSED);
	oom_param(t, "original1", d * (d / own->pos_groups), own->pos_kernel, OOM_P_UNUSED);
	x = oom_op_layer_norm(t, "layer_norm", oom_op_dropout(t, x, a->dropout), 0, true, true);
	t->scope = "pe_k";
	oom_param(t, "weight", 2 * own->relative, a->head_dim, OOM_P_UNUSED | OOM_P_EMBEDDING);
	return x;
}

static struct oom_val speecht5_encoder(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x, uint16_t m_len)
{
	const struct oom_encdec_kind kind = {.kernel = OOM_ED_BMM};
	struct oom_encdec enc = oom_encoder_stack(t, a, &kind);

	enc.ff = speech_of(a)->enc_ff;
	enc.m_len = m_len;
	enc.m_tokens = oom_mono_mul(t, t->m_b, m_len);
	return oom_encdec_layers(t, &enc, x);
}

static struct oom_val speecht5_decoder(struct oom_tape *t, const struct oom_encdec *s,
				       struct oom_val embed, struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	struct oom_encdec dec = *s;
	struct oom_frame f = {.t = t};
	struct oom_val x;

	dec.kind.kernel = OOM_ED_BMM;
	dec.ff = a->d_ff;
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	dec.mask = oom_name_shared(&f, oom_encdec_mask(t, &dec, true, (enum oom_dtype)embed.dt,
						       dec.m_len, dec.m_len));
	return oom_leave(&f, oom_encdec_layers(t, &dec, oom_op_dropout(t, x, a->dropout)));
}

/* ---- Moonshine's layers: norms without biases, rotary positions, a gated feed-forward in the
 * decoder ---- */

struct moonshine {
	struct oom_encdec s;
	struct oom_rope rope;
};

static struct oom_val moonshine_attend(struct oom_tape *t, const struct moonshine *m,
				       struct oom_val x, const char *norm, bool cross)
{
	const struct oom_encdec *s = &m->s;
	struct oom_attn at = oom_attn_of(t, s->a);
	struct oom_rope rope = m->rope;

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
	return oom_op_add(t, x, oom_attention(t, &at, oom_op_layer_norm(t, norm, x, 0, true, false)));
}

static struct oom_val moonshine_block(struct oom_tape *t, const void *ctx, uint32_t i,
				      struct oom_val x)
{
	const struct moonshine *m = ctx;
	const struct oom_dim d = {x.width, x.text}, ff = {m->s.a->d_ff, "intermediate_size"};
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	x = oom_name(&f, moonshine_attend(t, m, x, "input_layernorm", false));
	if (m->s.decoder)
		x = oom_rename(&f, x, moonshine_attend(t, m, x, "post_attention_layernorm", true));
	h = oom_op_layer_norm(t, "final_layernorm", x, 0, true, false);
	if (m->s.decoder) {
		const struct oom_dim halves[2] = {ff, ff}, both = {2 * ff.n, "2 * intermediate_size"};
		struct oom_val p[2];

		oom_op_split(t, oom_op_linear(t, "fc1", h, both, OOM_BIAS), 2, halves, p);
		h = oom_op_mul(t, oom_op_unary(t, OOM_SILU, p[1]), p[0]);
	} else {
		h = oom_activation(t, m->s.a->act, oom_op_linear(t, "fc1", h, ff, OOM_BIAS));
	}
	return oom_leave(&f, oom_op_add(t, x, oom_op_linear(t, "fc2", h, d, OOM_BIAS)));
}

static struct oom_val moonshine_stack(struct oom_tape *t, const struct oom_encdec *s,
				      struct oom_val x)
{
	const uint64_t rot = (uint64_t)((double)(s->a->d_model / s->heads) * s->a->rotary_share);
	const uint16_t m_s = t->m_s;
	struct moonshine m = {.s = *s};
	struct oom_frame f = {.t = t};

	t->m_s = s->m_len;
	m.rope = oom_rope_tables(t, rot ? rot : 2, (enum oom_dtype)x.dt, 2);
	t->m_s = m_s;
	m.rope = oom_name_tables(&f, m.rope);
	x = oom_layers(t, (uint32_t)oom_depth(t, s->layers), NULL, moonshine_block, &m, x);
	x = oom_op_layer_norm(t, "norm", x, 0, true, false);
	oom_forget_shared(&f);
	return x;
}

static struct oom_val moonshine_encoder(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val x, uint16_t m_len)
{
	struct oom_encdec enc = oom_encoder_stack(t, a, &(struct oom_encdec_kind){.pre_norm = true});

	enc.kv_heads = a->n_kv_heads;
	enc.m_len = m_len;
	enc.m_tokens = oom_mono_mul(t, t->m_b, m_len);
	return moonshine_stack(t, &enc, x);
}

static struct oom_val moonshine_decoder(struct oom_tape *t, const struct oom_encdec *s,
					struct oom_val embed, struct oom_val ids)
{
	struct oom_encdec dec = *s;
	struct oom_val x = oom_op_embedding_param(t, embed, ids, s->a->vocab, D(s->a->d_model));

	dec.kv_heads = speech_of(s->a)->dec_kv_heads;
	return moonshine_stack(t, &dec, oom_input_grads(t, x));
}

static struct oom_val speech_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_encdec_kind kind = {.pre_norm = false};
	struct oom_encdec dec = oom_decoder_stack(t, a, &kind, oom_len_targets(t));
	struct oom_frame f = {.t = t};
	struct oom_val embed, ids, x;
	uint64_t shrink = 1;

	if (!oom_seq2seq_only(t, a))
		return oom_none();
	oom_tape_warn(t, "the convolutional stem and the positions of this speech model are "
		     "approximated");
	x = kind_of(a)->stem(t, a, &shrink);
	if (t->status)
		return oom_none();
	dec.m_src_len = oom_len_ceil(t, OOM_MONO_ONE, shrink);
	dec.m_src = oom_mono_mul(t, t->m_b, dec.m_src_len);
	ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = kind_of(a)->encoder(t, a, x, dec.m_src_len);
	dec.encoded = oom_name_shared(&f, x);
	x = oom_name(&f, kind_of(a)->decoder(t, &dec, embed, ids));
	x = oom_lm_head(t, a, x, embed, "lm_head", false);
	x = oom_plain_lm_loss(t, x, kind_of(a)->wide_loss, dec.m_tokens);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

static const struct speech_kind speecht5 = {
	.parse = speecht5_parse,
	.stem = speecht5_stem,
	.encoder = speecht5_encoder,
	.decoder = speecht5_decoder,
};
static const struct speech_kind moonshine = {
	.parse = moonshine_parse,
	.stem = moonshine_stem,
	.encoder = moonshine_encoder,
	.decoder = moonshine_decoder,
	.wide_loss = true,
};
static const struct oom_family_type speech_types[] = {
	{"speecht5", &speecht5}, {"moonshine", &moonshine}, {NULL, NULL},
};

const struct oom_family oom_family_speech = {
	.name = "speech",
	.summary = "speech recognition from raw samples: convolutions, encoder, text decoder",
	.source = "transformers 5.12 models/moonshine/modeling_moonshine.py",
	.types = speech_types,
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = speech_keys,
	.parse = speech_parse,
	.step = speech_step,
};
