/* Rows of a framework, read both ways. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "framework.h"
#include "oomplan/option.h"

/* "a.b.*" against a key: '-' and '_' alike, without case. */
static bool matches(const char *pattern, size_t len, const char *key)
{
	size_t i = 0;

	for (; i < len; i++) {
		const char a = pattern[i] == '-' ? '_' : (char)tolower((unsigned char)pattern[i]);
		const char b = key[i] == '-' ? '_' : (char)tolower((unsigned char)key[i]);

		if (pattern[i] == '*' && i + 1 == len)
			return true;
		if (!key[i] || a != b)
			return false;
	}
	return !key[i];
}

bool framework_lists(const char *list, const char *key)
{
	for (const char *w = list; w && *w;) {
		const size_t len = strcspn(w, " ");

		if (len && matches(w, len, key))
			return true;
		w += len + (w[len] == ' ');
	}
	return false;
}

bool framework_names(const struct framework *fw, const char *key)
{
	const size_t n = strlen(key);

	for (size_t l = 0; fw->rows && fw->rows[l]; l++)
		for (const struct fw_row *r = fw->rows[l]; r->key; r++)
			if (strlen(r->key) == n && r->key[n - 1] != '*' && matches(r->key, n, key))
				return true;
	for (size_t l = 0; fw->idle && fw->idle[l]; l++)
		for (const char *w = fw->idle[l]; *w; w += strspn(w, " ")) {
			const size_t len = strcspn(w, " ");

			if (len == n && w[len - 1] != '*' && matches(w, len, key))
				return true;
			w += len;
		}
	return false;
}

const struct fw_row *framework_row(const struct framework *fw, const char *key, bool *idle)
{
	*idle = false;
	for (size_t l = 0; fw->rows && fw->rows[l]; l++)
		for (const struct fw_row *r = fw->rows[l]; r->key; r++)
			if (matches(r->key, strlen(r->key), key)) {
				*idle = !r->knob && !r->hook && !r->note;
				return r;
			}
	for (size_t l = 0; fw->idle && fw->idle[l]; l++)
		if (framework_lists(fw->idle[l], key)) {
			*idle = true;
			return NULL;
		}
	return NULL;
}

/* map entries: [word, word_len) > [value, value_len) */
struct entry {
	const char *word, *value;
	size_t word_len, value_len;
};

static const char *next_entry(const char *at, struct entry *e)
{
	const char *sign;

	if (!at || !*at)
		return NULL;
	e->word = at;
	at += strcspn(at, ";");
	sign = memchr(e->word, '>', (size_t)(at - e->word));
	e->word_len = (size_t)((sign ? sign : at) - e->word);
	e->value = sign ? sign + 1 : at;
	e->value_len = (size_t)(at - e->value);
	return at + (*at == ';');
}

static bool is_word(const struct entry *e, const char *word)
{
	char copy[80];

	if (e->word_len >= sizeof(copy))
		return false;
	memcpy(copy, e->word, e->word_len);
	copy[e->word_len] = 0;
	if (e->word_len && copy[e->word_len - 1] == '*')
		return !strncasecmp(copy, word, e->word_len - 1);
	return oom_same_word(copy, word);
}

const char *row_value(const struct fw_row *row, const char *word, char *buf, size_t size)
{
	struct entry e;

	for (const char *at = row->map; (at = next_entry(at, &e)) != NULL;)
		if (is_word(&e, word)) {
			snprintf(buf, size, "%.*s", (int)e.value_len, e.value);
			return buf;
		}
	return NULL;
}

static bool as_it_stands(const struct fw_row *row)
{
	const char *end = row->map ? strstr(row->map, "*>=") : "";

	return end != NULL;
}

/* The value as a row takes it whose map leaves it open: counts and names as they are; of choices, where there is no map
 * at all, what transformers writes.  NULL: a word of ours alone, which no framework knows. */
static const char *framework_spelling(const struct fw_row *row, const char *value, char *buf,
				      size_t size)
{
	const struct oom_option *k = row->knob ? oom_knob_find(row->knob) : NULL;
	const int i = k && k->choice ? oom_choice_find(k->choice, value) : -1;
	const char *said = i >= 0 ? k->choice((size_t)i)->setting : value;

	if (i >= 0 && (row->map || !*said))
		return NULL;
	snprintf(buf, size, "%.*s", (int)(i >= 0 ? strcspn(said, " ") : strlen(said)), said);
	return buf;
}

const char *row_word(const struct fw_row *row, const char *value, char *buf, size_t size)
{
	struct entry e;

	for (const char *at = row->map; (at = next_entry(at, &e)) != NULL;) {
		if (e.word_len && e.word[e.word_len - 1] == '*')
			continue;
		if (e.value_len == strlen(value) && !memcmp(e.value, value, e.value_len)) {
			snprintf(buf, size, "%.*s", (int)e.word_len, e.word);
			return buf;
		}
	}
	return as_it_stands(row) ? framework_spelling(row, value, buf, size) : NULL;
}
