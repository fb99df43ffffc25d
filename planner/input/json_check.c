/* A strict JSON checker without recursion: what it believes is RFC 8259, and Python's three extra
 * numbers.
 *
 * It builds nothing.  Positions are kept only as a byte offset; line and column are counted when a
 * mistake has to be reported, except that each value's line is recorded on the way. */
#include "json_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct scan {
	char *text;
	size_t size, at;
	uint32_t line;
	const char *name;
	struct json_marks *marks;
	struct oom_error *err;
	size_t depth;
	unsigned char is_object[JSON_MAX_DEPTH]; /* what the open containers are */
};

size_t oom_utf8_length(const unsigned char *s, size_t n)
{
	/* RFC 3629, section 4: the ranges of the second byte exclude overlong forms, surrogates and
	 * > U+10FFFF */
	size_t len;
	unsigned char lo = 0x80, hi = 0xbf;

	if (n == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf) {
		len = 2;
	} else if (s[0] >= 0xe0 && s[0] <= 0xef) {
		len = 3;
		if (s[0] == 0xe0)
			lo = 0xa0;
		if (s[0] == 0xed)
			hi = 0x9f;
	} else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
		len = 4;
		if (s[0] == 0xf0)
			lo = 0x90;
		if (s[0] == 0xf4)
			hi = 0x8f;
	} else {
		return 0;
	}
	if (n < len || s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

/* "name:line:column: what", the column counted in characters as editors do. */
static enum oom_status fail(const struct scan *s, size_t at, const char *what)
{
	size_t line = 1, column = 1;

	for (size_t i = 0; i < at && i < s->size; i++) {
		if (s->text[i] == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)s->text[i] & 0xc0) != 0x80) {
			column++;
		}
	}
	return oom_error_set(s->err, OOM_ERR_PARSE, "%s:%zu:%zu: %s", s->name, line, column, what);
}

static void skip_blanks(struct scan *s)
{
	for (; s->at < s->size; s->at++) {
		const char c = s->text[s->at];

		if (c == '\n')
			s->line++;
		else if (c != ' ' && c != '\t' && c != '\r')
			return;
	}
}

static bool is_digit(const struct scan *s)
{
	return s->at < s->size && s->text[s->at] >= '0' && s->text[s->at] <= '9';
}

/* The four hex digits after \u, or -1. */
static long hex4(const struct scan *s, size_t at)
{
	long v = 0;

	if (s->size - at < 4)
		return -1;
	for (size_t i = at; i < at + 4; i++) {
		const char c = s->text[i];

		if (c >= '0' && c <= '9')
			v = v * 16 + (c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v * 16 + ((c | 32) - 'a' + 10);
		else
			return -1;
	}
	return v;
}

/* s->at stands on the backslash; moves past the escape. */
static enum oom_status check_escape(struct scan *s)
{
	const size_t start = s->at;
	long code;

	if (s->at + 1 >= s->size)
		return fail(s, start, "a string has no closing quote");
	if (strchr("\"\\/bfnrt", s->text[s->at + 1])) {
		if (!s->text[s->at + 1]) /* strchr also finds the terminator */
			return fail(s, start, "unknown escape in a string");
		s->at += 2;
		return OOM_OK;
	}
	if (s->text[s->at + 1] != 'u')
		return fail(s, start, "unknown escape in a string");
	code = hex4(s, s->at + 2);
	if (code <= 0)
		return fail(s, start,
			    code ? "\\u needs four hexadecimal digits" : "\\u0000 in a string");
	s->at += 6;
	if (code < 0xd800 || code > 0xdfff)
		return OOM_OK;
	if (code <= 0xdbff && s->size - s->at >= 6 && s->text[s->at] == '\\' &&
	    s->text[s->at + 1] == 'u') {
		code = hex4(s, s->at + 2);
		if (code >= 0xdc00 && code <= 0xdfff) {
			s->at += 6;
			return OOM_OK;
		}
	}
	return fail(s, start, "half of a \\u surrogate pair");
}

static enum oom_status check_string(struct scan *s)
{
	const size_t start = s->at++;

	while (s->at < s->size) {
		const unsigned char c = (unsigned char)s->text[s->at];
		size_t len;

		if (c == '"') {
			s->at++;
			return OOM_OK;
		}
		if (c == '\\') {
			const enum oom_status status = check_escape(s);

			if (status)
				return status;
			continue;
		}
		if (c < 0x20)
			return fail(s, s->at, "a line break or control character within a string");
		len = oom_utf8_length((const unsigned char *)s->text + s->at, s->size - s->at);
		if (len == 0)
			return fail(s, s->at, "bytes that are not UTF-8");
		s->at += len;
	}
	return fail(s, start, "a string has no closing quote");
}

static enum oom_status check_number(struct scan *s)
{
	const size_t start = s->at;

	if (s->text[s->at] == '-')
		s->at++;
	if (!is_digit(s))
		return fail(s, start, "a value was expected here");
	if (s->text[s->at] == '0')
		s->at++;
	else
		while (is_digit(s))
			s->at++;
	if (is_digit(s))
		return fail(s, start, "a number with a leading zero");
	if (s->at < s->size && s->text[s->at] == '.') {
		s->at++;
		if (!is_digit(s))
			return fail(s, start, "a number ends in its point");
		while (is_digit(s))
			s->at++;
	}
	if (s->at < s->size && (s->text[s->at] | 32) == 'e') {
		s->at++;
		if (s->at < s->size && (s->text[s->at] == '+' || s->text[s->at] == '-'))
			s->at++;
		if (!is_digit(s))
			return fail(s, start, "a number ends in its exponent");
		while (is_digit(s))
			s->at++;
	}
	/* the JSON library reads numbers through a buffer of 64 */
	if (s->at - start > 62)
		return fail(s, start, "a number of more than 62 characters");
	return OOM_OK;
}

static bool take_word(struct scan *s, const char *word, const char *instead)
{
	const size_t len = strlen(word);

	if (s->size - s->at < len || memcmp(s->text + s->at, word, len) != 0)
		return false;
	memcpy(s->text + s->at, instead, len);
	s->at += len;
	return true;
}

static enum oom_status mark(struct scan *s, uint32_t line, bool is_nan)
{
	struct json_marks *m = s->marks;

	if (m->n >= JSON_MAX_VALUES) {
		char text[80];

		snprintf(text, sizeof(text), "more than %d values: too large for a config.json",
			 JSON_MAX_VALUES);
		return fail(s, s->at, text);
	}
	if (m->n == m->capacity) {
		const size_t capacity = m->capacity ? 2 * m->capacity : 256;
		struct json_mark *grown = realloc(m->items, capacity * sizeof(*grown));

		if (!grown)
			return oom_error_set(s->err, OOM_ERR_MEMORY, "%s: out of memory", s->name);
		m->items = grown;
		m->capacity = capacity;
	}
	m->items[m->n].line = line;
	m->items[m->n++].is_nan = is_nan;
	return OOM_OK;
}

/* One value; of a container only the opening bracket, which is then pushed. */
static enum oom_status check_value(struct scan *s, uint32_t line)
{
	const char c = s->at < s->size ? s->text[s->at] : 0;
	enum oom_status status;
	bool is_nan;

	if (s->at >= s->size)
		return fail(s, s->at,
			    s->depth ? "the text ends in the middle" : "the text is empty");
	if (c == '{' || c == '[') {
		if (s->depth == JSON_MAX_DEPTH)
			return fail(s, s->at, "nested more than 1000 deep");
		status = mark(s, line, false);
		s->is_object[s->depth++] = c == '{';
		s->at++;
		return status;
	}
	is_nan = c == 'N' && take_word(s, "NaN", "0.0");
	status = mark(s, line, is_nan);
	if (status || is_nan)
		return status;
	if (c == '"')
		return check_string(s);
	if (take_word(s, "true", "true") || take_word(s, "false", "false") ||
	    take_word(s, "null", "null") || take_word(s, "Infinity", "1e999   ") ||
	    take_word(s, "-Infinity", "-1e999   "))
		return OOM_OK;
	return check_number(s);
}

/* A key and its colon, then the value. */
static enum oom_status check_member(struct scan *s)
{
	const uint32_t line = s->line;
	enum oom_status status;

	if (s->at >= s->size)
		return fail(s, s->at, "the text ends in the middle");
	if (s->text[s->at] != '"')
		return fail(s, s->at, "a key in double quotes was expected here");
	status = check_string(s);
	if (status)
		return status;
	skip_blanks(s);
	if (s->at >= s->size || s->text[s->at] != ':')
		return fail(s, s->at, "':' was expected here");
	s->at++;
	skip_blanks(s);
	return check_value(s, line);
}

/* What lies where JSON was expected after a download that went wrong, by how it begins. */
static const char *no_json(const struct scan *s)
{
	static const struct {
		const char *begin, *what;
	} kinds[] = {
		{"version https://git-lfs", "this is Git LFS's pointer to the file, not the file: git lfs pull fetches it"},
		{"<!doctype", "this is a web page, not JSON: the download gave something else"},
		{"<html", "this is a web page, not JSON: the download gave something else"},
		{"<?xml", "this is XML, not JSON"},
		{"//", "JSON has no comments"},
		{"/*", "JSON has no comments"},
		{"#", "JSON has no comments"},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (s->size - s->at >= strlen(kinds[i].begin) &&
		    !strncasecmp(s->text + s->at, kinds[i].begin, strlen(kinds[i].begin)))
			return kinds[i].what;
	return NULL;
}

static enum oom_status check_text(struct scan *s)
{
	enum oom_status status;
	bool fresh; /* just opened: neither a comma nor a first element seen */

	if (s->size >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0)
		s->at = 3; /* a byte order mark, which editors on Windows leave */
	/* JSON begins with an ASCII character: a zero beside it is UTF-16 or UTF-32 (RFC 4627, 3) */
	if (s->size >= 2 && (!s->text[0] || !s->text[1] || !memcmp(s->text, "\xff\xfe", 2) ||
			     !memcmp(s->text, "\xfe\xff", 2)))
		return fail(s, 0, "the file is in UTF-16: save it as UTF-8");
	skip_blanks(s);
	if (no_json(s))
		return fail(s, s->at, no_json(s));
	status = check_value(s, s->line);
	fresh = true;
	while (!status && s->depth) {
		const unsigned char object = s->is_object[s->depth - 1];
		const size_t before = s->depth;

		skip_blanks(s);
		if (s->at >= s->size)
			return fail(s, s->at, "the text ends in the middle");
		if (s->text[s->at] == (object ? '}' : ']')) {
			s->at++;
			s->depth--;
			fresh = false;
			continue;
		}
		if (!fresh) {
			if (s->text[s->at] != ',')
				return fail(s, s->at,
					    object ? "',' or '}' was expected here"
						   : "',' or ']' was expected here");
			s->at++;
			skip_blanks(s);
		}
		status = object ? check_member(s) : check_value(s, s->line);
		fresh = s->depth > before;
	}
	if (status)
		return status;
	skip_blanks(s);
	return s->at < s->size ? fail(s, s->at, "more text after the end of the JSON value")
			       : OOM_OK;
}

enum oom_status oom_json_check(char *text, size_t size, const char *name, struct json_marks *marks,
			       struct oom_error *err)
{
	struct json_marks found = {0};
	struct scan s = {
		.text = text, .size = size, .line = 1, .name = name, .marks = &found, .err = err};
	const enum oom_status status = check_text(&s);

	if (status)
		free(found.items);
	else
		*marks = found;
	return status;
}
