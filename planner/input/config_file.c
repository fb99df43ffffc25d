/* A config.json from a file, a folder that holds one, or standard input. */
#include "oomplan/config.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config_json.h"
#include "input/open.h"

/* All of f, growing: a pipe does not say how much will come. */
static enum oom_status read_stream(char **text, size_t *size, FILE *f, const char *name,
				   size_t limit, struct oom_error *err)
{
	size_t capacity = 16384, n = 0;
	char *buf = malloc(capacity + 1);

	while (buf) {
		char *grown;

		n += fread(buf + n, 1, capacity - n, f);
		if (ferror(f)) {
			free(buf);
			return oom_error_set(err, OOM_ERR_IO, "%s: %s", name, strerror(errno));
		}
		if (n > limit) {
			free(buf);
			return oom_error_set(err, OOM_ERR_PARSE, "%s: larger than %zu MiB", name,
					     limit >> 20);
		}
		if (n < capacity) {
			buf[n] = 0;
			*text = buf;
			*size = n;
			return OOM_OK;
		}
		capacity *= 2;
		grown = realloc(buf, capacity + 1);
		if (!grown)
			free(buf);
		buf = grown;
	}
	return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", name);
}

enum oom_status oom_read_text(char **text, size_t *size, const char *path, size_t limit,
			      struct oom_error *err)
{
	enum oom_status status;
	struct stat st;
	FILE *f;

	if (strcmp(path, "-") == 0)
		return read_stream(text, size, stdin, "standard input", limit, err);
	f = oom_input_open(path, err);
	if (!f)
		return errno == ENOMEM ? OOM_ERR_MEMORY : OOM_ERR_IO;
	if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
		status = oom_error_set(err, OOM_ERR_IO, "%s: is a folder", path);
	else if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && (uintmax_t)st.st_size > limit)
		status = oom_error_set(err, OOM_ERR_PARSE, "%s: larger than %zu MiB", path,
				       limit >> 20);
	else
		status = read_stream(text, size, f, path, limit, err);
	fclose(f);
	return status;
}

enum oom_status oom_keys_read(struct oom_keys *out, const char *path, struct oom_error *err)
{
	static const char in_folder[] = "/config.json";
	const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
	enum oom_status status = OOM_OK;
	char *joined = NULL, *text = NULL;
	struct stat st;
	size_t size;

	if (name == path && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		joined = malloc(strlen(path) + sizeof(in_folder));
		if (!joined)
			return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", path);
		strcpy(joined, path);
		strcat(joined, in_folder);
		name = path = joined;
		if (stat(joined, &st) != 0) {
			status = oom_error_set(err, OOM_ERR_IO,
					       "%s: %s (a model folder holds a config.json)",
					       joined, strerror(errno));
			goto out;
		}
	}
	status = oom_read_text(&text, &size, path, OOM_CONFIG_BYTES, err);
	if (!status)
		status = oom_keys_parse_buffer(out, text, size, name, err);
out:
	free(text);
	free(joined);
	return status;
}
