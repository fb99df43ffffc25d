/* A bundled model by what people and folders call it.
 *
 * Names are compared by their letters and digits alone: "Llama-2-7b-hf" and "llama2 7B" are "llama27b". A name that goes on
 * behind such a one with a letter ("-hf", "-instruct", a fine-tune's own word) is of that shape as a rule, and that is said;
 * one that goes on with a digit is another model, and so is one that has anything before it but its organisation. */
#include "input/model_spoken.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_rows.h"
#include "embedded.h"

enum { NAME = 100, SHORTEST = 4 };

/* What nobody's config is called, and people say.  LLaMA of 2023 has the shape of Llama 2 where that has one (config.json of
 * huggyllama/llama-7b, -13b), Vicuna and Alpaca are its fine-tunes. */
static const struct {
	const char *spoken, *bundled;
} sayings[] = {
	{"llama7b", "Llama-2-7B"}, {"vicuna7b", "Llama-2-7B"}, {"alpaca7b", "Llama-2-7B"},
	{"llama13b", "Llama-2-13B"}, {"vicuna13b", "Llama-2-13B"}, {"llama70b", "Llama-2-70B"},
	{"llama38b", "Llama-3.1-8B"}, {"metallama38b", "Llama-3.1-8B"}, {"llama318b", "Llama-3.1-8B"}, {"metallama318b", "Llama-3.1-8B"},
	{"llama370b", "Llama-3.1-70B"}, {"metallama370b", "Llama-3.1-70B"}, {"llama3170b", "Llama-3.1-70B"}, {"metallama3170b", "Llama-3.1-70B"},
};

/* What a name ends in whose config is its base's. */
static const char *const same[] = {"", "hf", "instruct", "chat", "chathf", "base", "it", "instructhf", "unslothbnb4bit", "bnb4bit", "instructbnb4bit",
				   "instructunslothbnb4bit", "chatbnb4bit", "itbnb4bit"};

static size_t plain(const char *from, size_t n, char out[NAME])
{
	size_t used = 0;

	for (size_t i = 0; i < n && used + 1 < NAME; i++)
		if (isalnum((unsigned char)from[i]))
			out[used++] = (char)tolower((unsigned char)from[i]);
	out[used] = 0;
	return used;
}

static bool is_same(const char *rest)
{
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (!strcmp(rest, same[i]))
			return true;
	return false;
}

/* ---- what there is ---- */

static void keep(struct oom_spoken_models *m, const char *from, size_t n, const char *bundled)
{
	char letters[NAME];

	if (plain(from, n, letters) < SHORTEST || strlen(letters) >= sizeof(m->items->letters))
		return;
	if (m->n == m->room) {
		const size_t room = m->room ? 2 * m->room : 256;
		struct oom_spoken_name *const more = realloc(m->items, room * sizeof(*more));

		if (!more)
			return;
		m->items = more;
		m->room = room;
	}
	snprintf(m->items[m->n].letters, sizeof(m->items->letters), "%s", letters);
	snprintf(m->items[m->n++].bundled, sizeof(m->items->bundled), "%s", bundled);
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct oom_spoken_models *const m = ctx;
	const char *const bundled = oom_csv_cell(row, "bundled"), *const id = oom_csv_cell(row, "hub_id"), *const shape = oom_csv_cell(row, "same_shape");
	const char *const slash = id ? strrchr(id, '/') : NULL;

	(void)err;
	if (!bundled)
		return OOM_OK;
	keep(m, bundled, strlen(bundled), bundled);
	if (slash)
		keep(m, slash + 1, strlen(slash + 1), bundled);
	for (const char *w = shape ? shape : ""; *w; w += strspn(w, " ")) {
		const size_t n = strcspn(w, " ");

		keep(m, w, n, bundled);
		w += n;
	}
	return OOM_OK;
}

void oom_spoken_load(struct oom_spoken_models *m)
{
	const struct oom_embedded *const f = oom_embedded_find("model_ids.csv");
	struct oom_error err = {{0}};
	size_t named;

	if (f && oom_csv_parse((const char *)f->bytes, f->size, "model_ids.csv", take, m, &err))
		return;
	named = m->n;
	for (size_t i = 0; i < sizeof(sayings) / sizeof(sayings[0]); i++)
		for (size_t k = 0; k < named; k++)
			if (!strcmp(m->items[k].bundled, sayings[i].bundled)) {
				keep(m, sayings[i].spoken, strlen(sayings[i].spoken), sayings[i].bundled);
				break;
			}
}

void oom_spoken_release(struct oom_spoken_models *m)
{
	free(m->items);
	memset(m, 0, sizeof(*m));
}

/* ---- what is asked for ---- */

/* The last part of a path, without an organisation that a dot joins to it ("Qwen.Qwen2.5-7B"). */
static const char *last_part(const char *words, size_t n, size_t *left)
{
	const char *from = words, *dot;

	while (n && (words[n - 1] == '/' || words[n - 1] == ' '))
		n--;
	for (size_t i = 0; i < n; i++)
		if (words[i] == '/' || words[i] == '\\')
			from = words + i + 1;
	*left = n - (size_t)(from - words);
	dot = memchr(from, '.', *left);
	if (dot && dot > from && !isdigit((unsigned char)dot[-1]) && dot + 1 < words + n && isalpha((unsigned char)dot[1])) {
		*left -= (size_t)(dot + 1 - from);
		from = dot + 1;
	}
	return from;
}

bool oom_model_spoken(const struct oom_spoken_models *m, const char *words, size_t n, struct oom_model_spoken *out)
{
	size_t left, longest = 0;
	const char *const from = last_part(words, n, &left);
	char name[NAME];

	memset(out, 0, sizeof(*out));
	if (plain(from, left, name) < SHORTEST)
		return false;
	for (size_t i = 0; i < m->n; i++) {
		const char *const key = m->items[i].letters;
		const size_t len = strlen(key);
		bool alike;

		if (*key != *name || len <= longest || strncmp(name, key, len) || isdigit((unsigned char)name[len]))
			continue;
		alike = !is_same(name + len);
		/* "gpt2-medium" is not GPT-2: a size has to stand in what they share */
		if (alike && (key[len - 1] != 'b' || !isdigit((unsigned char)key[len - 2])))
			continue;
		longest = len;
		out->alike = alike;
		snprintf(out->bundled, sizeof(out->bundled), "%s", m->items[i].bundled);
	}
	return longest > 0;
}
