/* Any bytes as a shell script, a Python script, a notebook or a list of pairs: a tree within its
 * bounds, or a reason.  The first byte says which. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "frameworks/arguments.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(const struct doc_node *node, int depth)
{
	size_t n = 1;

	if (depth > DOC_MAX_DEPTH + 8 || !node->text)
		abort();
	for (const struct doc_node *c = node->child; c; c = c->next)
		n += count(c, depth + 1);
	return n;
}

/* Any text as a module of configs, too, where it looks like one. */
static enum oom_status read_python(struct doc *doc, const char *text, size_t size, const char *file, struct oom_error *err)
{
	return (python_is_registry(text) ? doc_read_registry : doc_read_python)(doc, text, size, file, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum oom_status (*const doors[])(struct doc *, const char *, size_t, const char *,
					 struct oom_error *) = {doc_read_shell, read_python,
								doc_read_pairs, doc_read_notebook};
	struct oom_error err = {{0}};
	struct doc doc = {.root = NULL};
	char *text;

	if (!size)
		return 0;
	text = malloc(size);            /* a byte too far is seen; doors are given a zero behind it */
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	if (doors[data[0] % 4](&doc, text, size - 1, "fuzz", &err)) {
		if (!err.text[0])
			abort();
	} else {
		if (count(doc.root, 0) > DOC_MAX_NODES)
			abort();
		doc_release(&doc);
	}
	free(text);
	return 0;
}
