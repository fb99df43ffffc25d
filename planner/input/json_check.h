/* Is this text JSON, and where does each value stand?
 *
 * Private to planner/.  Runs before the JSON library, so that the library only ever sees text known
 * to be well formed, shallow and of bounded size, and the user gets line and column of the first
 * mistake. */
#ifndef OOM_JSON_CHECK_H
#define OOM_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

/* Containers within containers; the JSON library's own limit (cJSON.h, CJSON_NESTING_LIMIT). */
#define JSON_MAX_DEPTH 1000
/* Values in one text.  A config.json has hundreds, a label map 2 * 21841, the weight map of the
 * largest published mixture of experts about 200 000.  A guess, ten times that; raise it when a
 * real file needs it. */
#define JSON_MAX_VALUES 2000000

/* One value in document order. */
struct json_mark {
	uint32_t line; /* of the key, for members of an object; else of the value itself; 1-based */
	bool is_nan;   /* the text said NaN */
};

struct json_marks {
	struct json_mark *items; /* free() it */
	size_t n, capacity;
};

/* Checks text[0..size), which must be followed by a NUL, against RFC 8259, plus the NaN, Infinity
 * and -Infinity that Python's json module writes; those are overwritten in place by numbers of the
 * same width (NaN by 0.0 and a mark). Fills marks with one entry per value, the root first.  name
 * is used in messages. OOM_ERR_PARSE with line:column, OOM_ERR_MEMORY; marks are untouched on
 * failure. */
enum oom_status oom_json_check(char *text, size_t size, const char *name, struct json_marks *marks,
			       struct oom_error *err);

/* Length of the well-formed UTF-8 sequence at s (n bytes left), or 0. */
size_t oom_utf8_length(const unsigned char *s, size_t n);

#endif
