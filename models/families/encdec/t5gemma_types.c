/* T5Gemma and T5Gemma 2: their keys.
 * Reference: transformers 5.12, models/{t5gemma,t5gemma2}/configuration_*.py. */
#include <string.h>

#include "t5gemma.h"

/* Defaults are those of T5GemmaModuleConfig and T5Gemma2TextConfig. */
#define COUNT(field, word, number) OR_OWN(struct t5gemma, field, word, number)
#define STACK_KEYS(stack, prefix) \
	COUNT(stack.d, prefix "hidden_size", 2304), \
		COUNT(stack.ff, prefix "intermediate_size", 9216), \
		COUNT(stack.layers, prefix "num_hidden_layers", 26), \
		COUNT(stack.heads, prefix "num_attention_heads", 8), \
		COUNT(stack.kv_heads, prefix "num_key_value_heads", 4), \
		COUNT(stack.head_dim, prefix "head_dim", 256), \
		COUNT(stack.window, prefix "sliding_window", 4096), \
		FLAG_OWN(struct t5gemma, stack.bias, prefix "attention_bias", false)
static const struct oom_key_row t5gemma_keys[] = {
	STACK_KEYS(dec, "decoder."), COUNT(dec.vocab, "decoder.vocab_size", 256000),
	OR(max_positions, "decoder.max_position_embeddings", 8192),
	ACT(act, "decoder.hidden_activation", "gelu_pytorch_tanh"),
	REAL(attn_dropout, "decoder.attention_dropout", 0),
	REAL(dropout, "decoder.dropout_rate", 0),
	REAL(classifier_dropout, "classifier_dropout_rate", 0),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};
static const struct oom_key_row encoder_keys[] = {
	STACK_KEYS(enc, "encoder."), COUNT(enc.vocab, "encoder.vocab_size", 256000), OOM_KEYS_END};
static const struct oom_key_row encoder2_keys[] = {
	STACK_KEYS(enc, "encoder.text_config."),
	COUNT(enc.vocab, "encoder.text_config.vocab_size", 262208),
	COUNT(vision.d, "encoder.vision_config.hidden_size", 768),
	COUNT(vision.ff, "encoder.vision_config.intermediate_size", 3072),
	COUNT(vision.layers, "encoder.vision_config.num_hidden_layers", 12),
	COUNT(vision.patch, "encoder.vision_config.patch_size", 16),
	COUNT(vision.side, "encoder.vision_config.image_size", 224),
	COUNT(vision.channels, "encoder.vision_config.num_channels", 3), OOM_KEYS_END};
static const struct t5gemma_kind t5gemma = {.encoder = encoder_keys, .types = "encoder.layer_types",
					    .period = 2, .softcap_attn = 50, .softcap_logits = 30};
static const struct t5gemma_kind t5gemma2 = {.encoder = encoder2_keys,
					     .types = "encoder.text_config.layer_types",
					     .period = 6, .merged = true};
static const struct oom_family_type t5gemma_types[] = {
	{"t5gemma", &t5gemma}, {"t5gemma2", &t5gemma2}, {NULL, NULL},
};

/* Which layers of a stack slide: layer_types, else all but the last of every period. */
static void parse_kinds(struct oom_arch *a, const char *key, uint64_t layers, uint8_t bit)
{
	for (uint32_t i = 0; i < layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(&a->rd, key, i);
		const bool slides = type ? !strcmp(type, "sliding_attention") :
					   (i + 1) % t5gemma_kind_of(a)->period != 0;

		a->kind[i] = (uint8_t)(a->kind[i] | (slides ? bit : 0));
	}
}

static bool make_model(const struct t5gemma_sizes *n)
{
	return n->d && n->heads && n->kv_heads && n->heads % n->kv_heads == 0 && n->head_dim &&
	       n->ff && n->layers <= OOM_MAX_LAYERS;
}

static void t5gemma_parse(struct oom_arch *a)
{
	const struct t5gemma_kind *k = t5gemma_kind_of(a);
	struct t5gemma *own = t5gemma_own(a);
	struct oom_reader *r = &a->rd;

	oom_read_rows(a, k->encoder);
	a->vocab = own->dec.vocab;
	a->d_model = own->dec.d;
	a->d_ff = own->dec.ff;
	a->n_layers = a->dec_layers = own->dec.layers;
	a->n_heads = own->dec.heads;
	a->n_kv_heads = own->dec.kv_heads;
	a->head_dim = own->dec.head_dim;
	a->window = own->dec.window;
	a->softcap_attn = oom_read_real(r, "decoder.attn_logit_softcapping", k->softcap_attn);
	a->softcap_logits = oom_read_real(r, "decoder.final_logit_softcapping", k->softcap_logits);
	parse_kinds(a, "decoder.layer_types", own->dec.layers, 1);
	parse_kinds(a, k->types, own->enc.layers, 2);
	if (k->merged && own->dec.bias)
		oom_read_fail(r, "%s with biases in its decoder's attention is not modelled", a->model_type);
	if (!make_model(&own->enc))
		oom_read_fail(r, "%s: the encoder's sizes make no model", a->model_type);
	if (!make_model(&own->dec) || !own->dec.layers)
		oom_read_fail(r, "%s: the decoder's sizes make no model", a->model_type);
	if (k->merged && (!own->vision.d || !own->vision.ff || !own->vision.patch ||
			  own->vision.layers > OOM_MAX_LAYERS || own->vision.side > 65536 ||
			  own->vision.patch > 65536 || own->vision.channels > 65536))
		oom_read_fail(r, "the vision tower's sizes (encoder.vision_config) make no model");
}

const struct oom_family oom_family_t5gemma = {
	.name = "t5gemma",
	.summary = "encoder-decoder of Gemma layers",
	.source = "transformers 5.12 models/t5gemma/modeling_t5gemma.py",
	.types = t5gemma_types,
	.task = OOM_TASK_SEQ2SEQ,
	.norm = OOM_NORM_RMS_PLUS1,
	.lora_targets = "q_proj+v_proj",
	.keys = t5gemma_keys,
	.parse = t5gemma_parse,
	.step = t5gemma_step,
};
