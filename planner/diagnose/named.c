/* How large a model is by its name: "meta-llama/Llama-2-70b-hf" has 70 billion parameters, whoever loads it.
 *
 * Names that a run was told count first: behind an option, a call or a command. Where there are none, what people
 * write, if all that they write is one size: "fine-tuning a 13B model". Names of quantised versions say nothing about
 * their bytes, and neither do counts of active parameters ("A3B"). And over how many cards: "8*RTX3080". */
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
	if (to - p < 3 || is_quantised(p, to))
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
			if (is_quantised(line, oom_line_end(p, end)) || (found > 0 && fabs(found - n) > 0.01))
				return 0;
			found = n;
		}
		p = after - 1;
	}
	return found;
}

/* The one size that a text speaks of, in a name or in a sentence; 0: none, or several. */
static double spoken(const char *begin, const char *end, double request, uint64_t *words)
{
	double only = 0, named = 0;
	bool several = false;

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
		if (*p == 'b' && (name == from || !parts(from[-1])))
			continue;
		while (to < end && in_name(*to))
			to++;
		n = strtod(from, NULL);
		if (n < 0.4 || n > 700)
			continue;
		/* fewer bits change no vocabulary */
		if (!*words)
			*words = words_of(name, to);
		if (is_quantised(name, to))
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
		n = to - p < 80 && !is_quantised(p, to) ? family_size(p, to) : 0;
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

/* "8*RTX3080", "8 x 4090", "4*A100(80G)": a count before what cards are called. */
static bool is_card(const char *p, const char *end)
{
	static const char *const names[] = {"RTX", "GTX", "A100", "A800", "H100", "H800", "H200", "H20", "V100", "A6000", "A40", "A10", "L40", "L20", "L4", "T4", "B200", "P100", "3080", "3090", "4080", "4090", "5080", "5090", "GPU",
					    "NVIDIA", "Tesla", "TITAN", "Titan", "MI250", "MI300", "a100", "h100", "v100"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((size_t)(end - p) >= strlen(names[i]) && !memcmp(p, names[i], strlen(names[i])))
			return true;
	return false;
}

/* "A100 - 3 GPUs (40 GB each)", "3090 24G": a size right beside a card's name, or said of each. */
static double card_said(const char *begin, const char *end)
{
	static const char *const units[] = {"GB", "G ", "GiB", "G)", "G,", "gb"};
	double least = 0;

	for (const char *p = begin; p < end; p++) {
		const char *q = p, *near;
		bool unit = false, card = false;
		double n;

		if (!isdigit((unsigned char)*p) || (p > begin && (isalnum((unsigned char)p[-1]) || strchr(".,", p[-1]))))
			continue;
		while (q < end && isdigit((unsigned char)*q))
			q++;
		n = q - p <= 3 ? strtod(p, NULL) : 0;
		q += q < end && *q == ' ';
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && !unit; i++)
			unit = (size_t)(end - q) >= strlen(units[i]) && !memcmp(q, units[i], strlen(units[i]));
		near = p - begin > 12 ? p - 12 : begin;
		for (const char *r = near; unit && r < p && !card; r++)
			card = *r != '\n' && (r == begin || !isalnum((unsigned char)r[-1])) && is_card(r, end);
		/* the message's own sentence speaks of its own card */
		if (unit && !oom_text_find(oom_line_begin(begin, p), oom_line_end(p, end), "ried to allocate") && (card || (end - q > 8 && oom_text_find(q, q + 8, " each"))) && n >= 8 && (least <= 0 || n < least))
			least = n;
	}
	return least;
}

/* Cards of the generations before compute capability 8.0, and of those from there on, as people call them. */
static bool names_old_cards(const char *begin, const char *end)
{
	static const char *const old[] = {"T4", "V100", "P100", "P40", "K80", "M40", "1050", "1060", "1070", "1080", "1650", "1660", "2060", "2070", "2080", "2080Ti", "2080TI", "1080Ti", "1080TI"},
				 *const newer[] = {"A100", "A800", "A40", "A10", "A10G", "A6000", "A5000", "A4000", "H100", "H800", "H200", "H20", "L4", "L40", "L40S", "L20", "3050", "3060", "3070", "3080", "3090",
						   "4060", "4070", "4080", "4090", "5060", "5070", "5080", "5090", "B200", "B300", "Ampere", "Ada", "Hopper", "Blackwell", "MI210", "MI250", "MI300X"},
				 /* before numbers that are names of cards alone */
				 *const makes[] = {"GTX", "RTX", "GeForce", "NVIDIA", "Tesla", "TITAN"};
	bool found = false;

	for (const char *p = begin; p < end; p++) {
		const char *to = p, *const near = p - begin > 10 ? p - 10 : begin;
		bool made = !isdigit((unsigned char)*p);

		if (!isalnum((unsigned char)*p))
			continue;
		while (to < end && isalnum((unsigned char)*to))
			to++;
		for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]) && !made; i++)
			made = oom_text_find(near, p, makes[i]) != NULL;
		for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
			if ((size_t)(to - p) == strlen(newer[i]) && !memcmp(p, newer[i], (size_t)(to - p)))
				return false;
		for (size_t i = 0; i < sizeof(old) / sizeof(old[0]) && made; i++)
			found |= (size_t)(to - p) == strlen(old[i]) && !memcmp(p, old[i], (size_t)(to - p));
		p = to - 1;
	}
	return found;
}

/* "4 A100 GPUs", "on 8 H100s": a small number before a card's name, not a size ("24 GB") and not a part of another name. */
static bool counts_cards(const char *number, const char *q, const char *end)
{
	const long n = strtol(number, NULL, 10);
	const char *to = q;

	while (to < end && isalnum((unsigned char)*to))
		to++;
	return n >= 2 && n <= 64 && q > number && q[-1] == ' ' && to - q > 1 && memcmp(q, "GPU", 3) && (isdigit((unsigned char)to[-1]) || to[-1] == 's') && is_card(q, end);
}

static unsigned cards_of(const struct oom_crash *c, const char *begin, const char *end)
{
	const double told = oom_told(c, "nproc_per_node");

	if (told > 0 && told < 4096)
		return (unsigned)told;
	for (const char *p = begin; p < end; p++) {
		const char *q = p;

		if (!isdigit((unsigned char)*p) || (p > begin && (isalnum((unsigned char)p[-1]) || p[-1] == '.')))
			continue;
		while (q < end && isdigit((unsigned char)*q))
			q++;
		if (q - p > 3)
			continue;
		while (q < end && *q == ' ')
			q++;
		if (q < end && (*q == 'x' || *q == '*' || *q == 'X'))
			for (q++; q < end && *q == ' ';)
				q++;
		else if (end - q > 2 && !memcmp(q, "\xc3\x97", 2)) /* the sign of multiplication */
			for (q += 2; q < end && *q == ' ';)
				q++;
		else if (!(end - q > 3 && !memcmp(q, "GPUs", 4)) && !counts_cards(p, q, end))
			continue;
		if (is_card(q, end) && strtoul(p, NULL, 10) > 0)
			return (unsigned)strtoul(p, NULL, 10);
	}
	return 0;
}

void oom_decode_model_name(struct oom_crash *c, const char *begin, const char *end)
{
	double n;

	c->parameters = c->vocabulary = 0;
	c->cards = cards_of(c, begin, end);
	c->card_said = card_said(begin, end);
	c->old_card = names_old_cards(begin, end);
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
	}
}
