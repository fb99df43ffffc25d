/* A JSON writer that streams: keys in the order written, integers plain, never an invalid byte. */
#ifndef OOM_CLI_JSON_H
#define OOM_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { OOM_JSON_DEPTH = 32 };

/* Start with {.out = file}.  Nesting deeper than OOM_JSON_DEPTH is a bug of the caller. */
struct oom_json {
	FILE *out;
	unsigned depth;
	bool array[OOM_JSON_DEPTH + 1];         /* per open level: a list (its items have no key) */
	bool filled[OOM_JSON_DEPTH + 1];        /* per open level: something was written */
};

/* In an object every item has a key; in a list and at the top, key is NULL. */
void oom_json_object(struct oom_json *j, const char *key);
void oom_json_array(struct oom_json *j, const char *key);
/* Ends the innermost object or list; the outermost is followed by a newline. */
void oom_json_end(struct oom_json *j);
void oom_json_text(struct oom_json *j, const char *key, const char *value);     /* NULL: null */
void oom_json_uint(struct oom_json *j, const char *key, uint64_t value);
void oom_json_int(struct oom_json *j, const char *key, int64_t value);
void oom_json_bool(struct oom_json *j, const char *key, bool value);
/* The shortest digits that read back as the same double; not finite: null. */
void oom_json_real(struct oom_json *j, const char *key, double value);
void oom_json_null(struct oom_json *j, const char *key);

/* A string with its quotes (RFC 8259, section 7).  Control characters are escaped, bytes that are
 * no UTF-8 (surrogates and overlong forms too) become U+FFFD. */
void oom_json_string(FILE *out, const char *s);

#endif
