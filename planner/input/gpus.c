/* How people spell the names of cards. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gpu_slice.h"
#include "oomplan/gpu.h"
#include "oomplan/option.h"
#include "oomplan/units.h"

/* Lower case letters and digits only; vendor words, "gb"/"gib" and a trailing size unit drop out:
 * "NVIDIA GeForce RTX 4090" and "4090" give "4090", "A100-SXM4-40GB" gives "a100sxm440". */
static void normalise(const char *s, char *out, size_t size)
{
#define WORD(word) {word, sizeof(word) - 1}
	static const struct {
		const char *text;
		size_t n;
	} noise[] = {WORD("nvidia"), WORD("geforce"), WORD("tesla"), WORD("amd"), WORD("instinct"), WORD("radeon"), WORD("quadro"),
		     WORD("rtx"), WORD("gtx")};
	char low[128];
	size_t n = 0, k = 0, word = 0;          /* where the last word begins */
	bool between = false;

	for (; *s && n + 1 < sizeof(low); s++) {
		if (isalnum((unsigned char)*s)) {
			word = between ? n : word;
			low[n++] = (char)tolower((unsigned char)*s);
		}
		between = !isalnum((unsigned char)*s);
	}
	low[n] = 0;
	for (size_t i = 0; i < n && k + 1 < size;) {
		size_t skip = 0;

		for (size_t w = 0; w < sizeof(noise) / sizeof(noise[0]); w++)
			if (low[i] == noise[w].text[0] && !strncmp(low + i, noise[w].text, noise[w].n) && noise[w].n < n)
				skip = noise[w].n;
		/* 40gib, 40gb, 40g */
		if (!skip && i && isdigit((unsigned char)low[i - 1])) {
			if (!strncmp(low + i, "gib", 3))
				skip = 3;
			else if (!strncmp(low + i, "gb", 2))
				skip = 2;
			else if (low[i] == 'g' && !low[i + 1] && word &&
				 strspn(low + word, "0123456789") == i - word)
				skip = 1;       /* "A100-80G"; "A10G" and "T4G" are names */
		}
		if (skip)
			i += skip;
		else
			out[k++] = low[i++];
	}
	out[k] = 0;
}

static void copy(char *to, size_t size, const char *from)
{
	const size_t n = from ? strnlen(from, size - 1) : 0;

	memcpy(to, n ? from : "", n);
	to[n] = 0;
}

/* Name, alias, or either cut at the word's end: 3 exact, 2 alias, 1 prefix ("a100" for
 * "A100-SXM4-40GB"). */
static int match(const struct oom_gpu *g, const char *want)
{
	char norm[128], list[sizeof(g->aliases)], *save = NULL;
	int best = 0;

	normalise(g->name, norm, sizeof(norm));
	if (!strcmp(norm, want))
		return 3;
	if (!strncmp(norm, want, strlen(want)) && !isdigit((unsigned char)norm[strlen(want)]))
		best = 1;
	copy(list, sizeof(list), g->aliases);
	for (char *a = strtok_r(list, ";", &save); a; a = strtok_r(NULL, ";", &save)) {
		normalise(a, norm, sizeof(norm));
		if (!strcmp(norm, want))
			return 2;
		if (!strncmp(norm, want, strlen(want)) &&
		    !isdigit((unsigned char)norm[strlen(want)]))
			best = 1;
	}
	return best;
}

/* The nearest of all names and aliases: most people write an alias. */
static enum oom_status unknown(const struct oom_gpus *gpus, const char *word, struct oom_error *err)
{
	enum { WORDS = 24 };                    /* of one card */
	const size_t each = sizeof(gpus->items->aliases);
	const char **names = calloc(gpus->n * WORDS + 1, sizeof(*names)), *near;
	char *aliases = calloc(gpus->n + 1, each);
	size_t n = 0;

	for (size_t i = 0; names && aliases && i < gpus->n; i++) {
		char *list = aliases + i * each, *save = NULL;
		const size_t first = n;

		memcpy(list, gpus->items[i].aliases, each);
		names[n++] = gpus->items[i].name;
		for (char *a = strtok_r(list, ";", &save); a && n - first < WORDS;
		     a = strtok_r(NULL, ";", &save))
			names[n++] = a;
	}
	near = names && aliases ? oom_nearest(word, names) : NULL;
	oom_error_set(err, OOM_ERR_UNKNOWN,
		      "unknown GPU \"%s\"%s%s%s; see: oomplan list gpus, or give --gpu-memory",
		      word, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
	free(names);
	free(aliases);
	return OOM_ERR_UNKNOWN;
}

/* Is it the word and a size of memory, of another card than the one that the word alone names:
 * "4060 Ti", "4060 Ti 16GB"? */
static bool is_larger_of(const struct oom_gpu *g, const char *want)
{
	const size_t n = strlen(want);
	char list[sizeof(g->aliases) + sizeof(g->name) + 1], norm[128], *save = NULL;

	snprintf(list, sizeof(list), "%s;%s", g->name, g->aliases);
	for (char *a = strtok_r(list, ";", &save); a; a = strtok_r(NULL, ";", &save)) {
		char *end;

		normalise(a, norm, sizeof(norm));
		if (strncmp(norm, want, n) || !isdigit((unsigned char)norm[n]))
			continue;
		if ((double)strtol(norm + n, &end, 10) == g->memory_gb &&
		    (!*end || !strcmp(end, "g") || !strcmp(end, "gb")))
			return true;
	}
	return false;
}

/* The word is one card's own name, and the beginning of others'. */
static void note_others(const struct oom_gpus *gpus, const char *word, const char *want,
			const struct oom_gpu *pick, char note[256])
{
	size_t n = 0;

	for (size_t i = 0; i < gpus->n && n < 200; i++)
		if (gpus->items[i].memory_gb != pick->memory_gb && is_larger_of(&gpus->items[i], want))
			n += (size_t)snprintf(note + n, 256 - n, "%s%.60s", n ? ", " :
					      "there is also ", gpus->items[i].name);
	if (n && n < 255)
		snprintf(note + n, 256 - n, ": \"%.40s\" is taken for %.60s", word, pick->name);
}

bool oom_gpu_may_be(const struct oom_gpus *gpus, const char *word, const char *name)
{
	const struct oom_gpu *asked = NULL;
	char want[128];
	int best = 0;

	for (size_t i = 0; i < gpus->n; i++)
		if (oom_same_word(gpus->items[i].name, word))
			return !strcmp(gpus->items[i].name, name);
	normalise(word, want, sizeof(want));
	for (size_t i = 0; i < gpus->n && *want; i++) {
		const int how = match(&gpus->items[i], want);

		best = how > best ? how : best;
		asked = strcmp(gpus->items[i].name, name) ? asked : &gpus->items[i];
	}
	return asked && best && match(asked, want) == best;
}

/* A known card and a number, where only the card is asked for. */
static bool is_counted(const struct oom_gpus *gpus, const char *word)
{
	struct oom_gpu_count c;
	char want[128];
	bool known = false;

	if (!oom_gpu_counted(word, &c))
		return false;
	normalise(c.name, want, sizeof(want));
	for (size_t i = 0; i < gpus->n && *want && !known; i++)
		known = match(&gpus->items[i], want) > 0;
	return known;
}

/* The size that a word ends with behind a card's name, "RTX 4090 24GB", "V100-16G", in GB; 0: none.  rest: the
 * name. */
static double size_behind(const char *word, char rest[128])
{
	static const char *const units[] = {"gib", "gb", "g"};
	size_t n = strlen(word), digits = 0, unit = 0;

	for (size_t i = 0; i < 3 && !unit; i++)
		if (n > strlen(units[i]) && !strcasecmp(word + n - strlen(units[i]), units[i]))
			unit = strlen(units[i]);
	for (n -= unit; unit && n && word[n - 1] == ' '; n--)
		;
	for (; unit && n && isdigit((unsigned char)word[n - 1]); digits++)
		n--;
	if (!digits || digits > 4 || n < 2 || n > 127 || !strchr(" -_", word[n - 1]))
		return 0;
	snprintf(rest, 128, "%.*s", (int)n - 1, word);
	return strtod(word + n, NULL);
}

/* A card's name and its size, as shops and consoles write it: among the cards of that size. */
static enum oom_status find_sized(const struct oom_gpus *gpus, const char *word, struct oom_gpu *out,
				  char note[256], struct oom_error *err)
{
	char rest[128];
	const double gb = size_behind(word, rest);
	struct oom_gpus of_size = {.items = gb > 0 ? malloc((gpus->n + 1) * sizeof(*gpus->items)) : NULL};
	enum oom_status st = OOM_ERR_UNKNOWN;
	uint64_t bytes;

	for (size_t i = 0; of_size.items && i < gpus->n; i++)
		if (gpus->items[i].memory_gb == gb)
			of_size.items[of_size.n++] = gpus->items[i];
	if (of_size.n)
		st = oom_gpu_find(&of_size, rest, out, note, err);
	free(of_size.items);
	if (!st)
		return st;
	if (!oom_parse_bytes(word, &bytes, NULL))
		return oom_error_set(err, OOM_ERR_UNKNOWN, "\"%s\" is a size, not a card: --gpu-memory \"%s\"", word, word);
	if (gb > 0 && !oom_gpu_find(gpus, rest, out, NULL, err))
		return oom_error_set(err, OOM_ERR_UNKNOWN,
				     "unknown GPU \"%s\": %s has %g GB; another capacity is said with --gpu-memory",
				     word, out->name, out->memory_gb);
	return unknown(gpus, word, err);
}

enum oom_status oom_gpu_find(const struct oom_gpus *gpus, const char *word, struct oom_gpu *out,
			     char note[256], struct oom_error *err)
{
	char want[128], names[220] = "";
	const struct oom_gpu *pick = NULL;
	size_t used = 0, found = 0;
	bool differ = false;
	int best = 0;

	if (note)
		note[0] = 0;
	/* to the letter before the spellings: "T4G" is no T4 of some G */
	for (size_t i = 0; i < gpus->n; i++)
		if (oom_same_word(gpus->items[i].name, word)) {
			*out = gpus->items[i];
			return OOM_OK;
		}
	normalise(word, want, sizeof(want));
	for (size_t i = 0; i < gpus->n && *want; i++) {
		const struct oom_gpu *g = &gpus->items[i];
		const int how = match(g, want);

		if (!how || how < best)
			continue;
		if (how > best) {               /* what was found before is not meant */
			best = how;
			used = found = 0;
			differ = false;
			pick = NULL;
		}
		if (used < sizeof(names) - 1)
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", found ? ", " : "", g->name);
		found++;
		differ |= pick && pick->memory_gb != g->memory_gb;
		if (!pick || g->capacity_bytes < pick->capacity_bytes)
			pick = g;
	}
	if (!best && oom_gpu_slice(gpus, word, out, note))
		return OOM_OK;
	if (!best && is_counted(gpus, word))
		return oom_error_set(err, OOM_ERR_UNKNOWN,
				     "\"%s\" is a card and a number: here the card alone, and the knobs gpus and nodes "
				     "(an axis, a column of the list) say how many",
				     word);
	if (!best)
		return find_sized(gpus, word, out, note, err);
	if (differ)
		return oom_error_set(err, OOM_ERR_UNKNOWN, "\"%s\" names cards of different memory sizes: %s; say which", word, names);
	if (found > 1 && note)
		snprintf(note, 256, "\"%s\" may be %s: the smaller reported capacity is used (%s)", word, names, pick->name);
	else if (note)
		note_others(gpus, word, want, pick, note);
	*out = *pick;
	return OOM_OK;
}
