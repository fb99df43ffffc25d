/* Values that stand inside a text: [a, "b"], {"k": v}, 'text'. */
#include <ctype.h>
#include <string.h>

#include "arguments.h"

struct text {
	const char *p, *end;
	uint32_t line;
	bool full;
};

static void blanks(struct text *t)
{
	while (t->p < t->end && isspace((unsigned char)*t->p))
		t->p++;
}

/* The end of a string that begins at p with its quote, NULL: it has none. */
static const char *string_end(const char *p, const char *end)
{
	const char quote = *p;

	for (p++; p < end; p++) {
		if (*p == '\\' && p + 1 < end)
			p++;
		else if (*p == quote)
			return p;
	}
	return NULL;
}

/* Whether brackets and strings of the text close, and nothing follows the first that opened. */
static bool well_formed(const char *p, const char *end)
{
	char open[DOC_MAX_DEPTH / 2];
	size_t depth = 0;

	for (; p < end; p++) {
		if (*p == '"' || *p == '\'') {
			p = string_end(p, end);
			if (!p)
				return false;
		} else if (*p == '[' || *p == '{' || *p == '(') {
			if (depth == sizeof(open))
				return false;
			open[depth++] = *p == '[' ? ']' : *p == '{' ? '}' : ')';
		} else if (*p == ']' || *p == '}' || *p == ')') {
			if (!depth || open[--depth] != *p)
				return false;
			if (!depth && p + 1 < end)
				return false;
		}
	}
	return !depth;
}

static struct doc_node *value(struct doc *doc, struct text *t, struct doc_node *parent,
			      const char *key, const char *stops);

/* A string's text, escapes taken off; or a bare word up to a stop. */
static const char *scalar(struct doc *doc, struct text *t, const char *stops, bool *quoted)
{
	const char *from = t->p, *to;
	char *text;
	size_t n = 0;

	*quoted = t->p < t->end && (*t->p == '"' || *t->p == '\'');
	if (*quoted && (to = string_end(t->p, t->end)) != NULL) {
		text = doc_alloc(doc, (size_t)(to - from));
		for (const char *p = from + 1; text && p < to; p++)
			text[n++] = *p == '\\' && p + 1 < to ? *++p : *p;
		t->p = to + 1;
	} else {
		while (t->p < t->end && !strchr(stops, *t->p))
			t->p++;
		to = t->p;
		while (to > from && isspace((unsigned char)to[-1]))
			to--;
		text = doc_alloc(doc, (size_t)(to - from) + 1);
		if (text)
			memcpy(text, from, (size_t)(to - from));
	}
	t->full |= !text;
	return text ? text : "";
}

static struct doc_node *members(struct doc *doc, struct text *t, struct doc_node *parent,
				const char *key)
{
	const char close = *t->p == '{' ? '}' : *t->p == '[' ? ']' : ')';
	struct doc_node *node =
		doc_add(doc, parent, key, close == '}' ? DOC_MAP : DOC_LIST, t->line, 0);

	t->p++;
	for (;;) {
		const char *name = NULL;
		bool quoted;

		blanks(t);
		if (!node || t->full || t->p >= t->end || *t->p == close)
			break;
		if (close == '}') {
			name = scalar(doc, t, ":,}", &quoted);
			blanks(t);
			if (t->p < t->end && *t->p == ':')
				t->p++;
			blanks(t);
		}
		if (!value(doc, t, node, name, close == '}' ? ",}" : close == ']' ? ",]" : ",)"))
			return NULL;
		/* what stands behind a value and is no comma is passed over */
		while (t->p < t->end && *t->p != ',' && *t->p != close)
			t->p++;
		t->p += t->p < t->end && *t->p == ',';
	}
	t->p += t->p < t->end;
	return t->full ? NULL : node;
}

static struct doc_node *value(struct doc *doc, struct text *t, struct doc_node *parent,
			      const char *key, const char *stops)
{
	struct doc_node *node;
	const char *text;
	bool quoted;

	blanks(t);
	if (t->p < t->end && (*t->p == '[' || *t->p == '{' || *t->p == '('))
		return members(doc, t, parent, key);
	text = scalar(doc, t, stops, &quoted);
	node = t->full ? NULL : doc_add_text(doc, parent, key, text, t->line, 0);
	if (node)
		node->quoted = quoted;
	return node;
}

struct doc_node *doc_add_value(struct doc *doc, struct doc_node *parent, const char *key,
			       const char *text, uint32_t line)
{
	const size_t n = strlen(text);
	struct text t = {text, text + n, line, false};
	const char first = *text;
	struct doc_node *node;

	if ((first == '[' || first == '{' || first == '(') && well_formed(text, text + n))
		return value(doc, &t, parent, key, "");
	if ((first == '"' || first == '\'') && n > 1 && string_end(text, t.end) == t.end - 1) {
		node = value(doc, &t, parent, key, "");
		return node;
	}
	return doc_add_text(doc, parent, key, text, line, 0);
}

struct doc_node *doc_add_copy(struct doc *doc, struct doc_node *parent, const char *key,
			      const struct doc_node *from)
{
	struct doc_node *node = doc_add(doc, parent, key, from->kind, from->line, from->column);

	if (!node)
		return NULL;
	node->quoted = from->quoted;
	node->text = doc_text(doc, from->text, strlen(from->text));
	node->tag = from->tag ? doc_text(doc, from->tag, strlen(from->tag)) : NULL;
	for (const struct doc_node *c = from->child; c; c = c->next)
		if (!doc_add_copy(doc, node, c->key, c))
			return NULL;
	return node->text ? node : NULL;
}
