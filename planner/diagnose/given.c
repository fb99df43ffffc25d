/* What the run has already, word for word: advice that names an option and its value as the command or the file has them is
 * none, whichever program's it is. Options are remembered as bits of a hash of their name and value: there is no list of them,
 * and one in some thousands is taken for another. */
#include <ctype.h>
#include <string.h>

#include "tables.h"

static bool is(const char *p, size_t m, const char *word)
{
	return m == strlen(word) && !memcmp(p, word, m);
}

/* "True" and nothing behind a flag are one value; "1" may be a count. */
static bool is_on(const char *value, size_t m)
{
	static const char *const words[] = {"", "true", "True", "TRUE", "yes", "on"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (is(value, m, words[i]))
			return true;
	return false;
}

/* FNV-1a over the letters and digits of the name and the value (Fowler, Noll, Vo). */
static uint64_t hash(const char *name, size_t n, const char *value, size_t m)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < n; i++)
		if (isalnum((unsigned char)name[i]))
			h = (h ^ (unsigned char)tolower((unsigned char)name[i])) * UINT64_C(1099511628211);
	h = (h ^ '=') * UINT64_C(1099511628211);
	if (is_on(value, m))
		m = 0;
	for (size_t i = 0; i < m; i++)
		if (isalnum((unsigned char)value[i]))
			h = (h ^ (unsigned char)tolower((unsigned char)value[i])) * UINT64_C(1099511628211);
	return h;
}

enum { BITS = sizeof(((struct oom_crash *)0)->given) * 8 };

void oom_given_note(struct oom_crash *c, const char *name, size_t n, const char *value)
{
	const uint64_t h = hash(name, n, value, strlen(value));

	c->given[h % BITS / 64] |= UINT64_C(1) << (h % 64);
	c->given[(h >> 32) % BITS / 64] |= UINT64_C(1) << ((h >> 32) % 64);
}

static bool given(const struct oom_crash *c, const char *name, size_t n, const char *value, size_t m)
{
	const uint64_t h = hash(name, n, value, m);

	return (c->given[h % BITS / 64] >> (h % 64) & 1) && (c->given[(h >> 32) % BITS / 64] >> ((h >> 32) % 64) & 1);
}

static bool of_value(char ch)
{
	return ch && (isalnum((unsigned char)ch) || strchr("_-./", ch));
}

/* Words that stand behind a flag and are no value of it. */
static bool is_word(const char *p, size_t m)
{
	static const char *const words[] = {"with", "and", "or", "in", "of", "to", "where", "on", "for", "lower", "higher", "smaller", "larger", "halved", "doubled", "is", "over", "leaves", "keeps", "instead", "than", "at",
					    "changes", "takes", "under", "beside", "lifts", "as", "off"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (is(p, m, words[i]))
			return true;
	return false;
}

/* The value that words give to the option that ends at p; false: they give none, or say which way a number goes. */
static bool value_behind(char *p, bool dashed, char **value, size_t *m)
{
	const bool wide = !strncmp(p, " = ", 3), assigned = wide || (*p == '=' && p[1] != ' '), keyed = *p == ':' && p[1] == ' ', spaced = *p == ' ';

	*value = p;
	*m = 0;
	if (assigned || keyed || (spaced && dashed)) {
		char *q = p + 1 + keyed + 2 * wide;

		q += *q == '"' || *q == '\'';
		for (*value = q; of_value(q[*m]); ++*m)
			;
		while (*m && strchr(".-/", q[*m - 1]))
			--*m;
	}
	if (assigned)
		return *m > 0;
	/* "key: true" of a file, but no reason behind a colon */
	if (!dashed)
		return keyed && (is_on(*value, *m) ? *m > 0 : *m && isdigit((unsigned char)**value));
	if (spaced && *m && !is_word(*value, *m))
		return true;
	/* a flag alone, unless a number is said to go some way */
	if (spaced && (is(*value, *m, "lower") || is(*value, *m, "higher") || is(*value, *m, "smaller")))
		return false;
	*m = 0;
	return true;
}

/* "--quantize nf4 with --precision bf16": one of both is left. */
static void take_out(char *words, char *from, char *to)
{
	static const char with[] = " with ";
	const size_t n = sizeof(with) - 1;

	to += *to == '"' || *to == '\'';
	if ((size_t)(from - words) > n && !memcmp(from - n, with, n))
		memmove(from - n, to, strlen(to) + 1);
	else if (!strncmp(to, with, n))
		memmove(from, to + n, strlen(to + n) + 1);
	else
		oom_words_drop(words, from);
	/* "--sdpa or", of which the other is taken out */
	for (size_t end = strlen(words); end > 3 && (!strcmp(words + end - 3, " or") || !strcmp(words + end - 4, " and") || !strcmp(words + end - 1, ",")); end = strlen(words))
		words[end - (words[end - 1] == ',' ? 1 : words[end - 1] == 'r' ? 3 : 4)] = 0;
}

void oom_given_drop(const struct oom_crash *c, char *words)
{
	for (char *p = words; *p;) {
		char *const from = p;
		char *value;
		size_t m;

		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_') {
			p++;
			continue;
		}
		while (isalnum((unsigned char)*p) || *p == '-' || *p == '_')
			p++;
		if (p - from > 6 && (*from == '-' || memchr(from, '_', (size_t)(p - from))) && value_behind(p, *from == '-', &value, &m) && given(c, from, (size_t)(p - from), value, m)) {
			take_out(words, from, m ? value + m : p);
			p = words;
		}
	}
}
