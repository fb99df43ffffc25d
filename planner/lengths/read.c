/* Files of lengths: one per line, a CSV column, a field of JSON lines.  Read in blocks; a line may be
 * as long as a block, and what is longer holds no length that we would believe. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

enum { BLOCK = 1 << 22 };

/* Columns and fields that are taken for lengths, the first of them first; the last are lists,
 * whose elements count. */
static const char *const names[] = {"length", "seq_len", "seq_length", "n_tokens", "num_tokens",
				    "tokens", "len",	 "input_ids",  NULL};

struct shape {
	const char *field;              /* asked for, or found; NULL: the line is the number */
	int column;                     /* of a CSV; -1: not one */
	bool decided;
};

static bool whole(double v)
{
	return v >= 0 && v <= OOM_LENGTH_MOST && v == floor(v);
}

/* A number that stands alone up to a separator. */
static bool number_at(const char *p, const char *end, uint64_t *tokens)
{
	char digits[48];
	size_t n = 0;
	char *stop;
	double v;

	while (p < end && (*p == ' ' || *p == '\t' || *p == '"'))
		p++;
	while (p + n < end && n < sizeof(digits) - 1 && p[n] != ',' && p[n] != '"' &&
	       p[n] != '\r' && p[n] != '}' && p[n] != ']')
		n++;
	memcpy(digits, p, n);
	digits[n] = 0;
	v = strtod(digits, &stop);
	while (*stop == ' ' || *stop == '\t')
		stop++;
	if (stop == digits || *stop || !whole(v))
		return false;
	*tokens = (uint64_t)v;
	return true;
}

/* ---- CSV ---- */

/* The cell that begins at p, a quoted one too; *next behind its comma, NULL after the last. */
static const char *cell_end(const char *p, const char *end, const char **next)
{
	bool quoted = false;

	for (; p < end && (quoted || *p != ','); p++)
		quoted ^= *p == '"';
	*next = p < end ? p + 1 : NULL;
	return p;
}

static bool is_name(const char *p, const char *end, const char *name)
{
	const size_t n = strlen(name);

	while (p < end && (*p == ' ' || *p == '"'))
		p++;
	while (end > p && (end[-1] == ' ' || end[-1] == '"' || end[-1] == '\r'))
		end--;
	return (size_t)(end - p) == n && !memcmp(p, name, n);
}

static int column_of(const char *line, const char *end, const char *name)
{
	const char *next = line;

	for (int i = 0; next; i++) {
		const char *p = next, *stop = cell_end(p, end, &next);

		if (is_name(p, stop, name))
			return i;
	}
	return -1;
}

/* A first line of words names the columns; without a name that we know, the first column is the
 * one. */
static enum oom_status read_header(struct shape *s, const char *line, const char *end,
				   const char *file, bool *is, struct oom_error *err)
{
	s->decided = true;
	*is = false;
	for (const char *p = line; p < end && !*is; p++)
		*is = isalpha((unsigned char)*p) && (*p != 'e' && *p != 'E');
	if (*line == '{' || !*is) {
		*is = false;
		return OOM_OK;
	}
	s->column = -1;
	for (size_t i = 0; s->column < 0 && (s->field ? i == 0 : names[i] != NULL); i++)
		s->column = column_of(line, end, s->field ? s->field : names[i]);
	if (s->column < 0 && s->field)
		return oom_error_set(err, OOM_ERR_INVALID, "%s:1: no column \"%s\"", file,
				     s->field);
	if (s->column < 0)
		s->column = 0;
	return OOM_OK;
}

static bool csv_length(const struct shape *s, const char *line, const char *end, uint64_t *tokens)
{
	const char *p = line, *next, *stop = cell_end(line, end, &next);

	for (int i = 0; i < s->column; i++) {
		if (!next)
			return false;
		p = next;
		stop = cell_end(p, end, &next);
	}
	return number_at(p, stop, tokens);
}

/* ---- JSON lines ---- */

static const char *string_end(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		p += *p == '\\' && p + 1 < end;
	return p < end ? p + 1 : end;
}

/* Elements of the list at p. */
static uint64_t count_elements(const char *p, const char *end)
{
	uint64_t n = 0;
	int depth = 0;
	bool any = false;

	for (; p < end; p++) {
		if (*p == '"') {
			any = true;
			p = string_end(p, end) - 1;
		} else if (*p == '[' || *p == '{') {
			any |= depth > 0;
			depth++;
		} else if ((*p == ']' || *p == '}') && --depth == 0) {
			return n + any;
		} else if (*p == ',' && depth == 1) {
			n++;
		} else if (*p != ' ' && *p != ',') {
			any = true;
		}
	}
	return 0;
}

/* The value of a key of the outermost object. */
static const char *value_of(const char *line, const char *end, const char *name)
{
	const size_t n = strlen(name);
	int depth = 0;

	for (const char *p = line; p < end; p++) {
		if (*p == '{' || *p == '[') {
			depth++;
		} else if (*p == '}' || *p == ']') {
			depth--;
		} else if (*p == '"') {
			const char *key = p + 1, *stop = string_end(p, end), *v = stop;

			p = stop - 1;
			while (v < end && *v == ' ')
				v++;
			if (depth != 1 || v == end || *v != ':' || (size_t)(stop - key) != n + 1 ||
			    memcmp(key, name, n))
				continue;
			for (v++; v < end && *v == ' ';)
				v++;
			return v < end ? v : NULL;
		}
	}
	return NULL;
}

static bool json_length(const struct shape *s, const char *line, const char *end, uint64_t *tokens)
{
	const char *v = NULL;

	for (size_t i = 0; !v && (s->field ? i == 0 : names[i] != NULL); i++)
		v = value_of(line, end, s->field ? s->field : names[i]);
	if (!v)
		return false;
	if (*v != '[')
		return number_at(v, end, tokens);
	*tokens = count_elements(v, end);
	return *tokens <= OOM_LENGTH_MOST;
}

/* ---- lines ---- */

/* Digits alone on a line, the common case, without strtod. */
static bool plain(const char *line, const char *end, uint64_t *tokens)
{
	uint64_t v = 0;
	const char *p = line;

	for (; p < end && *p >= '0' && *p <= '9' && p - line < 10; p++)
		v = v * 10 + (uint64_t)(*p - '0');
	*tokens = v;
	return p > line && p - line < 10 && v <= OOM_LENGTH_MOST &&
	       (p == end || (*p == '\r' && p + 1 == end));
}

static enum oom_status one_line(struct oom_length_counter *c, struct shape *s, const char *line,
				const char *end, const char *file, struct oom_error *err)
{
	uint64_t tokens;
	bool is;

	if (s->column < 0 && !s->field && plain(line, end, &tokens)) {
		s->decided = true;
	} else {
		if (!s->decided) {
			const enum oom_status st = read_header(s, line, end, file, &is, err);

			if (st || is)
				return st;
		}
		if (line == end || (end - line == 1 && *line == '\r'))
			return OOM_OK;
		if (*line == '{'   ? !json_length(s, line, end, &tokens) :
		    s->column >= 0 ? !csv_length(s, line, end, &tokens) :
				     !number_at(line, end, &tokens)) {
			c->skipped++;
			return OOM_OK;
		}
	}
	return oom_length_count(c, tokens, 1) ? OOM_OK :
	       oom_error_set(err, OOM_ERR_LIMIT, "%s: too many different lengths above 2^20", file);
}

enum oom_status oom_lengths_stream(struct oom_length_counter *c, FILE *f, const char *file,
				   const char *field, struct oom_error *err)
{
	struct shape s = {.field = field, .column = -1};
	char *buf = malloc(BLOCK);
	enum oom_status st = OOM_OK;
	bool too_long = false, eof = false;
	size_t n = 0;

	if (!buf)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	while (!st && !eof) {
		const size_t got = fread(buf + n, 1, BLOCK - n, f);
		const char *p = buf, *stop, *end;

		n += got;
		eof = got == 0;
		end = buf + n;
		while (!st && p < end && (stop = memchr(p, '\n', (size_t)(end - p))) != NULL) {
			if (!too_long)
				st = one_line(c, &s, p, stop, file, err);
			too_long = false;
			p = stop + 1;
		}
		if (!st && eof && p < end && !too_long)
			st = one_line(c, &s, p, end, file, err);
		if (p == buf && n == BLOCK) {   /* no end of the line in all of it */
			c->skipped += !too_long;
			too_long = true;
			p = end;
		}
		n = (size_t)(end - p);
		memmove(buf, p, n);
	}
	if (!st && ferror(f))
		st = oom_error_set(err, OOM_ERR_IO, "%s: %s", file, strerror(errno));
	free(buf);
	return st;
}
