/* Cohere's speech recognition: a Parakeet (fast conformer) encoder, a text decoder of the BART
 * line.
 *
 * The encoder is counted as weights, its activations and gradients are not; seq_len counts the
 * frames the decoder sees. Reference: transformers 5.12,
 * models/{cohere_asr,parakeet}/modeling_*.py. */
#include "blocks/encdec.h"
#include "families/towers/weights.h"

struct parakeet {
	uint64_t d, ff, heads, kv_heads, kernel, layers, channels, factor, conv_kernel, mel;
	bool bias, conv_bias;
};

/* Defaults are ParakeetEncoderConfig's. */
static struct parakeet parakeet_of(struct oom_reader *r)
{
	return (struct parakeet){
		.d = oom_read_count_or(r, "encoder_config.hidden_size", 1024),
		.ff = oom_read_count_or(r, "encoder_config.intermediate_size", 4096),
		.heads = oom_read_count_or(r, "encoder_config.num_attention_heads", 8),
		.kv_heads = oom_read_count_or(r, "encoder_config.num_key_value_heads", 8),
		.kernel = oom_read_count_or(r, "encoder_config.conv_kernel_size", 9),
		.layers = oom_read_count_or(r, "encoder_config.num_hidden_layers", 24),
		.channels = oom_read_count_or(r, "encoder_config.subsampling_conv_channels", 256),
		.factor = oom_read_count_or(r, "encoder_config.subsampling_factor", 8),
		.conv_kernel = oom_read_count_or(r, "encoder_config.subsampling_conv_kernel_size",
						 3),
		.mel = oom_read_count_or(r, "encoder_config.num_mel_bins", 80),
		.bias = oom_read_bool(r, "encoder_config.attention_bias", true),
		.conv_bias = oom_read_bool(r, "encoder_config.convolution_bias", true),
	};
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct parakeet p;

	a->default_task = OOM_TASK_SEQ2SEQ;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, "hidden_act", "relu");
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	p = parakeet_of(r);
	if (!p.d || !p.ff || !p.heads || p.heads > p.d || !p.kv_heads || !p.channels ||
	    p.factor < 2 || p.factor > 1024 || p.layers > OOM_MAX_LAYERS || p.mel < p.factor)
		oom_read_fail(r, "the encoder's sizes (encoder_config) make no model");
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

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t m_t = oom_len_targets(t), m_bt = oom_mono_mul(t, t->m_b, m_t);
	struct oom_encdec dec = {.a = a,
				 .heads = a->n_heads,
				 .kv_heads = a->n_kv_heads,
				 .ff = a->d_ff,
				 .m_tokens = m_bt,
				 .m_len = m_t,
				 .m_src = t->m_bs,
				 .m_src_len = t->m_s,
				 .cross_mask = oom_none(),
				 .decoder = true,
				 .flags = OOM_ED_PRE_NORM};
	struct oom_reader reader = a->rd;
	struct parakeet p = parakeet_of(&reader);
	struct oom_weights encoder;
	struct oom_val embed, x, ids, pos, hidden;

	if (t->task != OOM_TASK_SEQ2SEQ) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is modelled for the task seq2seq",
			      a->model_type);
		return oom_none();
	}
	t->warning = "the speech encoder of Cohere ASR is counted as weights only: neither "
		     "activations nor gradients";
	oom_weights_begin(t, &encoder);
	parakeet(t, &p);
	oom_weights_end(t, &encoder);
	ids = oom_new(t, "decoder input ids", m_bt, D(1), OOM_I64);
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_new(t, "speech features", t->m_bs, (struct oom_dim){p.d, "encoder hidden_size"},
		    (enum oom_dtype)embed.dt);
	dec.encoded = oom_op_linear(t, "proj", x, D(a->d_model), OOM_BIAS);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, oom_keep(ids), a->vocab,
						      D(a->d_model)));
	pos = oom_op_embedding(t, "pos_emb", oom_new(t, "position ids", m_t, D(1), OOM_I64),
			       a->max_positions, D(a->d_model), 0);
	x = oom_op_layer_norm(t, "embedding_layernorm", oom_op_add(t, x, pos), 0, true, true);
	dec.mask = oom_make_mask(t, true, 0, (enum oom_dtype)embed.dt, t->m_b, m_t, m_t);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, oom_encdec_layer, &dec, x);
	x = oom_op_layer_norm(t, "norm", x, 0, true, true);
	oom_drop_shared(t, dec.mask);
	hidden = oom_share(t, x);
	x = oom_plain_lm_loss(t, oom_lm_head(t, a, x, embed, "proj_out", true), false, m_bt);
	oom_drop(t, hidden);
	oom_returns_shared(t, dec.encoded);
	oom_drop(t, ids);
	return x;
}

const struct oom_family oom_family_cohere_asr = {
	.name = "cohere_asr",
	.summary = "speech recognition: a fast conformer and a text decoder",
	.source = "transformers 5.12 models/cohere_asr/modeling_cohere_asr.py",
	.types = OOM_TYPE("cohere_asr"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
