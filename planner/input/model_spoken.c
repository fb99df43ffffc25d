/* A bundled model by what people and folders call it.
 *
 * Names are compared by their letters and digits alone: "Llama-2-7b-hf" and "llama2 7B" are "llama27b". A name that goes on
 * behind such a one with a letter ("-hf", "-instruct", a fine-tune's own word) is of that shape as a rule, and that is said;
 * one that goes on with a digit is another model, and so is one that has anything before it but its organisation. */
#include "input/model_spoken.h"

#include <ctype.h>
#include <stdio.h>
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

struct asked {
	char name[NAME];
	size_t longest;         /* letters of the best match so far */
	struct oom_model_spoken *out;
};

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

/* Spoken of, and bundled. */
static bool is_here(const char *bundled)
{
	char file[NAME];

	snprintf(file, sizeof(file), "%.64s.json", bundled);
	return oom_embedded_find(file) != NULL;
}

static void meet(struct asked *a, const char *key, const char *bundled)
{
	const size_t n = strlen(key);
	bool same_shape;

	if (n < SHORTEST || n <= a->longest || strncmp(a->name, key, n) || isdigit((unsigned char)a->name[n]) || !is_here(bundled))
		return;
	same_shape = is_same(a->name + n);
	/* "gpt2-medium" is not GPT-2: a size has to stand in what they share */
	if (!same_shape && (key[n - 1] != 'b' || !isdigit((unsigned char)key[n - 2])))
		return;
	a->longest = n;
	a->out->alike = !same_shape;
	snprintf(a->out->bundled, sizeof(a->out->bundled), "%s", bundled);
}

static void among(struct asked *a, const char *list, const char *bundled)
{
	char key[NAME];

	for (const char *w = list; *w; w += strspn(w, " ")) {
		const size_t n = strcspn(w, " ");

		plain(w, n, key);
		meet(a, key, bundled);
		w += n;
	}
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct asked *const a = ctx;
	const char *const bundled = oom_csv_cell(row, "bundled"), *const id = oom_csv_cell(row, "hub_id"), *const shape = oom_csv_cell(row, "same_shape");
	const char *const slash = id ? strrchr(id, '/') : NULL;

	(void)err;
	if (!bundled)
		return OOM_OK;
	among(a, bundled, bundled);
	among(a, slash ? slash + 1 : "", bundled);
	among(a, shape ? shape : "", bundled);
	return OOM_OK;
}

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

bool oom_model_spoken(const char *words, size_t n, struct oom_model_spoken *out)
{
	const struct oom_embedded *const f = oom_embedded_find("model_ids.csv");
	struct asked a = {.out = out};
	struct oom_error err = {{0}};
	size_t left;
	const char *const from = last_part(words, n, &left);

	memset(out, 0, sizeof(*out));
	if (plain(from, left, a.name) < SHORTEST)
		return false;
	for (size_t i = 0; i < sizeof(sayings) / sizeof(sayings[0]); i++)
		meet(&a, sayings[i].spoken, sayings[i].bundled);
	if (f && oom_csv_parse((const char *)f->bytes, f->size, "model_ids.csv", take, &a, &err))
		return false;
	return a.longest > 0;
}
