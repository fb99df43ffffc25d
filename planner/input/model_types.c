/* What the tables know of a model type: data/model_types.jsonl of those that transformers builds itself,
 * data/remote_types.jsonl of those whose code lies in the repositories of their models. */
#include "oomplan/config.h"

#include <string.h>

#include "../../data/embedded.h"

/* A row of a table: the type's name, a tab, its JSON object. */
static enum oom_status read_row(struct oom_keys *out, const char *file, const char *type,
				struct oom_error *err)
{
	const struct oom_embedded *table = oom_embedded_find(file);
	const size_t len = strlen(type);
	const char *line = table ? (const char *)table->bytes : NULL;
	const char *end = table ? line + table->size : NULL;

	while (line && line < end) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));

		if (!stop)
			stop = end;
		if ((size_t)(stop - line) > len && line[len] == '\t' && !memcmp(line, type, len))
			return oom_keys_parse(out, line + len + 1, (size_t)(stop - line) - len - 1,
					      file, err);
		line = stop < end ? stop + 1 : end;
	}
	return oom_error_set(err, OOM_ERR_UNKNOWN,
			     "model type '%s' is not in the table of model types", type);
}

enum oom_status oom_keys_defaults(struct oom_keys *out, const char *model_type,
				  struct oom_error *err)
{
	const enum oom_status st = read_row(out, "model_types.jsonl", model_type, err);

	return st == OOM_ERR_UNKNOWN ? read_row(out, "remote_types.jsonl", model_type, err) : st;
}
