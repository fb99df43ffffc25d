/* Dia and Kyutai's speech to text: transformers over the tokens of an audio codec.
 *
 * Dia is an encoder of bytes and a decoder of nine channels; Kyutai's is a decoder that reads text
 * and 32 codebooks, with the Mimi codec held beside it.  Their layers have their real sizes; the
 * channels' embeddings and losses are approximated. Reference: transformers 5.12,
 * models/{dia,kyutai_speech_to_text,mimi}/modeling_*.py. */
#include "blocks/encdec.h"
#include "config/keys.h"
#include "families/towers/weights.h"

struct dia {
	uint64_t d, ff, layers, heads, kv_heads, head_dim, vocab;       /* of the encoder */
	uint64_t channels, cross_d, cross_heads, cross_kv_heads, cross_dim;
};
/* Mimi, the codec that Kyutai's is held with. */
struct mimi {
	uint64_t d, ff, heads, kv_heads, head_dim, layers, kernel, last_kernel, channels, blocks,
		residual_kernel, code, compress, filters, ratios[4], inner, kv;
};
struct kyutai {
	uint64_t code_vocab, codebooks, codes;  /* rows of the table: text and codes */
	struct mimi mimi;
};
OOM_OWN(dia, struct dia);
OOM_OWN(kyutai, struct kyutai);

#define DEC(field, word, number) OR(field, "decoder_config." word, number)
#define ENC(field, word, number) OR_OWN(struct dia, field, "encoder_config." word, number)
#define CROSS(field, word, number) OR_OWN(struct dia, field, "decoder_config." word, number)
static const struct oom_key_row dia_keys[] = {
	DEC(d_model, "hidden_size", 2048), DEC(d_ff, "intermediate_size", 8192),
	DEC(n_layers, "num_hidden_layers", 18), DEC(n_heads, "num_attention_heads", 16),
	DEC(n_kv_heads, "num_key_value_heads", 4), DEC(head_dim, "head_dim", 128),
	DEC(vocab, "vocab_size", 1028), DEC(max_positions, "max_position_embeddings", 3072),
	ENC(d, "hidden_size", 1024), ENC(ff, "intermediate_size", 4096),
	ENC(layers, "num_hidden_layers", 12), ENC(heads, "num_attention_heads", 16),
	ENC(kv_heads, "num_key_value_heads", 16), ENC(head_dim, "head_dim", 128),
	ENC(vocab, "vocab_size", 256), CROSS(channels, "num_channels", 9),
	CROSS(cross_heads, "cross_num_attention_heads", 16),
	CROSS(cross_kv_heads, "cross_num_key_value_heads", 16),
	CROSS(cross_dim, "cross_head_dim", 128), OOM_KEYS_END};
#define MIMI(field, word, number) OR_OWN(struct kyutai, mimi.field, "codec_config." word, number)
static const struct oom_key_row kyutai_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, MUST(d_ff, "ffn_dim"), OR(window, "sliding_window", 0),
	OR(max_positions, "max_position_embeddings", 750), FLAG(tie, "tie_word_embeddings", false),
	MUST_OWN(struct kyutai, codebooks, "num_codebooks"),
	MUST_OWN(struct kyutai, codes, "codebook_vocab_size"), MIMI(d, "hidden_size", 512),
	MIMI(ff, "intermediate_size", 2048), MIMI(heads, "num_attention_heads", 8),
	MIMI(layers, "num_hidden_layers", 8), MIMI(kernel, "kernel_size", 7),
	MIMI(last_kernel, "last_kernel_size", 3), MIMI(channels, "audio_channels", 1),
	MIMI(blocks, "num_residual_layers", 1), MIMI(residual_kernel, "residual_kernel_size", 3),
	MIMI(code, "vector_quantization_hidden_dimension", 256), MIMI(compress, "compress", 2),
	MIMI(filters, "num_filters", 64), OOM_KEYS_END};

static void parse_mimi(struct oom_arch *a)
{
	static const double usual[] = {8, 6, 5, 4};
	struct oom_reader *r = &a->rd;
	struct mimi *m = &kyutai_own(a)->mimi;

	m->head_dim = oom_read_count_or(r, "codec_config.head_dim", m->heads ? m->d / m->heads : 0);
	m->kv_heads = oom_read_count_or(r, "codec_config.num_key_value_heads", m->heads);
	m->inner = m->heads * m->head_dim;
	m->kv = m->kv_heads * m->head_dim;
	for (uint32_t i = 0; i < 4; i++) {
		const double x = oom_read_item_real(r, "codec_config.upsampling_ratios", i,
						    usual[i]);

		m->ratios[i] = (uint64_t)(x >= 1 && x < 65536 ? x : usual[i]);
	}
	if (!m->compress || !m->d || !m->ff || !m->inner || !m->kv || !m->filters ||
	    m->filters > 1 << 16 || m->layers > OOM_MAX_LAYERS || m->blocks > 64)
		oom_read_fail(r, "the codec's sizes (codec_config) make no model");
}

static void check(struct oom_arch *a, bool model)
{
	if (!model || !a->n_kv_heads || !a->head_dim || !a->d_ff || !a->n_layers || !a->n_heads ||
	    !a->d_model)
		oom_read_fail(&a->rd, "the sizes of %s make no model", a->model_type);
}

static void kyutai_parse(struct oom_arch *a)
{
	struct kyutai *own = kyutai_own(a);

	oom_read_rows(a, kyutai_keys);
	a->d_ff /= 2;
	own->code_vocab = a->vocab + own->codebooks * own->codes + 1;
	parse_mimi(a);
	check(a, true);
}

static void dia_parse(struct oom_arch *a)
{
	struct dia *own = dia_own(a);

	oom_read_rows(a, dia_keys);
	own->cross_d = oom_read_count_or(&a->rd, "decoder_config.cross_hidden_size", own->d);
	check(a, own->kv_heads && own->cross_kv_heads && own->d && own->ff && own->head_dim &&
			 own->cross_dim && own->cross_d && own->channels && own->channels <= 1024 &&
			 own->heads % own->kv_heads == 0 &&
			 own->cross_heads % own->cross_kv_heads == 0);
}

struct stack {
	const struct oom_arch *a;
	const struct dia *cross;        /* NULL: no cross-attention */
	struct oom_rope rope;
	struct oom_val mask, encoded;
	uint64_t heads, kv_heads, d, ff;
	uint16_t m_tokens, m_len, m_src, m_src_len;
	bool decoder;
};

static struct oom_val attend(struct oom_tape *t, const struct stack *s, struct oom_val x,
			     const char *norm, const struct dia *cross)
{
	struct oom_attn at = oom_attn_of(t, s->a);
	struct oom_rope rope = s->rope;

	at.heads = cross ? cross->cross_heads : s->heads;
	at.kv_heads = cross ? cross->cross_kv_heads : s->kv_heads;
	at.d = at.dv = cross ? cross->cross_dim : s->d;
	at.causal = s->decoder && !cross;
	at.rope = cross ? NULL : &rope;
	at.mask = cross ? oom_none() : s->mask;
	at.mq = s->m_tokens;
	at.mk = cross ? s->m_src : s->m_tokens;
	at.sk = cross ? s->m_src_len : s->m_len;
	if (cross)
		at.kv_from = s->encoded;
	return oom_op_add(t, x, oom_attention(t, &at, oom_norm(t, s->a->norm, norm, x, 0)));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_dim d = {x.width, x.text}, ff = {s->ff, "intermediate_size"},
			     halves[2] = {ff, ff}, both = {2 * ff.n, "2 * intermediate_size"};
	struct oom_frame f = {.t = t};
	struct oom_val p[2], h;

	(void)i;
	x = oom_name(&f, attend(t, s, x, "pre_sa_norm", NULL));
	if (s->cross)
		x = oom_rename(&f, x, attend(t, s, x, "pre_ca_norm", s->cross));
	h = oom_norm(t, s->a->norm, "pre_mlp_norm", x, 0);
	oom_op_split(t, oom_op_linear(t, "gate_up_proj", h, both, 0), 2, halves, p);
	h = oom_op_mul(t, p[1], oom_activation(t, s->a->act, p[0]));
	return oom_leave(&f, oom_op_add(t, x, oom_op_linear(t, "down_proj", h, d, 0)));
}

static struct oom_val run_stack(struct oom_tape *t, struct stack *s, uint64_t layers,
				struct oom_val x)
{
	const uint64_t window = s->decoder ? s->a->window : 0;
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const uint16_t m_s = t->m_s;
	struct oom_frame f = {.t = t};

	t->m_s = s->m_len;
	s->rope = oom_rope_tables(t, s->d, dt, 2);
	t->m_s = m_s;
	s->rope = oom_name_tables(&f, s->rope);
	s->mask = oom_make_mask(t, s->decoder, window, dt, t->m_b, s->m_len, s->m_len);
	s->mask = oom_name_shared(&f, s->mask);
	x = oom_layers(t, (uint32_t)oom_depth(t, layers), NULL, block, s, x);
	x = oom_norm(t, s->a->norm, "norm", x, 0);
	oom_forget_shared(&f);
	return x;
}

/* ---- Mimi: weights alone ---- */

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

static void mimi(struct oom_tape *t, const struct mimi *m)
{
	uint64_t n = m->filters;

	oom_weight_conv(t, "conv", n, m->channels * m->kernel, true);
	for (int i = 3; i >= 0; i--, n *= 2) {
		mimi_residuals(t, n, m->blocks, m->residual_kernel);
		oom_weight_conv(t, "conv", 2 * n, n * 2 * m->ratios[i], true);
	}
	oom_weight_conv(t, "conv", m->d, n * m->last_kernel, true);
	oom_weight_layers(t, m->layers, mimi_layer, m);
	oom_weight_conv(t, "downsample", m->d, m->d * 2 * m->compress, false);
	oom_weight_conv(t, "upsample", m->d, 2 * m->compress, false);
	oom_weight_layers(t, m->layers, mimi_layer, m);
	oom_weight_conv(t, "conv", n, m->d * m->kernel, true);
	for (int i = 0; i < 4; i++, n /= 2) {
		oom_weight(t, "conv", n * (n / 2), 2 * m->ratios[i]);
		oom_weight(t, "bias", 0, n / 2);
		mimi_residuals(t, n / 2, m->blocks, m->residual_kernel);
	}
	oom_weight_conv(t, "conv", m->channels, n * m->last_kernel, true);
	for (int i = 0; i < 2; i++) {
		oom_weight_conv(t, "input_proj", m->code, m->d, false);
		oom_weight_conv(t, "output_proj", m->d, m->code, false);
	}
}

/* ---- steps ---- */

static struct oom_val kyutai_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct kyutai *own = kyutai_of(a);
	struct stack dec = {.a = a, .heads = a->n_heads, .kv_heads = a->n_kv_heads,
			    .d = a->head_dim, .ff = a->d_ff, .m_tokens = t->m_bs, .m_len = t->m_s,
			    .decoder = true, .encoded = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_arch head = *a;
	struct oom_weights codec;
	struct oom_val embed, x;

	if (a->tie)             /* the table of text and codes is then the head as well */
		head.vocab = own->code_vocab;
	oom_tape_warn(t, "Kyutai's codebook embeddings are approximated and its codec is only held");
	oom_weights_begin(t, &codec);
	mimi(t, &own->mimi);
	oom_weights_end(t, &codec);
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", own->code_vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   own->code_vocab, D(a->d_model));
	x = oom_name(&f, run_stack(t, &dec, a->n_layers, oom_input_grads(t, x)));
	x = oom_lm_head(t, &head, x, embed, "lm_head", false);
	return oom_leave(&f, oom_causal_lm_loss(t, &head, x));
}

static struct oom_val dia_step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t m_t = oom_len_targets(t), m_bt = oom_mono_mul(t, t->m_b, m_t);
	const struct dia *own = dia_of(a);
	struct stack enc = {.a = a, .heads = own->heads, .kv_heads = own->kv_heads,
			    .d = own->head_dim, .ff = own->ff, .m_tokens = t->m_bs, .m_len = t->m_s,
			    .encoded = oom_none()};
	struct stack dec = {.a = a, .cross = own, .heads = a->n_heads, .kv_heads = a->n_kv_heads,
			    .d = a->head_dim, .ff = a->d_ff, .m_tokens = m_bt, .m_len = m_t,
			    .m_src = t->m_bs, .m_src_len = t->m_s, .decoder = true};
	struct oom_frame f = {.t = t};
	struct oom_arch head = *a;
	struct oom_val embed, x, ids;

	oom_tape_warn(t, "Dia's nine channels are approximated as one embedding and one loss");
	t->scope = "embedding";
	embed = oom_param(t, "weight", own->vocab, own->d, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   own->vocab, (struct oom_dim){own->d, "hidden_size"});
	x = run_stack(t, &enc, own->layers, oom_input_grads(t, x));
	dec.encoded = oom_name_shared(&f, x);
	dec.encoded.width = own->cross_d;       /* what cross-attention was built for */
	head.vocab = a->vocab * own->channels;
	t->scope = "embeddings.embed";
	embed = oom_param(t, "weight", head.vocab, a->d_model, OOM_P_EMBEDDING);
	ids = oom_name(&f, oom_decoder_ids(t, m_bt));
	x = oom_op_embedding_param(t, embed, ids, head.vocab, D(a->d_model));
	x = run_stack(t, &dec, a->n_layers, oom_input_grads(t, x));
	x = oom_lm_head(t, &head, x, embed, "logits_dense", false);
	x = oom_plain_lm_loss(t, x, true, m_bt);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

struct audio_tokens_kind {
	void (*parse)(struct oom_arch *a);
	struct oom_val (*step)(struct oom_tape *t, const struct oom_arch *a);
};
static const struct audio_tokens_kind dia = {dia_parse, dia_step};
static const struct audio_tokens_kind kyutai = {kyutai_parse, kyutai_step};
static const struct oom_family_type audio_tokens_types[] = {
	{"dia", &dia}, {"kyutai_speech_to_text", &kyutai}, {NULL, NULL},
};

static void audio_tokens_parse(struct oom_arch *a)
{
	const struct audio_tokens_kind *k = a->type->kind;

	a->act = OOM_ACT_SILU;
	k->parse(a);
}

static struct oom_val audio_tokens_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct audio_tokens_kind *k = a->type->kind;

	return oom_seq2seq_only(t, a) ? k->step(t, a) : oom_none();
}

const struct oom_family oom_family_audio_tokens = {
	.name = "audio_tokens",
	.summary = "transformers over the tokens of an audio codec",
	.source = "transformers 5.12 models/dia/modeling_dia.py",
	.types = audio_tokens_types,
	.task = OOM_TASK_SEQ2SEQ,
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.parse = audio_tokens_parse,
	.step = audio_tokens_step,
};
