/* The JSON reader for other files of planner/ that have the text already. */
#ifndef OOM_CONFIG_JSON_H
#define OOM_CONFIG_JSON_H

#include "oomplan/config.h"

/* The largest config.json that is read. */
#define OOM_CONFIG_BYTES ((size_t)64 << 20)

/* As oom_keys_parse, but works in the caller's buffer: text[0..size) followed by a NUL, which may
 * be changed; the 64 MiB limit is the caller's business. */
enum oom_status oom_keys_parse_buffer(struct oom_keys *out, char *text, size_t size,
				      const char *name, struct oom_error *err);

/* Reads a whole file ("-": standard input) of at most limit bytes into *text (free() it),
 * NUL-terminated. */
enum oom_status oom_read_text(char **text, size_t *size, const char *path, size_t limit,
			      struct oom_error *err);

#endif
