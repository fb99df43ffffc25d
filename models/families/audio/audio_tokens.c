/* Dia and Kyutai's speech to text: transformers over the tokens of an audio codec.
 *
 * Dia is an encoder of bytes and a decoder of nine channels; Kyutai's is a decoder that reads text
 * and 32 codebooks, with the Mimi codec held beside it.  Their layers have their real sizes; the
 * channels' embeddings and losses are approximated. Reference: transformers 5.12,
 * models/{dia,kyutai_speech_to_text,mimi}/modeling_*.py. */
#include <string.h>

#include "blocks/blocks.h"
#include "families/towers/weights.h"

enum {
	KYUTAI,
	ENC_D,
	ENC_FF,
	ENC_LAYERS,
	ENC_HEADS,
	ENC_KV,
	ENC_HEAD_DIM,
	ENC_VOCAB,
	CHANNELS,
	CROSS_HEADS,
	CROSS_KV,
	CROSS_DIM,
	CODE_VOCAB,
	CROSS_D
}; /* extra[] */

static void parse_dia(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->d_model = oom_read_count_or(r, "decoder_config.hidden_size", 2048);
	a->d_ff = oom_read_count_or(r, "decoder_config.intermediate_size", 8192);
	a->n_layers = oom_read_count_or(r, "decoder_config.num_hidden_layers", 18);
	a->n_heads = oom_read_count_or(r, "decoder_config.num_attention_heads", 16);
	a->n_kv_heads = oom_read_count_or(r, "decoder_config.num_key_value_heads", 4);
	a->head_dim = oom_read_count_or(r, "decoder_config.head_dim", 128);
	a->vocab = oom_read_count_or(r, "decoder_config.vocab_size", 1028);
	a->max_positions = oom_read_count_or(r, "decoder_config.max_position_embeddings", 3072);
	a->extra[CHANNELS] = oom_read_count_or(r, "decoder_config.num_channels", 9);
	a->extra[CROSS_HEADS] = oom_read_count_or(r, "decoder_config.cross_num_attention_heads",
						  16);
	a->extra[CROSS_KV] = oom_read_count_or(r, "decoder_config.cross_num_key_value_heads", 16);
	a->extra[CROSS_DIM] = oom_read_count_or(r, "decoder_config.cross_head_dim", 128);
	a->extra[ENC_D] = oom_read_count_or(r, "encoder_config.hidden_size", 1024);
	a->extra[CROSS_D] = oom_read_count_or(r, "decoder_config.cross_hidden_size",
					      a->extra[ENC_D]);
	a->extra[ENC_FF] = oom_read_count_or(r, "encoder_config.intermediate_size", 4096);
	a->extra[ENC_LAYERS] = oom_read_count_or(r, "encoder_config.num_hidden_layers", 12);
	a->extra[ENC_HEADS] = oom_read_count_or(r, "encoder_config.num_attention_heads", 16);
	a->extra[ENC_KV] = oom_read_count_or(r, "encoder_config.num_key_value_heads", 16);
	a->extra[ENC_HEAD_DIM] = oom_read_count_or(r, "encoder_config.head_dim", 128);
	a->extra[ENC_VOCAB] = oom_read_count_or(r, "encoder_config.vocab_size", 256);
	if (!a->extra[ENC_KV] || !a->extra[CROSS_KV] || !a->extra[ENC_D] || !a->extra[ENC_FF] ||
	    !a->extra[ENC_HEAD_DIM] || !a->extra[CROSS_DIM] || !a->extra[CROSS_D] ||
	    !a->extra[CHANNELS] || a->extra[CHANNELS] > 1024 ||
	    a->extra[ENC_HEADS] % a->extra[ENC_KV] || a->extra[CROSS_HEADS] % a->extra[CROSS_KV])
		oom_read_fail(r, "the sizes of %s make no model", a->model_type);
}

static void parse_kyutai(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "ffn_dim", 2) / 2;
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->window = oom_read_count_or(r, "sliding_window", 0);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 750);
	a->extra[CODE_VOCAB] = a->vocab +
			       oom_read_count(r, "num_codebooks", 1) *
				       oom_read_count(r, "codebook_vocab_size", 1) +
			       1;
}

static void parse(struct oom_arch *a)
{
	a->default_task = OOM_TASK_SEQ2SEQ;
	a->norm = OOM_NORM_RMS;
	a->act = OOM_ACT_SILU;
	a->extra[KYUTAI] = strcmp(a->model_type, "dia") != 0;
	if (a->extra[KYUTAI])
		parse_kyutai(a);
	else
		parse_dia(a);
	a->tie = a->extra[KYUTAI] && oom_read_bool(&a->rd, "tie_word_embeddings", false);
	if (!a->n_kv_heads || !a->head_dim || !a->d_ff || !a->n_layers || !a->n_heads ||
	    !a->d_model)
		oom_read_fail(&a->rd, "the sizes of %s make no model", a->model_type);
}

struct stack {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask, encoded;
	uint64_t heads, kv_heads, d, ff;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	bool decoder, cross;
};

static struct oom_val attend(struct oom_tape *t, const struct stack *s, struct oom_val x,
			     const char *norm, bool cross)
{
	struct oom_attn at = oom_attn_of(t, s->a);
	struct oom_rope rope = s->rope;

	at.heads = cross ? s->a->extra[CROSS_HEADS] : s->heads;
	at.kv_heads = cross ? s->a->extra[CROSS_KV] : s->kv_heads;
	at.d = at.dv = cross ? s->a->extra[CROSS_DIM] : s->d;
	at.causal = s->decoder && !cross;
	at.rope = cross ? NULL : &rope;
	at.mask = cross ? oom_none() : s->mask;
	at.mq = s->m_tokens;
	at.mk = cross ? s->m_src : s->m_tokens;
	at.sk = cross ? s->m_src_len : s->m_len;
	if (cross)
		at.kv_from = s->encoded;
	return oom_op_add(t, x,
			  oom_attention(t, &at, oom_norm(t, s->a->norm, norm, oom_keep(x), 0)));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_dim d = {x.width, x.text}, ff = {s->ff, "intermediate_size"},
			     halves[2] = {ff, ff};
	struct oom_val p[2], h;

	(void)i;
	x = attend(t, s, x, "pre_sa_norm", false);
	if (s->cross)
		x = attend(t, s, x, "pre_ca_norm", true);
	h = oom_norm(t, s->a->norm, "pre_mlp_norm", oom_keep(x), 0);
	oom_op_split(t,
		     oom_op_linear(t, "gate_up_proj", h,
				   (struct oom_dim){2 * ff.n, "2 * intermediate_size"}, 0),
		     2, halves, p);
	h = oom_op_mul(t, p[1], oom_activation(t, s->a->act, p[0]));
	return oom_op_add(t, x, oom_op_linear(t, "down_proj", h, d, 0));
}

static struct oom_val run_stack(struct oom_tape *t, struct stack *s, uint64_t layers,
				struct oom_val x)
{
	const uint16_t m_s = t->m_s;

	t->m_s = s->m_len;
	s->rope = oom_rope_tables(t, s->d, (enum oom_dtype)x.dt, 2);
	t->m_s = m_s;
	s->mask = oom_make_mask(t, s->decoder, s->decoder ? s->a->window : 0, (enum oom_dtype)x.dt,
				t->m_b, s->m_len, s->m_len);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, block, s, x);
	oom_drop_shared(t, s->rope.cos);
	oom_drop_shared(t, s->rope.sin);
	oom_drop_shared(t, s->mask);
	return oom_norm(t, s->a->norm, "norm", x, 0);
}

/* ---- Mimi: weights alone ---- */

struct mimi {
	uint64_t d, ff, inner, kv;
};

static void mimi_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct mimi *m = ctx;

	(void)i;
	oom_weight_linear(t, "q_proj", m->d, m->inner, false);
	oom_weight_linear(t, "k_proj", m->d, m->kv, false);
	oom_weight_linear(t, "v_proj", m->d, m->kv, false);
	oom_weight_linear(t, "o_proj", m->inner, m->d, false);
	oom_weight_linear(t, "fc1", m->d, m->ff, false);
	oom_weight_linear(t, "fc2", m->ff, m->d, false);
	oom_weight_norm(t, "input_layernorm", m->d, true);
	oom_weight_norm(t, "post_attention_layernorm", m->d, true);
	oom_weight(t, "self_attn_layer_scale", 0, m->d);
	oom_weight(t, "mlp_layer_scale", 0, m->d);
}

/* Residual blocks of n channels: narrowed to a half and back. */
static void mimi_residuals(struct oom_tape *t, uint64_t n, uint64_t blocks, uint64_t kernel)
{
	for (uint64_t i = 0; i < blocks && !t->status; i++) {
		oom_weight_conv(t, "conv", n / 2, n * kernel, true);
		oom_weight_conv(t, "conv", n, n / 2, true);
	}
}

static void mimi(struct oom_tape *t, const struct oom_arch *a)
{
	static const double usual[] = {8, 6, 5, 4};
	struct oom_reader reader = a->rd, *r = &reader;
	struct mimi m = {.d = oom_read_count_or(r, "codec_config.hidden_size", 512),
			 .ff = oom_read_count_or(r, "codec_config.intermediate_size", 2048)};
	const uint64_t heads = oom_read_count_or(r, "codec_config.num_attention_heads", 8);
	const uint64_t head_dim = oom_read_count_or(r, "codec_config.head_dim",
						    heads ? m.d / heads : 0);
	const uint64_t layers = oom_read_count_or(r, "codec_config.num_hidden_layers", 8),
		       k = oom_read_count_or(r, "codec_config.kernel_size", 7);
	const uint64_t last = oom_read_count_or(r, "codec_config.last_kernel_size", 3),
		       channels = oom_read_count_or(r, "codec_config.audio_channels", 1);
	const uint64_t blocks = oom_read_count_or(r, "codec_config.num_residual_layers", 1),
		       rk = oom_read_count_or(r, "codec_config.residual_kernel_size", 3);
	const uint64_t code = oom_read_count_or(r,
						"codec_config.vector_quantization_hidden_dimension",
						256);
	const uint64_t compress = oom_read_count_or(r, "codec_config.compress", 2);
	uint64_t n = oom_read_count_or(r, "codec_config.num_filters", 64);
	double ratio[4];

	m.inner = heads * head_dim;
	m.kv = head_dim * oom_read_count_or(r, "codec_config.num_key_value_heads", heads);
	for (uint32_t i = 0; i < 4; i++) {
		ratio[i] = oom_read_item_real(r, "codec_config.upsampling_ratios", i, usual[i]);
		if (!(ratio[i] >= 1 && ratio[i] < 65536))
			ratio[i] = usual[i];
	}
	if (r->status || !compress || !m.d || !m.ff || !m.inner || !m.kv || !n || n > 1 << 16 ||
	    layers > OOM_MAX_LAYERS || blocks > 64) {
		oom_tape_fail(t, OOM_ERR_INVALID, "the codec's sizes (codec_config) make no model");
		return;
	}
	oom_weight_conv(t, "conv", n, channels * k, true);
	for (int i = 3; i >= 0; i--, n *= 2) {
		mimi_residuals(t, n, blocks, rk);
		oom_weight_conv(t, "conv", 2 * n, n * 2 * (uint64_t)ratio[i], true);
	}
	oom_weight_conv(t, "conv", m.d, n * last, true);
	oom_weight_layers(t, layers, mimi_layer, &m);
	oom_weight_conv(t, "downsample", m.d, m.d * 2 * compress, false);
	oom_weight_conv(t, "upsample", m.d, 2 * compress, false);
	oom_weight_layers(t, layers, mimi_layer, &m);
	oom_weight_conv(t, "conv", n, m.d * k, true);
	for (int i = 0; i < 4; i++, n /= 2) {
		oom_weight(t, "conv", n * (n / 2), 2 * (uint64_t)ratio[i]);
		oom_weight(t, "bias", 0, n / 2);
		mimi_residuals(t, n / 2, blocks, rk);
	}
	oom_weight_conv(t, "conv", channels, n * last, true);
	for (int i = 0; i < 2; i++) {
		oom_weight_conv(t, "input_proj", code, m.d, false);
		oom_weight_conv(t, "output_proj", m.d, code, false);
	}
}

/* ---- steps ---- */

static struct oom_val kyutai(struct oom_tape *t, const struct oom_arch *a)
{
	struct stack dec = {.a = a,
			    .heads = a->n_heads,
			    .kv_heads = a->n_kv_heads,
			    .d = a->head_dim,
			    .ff = a->d_ff,
			    .m_tokens = t->m_bs,
			    .m_len = t->m_s,
			    .decoder = true,
			    .encoded = oom_none()};
	struct oom_arch head = *a;
	struct oom_weights codec;
	struct oom_val embed, x, hidden, loss;

	/* the table of text and codes is then the head as well */
	if (a->tie)
		head.vocab = a->extra[CODE_VOCAB];
	t->warning = "Kyutai's codebook embeddings are approximated and its codec is only held";
	oom_weights_begin(t, &codec);
	mimi(t, a);
	oom_weights_end(t, &codec);
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->extra[CODE_VOCAB], a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->extra[CODE_VOCAB], D(a->d_model));
	x = run_stack(t, &dec, a->n_layers, oom_input_grads(t, x));
	hidden = oom_share(t, x);
	loss = oom_causal_lm_loss(t, &head, oom_lm_head(t, &head, x, embed, "lm_head", false));
	oom_drop(t, hidden);
	return loss;
}

static struct oom_val dia(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t m_t = oom_len_targets(t), m_bt = oom_mono_mul(t, t->m_b, m_t);
	const uint64_t *e = a->extra;
	struct stack enc = {.a = a,
			    .heads = e[ENC_HEADS],
			    .kv_heads = e[ENC_KV],
			    .d = e[ENC_HEAD_DIM],
			    .ff = e[ENC_FF],
			    .m_tokens = t->m_bs,
			    .m_len = t->m_s,
			    .encoded = oom_none()};
	struct stack dec = {.a = a,
			    .heads = a->n_heads,
			    .kv_heads = a->n_kv_heads,
			    .d = a->head_dim,
			    .ff = a->d_ff,
			    .m_tokens = m_bt,
			    .m_len = m_t,
			    .m_src = t->m_bs,
			    .m_src_len = t->m_s,
			    .decoder = true,
			    .cross = true};
	struct oom_arch head = *a;
	struct oom_val embed, x, ids, loss;

	t->warning = "Dia's nine channels are approximated as one embedding and one loss";
	t->scope = "embedding";
	embed = oom_param(t, "weight", e[ENC_VOCAB], e[ENC_D], OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   e[ENC_VOCAB], (struct oom_dim){e[ENC_D], "hidden_size"});
	dec.encoded = run_stack(t, &enc, e[ENC_LAYERS], oom_input_grads(t, x));
	dec.encoded.width = e[CROSS_D];         /* what cross-attention was built for */
	head.vocab = a->vocab * e[CHANNELS];
	t->scope = "embeddings.embed";
	embed = oom_param(t, "weight", head.vocab, a->d_model, OOM_P_EMBEDDING);
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	x = oom_op_embedding_param(t, embed, oom_keep(ids), head.vocab, D(a->d_model));
	x = run_stack(t, &dec, a->n_layers, oom_input_grads(t, x));
	loss = oom_plain_lm_loss(t, oom_lm_head(t, &head, x, embed, "logits_dense", false), true,
				 m_bt);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, ids);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	if (t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq",
			      a->model_type);
		return oom_none();
	}
	return a->extra[KYUTAI] ? kyutai(t, a) : dia(t, a);
}

static const struct oom_family_type types[] = {
	{"dia", NULL}, {"kyutai_speech_to_text", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_audio_tokens = {
	.name = "audio_tokens",
	.summary = "transformers over the tokens of an audio codec",
	.source = "transformers 5.12 models/dia/modeling_dia.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
