/* What fuzz targets of doors share: the tree's invariants, then a whole reading of the same bytes. */
#ifndef OOM_FUZZ_DOORS_H
#define OOM_FUZZ_DOORS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frameworks/doc.h"
#include "oomplan/reading.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline uint32_t check(const struct doc_node *node, int depth)
{
	uint32_t n = 1, children = 0;

	if (depth > DOC_MAX_DEPTH || !node->text || ((node->kind == DOC_SCALAR || node->kind == DOC_NULL) && node->child))
		abort();
	for (const struct doc_node *c = node->child; c; c = c->next, children++) {
		if (node->kind == DOC_MAP && !c->key)
			abort();
		n += check(c, depth + 1);
	}
	if (children != node->n)
		abort();
	return n;
}

/* The same bytes as a file, under every framework's rows. */
static inline void read_as_file(const uint8_t *data, size_t size)
{
	char path[] = "/tmp/fuzz_doors_XXXXXX";
	const int fd = mkstemp(path);
	const char *files[] = {path}, *name;

	if (fd < 0)
		return;
	if (write(fd, data, size) == (ssize_t)size)
		for (size_t i = 0; (name = oom_framework_name(i, NULL)) != NULL; i++) {
			struct oom_plan plan = oom_plan_default();
			struct oom_error err = {{0}};
			struct oom_reading *r;

			if (oom_reading_new(&r, files, 1, i % 2 ? name : NULL, &err)) {
				if (!err.text[0])
					abort();
				continue;
			}
			oom_reading_apply(r, &plan, NULL, NULL);
			oom_reading_free(r);
		}
	close(fd);
	unlink(path);
}

static inline int through(enum oom_status (*door)(struct doc *, const char *, size_t, const char *,
						  struct oom_error *),
			  const uint8_t *data, size_t size)
{
	struct oom_error err = {{0}};
	struct doc doc = {0};

	if (door(&doc, (const char *)data, size, "fuzz", &err)) {
		if (!err.text[0] || doc.chunks)
			abort();
	} else {
		if (doc.root && check(doc.root, 0) > DOC_MAX_NODES)
			abort();
		doc_release(&doc);
	}
	if (size < 4096)
		read_as_file(data, size);
	return 0;
}

#endif
