/* Which card a price list means.
 *
 * Lists shorten names ("H100", "RTX4060Ti", "MI250") and tell cards of one name apart by the memory that they
 * state beside it; some name slices ("A100-MIG-1g.5gb").  A card is taken only where its memory is the stated one;
 * where that is not stated and cards of the name differ in it, none is.  Of several that are alike in this, the form
 * (PCIe, SXM) decides if the card's name, the machine's or its provider says it; else eight in a machine are the ones
 * that are linked, and fewer are the one of least power, which is the slower: a price is not to promise more. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "offers_parts.h"

/* Lists round, and some count what a driver reports: B300 270 for 288, A10 22 for 24. */
#define MEMORY_OFF 0.13

static bool near(double a, double b)
{
	return fabs(a / b - 1) <= MEMORY_OFF;
}

/* "1g.5gb" of any spelling; NULL: no slice. */
static const char *slice_of(const char *name)
{
	for (; *name; name++)
		if (isdigit((unsigned char)name[0]) && name[1] == 'g' && (name[2] == '.' || name[2] == '_' || name[2] == '-') &&
		    isdigit((unsigned char)name[3]))
			return name;
	return NULL;
}

/* Cuts the size off "a10080gb"; the sizes are those of the cards that can be sliced. */
static const char *trailing_memory(char *name)
{
	static const char *const sizes[] = {"40gb", "80gb", "94gb", "96gb", "141gb", "180gb", "192gb"};
	const size_t n = strlen(name);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const size_t m = strlen(sizes[i]);

		if (n > m && !strcmp(name + n - m, sizes[i])) {
			name[n - m] = 0;
			return sizes[i];
		}
	}
	return "";
}

/* A slice of a card: the parent's name before it, the slice after. */
static int32_t find_slice(const struct oom_gpus *gpus, const char *name, const char *slice)
{
	char parent[160], want[40], word[160], *mig;
	const char *memory;
	int32_t found = -1;

	snprintf(parent, sizeof(parent), "%.*s", (int)(slice - name), name);
	oom_offer_plain(parent, word, sizeof(word));
	mig = strstr(word, "mig");
	if (mig)
		*mig = 0;
	snprintf(parent, sizeof(parent), "%s", word + (strncmp(word, "nvidia", 6) ? 0 : 6));
	memory = trailing_memory(parent);
	if (!*parent || !strcmp(parent, "com"))
		return -1;
	oom_offer_plain(slice, want, sizeof(want));
	for (size_t i = 0; i < gpus->n; i++) {
		const char *of = strstr(gpus->items[i].name, " MIG ");
		char mine[40], card[100];

		if (!of)
			continue;
		oom_offer_plain(of + 5, mine, sizeof(mine));
		snprintf(card, sizeof(card), "%.*s", (int)(of - gpus->items[i].name), gpus->items[i].name);
		oom_offer_plain(card, word, sizeof(word));
		if (strcmp(mine, want) || strncmp(word, parent, strlen(parent)) ||
		    (*memory && (strlen(word) < strlen(memory) ||
				 strcmp(word + strlen(word) - strlen(memory), memory))))
			continue;
		if (found >= 0)         /* of several parents, which differ */
			return -1;
		found = (int32_t)i;
	}
	return found;
}

/* "H100-80G-PCIe": the name without the part that states the memory, which it returns; 0: none does. */
double oom_offer_named_memory(const char *name, char *out, size_t size)
{
	double gb = 0;
	size_t n = 0;

	while (*name && n + 1 < size) {
		const size_t len = strcspn(name, "-_ "), digits = strspn(name, "0123456789");
		const size_t unit = digits && digits < len && (name[digits] == 'G' || name[digits] == 'g') ? len - digits : 0;

		if (unit == 1 || (unit == 2 && (name[digits + 1] == 'B' || name[digits + 1] == 'b')))
			gb = strtod(name, NULL);
		else
			n += (size_t)snprintf(out + n, size - n, "%.*s", (int)len, name);
		name += len + (name[len] != 0);
	}
	out[n < size ? n : size - 1] = 0;
	return gb;
}

/* "SXM4", "sxm", "PCIE": letters of any case. */
static bool says(const char *text, const char *form)
{
	const size_t n = strlen(form);

	for (; *text; text++)
		if (!strncasecmp(text, form, n))
			return true;
	return false;
}

/* RunPod calls machines as drivers call their cards, "NVIDIA H100 80GB HBM3": H100s with that memory are SXM, those on
 * PCIe have HBM2e ("NVIDIA H100 PCIe"). */
enum oom_offer_form oom_offer_form(const char *text)
{
	const bool pcie = says(text, "pcie"), sxm = says(text, "sxm") || (!pcie && says(text, "hbm3"));

	return sxm == pcie ? OOM_FORM_UNSAID : sxm ? OOM_FORM_SXM : OOM_FORM_PCIE;
}

/* Whether g is the likelier of two that go by one name. */
static bool likelier(const struct oom_gpu *g, const struct oom_gpu *was, enum oom_offer_form form)
{
	const enum oom_offer_form mine = oom_offer_form(g->name), other = was ? oom_offer_form(was->name) : OOM_FORM_UNSAID;

	if (form != OOM_FORM_UNSAID && mine != other)
		return mine == form;
	if (!was)
		return false;
	if (form == OOM_FORM_UNSAID && mine != OOM_FORM_UNSAID && other != OOM_FORM_UNSAID && g->tdp_w != was->tdp_w)
		return g->tdp_w < was->tdp_w;
	return g->capacity_bytes < was->capacity_bytes;
}

int32_t oom_offer_card(const struct oom_gpus *gpus, const struct oom_offer_words *words, const char *name, double mem_gb,
		       enum oom_offer_form form, int *each)
{
	char want[100], bare[100];
	const double said = oom_offer_named_memory(oom_offer_without_maker(name), bare, sizeof(bare));
	const bool told = (mem_gb > 4 && mem_gb < 2000) || said > 4;
	const char *const slice = slice_of(name);
	int32_t found = -1;
	bool differ = false;    /* in memory, those that are as near */
	int best = 0;

	*each = 1;
	if (slice)
		return find_slice(gpus, name, slice);
	if (!(mem_gb > 4 && mem_gb < 2000))
		mem_gb = said;
	oom_offer_plain(bare, want, sizeof(want));
	if (strstr(want, "mega"))       /* Google's H100 Mega are SXM */
		form = OOM_FORM_SXM;
	for (size_t i = 0; *want && i < gpus->n; i++) {
		const struct oom_gpu *g = &gpus->items[i], *was = found >= 0 ? &gpus->items[found] : NULL;
		const int how = oom_offer_named(words, i, want);
		const bool board = how && told && strstr(g->name, "(one GCD)") && near(mem_gb, 2 * g->memory_gb);

		if (!how)
			continue;
		if ((strstr(want, "pcie") && strstr(g->name, "-SXM")) || (strstr(want, "sxm") && strstr(g->name, "-PCIE")))
			continue;
		if (told && !board && !near(mem_gb, g->memory_gb))
			continue;
		if (how >= best)
			differ = how == best && (differ || (!told && fabs(was->memory_gb - g->memory_gb) > 0.5));
		if (how > best || (how == best && likelier(g, was, form))) {
			found = (int32_t)i;
			best = how;
			*each = board ? 2 : 1;
		}
	}
	return differ ? -1 : found;
}
