/* A model by any word a user may say. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "embedded.h"
#include "oomplan/config.h"
#include "oomplan/option.h"

/* Embedded *.json files are the bundled models. */
static const struct oom_embedded *bundled(size_t i)
{
	for (size_t j = 0; oom_embedded_at(j); j++) {
		const struct oom_embedded *f = oom_embedded_at(j);
		const size_t n = strlen(f->name);

		if (n > 5 && !strcmp(f->name + n - 5, ".json") && i-- == 0)
			return f;
	}
	return NULL;
}

const char *oom_bundled_model(size_t i, char *buf, size_t size)
{
	const struct oom_embedded *f = bundled(i);

	if (!f)
		return NULL;
	snprintf(buf, size, "%.*s", (int)strlen(f->name) - 5, f->name);
	return buf;
}

enum oom_status oom_keys_read_model(struct oom_keys *out, const char *word, struct oom_error *err)
{
	char names[64][64];             /* for the suggestion, and as the file's name */
	const char *list[65], *near;
	size_t n = 0;

	if (!strcmp(word, "-") || access(word, F_OK) == 0)
		return oom_keys_read(out, word, err);
	for (; n < 64 && oom_bundled_model(n, names[n], sizeof(names[n])); n++) {
		list[n] = names[n];
		if (!strcasecmp(names[n], word))
			return oom_keys_parse(out, (const char *)bundled(n)->bytes,
					      bundled(n)->size, names[n], err);
	}
	list[n] = NULL;
	if (strchr(word, '/') || strstr(word, ".json"))
		return oom_keys_read(out, word, err);
	near = oom_nearest(word, list);
	return oom_error_set(err, OOM_ERR_UNKNOWN,
			     "%s: no such file, and no bundled model of that name%s%s%s; see: "
			     "oomplan list models",
			     word, near ? " (did you mean " : "", near ? near : "",
			     near ? "?)" : "");
}
