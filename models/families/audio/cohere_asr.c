/* Cohere's speech recognition: a Parakeet (fast conformer) encoder, a text decoder of the BART
 * line.
 *
 * The encoder is counted as weights, its activations and gradients are not; seq_len counts the
 * frames the decoder sees. Reference: transformers 5.12,
 * models/{cohere_asr,parakeet}/modeling_*.py. */
#include "blocks/encdec.h"
#include "config/keys.h"
#include "families/towers/weights.h"

struct parakeet {
	uint64_t d, ff, heads, kv_heads, kernel, layers, channels, factor, conv_kernel, mel;
	bool bias, conv_bias;
};

OOM_OWN(parakeet, struct parakeet);

/* Defaults are ParakeetEncoderConfig's. */
#define ENC(field, word, number) OR_OWN(struct parakeet, field, "encoder_config." word, number)
static const struct oom_key_row cohere_asr_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"),
	LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads),
	MUST(max_positions, "max_position_embeddings"), ACT(act, "hidden_act", "relu"),
	REAL(attn_dropout, "attention_dropout", 0), FLAG(tie, "tie_word_embeddings", false),
	ENC(d, "hidden_size", 1024), ENC(ff, "intermediate_size", 4096),
	ENC(heads, "num_attention_heads", 8), ENC(kv_heads, "num_key_value_heads", 8),
	ENC(kernel, "conv_kernel_size", 9), ENC(layers, "num_hidden_layers", 24),
	ENC(channels, "subsampling_conv_channels", 256), ENC(factor, "subsampling_factor", 8),
	ENC(conv_kernel, "subsampling_conv_kernel_size", 3), ENC(mel, "num_mel_bins", 80),
	FLAG_OWN(struct parakeet, bias, "encoder_config.attention_bias", true),
	FLAG_OWN(struct parakeet, conv_bias, "encoder_config.convolution_bias", true),
	OOM_KEYS_END};

static void cohere_asr_parse(struct oom_arch *a)
{
	const struct parakeet *p = parakeet_of(a);

	a->dec_layers = a->n_layers;
	a->dec_heads = a->n_heads;
	a->dec_ff = a->d_ff;
	if (!p->d || !p->ff || !p->heads || p->heads > p->d || !p->kv_heads || !p->channels ||
	    p->factor < 2 || p->factor > 1024 || p->layers > OOM_MAX_LAYERS || p->mel < p->factor)
		oom_read_fail(&a->rd, "the encoder's sizes (encoder_config) make no model");
}

static void parakeet_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct parakeet *p = ctx;
	const uint64_t kv = p->d / p->heads * p->kv_heads;

	(void)i;
	for (int k = 0; k < 2; k++) {
		oom_weight_linear(t, "linear1", p->d, p->ff, p->bias);
		oom_weight_linear(t, "linear2", p->ff, p->d, p->bias);
	}
	oom_weight(t, "bias_u", p->heads, p->d / p->heads);
	oom_weight(t, "bias_v", p->heads, p->d / p->heads);
	oom_weight_linear(t, "q_proj", p->d, p->d, p->bias);
	oom_weight_linear(t, "k_proj", p->d, kv, p->bias);
	oom_weight_linear(t, "v_proj", p->d, kv, p->bias);
	oom_weight_linear(t, "o_proj", p->d, p->d, p->bias);
	oom_weight_linear(t, "relative_k_proj", p->d, p->d, false);
	oom_weight_conv(t, "pointwise_conv1", 2 * p->d, p->d, p->conv_bias);
	oom_weight_conv(t, "depthwise_conv", p->d, p->kernel, p->conv_bias);
	oom_weight_norm(t, "norm", p->d, true);
	oom_weight_conv(t, "pointwise_conv2", p->d, p->d, p->conv_bias);
	for (int k = 0; k < 5; k++)
		oom_weight_norm(t, "norm_of_a_part", p->d, true);
}

static void parakeet(struct oom_tape *t, const struct parakeet *p)
{
	uint64_t left = p->factor;

	oom_weight_conv(t, "subsampling", p->channels, p->conv_kernel * p->conv_kernel, true);
	for (left /= 2; left > 1; left /= 2) {
		oom_weight_conv(t, "depthwise", p->channels, p->conv_kernel * p->conv_kernel, true);
		oom_weight_conv(t, "pointwise", p->channels, p->channels, true);
	}
	oom_weight_linear(t, "linear", p->channels * (p->mel / p->factor), p->d, true);
	oom_weight_layers(t, p->layers, parakeet_layer, p);
}

static struct oom_val cohere_asr_decoder(struct oom_tape *t, struct oom_encdec *dec,
					 struct oom_val embed, struct oom_val ids)
{
	const struct oom_arch *a = dec->a;
	const uint16_t m = dec->m_len;
	struct oom_frame f = {.t = t};
	struct oom_val x, pos;

	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	pos = oom_op_embedding(t, "pos_emb", oom_new(t, "position ids", m, D(1), OOM_I64),
			       a->max_positions, D(a->d_model), 0);
	x = oom_op_layer_norm(t, "embedding_layernorm", oom_op_add(t, x, pos), 0, true, true);
	dec->mask = oom_encdec_mask(t, dec, true, (enum oom_dtype)embed.dt, m, m);
	dec->mask = oom_name_shared(&f, dec->mask);
	x = oom_encdec_layers(t, dec, x);
	return oom_leave(&f, oom_op_layer_norm(t, "norm", x, 0, true, true));
}

static struct oom_val cohere_asr_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_encdec_kind kind = {.pre_norm = true};
	struct oom_encdec dec = oom_decoder_stack(t, a, &kind, oom_len_targets(t));
	struct oom_frame f = {.t = t};
	struct oom_weights encoder;
	struct oom_val embed, x, ids;

	if (!oom_seq2seq_only(t, a))
		return oom_none();
	oom_tape_warn(t, "the speech encoder of Cohere ASR is counted as weights only: neither "
		     "activations nor gradients");
	dec.kv_heads = a->n_kv_heads;
	oom_weights_begin(t, &encoder);
	parakeet(t, parakeet_of(a));
	oom_weights_end(t, &encoder);
	ids = oom_name(&f, oom_decoder_ids(t, dec.m_tokens));
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_new(t, "speech features", t->m_bs,
		    (struct oom_dim){parakeet_of(a)->d, "encoder hidden_size"},
		    (enum oom_dtype)embed.dt);
	x = oom_op_linear(t, "proj", x, D(a->d_model), OOM_BIAS);
	dec.encoded = oom_name_shared(&f, x);
	x = oom_name(&f, cohere_asr_decoder(t, &dec, embed, ids));
	x = oom_lm_head(t, a, x, embed, "proj_out", true);
	x = oom_plain_lm_loss(t, x, false, dec.m_tokens);
	oom_returns(t, oom_give(&f, dec.encoded));
	return oom_leave(&f, x);
}

const struct oom_family oom_family_cohere_asr = {
	.name = "cohere_asr",
	.summary = "speech recognition: a fast conformer and a text decoder",
	.source = "transformers 5.12 models/cohere_asr/modeling_cohere_asr.py",
	.types = OOM_TYPE("cohere_asr"),
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q_proj+v_proj",
	.keys = cohere_asr_keys,
	.parse = cohere_asr_parse,
	.step = cohere_asr_step,
};
