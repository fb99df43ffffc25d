/* What a card is called, and how near a price list's name is to it.
 *
 * A list of 50,000 offers may have thousands of names that no card has, and each would be held against some 1,500 names
 * and aliases of 200 cards.  So those are written as names are compared once for a list, and what was looked
 * up is kept in a table by its hash. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <strings.h>

#include "offers_parts.h"

/* The name behind the maker's and the product line's words: "AMD Instinct MI210". */
const char *oom_offer_without_maker(const char *s)
{
	static const char *const makers[] = {"nvidia", "geforce", "tesla", "amd", "instinct", "intel"};
	const size_t blank = strcspn(s, " -_");

	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
		if (blank == strlen(makers[i]) && s[blank] && !strncasecmp(s, makers[i], blank))
			return oom_offer_without_maker(s + blank + 1);
	return s;
}

/* Lower case letters and digits. */
void oom_offer_plain(const char *s, char *out, size_t size)
{
	size_t n = 0;

	for (s = oom_offer_without_maker(s); *s && n + 1 < size; s++)
		if (isalnum((unsigned char)*s))
			out[n++] = (char)tolower((unsigned char)*s);
	out[n] = 0;
}

/* How a card is built, and what memory sizes look like: what may follow a shortened name. */
static bool only_form(const char *rest)
{
	static const char *const forms[] = {"pcie", "sxm", "nvlink", "baremetal", "hbm3e", "hbm3", "mega", "gb", "gib", "ws", "server", "blackwell", "nvl72", "nvl4", "onegcd"};

	while (*rest) {
		size_t skip = strspn(rest, "0123456789");

		for (size_t i = 0; !skip && i < sizeof(forms) / sizeof(forms[0]); i++)
			if (!strncmp(rest, forms[i], strlen(forms[i])))
				skip = strlen(forms[i]);
		if (!skip)
			return false;
		rest += skip;
	}
	return true;
}

/* 0: another card; more, the nearer the name is. */
static int alike(const char *name, const char *card)
{
	size_t n, c;

	if (*name != *card)             /* most are */
		return 0;
	if (!strcmp(name, card))
		return 3;
	n = strlen(name);
	c = strlen(card);
	if (!strncmp(name, card, n) && !(isdigit((unsigned char)name[n - 1]) && isdigit((unsigned char)card[n])) &&
	    only_form(card + n))
		return 2;
	/* "H100-SXM-80GB" for "H100-SXM5-80GB": the list says more */
	if (c > 2 && !strncmp(name, card, c) && !(isdigit((unsigned char)card[c - 1]) && isdigit((unsigned char)name[c])) &&
	    only_form(name + c))
		return 1;
	return 0;
}

enum { WORD = 100, MOST = 3 };

/* How near a name can be to it: a name without its size is never the card's own. */
static enum oom_status take_word(struct oom_offer_words *w, const char *said, int most, struct oom_error *err)
{
	if (w->n == w->cap) {
		const size_t cap = w->cap ? w->cap * 2 : 1024;
		void *more = realloc(w->items, cap * sizeof(*w->items));

		if (!more)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		w->items = more;
		w->cap = cap;
	}
	oom_offer_plain(said, w->items[w->n].text, sizeof(w->items[w->n].text));
	w->items[w->n++].most = most;
	return OOM_OK;
}

/* Its name, the name without the size ("RTX2060" of 12 GB for "RTX-2060-12GB"), its aliases. */
static enum oom_status take_card(struct oom_offer_words *w, const struct oom_gpu *g, struct oom_error *err)
{
	const char *const size = strrchr(g->name, '-');
	const size_t digits = size ? strspn(size + 1, "0123456789") : 0;
	char said[sizeof(g->name) > sizeof(g->aliases) ? sizeof(g->name) : sizeof(g->aliases)];
	enum oom_status st = take_word(w, g->name, MOST, err);

	if (!st && digits && !strcmp(size + 1 + digits, "GB")) {
		snprintf(said, sizeof(said), "%.*s", (int)(size - g->name), g->name);
		st = take_word(w, said, MOST - 1, err);
	}
	for (const char *at = g->aliases; *at && !st;) {
		const size_t len = strcspn(at, ";");

		snprintf(said, sizeof(said), "%.*s", (int)len, at);
		st = len ? take_word(w, said, MOST, err) : OOM_OK;
		at += len + (at[len] == ';');
	}
	return st;
}

/* first[i] to first[i + 1]: the words of card i; slices have none here. */
enum oom_status oom_offer_words_make(const struct oom_gpus *gpus, struct oom_offer_words *w, struct oom_error *err)
{
	enum oom_status st = OOM_OK;

	w->first = calloc(gpus->n + 1, sizeof(*w->first));
	if (!w->first)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; i < gpus->n && !st; i++) {
		if (!strstr(gpus->items[i].name, " MIG "))
			st = take_card(w, &gpus->items[i], err);
		w->first[i + 1] = w->n;
	}
	return st;
}

void oom_offer_words_release(struct oom_offer_words *w)
{
	free(w->items);
	free(w->first);
	*w = (struct oom_offer_words){0};
}

int oom_offer_named(const struct oom_offer_words *w, size_t gpu, const char *name)
{
	int best = 0;

	for (size_t i = w->first[gpu]; i < w->first[gpu + 1] && best < MOST; i++) {
		const struct oom_offer_word *const word = &w->items[i];
		int how;

		/* the name without its size counts where the whole name does not */
		if (!*word->text || (best && word->most < MOST))
			continue;
		how = alike(name, word->text);
		how = how > word->most ? word->most : how;
		best = how > best ? how : best;
	}
	return best;
}

/* ---- names that were looked up ---- */

static size_t hash_of(const struct oom_offer_name *n)
{
	uint64_t h = (uint64_t)n->gpu_mem * 31 + (uint64_t)n->form;

	for (const char *s = n->name; *s; s++)
		h = (h ^ (unsigned char)*s) * 1099511628211u;
	return (size_t)(h ^ (h >> 29));
}

static bool same(const struct oom_offer_name *a, const struct oom_offer_name *b)
{
	return a->gpu_mem == b->gpu_mem && a->form == b->form && !strcmp(a->name, b->name);
}

/* The place of n, or the free one where it belongs; a row without a name is free. */
static struct oom_offer_name *place_of(struct oom_offer_name *rows, size_t size, const struct oom_offer_name *n)
{
	size_t at = hash_of(n) & (size - 1);

	while (*rows[at].name && !same(&rows[at], n))
		at = (at + 1) & (size - 1);
	return &rows[at];
}

/* Twice as large when it is half full. */
static bool grow_seen(struct oom_offer_seen *t)
{
	const size_t size = t->size ? t->size * 2 : 256;
	struct oom_offer_name *rows;

	if (t->n * 2 < t->size)
		return true;
	rows = calloc(size, sizeof(*rows));
	for (size_t i = 0; rows && i < t->size; i++)
		if (*t->rows[i].name)
			*place_of(rows, size, &t->rows[i]) = t->rows[i];
	if (rows) {
		free(t->rows);
		t->rows = rows;
		t->size = size;
	}
	return rows;
}

const struct oom_offer_name *oom_offer_seen(const struct oom_offer_seen *t, const struct oom_offer_name *n)
{
	const struct oom_offer_name *at = t->size ? place_of(t->rows, t->size, n) : NULL;

	return at && *at->name ? at : NULL;
}

bool oom_offer_see(struct oom_offer_seen *t, const struct oom_offer_name *n)
{
	if (!grow_seen(t))
		return false;
	*place_of(t->rows, t->size, n) = *n;
	t->n++;
	return true;
}
