/* How large a model is by its name: "meta-llama/Llama-2-70b-hf" has 70 billion parameters, whoever loads it.
 *
 * Only names that a run was told count: behind an option, a call or a command, not in prose. Names of quantised
 * versions say nothing about their bytes, and neither do counts of active parameters ("A3B"). */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* What a model's name stands behind. */
static const char *const leads[] = {"model_name_or_path", "pretrained_model_name_or_path", "model_id_or_path", "model_name", "model_path",
				    "model_id", "base_model", "model-path", "--model", "model=", "from_pretrained(", "vllm serve", "ollama run",
				    "ckpt_dir", "--from_pretrained", "actor-model", "actor_model", "model_dir", "--ckpt", "pretrained_model", "tokenizer_name"};

static bool in_name(char ch)
{
	return isalnum((unsigned char)ch) || strchr("-_./\\:", ch);
}

static bool parts(char ch)
{
	return strchr("-_/\\:", ch) != NULL;
}

/* "70b", "8x7B", "1.5B" as a part of [from, to); 0: none is. */
static double billions(const char *from, const char *to)
{
	for (const char *p = from; p < to; p++) {
		char *end;
		double n;

		if (!isdigit((unsigned char)*p) || (p > from && !parts(p[-1])))
			continue;
		n = strtod(p, &end);
		if (end < to && *end == 'x' && isdigit((unsigned char)end[1]))
			n *= strtod(end + 1, &end);
		if (end < to && (*end == 'b' || *end == 'B') && (end + 1 == to || parts(end[1]) || end[1] == '.') && n >= 0.1 && n < 3000)
			return n;
	}
	return 0;
}

static bool is_quantised(const char *from, const char *to)
{
	static const char *const marks[] = {"awq", "gptq", "bit", "int4", "int8", "fp8", "gguf", "fp4", "bnb", "exl2", "exl3", "w4a16", "w8a8", "mlx"};
	char name[200];
	const size_t n = (size_t)(to - from) < sizeof(name) ? (size_t)(to - from) : sizeof(name) - 1;

	for (size_t i = 0; i < n; i++)
		name[i] = (char)tolower((unsigned char)from[i]);
	name[n] = 0;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (strstr(name, marks[i]))
			return true;
	return false;
}

/* The words of a family's vocabulary, as vocab_size of its config.json on the Hugging Face hub says; the first row that
 * the name holds. */
static const struct {
	const char *family;
	uint64_t words;
} vocabularies[] = {
	{"llama-3", 128256}, {"llama3", 128256}, {"llama-2", 32000}, {"llama2", 32000}, {"vicuna", 32000}, {"tinyllama", 32000},
	{"qwen2.5-0.5b", 151936}, {"qwen2.5-1.5b", 151936}, {"qwen2.5-3b", 151936}, {"qwen2.5", 152064}, {"qwen2-7b", 152064}, {"qwen2-72b", 152064}, {"qwen2-0.5b", 151936}, {"qwen2-1.5b", 151936}, {"qwen3", 151936},
	{"mistral-nemo", 131072}, {"mistral-7b-v0.1", 32000}, {"mistral-7b-instruct-v0.2", 32000}, {"mistral-7b", 32768}, {"mixtral-8x7b", 32000},
	{"gemma-2", 256000}, {"gemma-3", 262144}, {"phi-3-mini", 32064}, {"phi-3.5-mini", 32064}, {"phi-3-medium", 32064}, {"phi-4", 100352}, {"gpt2", 50257}, {"bloom", 250880}, {"falcon-7b", 65024},
	{"glm-4", 151552}, {"deepseek-v3", 129280}, {"deepseek-r1-distill-llama", 128256},
};

static uint64_t words_of(const char *from, const char *to)
{
	char name[100];
	const size_t n = (size_t)(to - from) < sizeof(name) ? (size_t)(to - from) : sizeof(name) - 1;

	for (size_t i = 0; i < n; i++)
		name[i] = (char)tolower((unsigned char)from[i]);
	name[n] = 0;
	for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++)
		if (strstr(name, vocabularies[i].family))
			return vocabularies[i].words;
	return 0;
}

/* The model named right behind a lead that ends at p. */
static double behind(const char *p, const char *end, uint64_t *words)
{
	const char *to;

	for (int n = 0; n < 6 && p < end && strchr(" =:\"'({,", *p); n++)
		p++;
	for (to = p; to < end && in_name(*to); to++)
		;
	if (!*words)
		*words = words_of(p, to);
	return to - p < 3 || is_quantised(p, to) ? 0 : billions(p, to);
}

void oom_decode_model_name(struct oom_crash *c, const char *begin, const char *end)
{
	c->parameters = c->vocabulary = 0;
	for (size_t i = 0; i < sizeof(leads) / sizeof(leads[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, leads[i])); p++) {
			const double n = behind(p + strlen(leads[i]), end, &c->vocabulary);

			if (n > 0) {
				c->parameters = (uint64_t)llround(n * 1e9);
				/* who counts billions has a vocabulary */
				c->language = true;
				return;
			}
		}
}
