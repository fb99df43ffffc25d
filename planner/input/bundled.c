/* A model by any word a user may say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "embedded.h"
#include "input/copies.h"
#include "oomplan/config.h"
#include "oomplan/option.h"

/* A bundled model: its name, which ends nowhere in memory, and its config. */
struct bundled {
	const char *name, *config;
	size_t name_len, config_len;
};

/* Embedded *.json files are bundled models, and so are the rows of model_configs.jsonl: a name, a tab, and
 * the keys in which the model's config differs from its class's defaults. */
static bool next_file(size_t *at, struct bundled *out)
{
	const struct oom_embedded *f;

	while ((f = oom_embedded_at((*at)++)) != NULL) {
		const size_t n = strlen(f->name);

		*out = (struct bundled){f->name, (const char *)f->bytes, n > 5 ? n - 5 : 0, f->size};
		if (n > 5 && !strcmp(f->name + n - 5, ".json"))
			return true;
	}
	return false;
}

static bool next_row(const char **at, struct bundled *out)
{
	const char *tab = strchr(*at, '\t'), *end = tab ? strchr(tab, '\n') : NULL;

	if (!end)
		return false;
	*out = (struct bundled){*at, tab + 1, (size_t)(tab - *at), (size_t)(end - tab - 1)};
	*at = end + 1;
	return true;
}

/* The i-th one, or with `word` the one of that name in either case of letters. */
static bool bundled(size_t i, const char *word, struct bundled *out)
{
	const struct oom_embedded *rows = oom_embedded_find("model_configs.jsonl");
	const char *row = rows ? (const char *)rows->bytes : "";
	size_t file = 0;

	while (next_file(&file, out) || next_row(&row, out))
		if (word ? strlen(word) == out->name_len && !strncasecmp(word, out->name, out->name_len) :
			   i-- == 0)
			return true;
	return false;
}

const char *oom_bundled_model(size_t i, char *buf, size_t size)
{
	struct bundled b;

	if (!bundled(i, NULL, &b))
		return NULL;
	snprintf(buf, size, "%.*s", (int)b.name_len, b.name);
	return buf;
}

/* The bundled name that is spelled most like the word; NULL: none is near. */
static const char *near_name(const char *word, char *buf, size_t size)
{
	enum { MOST = 1000, LONG = 48 };
	char (*names)[LONG] = calloc(MOST, LONG);
	const char **list = calloc(MOST + 1, sizeof(*list));
	const char *near = NULL;

	for (size_t n = 0; names && list && n < MOST && oom_bundled_model(n, names[n], LONG); n++)
		list[n] = names[n];
	if (names && list)
		near = oom_nearest(word, list);
	if (near)
		snprintf(buf, size, "%s", near);
	free(list);
	free(names);
	return near ? buf : NULL;
}

/* What people hand over in a config's place, by how its name ends. */
static const struct {
	const char *end, *what;
} others[] = {
#define WEIGHTS "is a file of weights: give the config.json beside it, or the folder"
#define TRAINING "is a training file: oomplan plan --from FILE reads model and knobs from it"
#define DATA "is a file of training data: its lengths are --lengths FILE, the model's config.json is --model"
	{".gguf", "is a GGUF file, weights of llama.cpp, which do not train: give the config.json of the "
		  "model that it was made of"},
	{".safetensors", WEIGHTS},
	{".bin", WEIGHTS},
	{".pt", WEIGHTS},
	{".pth", WEIGHTS},
	{".ckpt", WEIGHTS},
	{".yaml", TRAINING},
	{".yml", TRAINING},
	{".toml", TRAINING},
	{".sh", TRAINING},
	{".py", TRAINING},
	{".ipynb", TRAINING},
	{".jsonl", DATA},
	{".parquet", DATA},
};

static const char *what_else(const char *word)
{
	const size_t n = strlen(word);

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		const size_t end = strlen(others[i].end);

		if (n > end && !strcasecmp(word + n - end, others[i].end))
			return others[i].what;
	}
	return NULL;
}

/* "org/name", as the hub has it, and no path of this machine. */
static bool is_hub_id(const char *word)
{
	const char *slash = strchr(word, '/');

	return slash && slash != word && slash[1] && !strchr(slash + 1, '/') && *word != '.' &&
	       *word != '~' && !strstr(word, ".json");
}

enum oom_status oom_keys_read_model(struct oom_keys *out, const char *word, struct oom_error *err)
{
	const char *near, *ending, *else_ = what_else(word);
	char located[1024], name[64];
	struct bundled b;
	struct stat st;

	if (else_ && !(stat(word, &st) == 0 && S_ISDIR(st.st_mode)))
		return oom_error_set(err, OOM_ERR_PARSE, "%s %s", word, else_);
	if (!strcmp(word, "-") || access(word, F_OK) == 0)
		return oom_keys_read(out, word, err);
	if (is_hub_id(word)) {
		const enum oom_status how =
			oom_model_locate(word, NULL, NULL, located, sizeof(located), err);

		/* what was found is a path, or a bundled name: neither is such an id again */
		return how		       ? how :
		       strcmp(located, word) ? oom_keys_read_model(out, located, err) :
					       oom_keys_read(out, located, err);
	}
	if (bundled(0, word, &b)) {
		snprintf(name, sizeof(name), "%.*s", (int)b.name_len, b.name);
		return oom_keys_parse(out, b.config, b.config_len, name, err);
	}
	ending = oom_copy_ending(word);
	if (ending && (size_t)snprintf(name, sizeof(name), "%.*s", (int)(ending - word), word) < sizeof(name) &&
	    bundled(0, name, &b))
		return oom_copy_keys(out, ending, b.config, b.config_len, word, err);
	if (strchr(word, '/') || strstr(word, ".json"))
		return oom_keys_read(out, word, err);
	near = near_name(word, name, sizeof(name));
	return oom_error_set(err, OOM_ERR_UNKNOWN,
			     "%s: no such file, and no bundled model of that name%s%s%s; see: "
			     "oomplan list models",
			     word, near ? " (did you mean " : "", near ? near : "",
			     near ? "?)" : "");
}
