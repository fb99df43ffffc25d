/* Jupyter notebooks: cells of code, one behind the other. */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"

/* A cell's lines behind text[used..); text NULL: only their size. */
static size_t put(char *text, size_t used, const char *line)
{
	const size_t n = strlen(line);

	if (text)
		memcpy(text + used, line, n);
	return used + n;
}

/* The source of all cells of code; returns its size. */
static size_t gather(const struct doc_node *cells, char *text)
{
	size_t used = 0;

	for (const struct doc_node *c = cells ? cells->child : NULL; c; c = c->next) {
		const struct doc_node *type = doc_member(c, "cell_type"),
				      *source = doc_member(c, "source");

		if (!type || !source || strcmp(type->text, "code"))
			continue;
		if (source->kind == DOC_SCALAR)
			used = put(text, used, source->text);
		for (const struct doc_node *line = source->child; line; line = line->next)
			used = put(text, used, line->text);
		used = put(text, used, "\n");
	}
	return used;
}

enum oom_status doc_read_notebook(struct doc *doc, const char *text, size_t size, const char *file,
				  struct oom_error *err)
{
	struct doc json = {.root = NULL};
	enum oom_status st = doc_read_json(&json, text, size, file, err);
	const struct doc_node *cells = st ? NULL : doc_find(&json, "cells");
	const size_t n = gather(cells, NULL);
	char *code = malloc(n + 1);

	if (!st && !code)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!st) {
		gather(cells, code);
		code[n] = 0;
		st = doc_read_python(doc, code, n, file, err);
	}
	free(code);
	doc_release(&json);
	return st;
}
