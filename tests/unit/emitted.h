/* What tests of `--emit` look at. */
#ifndef OOM_TESTS_EMITTED_H
#define OOM_TESTS_EMITTED_H

#include <stdio.h>

#include "oomplan/emit.h"

/* What a format could not say, in one line. */
static inline void joined(const struct oom_emitted *e, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; i < e->n_unsaid && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? "; " : "", e->unsaid[i]);
}

#endif
