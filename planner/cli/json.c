/* A JSON writer that streams. */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Length of the well-formed character at p, 0 if there is none (RFC 3629, section 4). */
static int utf8_length(const unsigned char *p)
{
	const int lead = *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
	const int n = *p < 0x80 ? 1 : *p < 0xc2 || *p >= 0xf5 ? 0 : lead;

	for (int i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90))
		return 0;       /* overlong */
	if ((*p == 0xed && p[1] >= 0xa0) || (*p == 0xf4 && p[1] >= 0x90))
		return 0;       /* surrogates, beyond U+10FFFF */
	return n;
}

void oom_json_string(FILE *out, const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	putc('"', out);
	while (*p) {
		const int n = utf8_length(p);

		if (!n) {
			fputs("\\ufffd", out);
			p++;
		} else if (*p == '\n' || *p == '\t') {
			fputs(*p++ == '\n' ? "\\n" : "\\t", out);
		} else if (*p < 0x20 || *p == 0x7f) {
			fprintf(out, "\\u%04x", *p++);
		} else if (*p == 0xc2 && p[1] < 0xa0) {
			fprintf(out, "\\u%04x", p[1]);         /* C1 */
			p += 2;
		} else if (*p == '"' || *p == '\\') {
			fprintf(out, "\\%c", *p++);
		} else {
			fwrite(p, 1, (size_t)n, out);
			p += n;
		}
	}
	putc('"', out);
}

/* What stands before an item: the comma, the key. */
static void begin(struct oom_json *j, const char *key)
{
	assert((key != NULL) == (j->depth > 0 && !j->array[j->depth]));
	if (j->filled[j->depth])
		fputs(", ", j->out);
	j->filled[j->depth] = true;
	if (key) {
		oom_json_string(j->out, key);
		fputs(": ", j->out);
	}
}

static void open_level(struct oom_json *j, const char *key, bool array)
{
	begin(j, key);
	assert(j->depth < OOM_JSON_DEPTH);
	j->depth++;
	j->array[j->depth] = array;
	j->filled[j->depth] = false;
	putc(array ? '[' : '{', j->out);
}

void oom_json_object(struct oom_json *j, const char *key)
{
	open_level(j, key, false);
}

void oom_json_array(struct oom_json *j, const char *key)
{
	open_level(j, key, true);
}

void oom_json_end(struct oom_json *j)
{
	assert(j->depth > 0);
	putc(j->array[j->depth] ? ']' : '}', j->out);
	if (!--j->depth) {
		j->filled[0] = false;   /* the next value is a document of its own line */
		putc('\n', j->out);
	}
}

void oom_json_text(struct oom_json *j, const char *key, const char *value)
{
	if (!value) {
		oom_json_null(j, key);
		return;
	}
	begin(j, key);
	oom_json_string(j->out, value);
}

void oom_json_uint(struct oom_json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->out, "%" PRIu64, value);
}

void oom_json_int(struct oom_json *j, const char *key, int64_t value)
{
	begin(j, key);
	fprintf(j->out, "%" PRId64, value);
}

void oom_json_bool(struct oom_json *j, const char *key, bool value)
{
	begin(j, key);
	fputs(value ? "true" : "false", j->out);
}

void oom_json_real(struct oom_json *j, const char *key, double value)
{
	char text[40];

	if (!isfinite(value)) {
		oom_json_null(j, key);
		return;
	}
	begin(j, key);
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)        /* exact on purpose */
			break;
	}
	fputs(text, j->out);
}

void oom_json_null(struct oom_json *j, const char *key)
{
	begin(j, key);
	fputs("null", j->out);
}
