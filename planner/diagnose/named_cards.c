/* What people call their cards: how many they are, of which size and generation: "8*RTX3080", "4 A100 GPUs (40 GB each)". */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "input/gpu_words.h"
#include "tables.h"

/* What the catalogue's cards are called. */
struct cards {
	struct oom_gpu_word word[OOM_GPU_WORDS];
	size_t n;
};

/* "8*RTX3080", "8 x 4090", "4*A100(80G)": a count before what cards are called. */
static bool is_card(const struct cards *known, const char *p, const char *end)
{
	static const char *const makes[] = {"RTX", "GTX", "GPU", "NVIDIA", "Tesla", "TITAN", "Titan"};

	for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++)
		if ((size_t)(end - p) >= strlen(makes[i]) && !memcmp(p, makes[i], strlen(makes[i])))
			return true;
	for (size_t i = 0; i < known->n; i++)
		if (known->word[i].alone && (size_t)(end - p) >= strlen(known->word[i].word) && !strncasecmp(p, known->word[i].word, strlen(known->word[i].word)))
			return true;
	return false;
}

/* "400GB+ CPU RAM", "64 GB of memory on the host": another memory than a card's. */
static bool is_hosts(const char *p, const char *end)
{
	static const char *const words[] = {"CPU", "RAM", "of RAM", "system", "host", "swap", "DDR"};

	while (p < end && (*p == ' ' || *p == '+'))
		p++;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if ((size_t)(end - p) >= strlen(words[i]) && !strncasecmp(p, words[i], strlen(words[i])))
			return true;
	return false;
}

/* "two 80GB GPUs", "a 24 GB RTX 4090": what has the size is named behind it. */
static bool is_before_card(const struct cards *known, const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '-'))
		p++;
	return is_card(known, p, end);
}

bool oom_is_times(const char *begin, const char *p)
{
	return *p == 'x' && p > begin && isdigit((unsigned char)p[-1]);
}

/* "A100 - 3 GPUs (40 GB each)", "3090 24G": a size right beside a card's name, or said of each. */
static double card_said(const struct cards *known, const char *begin, const char *end)
{
	static const char *const units[] = {"GB", "G ", "GiB", "G)", "G,", "gb"};
	double least = 0;

	for (const char *p = begin; p < end; p++) {
		const char *q = p, *near, *behind = p;
		bool unit = false, card = false;
		double n;

		if (!isdigit((unsigned char)*p) || (p > begin && (isalnum((unsigned char)p[-1]) || strchr(".,", p[-1]))))
			continue;
		while (q < end && isdigit((unsigned char)*q))
			q++;
		n = q - p <= 3 ? strtod(p, NULL) : 0;
		q += q < end && *q == ' ';
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && !unit; i++)
			if ((size_t)(end - q) >= strlen(units[i]) && !memcmp(q, units[i], strlen(units[i]))) {
				unit = true;
				behind = q + strlen(units[i]);
			}
		unit &= !is_hosts(behind, end);
		card = unit && is_before_card(known, behind, end);
		near = p - begin > 12 ? p - 12 : begin;
		for (const char *r = near; unit && r < p && !card; r++)
			card = *r != '\n' && (r == begin || !isalnum((unsigned char)r[-1]) || oom_is_times(begin, r - 1)) && is_card(known, r, end);
		/* the message's own sentence speaks of its own card */
		if (unit && !oom_text_find(oom_line_begin(begin, p), oom_line_end(p, end), "ried to allocate") && (card || (end - q > 8 && oom_text_find(q, q + 8, " each"))) && n >= 8 && (least <= 0 || n < least))
			least = n;
	}
	return least;
}

/* The catalogue's word that [p, to) is: "V100", "2080", "2080Ti", "RTX3090"; NULL: none. */
static const struct oom_gpu_word *card_word(const struct cards *known, const char *p, const char *to)
{
	const char *const make = to - p > 3 ? p + 3 : p;
	size_t n;

	if (isdigit((unsigned char)*make) && (!strncmp(p, "RTX", 3) || !strncmp(p, "GTX", 3)))
		p = make;
	n = (size_t)(to - p);
	if (n > 2 && isdigit((unsigned char)*p) && !strncasecmp(to - 2, "ti", 2))
		n -= 2;
	for (size_t i = 0; i < known->n; i++)
		if (n == strlen(known->word[i].word) && !memcmp(p, known->word[i].word, n))
			return &known->word[i];
	return NULL;
}

/* Are the cards that a text names all of the generations before compute capability 8.0?  A number is a card behind its
 * maker's name, or behind "RTX" and the like. */
static bool names_old_cards(const struct cards *known, const char *begin, const char *end)
{
	static const char *const makes[] = {"GTX", "RTX", "GeForce", "NVIDIA", "Tesla", "TITAN"},
				 *const newer[] = {"Ampere", "Ada", "Hopper", "Blackwell"};
	bool found = false;

	for (const char *p = begin; p < end; p++) {
		const char *to = p, *const near = p - begin > 10 ? p - 10 : begin;
		const struct oom_gpu_word *card;
		bool made = !isdigit((unsigned char)*p);

		if (!isalnum((unsigned char)*p))
			continue;
		while (to < end && isalnum((unsigned char)*to))
			to++;
		for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
			if ((size_t)(to - p) == strlen(newer[i]) && !memcmp(p, newer[i], (size_t)(to - p)))
				return false;
		card = to - p > 1 && to - p < 12 ? card_word(known, p, to) : NULL;
		for (size_t i = 0; card && i < sizeof(makes) / sizeof(makes[0]) && !made; i++)
			made = oom_text_find(near, p, makes[i]) != NULL;
		if (card && !card->before_bf16 && (made || card->alone))
			return false;
		found |= card && card->before_bf16 && made;
		p = to - 1;
	}
	return found;
}

/* "4 A100 GPUs", "on 8 H100s": a small number before a card's name, not a size ("24 GB") and not a part of another name. */
static bool counts_cards(const struct cards *known, const char *number, const char *q, const char *end)
{
	const long n = strtol(number, NULL, 10);
	const char *to = q;

	while (to < end && isalnum((unsigned char)*to))
		to++;
	return n >= 2 && n <= 64 && q > number && q[-1] == ' ' && to - q > 1 && memcmp(q, "GPU", 3) && (isdigit((unsigned char)to[-1]) || to[-1] == 's') && is_card(known, q, end);
}

/* "A100 80G *4", "RTX A6000 48G x 2": so many of the card before it; 0: of none. */
static unsigned counted_behind(const struct cards *known, const char *begin, const char *sign, const char *end)
{
	const char *const line = oom_line_begin(begin, sign), *const near = sign - line > 16 ? sign - 16 : line;
	const char *q = sign + 1;
	unsigned long n;

	if (sign == line || !strchr(" )Gg", sign[-1]))
		return 0;
	while (q < end && *q == ' ')
		q++;
	if (q == end || !isdigit((unsigned char)*q))
		return 0;
	for (n = 0; q < end && isdigit((unsigned char)*q) && n < 100; q++)
		n = n * 10 + (unsigned long)(*q - '0');
	if (n < 2 || n > 64 || (q < end && (isalnum((unsigned char)*q) || *q == '.')))
		return 0;
	for (const char *p = near; p < sign; p++)
		if ((p == line || !isalnum((unsigned char)p[-1])) && is_card(known, p, end))
			return (unsigned)n;
	return 0;
}

static unsigned cards_of(const struct oom_crash *c, const struct cards *known, const char *begin, const char *end)
{
	const double told = oom_told(c, "nproc_per_node");

	if (told > 0 && told < 4096)
		return (unsigned)told;
	for (const char *p = begin; p < end; p++) {
		const char *q = p;
		const unsigned behind = *p == '*' || *p == 'x' ? counted_behind(known, begin, p, end) : 0;

		if (behind)
			return behind;
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
		else if (!(end - q > 3 && !memcmp(q, "GPUs", 4)) && !counts_cards(known, p, q, end))
			continue;
		if (is_card(known, q, end) && strtoul(p, NULL, 10) > 0)
			return (unsigned)strtoul(p, NULL, 10);
	}
	return 0;
}

/* "3080 ti", "RTX 3080 Ti", "V100": GB of the one card that a text names, by the catalogue; 0: none, several, or one of several
 * sizes. */
static double card_named(const struct cards *known, const char *begin, const char *end)
{
	static const char *const makes[] = {"GTX", "RTX", "GeForce", "NVIDIA", "Tesla"};
	double only = 0;

	for (const char *p = begin; p < end; p++) {
		const char *to = p, *const near = p - begin > 10 ? p - 10 : begin;
		const struct oom_gpu_word *card;
		bool made = isalpha((unsigned char)*p), ti;
		unsigned gb;

		if (!isalnum((unsigned char)*p))
			continue;
		while (to < end && isalnum((unsigned char)*to))
			to++;
		card = to - p > 1 && to - p < 12 ? card_word(known, p, to) : NULL;
		ti = card && ((end - to >= 3 && strchr(" -", *to) && !strncasecmp(to + 1, "ti", 2)) || !strncasecmp(to - 2, "ti", 2));
		for (size_t i = 0; card && i < sizeof(makes) / sizeof(makes[0]) && !made; i++)
			made = oom_text_find(near, p, makes[i]) != NULL;
		gb = card ? ti ? card->gb_ti : card->gb : 0;
		p = to - 1;
		if (!card || !(made || card->alone || ti))
			continue;
		if (!gb || (only > 0 && (unsigned)only != gb))
			return 0;
		only = gb;
	}
	return only;
}

void oom_decode_cards(struct oom_crash *c, const char *begin, const char *end)
{
	struct cards known;

	known.n = oom_gpu_words(known.word);
	c->cards = cards_of(c, &known, begin, end);
	/* whose message never says how much there was */
	c->card_named = oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE) || oom_format_is(c, OOM_FORMAT_BUDGET) || (!c->known[OOM_CRASH_TRIED] && !c->known[OOM_CRASH_TOTAL] && !oom_runtime_is(c, OOM_RUNTIME_HOST)) ? card_named(&known, begin, end) : 0;
	c->card_said = card_said(&known, begin, end);
	c->old_card = names_old_cards(&known, begin, end);
}
