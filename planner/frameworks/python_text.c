/* The text of a Python script: blanks, comments, strings, the end of an argument. */
#include <stdlib.h>
#include <string.h>

#include "python_parts.h"

/* Blanks, comments, continued lines; newlines only where they mean nothing. */
void python_skip(struct python *y, bool lines)
{
	while (y->p < y->end) {
		if (*y->p == '#') {
			while (y->p < y->end && *y->p != '\n')
				y->p++;
		} else if (*y->p == '\\' && y->p + 1 < y->end && y->p[1] == '\n') {
			y->p += 2;
			y->line++;
		} else if (*y->p == '\n' && lines) {
			y->p++;
			y->line++;
		} else if (*y->p != '\n' && isspace((unsigned char)*y->p)) {
			y->p++;
		} else {
			return;
		}
	}
}

/* A string's prefix, its quotes behind it: the length of the prefix, -1: no string. */
int python_string_prefix(const struct python *y)
{
	int n = 0;

	while (n < 2 && y->p + n < y->end && y->p[n] && strchr("rbfuRBFU", y->p[n]))
		n++;
	return y->p + n < y->end && (y->p[n] == '"' || y->p[n] == '\'') ? n : -1;
}

/* The string at p into out (NULL: passed over); *whole: no "{name}" in it is to be filled in. */
const char *python_string(struct python *y, int prefix, bool *whole)
{
	const bool raw = prefix && strpbrk((char[3]){y->p[0], prefix > 1 ? y->p[1] : 0, 0}, "rR");
	const bool f = prefix && strpbrk((char[3]){y->p[0], prefix > 1 ? y->p[1] : 0, 0}, "fF");
	const char quote = y->p[prefix], *from;
	const bool triple = y->end - y->p > prefix + 2 && y->p[prefix + 1] == quote &&
			    y->p[prefix + 2] == quote;
	char *text;
	size_t n = 0;

	y->p += prefix + (triple ? 3 : 1);
	from = y->p;
	while (y->p < y->end) {
		if (*y->p == '\\' && y->p + 1 < y->end)
			y->p++;
		else if (*y->p == quote && (!triple || (y->end - y->p > 2 && y->p[1] == quote &&
							y->p[2] == quote)))
			break;
		else if (*y->p == '\n' && !triple)
			break;
		y->line += *y->p == '\n';
		y->p++;
	}
	text = doc_alloc(&y->scratch, (size_t)(y->p - from) + 1);
	y->full |= !text;
	for (const char *p = from; text && p < y->p; p++) {
		if (*p == '\\' && !raw && p + 1 < y->p && p[1] != 'n')
			p++;
		text[n++] = *p;
	}
	if (f && text && strchr(text, '{'))
		*whole = false;
	y->p += y->p < y->end && *y->p == quote ? (triple ? 3 : 1) : 0;
	return text ? text : "";
}

struct doc_node *python_scratch(struct python *y, struct doc_node *parent, const char *key,
				const char *text, bool unknown)
{
	struct doc_node *node = doc_add_text(&y->scratch, parent ? parent : y->scratch.root, key,
					     text, y->line, 0);

	y->full |= !node;
	if (node && unknown)
		node->tag = ARGS_UNKNOWN;
	return node;
}

/* To the ',' or bracket that ends an argument. */
void python_skip_rest(struct python *y)
{
	int depth = 0;

	while (y->p < y->end) {
		const int prefix = python_string_prefix(y);
		bool whole;

		if (prefix >= 0) {
			python_string(y, prefix, &whole);
			continue;
		}
		if (*y->p == '#') {
			python_skip(y, true);
			continue;
		}
		if (strchr("([{", *y->p) && *y->p)
			depth++;
		else if (strchr(")]}", *y->p) && *y->p && depth-- == 0)
			return;
		else if ((*y->p == ',' || *y->p == ':') && !depth)
			return;
		y->line += *y->p == '\n';
		y->p++;
	}
}
