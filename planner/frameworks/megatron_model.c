/* The model that a Megatron-LM script builds from its arguments, as the config.json of the type that has the same
 * layers.  What none has is named, and nothing is made of it.
 *
 * Defaults: NVIDIA/Megatron-LM megatron/training/arguments.py (validate_args, _add_network_size_args). */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "parts.h"

/* All have RMSNorm and rotary positions (transformers' modeling code of each type). */
const struct fw_megatron_kind fw_megatron_kinds[] = {
	{"qwen3", "qk-layernorm", "swiglu disable-bias-linear", false},
	{"qwen2", "add-qkv-bias", "swiglu disable-bias-linear", false},
	{"llama", NULL, "swiglu disable-bias-linear", false},
	{"mistral", NULL, "swiglu disable-bias-linear", false},
	{"qwen3_moe", "qk-layernorm", "swiglu disable-bias-linear moe-grouped-gemm", true},
	{"mixtral", NULL, "swiglu disable-bias-linear moe-grouped-gemm", true},
	{NULL, NULL, NULL, false},
};

/* Layers that no type above has. */
static const char *const others[] = {"multi-latent-attention", "squared-relu", "openai-gelu", "spec", "hybrid-override-pattern",
				     "hybrid-attention-ratio", "moe-shared-expert-intermediate-size", "moe-layer-freq",
				     "apply-layernorm-1p", "heterogeneous-layers-config-path", "window-size", "decoder-seq-length",
				     "encoder-num-layers", "bert-no-binary-head", "quick-geglu", "glu-activation"};

static bool given(const struct fw_part *p, const char *key)
{
	return fw_key(p, key) && !fw_off(p, key);
}

/* A positive count; 0: it is not said, or is none. */
static int64_t count(const struct fw_part *p, const char *key)
{
	int64_t n;

	return doc_whole(fw_key(p, key), &n) && n > 0 && n < INT32_MAX ? n : 0;
}

static int64_t count_or(const struct fw_part *p, const char *key, int64_t other)
{
	const int64_t n = count(p, key);

	return n ? n : other;
}

/* GPT2BPETokenizer is the one that reads merges. */
static const char *tokenizer(const struct fw_part *p)
{
	const char *type = fw_text(p, "tokenizer-type");

	/* its place may be a variable's */
	return !*type && doc_below(fw_root(p), "merge-file") ? "GPT2BPETokenizer" : type;
}

/* Words of the tokenizers that have one vocabulary, OpenAI's vocab.json and Meta's tokenizer.model. */
static int64_t vocabulary(const struct fw_part *p)
{
	const char *type = tokenizer(p);

	return count(p, "vocab-size")		    ? count(p, "vocab-size") :
	       !strcmp(type, "GPT2BPETokenizer") ? 50257 :
	       !strcmp(type, "Llama2Tokenizer")  ? 32000 :
						   0;
}

/* BERT, T5 and whatever else has a program of its own: what it builds hangs on more than the arguments. */
static bool is_gpt(const struct fw_part *p)
{
	static const char *const signs[] = {"mask-prob", "short-seq-prob", "bert-embedder-type", "bert-load", "decoder-num-layers",
					    "encoder-seq-length", "vocab-extra-ids", "img-h", "patch-dim"};
	const char *program = fw_text(p, ARGS_PROGRAM), *name = strrchr(program, '/');

	name = name ? name + 1 : program;
	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
		if (given(p, signs[i]))
			return false;
	/* WordPiece's file is BERT's */
	if (!strncmp(fw_text(p, "tokenizer-type"), "Bert", 4) || strstr(fw_text(p, "vocab-file"), ".txt"))
		return false;
	return !*name || !strncmp(name, "pretrain_gpt", 12) || !strncmp(name, "pretrain_llama", 14);
}

/* Never NULL, which would mean that nothing is missing. */
static const char *without(const struct fw_part *p, const char *before, const char *key, const char *after)
{
	const char *text = reading_text(p->reading, "they describe one%s --%s%s", before, key, after);

	return text ? text : "out of host memory";
}

/* What has to be said, and what is not modelled; NULL: all is there. */
static const char *missing(const struct fw_part *p)
{
	static const char *const needed[] = {"num-layers", "hidden-size", "num-attention-heads"};
	const char *const positions = fw_text(p, "position-embedding-type");

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!count(p, needed[i]))
			return without(p, ", but for a number of", needed[i], "");
	if (!is_gpt(p))
		return "they describe one that is not pretrain_gpt.py's";
	if (!vocabulary(p))
		return "they describe one, but for --vocab-size, which is the tokenizer's";
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (given(p, others[i]))
			return without(p, " with", others[i], ", which no config is known for");
	if (given(p, "swiglu") && strcmp(fw_text(p, "normalization"), "RMSNorm"))
		return "they describe one with --swiglu between LayerNorms, which no config is known for";
	if (!given(p, "swiglu") && (!strcmp(fw_text(p, "normalization"), "RMSNorm") || given(p, "disable-bias-linear") ||
				    (*positions && strcmp(positions, "learned_absolute")) || count(p, "num-experts")))
		return "they describe one with parts of GPT-2 and of Llama, which no config is known for";
	return NULL;
}

/* GPT-2's layers: LayerNorm, biases, learned positions, GELU. */
static const char *gpt2(const struct fw_part *p)
{
	const int64_t h = count(p, "hidden-size");

	return reading_text(p->reading,
			    "{\"model_type\": \"gpt2\", \"n_layer\": %lld, \"n_embd\": %lld, \"n_head\": %lld, \"n_inner\": %lld, "
			    "\"n_positions\": %lld, \"vocab_size\": %lld, \"tie_word_embeddings\": %s}",
			    (long long)count(p, "num-layers"), (long long)h, (long long)count(p, "num-attention-heads"),
			    (long long)count_or(p, "ffn-hidden-size", 4 * h),
			    (long long)count_or(p, "max-position-embeddings", count_or(p, "seq-length", 1024)),
			    (long long)vocabulary(p), given(p, "untie-embeddings-and-output-weights") ? "false" : "true");
}

static const char *kind_of(const struct fw_part *p, bool experts)
{
	const struct fw_megatron_kind *k = fw_megatron_kinds;

	while (k->experts != experts || (k->mark && !given(p, k->mark)))
		k++;
	return k->type;
}

/* Llama's: RMSNorm, rotary positions, a gated feed-forward; or experts of such. */
static const char *llama(const struct fw_part *p)
{
	const int64_t h = count(p, "hidden-size"), heads = count(p, "num-attention-heads"), experts = count(p, "num-experts"),
		      /* two thirds of four times the width, in steps of 64 */
		      ffn = count_or(p, "ffn-hidden-size", h * 8 / 3 / 64 * 64), wide = count_or(p, "moe-ffn-hidden-size", ffn);
	const bool normed = given(p, "qk-layernorm");
	const char *type = kind_of(p, experts > 0);
	char mixture[200] = "";

	if (experts && normed)
		snprintf(mixture, sizeof(mixture), ", \"num_experts\": %lld, \"num_experts_per_tok\": %lld, \"moe_intermediate_size\": %lld",
			 (long long)experts, (long long)count_or(p, "moe-router-topk", 2), (long long)wide);
	else if (experts)
		snprintf(mixture, sizeof(mixture), ", \"num_local_experts\": %lld, \"num_experts_per_tok\": %lld", (long long)experts,
			 (long long)count_or(p, "moe-router-topk", 2));
	return reading_text(p->reading,
			    "{\"model_type\": \"%s\", \"num_hidden_layers\": %lld, \"hidden_size\": %lld, \"num_attention_heads\": %lld, "
			    "\"num_key_value_heads\": %lld, \"head_dim\": %lld, \"intermediate_size\": %lld, "
			    "\"max_position_embeddings\": %lld, \"vocab_size\": %lld, \"tie_word_embeddings\": %s%s}",
			    type, (long long)count(p, "num-layers"), (long long)h, (long long)heads,
			    (long long)(given(p, "group-query-attention") ? count_or(p, "num-query-groups", 1) : heads),
			    (long long)count_or(p, "kv-channels", h / heads), (long long)(experts && !normed ? wide : ffn),
			    (long long)count_or(p, "max-position-embeddings", count_or(p, "seq-length", 4096)),
			    (long long)vocabulary(p), given(p, "untie-embeddings-and-output-weights") ? "false" : "true",
			    mixture);
}

const char *fw_megatron_model(const struct fw_part *p, const char **why)
{
	*why = missing(p);
	if (*why)
		return NULL;
	if (!count(p, "vocab-size"))
		*why = reading_text(p->reading, "the %lld words of %s are taken", (long long)vocabulary(p), tokenizer(p));
	return given(p, "swiglu") ? llama(p) : gpt2(p);
}
