/* The model that a Megatron-LM script builds from its arguments, as the config.json of the type that has the same
 * layers.  What none has is named, and nothing is made of it.
 *
 * Defaults: NVIDIA/Megatron-LM megatron/training/arguments.py (validate_args, _add_network_size_args). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
				     "encoder-num-layers", "bert-no-binary-head", "quick-geglu", "glu-activation",
				     "attention-head-type"};        /* BigCode's: one head of keys and values beside biases */

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

/* Words of tokenizers, by type, or by the model whose --tokenizer-model is named: len(tokenizer), which HuggingFaceTokenizer
 * counts (megatron/core/tokenizers/text/libraries at d98e8a6), added ones among them, and not config.json's padded number. */
static const struct tokenizer {
	const char *type, *model;       /* the beginning of a model's name, its owner and folders left out; NULL: of any */
	int64_t words;
	const char *source;
} tokenizers[] = {
	{"GPT2BPETokenizer", NULL, 50257, "OpenAI's vocab.json"},
	{"Llama2Tokenizer", NULL, 32000, "Meta's tokenizer.model"},
	{"TikTokenizer", NULL, 131072, "megatron tiktoken_tokenizer.py DEFAULT_TIKTOKEN_MAX_VOCAB"},
	{NULL, "gpt2", 50257, "openai-community/gpt2 vocab.json"},
	{NULL, "gpt-neox-20b", 50277, "EleutherAI/gpt-neox-20b tokenizer.json, 23 added"},
	{NULL, "llama-2-", 32000, "meta-llama/Llama-2-7b-hf tokenizer.json"},
	{NULL, "meta-llama-3", 128256, "meta-llama/Meta-Llama-3-8B tokenizer.json, 256 of them special"},
	{NULL, "llama-3", 128256, "meta-llama/Llama-3.1-8B tokenizer.json, 256 of them special"},
	{NULL, "mistral-7b-v0.3", 32768, "mistralai/Mistral-7B-v0.3 tokenizer.json"},
	{NULL, "mistral-7b-instruct-v0.3", 32768, "mistralai/Mistral-7B-Instruct-v0.3 tokenizer.json"},
	{NULL, "mistral-7b-", 32000, "mistralai/Mistral-7B-v0.1 tokenizer.json"},
	{NULL, "mixtral-8x7b-", 32000, "mistralai/Mixtral-8x7B-v0.1 tokenizer.json"},
	{NULL, "mistral-nemo-", 131072, "mistralai/Mistral-Nemo-Base-2407 tokenizer.json"},
	{NULL, "qwen2.5-", 151665, "Qwen/Qwen2.5-7B tokenizer.json: 151643 and 22 added"},
	{NULL, "qwen2-", 151646, "Qwen/Qwen2-7B tokenizer.json: 151643 and 3 added"},
	{NULL, "qwen3-", 151669, "Qwen/Qwen3-8B tokenizer.json: 151643 and 26 added"},
};

/* "org/Name-8B", "/models/Name-8B/": where the name itself begins. */
static const char *own_name(const char *path)
{
	const char *name = path;

	for (const char *p = path; *p; p++)
		if (*p == '/' && p[1])
			name = p + 1;
	return name;
}

static const struct tokenizer *known_tokenizer(const struct fw_part *p)
{
	const char *type = tokenizer(p), *model = own_name(fw_text(p, "tokenizer-model"));

	for (size_t i = 0; i < sizeof(tokenizers) / sizeof(tokenizers[0]); i++) {
		const struct tokenizer *t = &tokenizers[i];

		if (t->type ? !strcmp(t->type, type) :
			      !strcmp(type, "HuggingFaceTokenizer") && !strncasecmp(model, t->model, strlen(t->model)))
			return t;
	}
	return NULL;
}

static int64_t vocabulary(const struct fw_part *p)
{
	const struct tokenizer *t = known_tokenizer(p);

	const int64_t words = count(p, "vocab-size") ? count(p, "vocab-size") : t ? t->words : 0, tp = count_or(p, "tensor-model-parallel-size", 1),
		      step = count(p, "make-vocab-size-divisible-by") * tp;

	/* megatron/core/tokenizers/utils/build_tokenizer.py vocab_size_with_padding */
	if (words && count(p, "pad-vocab-size-to") >= words)
		return count(p, "pad-vocab-size-to");
	return words && step > 0 && step < 1000000 ? (words + step - 1) / step * step : words;
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
				    (*positions && strcmp(positions, "learned_absolute")) || count(p, "num-experts") ||
				    given(p, "group-query-attention") || given(p, "use-rotary-position-embeddings")))
		return "they describe one with parts of GPT-2 and of Llama, which no config is known for";
	return NULL;
}

/* megatron/training/arguments.py --hidden-dropout, --attention-dropout: a tenth where nothing is said. */
static double dropout(const struct fw_part *p, const char *key)
{
	const double share = fw_key(p, key) ? strtod(fw_text(p, key), NULL) : 0.1;

	return share > 0 && share < 1 ? share : 0;
}

/* GPT-2's layers: LayerNorm, biases, learned positions, GELU. */
static const char *gpt2(const struct fw_part *p)
{
	const int64_t h = count(p, "hidden-size");

	return reading_text(p->reading,
			    "{\"model_type\": \"gpt2\", \"n_layer\": %lld, \"n_embd\": %lld, \"n_head\": %lld, \"n_inner\": %lld, "
			    "\"n_positions\": %lld, \"vocab_size\": %lld, \"tie_word_embeddings\": %s, "
			    "\"resid_pdrop\": %.4g, \"embd_pdrop\": %.4g, \"attn_pdrop\": %.4g}",
			    (long long)count(p, "num-layers"), (long long)h, (long long)count(p, "num-attention-heads"),
			    (long long)count_or(p, "ffn-hidden-size", 4 * h),
			    (long long)count_or(p, "max-position-embeddings", count_or(p, "seq-length", 1024)),
			    (long long)vocabulary(p), given(p, "untie-embeddings-and-output-weights") ? "false" : "true",
			    dropout(p, "hidden-dropout"), dropout(p, "hidden-dropout"), dropout(p, "attention-dropout"));
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
		*why = reading_text(p->reading, "the %lld words of %s are taken", (long long)vocabulary(p),
				    known_tokenizer(p)->type ? tokenizer(p) : own_name(fw_text(p, "tokenizer-model")));
	if (given(p, "swiglu") && dropout(p, "hidden-dropout") > 0)
		*why = reading_text(p->reading, "%s%sno config of such layers has a dropout of hidden states, here %.4g: its masks are not priced",
				    *why ? *why : "", *why ? "; " : "", dropout(p, "hidden-dropout"));
	return given(p, "swiglu") ? llama(p) : gpt2(p);
}
