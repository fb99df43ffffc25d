/* Any bytes as TOML: a tree within its bounds, or file, line, column and a reason. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "frameworks/arguments.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct doc_node *node, int depth)
{
	if (depth > DOC_MAX_DEPTH || !node->text)
		abort();
	for (const struct doc_node *c = node->child; c; c = c->next)
		check(c, depth + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_error err = {{0}};
	struct doc doc = {.root = NULL};

	if (doc_read_toml(&doc, (const char *)data, size, "fuzz", &err)) {
		if (strncmp(err.text, "fuzz:", 5))
			abort();
	} else {
		check(doc.root, 0);
		doc_release(&doc);
	}
	return 0;
}
