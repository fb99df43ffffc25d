/* The types that are built like T5, and their keys.
 * Reference: transformers 5.12, models/{t5,mt5,umt5,switch_transformers,longt5,pop2piano,udop}/configuration_*.py. */
#include <string.h>

#include "config/keys.h"
#include "t5.h"

static const struct t5_kind t5 = {.forced_tie = true, .fuses = true};
static const struct t5_kind mt5 = {
	.feed_forward = "gated-gelu", .untied = true, .forced_tie = true, .fuses = true, .scale = T5_SCALE_NEVER};
static const struct t5_kind umt5 = {
	.feed_forward = "gated-gelu", .each = true, .forced_tie = true, .fuses = true, .scale = T5_SCALE_TIED};
static const struct t5_kind switch_transformers = {
	.each = true, .table_once = true, .experts = true, .own_tables = true, .looks = true};
static const struct t5_kind longt5 = {.blocks = true, .own_tables = true, .looks = true};
static const struct t5_kind pop2piano = {.features = true, .fuses = true, .own_head = true, .own_tables = true};
static const struct t5_kind udop = {.layout = true, .forced_tie = true, .fuses = true, .scale = T5_SCALE_TIED};

static const struct oom_family_type t5_types[] = {
	{"t5", &t5}, {"mt5", &mt5}, {"umt5", &umt5}, {"switch_transformers", &switch_transformers},
	{"longt5", &longt5}, {"pop2piano", &pop2piano}, {"udop", &udop}, {NULL, NULL},
};

static const struct oom_key_row t5_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "d_model"), MUST(d_ff, "d_ff"),
	MUST(head_dim, "d_kv"), MUST(n_layers, "num_layers"),
	LIKE(dec_layers, "num_decoder_layers", 1, n_layers), MUST(n_heads, "num_heads"),
	MUST_OWN(struct t5, buckets, "relative_attention_num_buckets"),
	REAL(dropout, "dropout_rate", 0.1), REAL(classifier_dropout, "classifier_dropout", 0),
	OOM_KEYS_END};

static const struct oom_key_row udop_keys[] = {
	OR_OWN(struct t5, patch, "patch_size", 16),
	OR_OWN(struct t5, coords, "max_2d_position_embeddings", 1024),
	OR(channels, "num_channels", 3), OOM_KEYS_END};

static void parse_experts(struct oom_arch *a)
{
	const uint64_t enc = oom_read_count_or(&a->rd, "num_sparse_encoder_layers", 3),
		       dec = oom_read_count_or(&a->rd, "num_sparse_decoder_layers", 3);
	struct t5 *own = t5_own(a);

	a->n_experts = oom_read_count(&a->rd, "num_experts", 1);
	a->top_k = 1;
	/* SwitchTransformersConfig: every num_layers / num_sparse_encoder_layers-th layer is
	 * sparse */
	own->sparse[0] = a->n_layers / (enc ? enc : 1);
	own->sparse[1] = a->dec_layers / (dec ? dec : 1);
	own->router_bias = oom_read_bool(&a->rd, "router_bias", false);
}

static void parse_layout(struct oom_arch *a)
{
	const struct oom_key *k = oom_read_key(&a->rd, "relative_bias_args");
	struct t5 *own = t5_own(a);

	oom_read_rows(a, udop_keys);
	if (a->act == OOM_ACT_GELU_NEW)         /* only T5's own config reads gated-gelu so */
		a->act = OOM_ACT_GELU;
	own->biases = 2;
	if (k && k->type == OOM_KEY_LIST)
		own->biases = k->n_items ? k->n_items - 1 : 0;
	if (!own->patch || own->patch > 65536 || a->channels > 65536 || own->biases > 64)
		oom_read_fail(&a->rd, "patch_size, num_channels or relative_bias_args is out of range");
}

static void t5_parse(struct oom_arch *a)
{
	const struct t5_kind *k = t5_kind_of(a);
	struct t5 *own = t5_own(a);
	struct oom_reader *r = &a->rd;
	const char *ff = oom_read_string(r, "feed_forward_proj",
					 k->feed_forward ? k->feed_forward : "relu");

	/* T5Config sets what the file says besides after what it computed */
	a->gated = oom_read_bool(r, "is_gated_act", !strncmp(ff, "gated-", 6));
	if (!strcmp(ff, "gated-gelu"))
		a->act = OOM_ACT_GELU_NEW;
	else if (!strcmp(ff, "relu") || !strcmp(ff, "gated-relu"))
		a->act = OOM_ACT_RELU;
	else
		a->act = strstr(ff, "silu") ? OOM_ACT_SILU : OOM_ACT_GELU;
	a->tie = oom_read_bool(r, "tie_word_embeddings", !k->untied);
	own->scale_out = oom_read_bool(r, "scale_decoder_outputs", a->tie);
	if (k->experts)
		parse_experts(a);
	if (k->blocks) {
		own->block = oom_read_count_or(r, "local_radius", 127) + 1;
		own->global = strcmp(oom_read_string(r, "encoder_attention_type", "local"),
				     "local") != 0;
		own->global_block = oom_read_count_or(r, "global_block_size", 16);
		if (own->block > 1 << 20 || !own->global_block || own->global_block > 1 << 20)
			oom_read_fail(r, "local_radius and global_block_size (at least 1) are at most 2^20");
	}
	if (k->features) {
		own->composers = oom_read_count(r, "composer_vocab_size", 1);
		a->frame = a->d_model;
		a->act = oom_read_act(r, "dense_act_fn", "relu");
	}
	if (k->layout)
		parse_layout(a);
}

static const struct oom_type_targets t5_targets[] = {
	{"t5", NULL, "layer_norm+final_layer_norm"}, {"mt5", NULL, "layer_norm+final_layer_norm"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_t5 = {
	.name = "t5",
	.summary = "encoder-decoder with relative position biases",
	.source = "transformers 5.12 models/t5/modeling_t5.py",
	.types = t5_types,
	.task = OOM_TASK_SEQ2SEQ,
	.lora_targets = "q+v",
	.type_targets = t5_targets,
	.keys = t5_keys,
	.parse = t5_parse,
	.step = t5_step,
};
