/* Lines of a user's file: where a value stands in one, which one that is, and below which another may stand. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emit/patch.h"
#include "frameworks/arguments.h"
#include "frameworks/parts.h"
#include "input/config_json.h"

const char *patch_line(const char *text, uint32_t line, size_t *n)
{
	while (text && --line) {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	*n = text ? strcspn(text, "\n") : 0;
	return text;
}

bool patch_is_text(const char *word)
{
	char *end;

	(void)strtod(word, &end);
	return *end && strcmp(word, "true") && strcmp(word, "false") && strcmp(word, "True") &&
	       strcmp(word, "False") && strcmp(word, "null");
}

bool patch_locate(const char *line, size_t n, const struct patch_change *c, size_t *from, size_t *to)
{
	const size_t key = strlen(c->key), was = strlen(c->was);

	for (size_t i = 0; i + key < n; i++) {
		size_t at = i + key;

		if (strncmp(line + i, c->key, key) ||
		    (i && (isalnum((unsigned char)line[i - 1]) || line[i - 1] == '_')))
			continue;
		/* "key": value, key = value, key: value, --key value, --key=value */
		at += at < n && line[at] == '"';
		while (at < n && (line[at] == ' ' || line[at] == '\t'))
			at++;
		at += at < n && (line[at] == ':' || line[at] == '=');
		while (at < n && (line[at] == ' ' || line[at] == '\t'))
			at++;
		*from = *to = at;
		/* "key:" with nothing behind it */
		if (!was && (at == n || line[at] == '#') && line[i + key] == ':')
			return true;
		at += at < n && (line[at] == '"' || line[at] == '\'');
		if (!was || at + was > n || strncmp(line + at, c->was, was))
			continue;
		*to = at + was;
		if (at > *from && *to < n && line[*to] == line[*from])
			(*to)++;
		return *to == n || !isalnum((unsigned char)line[*to]);
	}
	return false;
}

/* "${a.b}", "$NAME", "${NAME:-8}" behind the key: the name, its last level; false: no reference stands there. */
static bool refers(const char *line, size_t n, const char *key, char *name, size_t size)
{
	const size_t key_n = strlen(key);
	size_t at = 0, len = 0;

	while (at + key_n < n && strncmp(line + at, key, key_n))
		at++;
	at += key_n;
	while (at < n && strchr(" \t\"':=", line[at]))
		at++;
	if (at >= n || line[at] != '$')
		return false;
	at++;
	at += at < n && line[at] == '{';
	for (; at < n && (isalnum((unsigned char)line[at]) || line[at] == '_' || line[at] == '.'); at++) {
		if (line[at] == '.')
			len = 0;
		else if (len + 1 < size)
			name[len++] = line[at];
	}
	name[len] = 0;
	return len > 0;
}

/* The line where the value itself stands: the key's, or the one that sets what it refers to.  name: of that key. */
static bool stands_at(const char *text, size_t size, struct patch_change *c, char *name, size_t name_size)
{
	const char *end = text + size;
	uint32_t line = 1;
	size_t from, to;
	char wanted[80] = "";

	for (const char *p = text; p < end; line++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		const size_t n = (size_t)((eol ? eol : end) - p);

		if (line == c->line && patch_locate(p, n, c, &from, &to))
			return true;
		if (line == c->line && !refers(p, n, c->key, wanted, sizeof(wanted)))
			return false;
		p += n + (eol != NULL);
	}
	if (!*wanted || strlen(wanted) >= name_size)
		return false;
	strcpy(name, wanted);
	c->key = name;
	line = 1;
	for (const char *p = text; p < end; line++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		const size_t n = (size_t)((eol ? eol : end) - p);

		c->line = line;
		if (patch_locate(p, n, c, &from, &to))
			return true;
		p += n + (eol != NULL);
	}
	return false;
}

/* The change can be made on a line of its file as that is; a command line has none. */
bool patch_finds(struct patch_change *c)
{
	struct oom_error err;
	char *text = NULL;
	size_t size;
	bool found;

	if (access(c->file, F_OK))
		return true;
	if (oom_read_text(&text, &size, c->file, DOC_MAX_BYTES, &err))
		return false;
	found = stands_at(text, size, c, c->name, sizeof(c->name));
	free(text);
	return found;
}

/* Below a line of a command that goes on with an option, and does not end between one and its value, or within its list. */
bool patch_goes_on(const char *line, size_t n)
{
	const char *next = line + n + (line[n] == '\n');
	size_t word;

	next += strspn(next, " \t");
	while (n && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r'))
		n--;
	if (!n || line[n - 1] != '\\' || *next != '-')
		return false;
	for (n--; n && (line[n - 1] == ' ' || line[n - 1] == '\t'); n--)
		;
	for (word = n; word && line[word - 1] != ' ' && line[word - 1] != '\t'; word--)
		;
	return n > word && line[word] != '-';
}

/* A YAML entry that stands whole on one line at the outermost level, and is no list's. */
bool patch_whole_entry(const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	size_t at;

	if (!n || line[0] == ' ' || line[0] == '-' || line[0] == '#' || !colon || colon + 1 == line + n || colon[1] != ' ')
		return false;
	for (at = (size_t)(colon - line) + 1; at < n && line[at] == ' '; at++)
		;
	return at < n && !strchr("|>&{[\"'#", line[at]);
}
