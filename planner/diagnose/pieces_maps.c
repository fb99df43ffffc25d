/* Files of keys and values among what people paste: YAML's lines, JSON's braces, arguments one a line. */
#include <ctype.h>
#include <string.h>

#include "parts.h"
#include "pieces.h"

enum { FEWEST = 3 };

static const char *skip(const char *p, const char *to)
{
	while (p < to && (*p == ' ' || *p == '\t'))
		p++;
	return p;
}

/* Behind a name that keys have; NULL: none begins there. */
static const char *name_end(const char *p, const char *to)
{
	const char *const from = p;

	if (p == to || !(islower((unsigned char)*p) || *p == '_' || *p == '"' || *p == '\''))
		return NULL;
	while (p < to && (isalnum((unsigned char)*p) || strchr("_.-\"'", *p)))
		p++;
	return p - from > 1 ? p : NULL;
}

/* ---- YAML ---- */

static bool is_key(const struct oom_lines *l)
{
	const char *p = skip(l->from, l->to), *after;

	if (l->to - p > 2 && p[0] == '-' && p[1] == ' ')
		p += 2;
	after = name_end(p, l->to);
	return after && after < l->to && *after == ':' && (after + 1 == l->to || after[1] == ' ' || after[1] == '\r');
}

static bool is_rest(const struct oom_lines *l)
{
	const char *const p = skip(l->from, l->to);

	return p == l->to || *p == '#' || *p == '\r' || (l->to - p > 1 && p[0] == '-' && p[1] == ' ');
}

/* "torch.OutOfMemoryError: CUDA error: out of memory": a name of a class, and another colon where YAML allows none. */
static bool is_message(const struct oom_lines *l)
{
	const char *const colon = memchr(l->from, ':', (size_t)(l->to - l->from)), *hash = colon ? memchr(colon, '#', (size_t)(l->to - colon)) : NULL;
	const char *const value = colon ? skip(colon + 1, l->to) : NULL;

	for (const char *p = l->from; p < colon; p++)
		if (isupper((unsigned char)*p))
			return true;
	return value && value < l->to && !strchr("\"'[{", *value) && oom_text_find(value, hash ? hash : l->to, ": ");
}

/* A comma ends a line of JSON or of a call, not one of YAML. */
static bool is_of_yaml(const struct oom_lines *l)
{
	return is_key(l) && !is_message(l) && l->to > l->from && l->to[-1] != ',' && l->to[-1] != '{';
}

static void yaml(struct oom_cut *c)
{
	for (size_t i = 0; i < c->n; i++) {
		size_t last = i, keys = 0;

		if (!is_of_yaml(&c->line[i]))
			continue;
		for (size_t k = i; k < c->n && (is_of_yaml(&c->line[k]) || is_rest(&c->line[k])); k++)
			if (is_of_yaml(&c->line[k])) {
				keys++;
				last = k;
			} else if (skip(c->line[k].from, c->line[k].to) < c->line[k].to && *skip(c->line[k].from, c->line[k].to) == '-') {
				last = k;
			}
		if (keys >= FEWEST) {
			for (size_t k = i; k <= last; k++)
				oom_cut_put(c, c->line[k].from, c->line[k].to);
			oom_cut_hand(c, "run.yaml", i, last);
		}
		i = last;
	}
}

/* ---- JSON, and what Python prints of a dict ---- */

/* Behind the brace that closes the one at p; NULL: none does. */
static const char *closing(const char *p, const char *end)
{
	int depth = 0;
	char quote = 0;

	for (; p < end; p++) {
		if (quote) {
			p += *p == '\\';
			quote = p < end && *p == quote ? 0 : quote;
		} else if (*p == '"' || *p == '\'') {
			quote = *p;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if ((*p == '}' || *p == ']') && !--depth) {
			return p + 1;
		}
	}
	return NULL;
}

/* Python's words and quotes as JSON's. */
static const char *translated(struct oom_cut *c, const char *p, const char *end)
{
	static const struct {
		const char *python, *json;
	} words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};

	if (*p == '\'') {
		c->text[c->used++] = '"';
		return p + 1;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if ((size_t)(end - p) > strlen(words[i].python) && !memcmp(p, words[i].python, strlen(words[i].python)) && !isalnum((unsigned char)p[-1])) {
			memcpy(c->text + c->used, words[i].json, strlen(words[i].json));
			c->used += strlen(words[i].json);
			return p + strlen(words[i].python);
		}
	c->text[c->used++] = *p;
	return p + 1;
}

static size_t line_of(const struct oom_cut *c, const char *p, size_t from)
{
	while (from + 1 < c->n && c->line[from].to < p)
		from++;
	return from;
}

static void json(struct oom_cut *c)
{
	const char *const end = c->n ? c->line[c->n - 1].to : NULL;

	for (size_t i = 0; i < c->n; i++) {
		const char *const open = memchr(c->line[i].from, '{', (size_t)(c->line[i].to - c->line[i].from));
		const char *const begins = open ? skip(open + 1, c->line[i].to) : NULL;
		const char *const close = open && (begins == c->line[i].to || strchr("\"'\r", *begins)) ? closing(open, end) : NULL;

		if (!close || close - open + 1 > OOM_PIECE_MAX || (!oom_text_find(open, close, "\":") && !oom_text_find(open, close, "':")))
			continue;
		for (const char *p = open; p < close;)
			p = translated(c, p, close);
		oom_cut_hand(c, "run.json", i, line_of(c, close, i));
		i = line_of(c, close, i);
	}
}

/* ---- "name=value," one a line ---- */

static bool is_argument(const struct oom_lines *l, const char **name, const char **value)
{
	const char *p = skip(l->from, l->to), *after;

	*name = p;
	after = name_end(p, l->to);
	if (!after || *p == '"' || *p == '\'')
		return false;
	p = skip(after, l->to);
	if (p >= l->to || *p != '=' || (p + 1 < l->to && p[1] == '='))
		return false;
	*value = skip(p + 1, l->to);
	return *value < l->to && !strchr("({[", **value);
}

static void arguments(struct oom_cut *c)
{
	const char *name, *value;

	for (size_t i = 0; i < c->n; i++) {
		size_t last = i, keys = 0;

		while (last < c->n && is_argument(&c->line[last], &name, &value)) {
			const char *const hash = memchr(value, '#', (size_t)(c->line[last].to - value));
			const char *to = hash ? hash : c->line[last].to;
			char line[400];
			size_t n = 0;

			while (to > value && strchr(", \t\r", to[-1]))
				to--;
			for (const char *p = name; p < c->line[last].to && n < 100 && (isalnum((unsigned char)*p) || *p == '_'); p++)
				line[n++] = *p;
			line[n++] = ':';
			line[n++] = ' ';
			for (const char *p = value; p < to && n < sizeof(line); p++)
				line[n++] = *p;
			oom_cut_put(c, line, line + n);
			keys++;
			last++;
		}
		if (keys >= FEWEST)
			oom_cut_hand(c, "run.yaml", i, last - 1);
		c->used = 0;
		i = last > i ? last - 1 : i;
	}
}

void oom_cut_maps(struct oom_cut *c)
{
	yaml(c);
	json(c);
	arguments(c);
}
