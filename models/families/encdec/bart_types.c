/* The types that are built like BART, and their keys.
 * Reference: transformers 5.12, models/<type>/configuration_<type>.py. */
#include <stdio.h>
#include <string.h>

#include "bart.h"
#include "config/keys.h"

#define PRE_CLAMP .layer.pre_norm = true, .layer.clamp = true
#define SEAMLESS .layer.pre_norm = true, .layer.cast_to_fc2 = true, .table = true, .speech = true
static const struct bart_kind
	bart = {.layer.clamp = true, .embed_norm = true, .offset = true, .logit_bias = true,
		.row = true},
	mvp = {.layer.kernel = OOM_ED_BMM, .layer.clamp = true, .embed_norm = true, .offset = true, .logit_bias = true, .prompts = true},
	mbart = {PRE_CLAMP, .names_ones = true, .embed_norm = true, .offset = true, .logit_bias = true, .row = true},
	pegasus = {PRE_CLAMP, .names_ones = true, .sinusoidal = true, .logit_bias = true},
	marian = {.layer.clamp = true, .names_ones = true, .sinusoidal = true, .logit_bias = true},
	blenderbot = {PRE_CLAMP, .names_ones = true, .logit_bias = true},
	blenderbot_small = {.layer.clamp = true, .names_ones = true, .embed_norm = true, .norm_words = true,
			    .logit_bias = true},
	m2m_100 = {PRE_CLAMP, .table = true},
	nllb_moe = {PRE_CLAMP, .layer.kernel = OOM_ED_MATMUL, .layer.cast_to_fc2 = true,
		    .table = true, .experts = true},
	seamless = {SEAMLESS, .layer.kernel = OOM_ED_BMM, .relative_speech = true},
	seamless_v2 = {SEAMLESS, .layer.kernel = OOM_ED_MATMUL, .layer.fp32_softmax = true},
	trocr = {.layer.kernel = OOM_ED_BMM, .embed_norm = true, .offset = true, .decoder = true},
	bigbird = {PRE_CLAMP, .layer.kernel = OOM_ED_MATMUL, .logit_bias = true, .blocks = true};

static const struct oom_family_type bart_types[] = {
	{"bart", &bart}, {"plbart", &bart}, {"mvp", &mvp}, {"mbart", &mbart}, {"pegasus", &pegasus},
	{"marian", &marian}, {"blenderbot", &blenderbot}, {"blenderbot-small", &blenderbot_small},
	{"m2m_100", &m2m_100}, {"nllb-moe", &nllb_moe}, {"trocr", &trocr},
	{"bigbird_pegasus", &bigbird}, {"seamless_m4t", &seamless},
	{"seamless_m4t_v2", &seamless_v2}, {NULL, NULL},
};

static const struct oom_key_row bart_keys[] = {
	MUST(vocab, "vocab_size"), MUST(dec_layers, "decoder_layers"),
	MUST(dec_heads, "decoder_attention_heads"), MUST(dec_ff, "decoder_ffn_dim"),
	LIKE(n_layers, NULL, 1, dec_layers), MUST(max_positions, "max_position_embeddings"),
	ACT(act, "activation_function", "gelu"), OOM_ENCDEC_DROPOUT_KEYS(0.1),
	REAL(classifier_dropout, "classifier_dropout", 0), FLAG(tie, "tie_word_embeddings", true),
	OOM_KEYS_END};

static void parse_decoder(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bart *own = bart_own(a);

	a->default_task = OOM_TASK_CAUSAL_LM;
	own->cross_width = oom_read_count_or(r, "cross_attention_hidden_size", 0);
	if (!oom_read_bool(r, "layernorm_embedding", true))
		own->kind.embed_norm = false;
	if (!oom_read_bool(r, "use_learned_position_embeddings", true)) {
		own->kind.offset = false;
		own->kind.table = true;
	}
}

static void parse_blocks(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bart *own = bart_own(a);

	own->block = oom_read_count_or(r, "block_size", 64);
	own->random = oom_read_count_or(r, "num_random_blocks", 3);
	if (!own->block || own->block > 1 << 16 || own->random > 1 << 10)
		oom_read_fail(r, "block_size or num_random_blocks out of range");
	a->qkv_bias = oom_read_bool(r, "use_bias", false);
	own->kind.layer.no_bias = !a->qkv_bias;
	if (!strcmp(oom_read_string(r, "attention_type", "block_sparse"), "block_sparse"))
		own->full = (5 + 2 * own->random) * own->block;
}

static void bart_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bart *own = bart_own(a);
	const char *class;

	own->kind = *(const struct bart_kind *)a->type->kind;
	a->default_task = OOM_TASK_SEQ2SEQ;     /* before what changes it */
	a->d_model = oom_read_count(r, oom_read_key(r, "d_model") ? "d_model" : "hidden_size", 1);
	if (own->kind.decoder) {
		a->n_heads = a->dec_heads;
		a->d_ff = a->dec_ff;
		parse_decoder(a);
	} else {
		a->enc_layers = oom_read_count(r, "encoder_layers", 1);
		a->n_heads = oom_read_count(r, "encoder_attention_heads", 1);
		a->d_ff = oom_read_count(r, "encoder_ffn_dim", 1);
	}
	a->n_kv_heads = a->n_heads;
	a->head_dim = a->d_model / a->n_heads;
	if (own->kind.experts) {
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = 2;
		own->sparse[0] = oom_read_count_or(r, "encoder_sparse_step", 0);
		own->sparse[1] = oom_read_count_or(r, "decoder_sparse_step", 0);
		a->qkv_bias = oom_read_bool(r, "router_bias", false);
	}
	class = own->kind.speech ? oom_read_item(r, "architectures", 0) : NULL;
	own->speech = class && strstr(class, "SpeechTo") != NULL;
	if (own->kind.blocks)
		parse_blocks(a);
	if (own->kind.prompts && oom_read_bool(r, "use_prompt", false)) {
		a->approximate = true;
		oom_warn(a, "%s: the prompts of use_prompt are not counted.", a->model_type);
	}
}

static const struct oom_type_targets bart_targets[] = {
	{"bart", NULL, "self_attn_layer_norm+encoder_attn_layer_norm+final_layer_norm"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_bart = {
	.name = "bart",
	.summary = "encoder-decoder with learned positions and cross-attention",
	.source = "transformers 5.12 models/bart/modeling_bart.py",
	.one_sample = true,
	.types = bart_types,
	.lora_targets = "q_proj+v_proj",
	.type_targets = bart_targets,
	.keys = bart_keys,
	.parse = bart_parse,
	.step = bart_step,
};
