/* How large a model is by its name: "meta-llama/Llama-2-70b-hf" has 70 billion parameters, whoever loads it.
 *
 * Names that a run was told count first: behind an option, a call or a command. Where there are none, what people
 * write, if all that they write is one size: "fine-tuning a 13B model". Names of quantised versions say nothing about
 * their bytes, and neither do counts of active parameters ("A3B"). */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
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

bool oom_name_is_quantised(const char *from, const char *to)
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
	{"qwen2.5-0.5b", 151936}, {"qwen2.5-1.5b", 151936}, {"qwen2.5-3b", 151936}, {"qwen2.5", 152064}, {"qwen2-7b", 152064}, {"qwen2-72b", 152064}, {"qwen2-0.5b", 151936}, {"qwen2-1.5b", 151936}, {"qwen3.5", 248320}, {"qwen3", 151936},
	{"qwen1.5-14b", 152064}, {"qwen1.5-32b", 152064}, {"qwen1.5-72b", 152064}, {"qwen1.5", 151936},
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

/* Families whose names hold no number, in billions, or another than their weights' (their cards on the Hugging Face hub); the
 * first row that the name holds. */
static const struct {
	const char *family;
	double billions;
} sizes[] = {
	{"distill", 0}, {"mixtral-8x7b", 46.7}, {"mixtral-8x22b", 140.6}, {"deepseek-r1", 671}, {"deepseek-v3", 671}, {"deepseek-v2-lite", 15.7}, {"deepseek-v2", 236},
	{"kimi-k2", 1000}, {"mistral-large", 123}, {"mistral-nemo", 12.2}, {"glm-4.5-air", 106}, {"glm-4.5v", 106}, {"glm-4.5", 355}, {"glm-4.6", 355}, {"phi-4-mini", 3.8},
	{"phi-4", 14.7}, {"phi-3-mini", 3.8}, {"phi-3.5-mini", 3.8}, {"phi-3-medium", 14}, {"phi-2", 2.7}, {"gpt2-xl", 1.56}, {"flan-t5-xxl", 11.3}, {"flan-t5-xl", 2.85},
	{"c4ai-command-r-plus", 104}, {"c4ai-command-r", 35}, {"dbrx", 132}, {"llama-4-scout", 109}, {"llama-4-maverick", 400}, {"minimax-m1", 456},
};

/* A family's size by a name in [from, to); 0: it is none of these. */
static double family_size(const char *from, const char *to)
{
	char name[100];
	const size_t n = (size_t)(to - from) < sizeof(name) ? (size_t)(to - from) : sizeof(name) - 1;

	for (size_t i = 0; i < n; i++)
		name[i] = (char)tolower((unsigned char)from[i]);
	name[n] = 0;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (strstr(name, sizes[i].family))
			return sizes[i].billions;
	return 0;
}

/* What draws has no vocabulary: the parameters of its transformer or U-Net, in billions (Podell et al. 2023, arXiv:2307.01952,
 * Table 1; for the others what their makers' cards on the Hugging Face hub say). */
static const struct {
	const char *family;
	double billions;
} drawing[] = {
	{"stable-diffusion-xl", 2.6}, {"sd_xl", 2.6}, {"sdxl", 2.6}, {"flux.1-dev", 12}, {"flux.1-schnell", 12}, {"flux1-dev", 12}, {"stable-diffusion-3-medium", 2}, {"stable-diffusion-3.5-large", 8.1},
	{"stable-diffusion-3.5-medium", 2.5}, {"flux.1-kontext", 12}, {"flux.1-fill", 12}, {"flux.1-krea", 12}, {"flux.1-canny", 12}, {"flux.1-depth", 12}, {"flux1-schnell", 12}, {"flux.2-dev", 32},
	{"qwen-image", 20}, {"hunyuanvideo", 13}, {"cogvideox-5b", 5}, {"cogvideox1.5-5b", 5}, {"mochi-1-preview", 10}, {"hidream-i1", 17}, {"auraflow", 6.8}, {"z-image-turbo", 6},
};

/* The one family of those that the text names; 0: none, or several. */
static double drawn(const char *begin, const char *end)
{
	double only = 0;

	for (const char *p = begin; p < end; p++)
		for (size_t i = 0; i < sizeof(drawing) / sizeof(drawing[0]); i++) {
			const char *const name = drawing[i].family;
			size_t n = 0;

			while (name[n] && p + n < end && tolower((unsigned char)p[n]) == name[n])
				n++;
			if (name[n])
				continue;
			if (only > 0 && fabs(only - drawing[i].billions) > 0.01)
				return 0;
			only = drawing[i].billions;
		}
	return only;
}

/* The model named right behind a lead that ends at p. */
static double behind(const char *p, const char *end, uint64_t *words)
{
	double n;

	const char *to;

	for (int i = 0; i < 6 && p < end && strchr(" =:\"'({,", *p); i++)
		p++;
	for (to = p; to < end && in_name(*to); to++)
		;
	if (!*words)
		*words = words_of(p, to);
	if (to - p < 3 || oom_name_is_quantised(p, to))
		return 0;
	n = family_size(p, to);
	return n > 0 ? n : billions(p, to);
}

/* What people call the size of a model: "a 7B model", "(175B params)", "13B-parameter". */
static bool is_size(const char *p, const char *end)
{
	static const char *const nouns[] = {"model", "param", "llama", "Llama", "LLM", "checkpoint"};

	p += p < end && (*p == ' ' || *p == '-');
	for (size_t i = 0; i < sizeof(nouns) / sizeof(nouns[0]); i++)
		if ((size_t)(end - p) >= strlen(nouns[i]) && !memcmp(p, nouns[i], strlen(nouns[i])))
			return true;
	return false;
}

/* The one size that is spoken of, in a line that says nothing of fewer bits; 0: none, or two that differ. */
static double called(const char *begin, const char *end, bool *language)
{
	double found = 0;

	for (const char *p = begin; p < end; p++) {
		const char *const line = oom_line_begin(begin, p);
		char *after;
		double n;

		if (!isdigit((unsigned char)*p) || (p > begin && (isalnum((unsigned char)p[-1]) || strchr("._-/", p[-1]))))
			continue;
		n = strtod(p, &after);
		if (after < end && (*after == 'B' || *after == 'b') && n >= 0.1 && n < 3000 && is_size(after + 1, end)) {
			*language = true;
			if (oom_name_is_quantised(line, oom_line_end(p, end)) || (found > 0 && fabs(found - n) > 0.01))
				return 0;
			found = n;
		}
		p = after - 1;
	}
	return found;
}

/* "8x7b" at from - 2: its family's size, "Mixtral 8x7b" included; else so many times as much. */
static double of_experts(const char *begin, const char *name, const char *from, const char *to)
{
	char whole[100];
	const char *word = name;
	double n;

	while (word == name && word > begin && word[-1] == ' ')
		for (word--; word > begin && isalpha((unsigned char)word[-1]);)
			word--;
	snprintf(whole, sizeof(whole), "%.*s", (int)(to - word), word);
	for (char *p = whole; *p; p++)
		*p = *p == ' ' ? '-' : *p;
	n = family_size(whole, whole + strlen(whole));
	return n > 0 ? n : strtod(from, NULL) * strtod(from - 2, NULL);
}

/* The one size that a text speaks of, in a name or in a sentence; 0: none, or several. */
static double spoken(const char *begin, const char *end, double request, uint64_t *words)
{
	double only = 0, named = 0;
	bool several = false, experts;

	for (const char *p = begin; p < end; p++) {
		const char *from = p, *name, *to = p + 1;
		double n;

		if (*p != 'B' && *p != 'b')
			continue;
		while (from > begin && (isdigit((unsigned char)from[-1]) || from[-1] == '.'))
			from--;
		/* "8 B", "67108864B", "A3B", "8BIT" */
		if (from == p || (to < end && isalnum((unsigned char)*to)) || (from > begin && isalnum((unsigned char)from[-1]) && !islower((unsigned char)from[-1])))
			continue;
		for (name = from; name > begin && in_name(name[-1]);)
			name--;
		/* "llama-7b" is a name, "7b" of a sentence may be a figure's part */
		experts = from > name + 1 && from[-1] == 'x' && isdigit((unsigned char)from[-2]);
		if (*p == 'b' && !experts && (name == from || !parts(from[-1])))
			continue;
		while (to < end && in_name(*to))
			to++;
		n = strtod(from, NULL);
		if (experts)
			n = of_experts(begin, name, from, to);
		if (n < 0.4 || n > 700)
			continue;
		/* fewer bits change no vocabulary */
		if (!*words)
			*words = words_of(name, to);
		if (oom_name_is_quantised(name, to))
			continue;
		several |= only > 0 && fabs(only - n) > 0.01 * only;
		only = n;
		/* of several the one whose every parameter the request is a number for, of 2 or 4 bytes; names round */
		if (fabs(request / (2e9 * n) - 1.02) < 0.07 || fabs(request / (4e9 * n) - 1.02) < 0.07)
			named = named > 0 && fabs(named - n) > 0.01 * n ? -1 : n;
	}
	return !several ? only : named > 0 ? named : 0;
}

/* The one family that a text names without a size; 0: none, or several. */
static double spoken_family(const char *begin, const char *end)
{
	double only = 0;

	for (const char *p = begin; p < end; p++) {
		const char *to = p;
		double n;

		if (!in_name(*p))
			continue;
		while (to < end && in_name(*to))
			to++;
		n = to - p < 80 && !oom_name_is_quantised(p, to) ? family_size(p, to) : 0;
		/* a path of a file is no model's name */
		if (n > 0 && (size_t)(to - p) > 3 && memcmp(to - 3, ".py", 3)) {
			if (only > 0 && fabs(only - n) > 0.01)
				return 0;
			only = n;
		}
		p = to - 1;
	}
	return only;
}

/* Of a model in fewer bits, or a file of such, the name says nothing about its bytes. */
static bool speaks_of_fewer_bits(const char *begin, const char *end)
{
	static const char *const words[] = {"nf4", "NF4", "gguf", "GGUF", "fp8", "FP8", "float8", "bnb", "uant", "4bit", "8bit", "int4", "int8", "4-bit", "8-bit", "nunchaku", "svdq"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (oom_text_find(begin, end, words[i]))
			return true;
	return false;
}

void oom_decode_model_name(struct oom_crash *c, const char *begin, const char *end)
{
	double n;

	c->parameters = c->vocabulary = 0;
	c->by_shape = false;
	oom_decode_cards(c, begin, end);
	oom_decode_limit(c, begin, end);
	for (size_t i = 0; i < sizeof(leads) / sizeof(leads[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, leads[i])); p++) {
			n = behind(p + strlen(leads[i]), end, &c->vocabulary);
			if (n > 0) {
				c->parameters = (uint64_t)llround(n * 1e9);
				/* who counts billions has a vocabulary */
				c->language = true;
				return;
			}
		}
	/* who trains says what */
	n = oom_runtime_is(c, OOM_RUNTIME_TORCH | OOM_RUNTIME_HOST) && (c->trains || (c->set & OOM_SET(OOM_LEVER_ADAPTER))) ? spoken(begin, end, (double)c->bytes[OOM_CRASH_TRIED], &c->vocabulary) : called(begin, end, &c->language);
	if (n <= 0 && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		n = spoken_family(begin, end);
	if (n > 0) {
		c->parameters = (uint64_t)llround(n * 1e9);
		c->language = true;
	} else if (c->trains && oom_runtime_is(c, OOM_RUNTIME_TORCH) && (n = oom_parameters_of_shape(begin, end)) > 0) {
		c->parameters = (uint64_t)llround(n);
		c->by_shape = c->language = true;
	} else if (c->trains && !(c->set & OOM_SET(OOM_LEVER_ADAPTER)) && oom_runtime_is(c, OOM_RUNTIME_TORCH)) {
		c->parameters = (uint64_t)llround(drawn(begin, end) * 1e9);
	} else if (!c->trains && oom_runtime_is(c, OOM_RUNTIME_CARD) && oom_lever_own(c, OOM_LEVER_OFFLOAD_LAYERS) && !(c->set & OOM_SET(OOM_LEVER_QUANT)) && !speaks_of_fewer_bits(begin, end)) {
		c->parameters = (uint64_t)llround(drawn(begin, end) * 1e9);
	}
}
