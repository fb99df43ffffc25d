/* What bundled models are called elsewhere, and what other programs' files should call a model. */
#include "input/model_ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "csv_rows.h"
#include "embedded.h"
#include "input/copies.h"
#include "oomplan/config.h"

struct search {
	const char *name;               /* without organisation */
	size_t n;                       /* without what a quantised copy's name ends in */
	struct oom_model_id *out;
	bool found;
};

static bool is(const struct search *s, const char *word, size_t n)
{
	return n == s->n && !strncasecmp(word, s->name, n);
}

static bool among(const struct search *s, const char *list)
{
	for (const char *w = list; *w; w += strspn(w, " ")) {
		const size_t n = strcspn(w, " ");

		if (is(s, w, n))
			return true;
		w += n;
	}
	return false;
}

static void copy(char *to, size_t size, const struct oom_csv_row *row, const char *column)
{
	const char *cell = oom_csv_cell(row, column);

	snprintf(to, size, "%s", cell ? cell : "");
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct search *s = ctx;
	struct oom_model_id id = {.bundled = ""};
	const char *slash, *same = oom_csv_cell(row, "same_shape");

	(void)err;
	if (s->found)
		return OOM_OK;
	copy(id.bundled, sizeof(id.bundled), row, "bundled");
	copy(id.hub_id, sizeof(id.hub_id), row, "hub_id");
	copy(id.torchtune, sizeof(id.torchtune), row, "torchtune");
	slash = strrchr(id.hub_id, '/');
	s->found = is(s, id.bundled, strlen(id.bundled)) || (same && among(s, same)) ||
		   (slash && is(s, slash + 1, strlen(slash + 1)));
	if (s->found)
		*s->out = id;
	return OOM_OK;
}

bool oom_model_id_find(const char *name, struct oom_model_id *out)
{
	const struct oom_embedded *f = oom_embedded_find("model_ids.csv");
	const char *slash = strrchr(name, '/');
	struct search s = {.name = slash ? slash + 1 : name, .out = out};
	const char *ending = oom_copy_ending(s.name);
	struct oom_error err = {{0}};

	s.n = ending ? (size_t)(ending - s.name) : strlen(s.name);
	return f && !oom_csv_parse((const char *)f->bytes, f->size, "model_ids.csv", take, &s, &err) && s.found;
}

/* "ORG/NAME" and nothing that reads as a path. */
static bool is_hub_id(const char *word)
{
	const char *slash = strchr(word, '/');

	return slash && slash > word && slash[1] && !strchr(slash + 1, '/') && *word != '.' && *word != '~' &&
	       !strpbrk(word, " \\$:");
}

/* A config.json by another name: whose is it? */
static bool id_of_file(const char *path, char *buf, size_t size)
{
	const struct oom_key *key;
	struct oom_error err = {{0}};
	struct oom_keys keys;
	char text[96] = "";

	if (oom_keys_read(&keys, path, &err))
		return false;
	key = oom_keys_find(&keys, "_name_or_path");
	if (key && key->type == OOM_KEY_STRING)
		snprintf(text, sizeof(text), "%s", key->string);
	oom_keys_release(&keys);
	return is_hub_id(text) && (size_t)snprintf(buf, size, "%s", text) < size;
}

/* The bundled config itself, from the source tree: the same bytes under the same name. */
static bool id_of_copy(const char *path, char *buf, size_t size)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const struct oom_embedded *f = oom_embedded_find(name);
	struct stat st;
	/* a pipe has been read by now, and opening it again would wait for another writer */
	FILE *in = f && !stat(path, &st) && S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
	struct oom_model_id id;
	char stem[64];
	bool same = in != NULL;

	for (size_t i = 0; same && i <= f->size; i++)
		same = getc(in) == (i < f->size ? f->bytes[i] : EOF);
	if (in)
		fclose(in);
	if (!same || strlen(name) < 6)
		return false;
	snprintf(stem, sizeof(stem), "%.*s", (int)strlen(name) - 5, name);
	return oom_model_id_find(stem, &id) && (size_t)snprintf(buf, size, "%s", id.hub_id) < size;
}

/* The bundled name itself, or a copy of it in fewer bits. */
static bool is_bundled(const char *word, const struct oom_model_id *id)
{
	const size_t n = strlen(id->bundled);

	return !strncasecmp(id->bundled, word, n) && (!word[n] || oom_copy_ending(word) == word + n);
}

const char *oom_model_called(const char *word, char *buf, size_t size)
{
	const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
	struct oom_model_id id;
	struct stat st;

	if (!strcmp(word, "-"))
		return NULL;
	if (stat(word, &st)) {
		if (!slash && oom_model_id_find(word, &id) && is_bundled(word, &id))
			word = id.hub_id;
		else if (!is_hub_id(word))
			return NULL;
		return (size_t)snprintf(buf, size, "%s", word) < size ? buf : NULL;
	}
	if (S_ISDIR(st.st_mode))
		return (size_t)snprintf(buf, size, "%s", word) < size ? buf : NULL;
	if (!strcmp(name, "config.json"))
		return (size_t)snprintf(buf, size, "%.*s", slash ? (int)(slash - word) : 1,
					slash ? word : ".") < size ? buf : NULL;
	return id_of_copy(word, buf, size) || id_of_file(word, buf, size) ? buf : NULL;
}
