/* The types that are built like BERT: their keys, and what each does differently.
 * Reference: transformers 5.12, models/<type>/modeling_<type>.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/sparse.h"
#include "bert.h"

static const struct oom_key_row bert_keys[] = {
	OOM_BERT_KEYS, FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct bert, causal, "is_decoder", false),
	FLAG_OWN(struct bert, cross, "add_cross_attention", false),
	FLAG_OWN(struct bert, bias, "use_bias", true), OOM_KEYS_END};

static void bert_warn(struct oom_arch *a, const char *how)
{
	a->approximate = true;
	oom_warn(a, "%s: parameters are exact; activations are approximated as %s.", a->model_type,
		 how);
}

static void bert_read_big_bird(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t block = oom_read_count_or(r, "block_size", 64),
		       random = oom_read_count_or(r, "num_random_blocks", 3);
	const char *type = oom_read_string(r, "attention_type", "block_sparse");
	struct bert *own = bert_own(a);

	if (!block || block > 1 << 16 || random > 1 << 10)
		oom_read_fail(r, "block_size or num_random_blocks out of range");
	/* up to (5 + 2 random) blocks transformers switches to full attention itself */
	own->full_to = block * (5 + 2 * random);
	own->random = random;
	own->block = type && !strcmp(type, "block_sparse") ? block : 0;
}

static void bert_read_longformer(struct oom_arch *a)
{
	bert_own(a)->window = oom_read_window(&a->rd, "attention_window", 512);
}

static void bert_read_rembert(struct oom_arch *a)
{
	a->classifier_dropout = oom_read_real(&a->rd, "classifier_dropout_prob", 0.1);
}

static void bert_read_ernie(struct oom_arch *a)
{
	if (oom_read_bool(&a->rd, "use_task_id", false))
		bert_own(a)->task_types = oom_read_count_or(&a->rd, "task_type_vocab_size", 3);
}

static void bert_read_xmod(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "languages");
	const uint64_t factor = oom_read_count_or(r, "adapter_reduction_factor", 2);
	struct bert *own = bert_own(a);

	own->pre_norm = oom_read_bool(r, "pre_norm", false);
	own->xmod.languages = k && k->type == OOM_KEY_LIST ? k->n_items : 1;
	own->xmod.width = a->d_model / (factor ? factor : 1);
	own->xmod.norm = oom_read_bool(r, "adapter_layer_norm", false);
}

static void bert_read_yoso(struct oom_arch *a)
{
	if (!oom_read_bool(&a->rd, "use_expectation", true))
		bert_warn(a, "the expectation of its hashes");
}

static void bert_parse(struct oom_arch *a)
{
	const struct bert_kind *kind = bert_kind(a);
	struct oom_reader *r = &a->rd;
	struct bert *own = bert_own(a);

	a->default_task = kind->task ? kind->task : OOM_TASK_MASKED_LM;
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->d_embed = kind->embed_key ? oom_read_count(r, kind->embed_key, 1) : a->d_model;
	own->d_head = kind->head_key ? oom_read_count_or(r, kind->head_key, 1664) : a->d_embed;
	own->pre_norm = kind->pre_norm;
	if (kind->untied)
		a->tie = false;
	if (kind->more_positions)
		a->max_positions += 2;
	if (kind->approximation)
		bert_warn(a, kind->approximation);
	if (kind->read)
		kind->read(a);
	oom_check_heads(a);
}

#define ROBERTA \
	.ids_positions = true, .cls = BERT_CLS_TANH, .gelu_heads = true, .head = "lm_head", .head_norm = "layer_norm"
static const struct bert_kind bert = {0};
static const struct bert_kind roberta = {ROBERTA};
/* modeling_xlm_roberta.py, modeling_camembert.py XLMRobertaForMaskedLM: self.lm_head stands above self.roberta */
static const struct bert_kind xlm_roberta = {ROBERTA, .head_first = true};
static const struct bert_kind roberta_prelayernorm = {ROBERTA, .pre_norm = true};
static const struct bert_kind xlm_roberta_xl = {ROBERTA,
						.pre_norm = true,
						.norm = "self_attn_layer_norm",
						.normed = BERT_UNTIL_ACT,
						.no_embed_norm = true,
						.no_ff_dropout = true};
static const struct bert_kind ibert = {
	ROBERTA,
	.zero_types = true,
	.written_out = true,
	.approximation = "RoBERTa's, the quantisers' statistics left out"};
static const struct bert_kind xmod = {ROBERTA,
				      .adapters = true,
				      .read = bert_read_xmod,
				      .approximation = "RoBERTa's with one language's adapter"};
static const struct bert_kind longformer = {ROBERTA,
					    .zero_types = true,
					    .written_out = true,
					    .no_buffer = true,
					    .attention = BERT_WINDOW,
					    .embed = bert_embed_positions_first,
					    .read = bert_read_longformer};
static const struct bert_kind electra = {.head = "generator_lm_head", .embed_key = "embedding_size", .cls = BERT_CLS_GELU,
					 .gelu_heads = true, .no_spare_bias = true};
static const struct bert_kind ernie = {.read = bert_read_ernie};
static const struct bert_kind roc_bert = {
	.add_inplace = true, .embed = bert_embed_roc, .read = bert_read_roc};
static const struct bert_kind bert_generation = {
	.no_types = true, .no_transform = true, .task = OOM_TASK_CAUSAL_LM};
static const struct bert_kind megatron_bert = {.zero_types = true, .add_inplace = true,
					       .no_embed_norm = true, .pre_norm = true,
					       .norm = "ln", .later_norms = "ln",
					       .normed = BERT_UNTIL_END, .written_out = true,
					       .names_weights = true, .keeps_weights = true};
static const struct bert_kind rembert = {.embed_key = "input_embedding_size",
					 .head_key = "output_embedding_size", .maps_in = true,
					 .zero_types = true, .add_inplace = true,
					 .written_out = true, .names_weights = true,
					 .keeps_weights = true, .no_spare_bias = true,
					 .untied = true, .read = bert_read_rembert};
static const struct bert_kind layoutlm = {.zero_types = true, .written_out = true,
					  .softmax_fp32 = true, .names_weights = true,
					  .float_mask = true, .idle_pooler = true,
					  .embed = bert_embed_layoutlm, .read = bert_read_layoutlm};
static const struct bert_kind markuplm = {.ids_positions = true, .zero_types = true,
					  .written_out = true, .softmax_fp32 = true,
					  .names_weights = true, .float_mask = true,
					  .embed = bert_embed_markuplm, .read = bert_read_markuplm,
					  .task = OOM_TASK_SEQ_CLS};
/* only the entities' decoder is tied */
static const struct bert_kind luke = {.ids_positions = true, .zero_types = true,
				      .written_out = true, .gelu_heads = true, .idle_pooler = true,
				      .no_spare_bias = true, .no_buffer = true, .untied = true,
				      .embed = bert_embed_luke, .read = bert_read_luke};
static const struct bert_kind tapas = {.zero_types = true, .written_out = true, .no_buffer = true,
				       .embed = bert_embed_tapas, .read = bert_read_tapas};
static const struct bert_kind big_bird = {.written_out = true, .names_weights = true,
					  .attention = BERT_BLOCKS, .cls = BERT_CLS_ACT,
					  .idle_pooler = true, .pooler_always = true,
					  .read = bert_read_big_bird};
static const struct bert_kind mra = {.shown_types = true, .written_out = true, .names_weights = true,
				     .cls = BERT_CLS_ACT, .more_positions = true,
				     .approximation = "full attention"};
static const struct bert_kind yoso = {.shown_types = true, .written_out = true,
				      .attention = BERT_YOSO, .cls = BERT_CLS_ACT,
				      .more_positions = true, .read = bert_read_yoso};
static const struct bert_kind nystromformer = {.shown_types = true, .written_out = true,
					       .attention = BERT_NYSTROM, .cls = BERT_CLS_ACT,
					       .more_positions = true};

static const struct oom_family_type types[] = {
	{"bert", &bert}, {"roberta", &roberta}, {"xlm-roberta", &xlm_roberta}, {"camembert", &xlm_roberta},
	{"data2vec-text", &roberta}, {"electra", &electra},
	{"roberta-prelayernorm", &roberta_prelayernorm}, {"xlm-roberta-xl", &xlm_roberta_xl},
	{"ernie", &ernie}, {"roc_bert", &roc_bert}, {"bert-generation", &bert_generation},
	{"megatron-bert", &megatron_bert}, {"rembert", &rembert}, {"layoutlm", &layoutlm},
	{"markuplm", &markuplm}, {"luke", &luke}, {"tapas", &tapas}, {"ibert", &ibert},
	{"longformer", &longformer}, {"big_bird", &big_bird}, {"mra", &mra}, {"yoso", &yoso},
	{"nystromformer", &nystromformer}, {"xmod", &xmod}, {NULL, NULL},
};

const struct oom_family oom_family_bert = {
	.name = "bert",
	.summary = "encoder with learned positions, plain feed-forward, dropout; norms after or "
		   "before",
	.source = "transformers 5.12 models/bert/modeling_bert.py",
	.one_sample = true,
	.types = types,
	.lora_targets = "query+value",
	.keys = bert_keys,
	.parse = bert_parse,
	.step = bert_step,
};
