/* What people call their cards: how many they are, of which size and generation: "8*RTX3080", "4 A100 GPUs (40 GB each)". */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

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

void oom_decode_cards(struct oom_crash *c, const char *begin, const char *end)
{
	c->cards = cards_of(c, begin, end);
	c->card_said = card_said(begin, end);
	c->old_card = names_old_cards(begin, end);
}
