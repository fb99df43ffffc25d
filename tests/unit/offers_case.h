/* What tests of offers and boxes share: a list from text, and a plan from words. */
#ifndef TESTS_OFFERS_CASE_H
#define TESTS_OFFERS_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "boxes/offers_parts.h"
#include "oomplan/box.h"

/* Reads a list of this name (its ending says the form), which must give `want`. */
static inline void read_text(struct oom_offers *o, const char *name, const char *text,
			     enum oom_status want, struct oom_error *err)
{
	char dir[] = "/tmp/box-XXXXXX", path[64];
	FILE *f;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	assert_int_equal(oom_offers_read(o, path, err), want);
	unlink(path);
	rmdir(dir);
}

/* Pairs of a knob and its value, up to NULL. */
static inline struct oom_plan knobs(const char *const *words)
{
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};

	for (size_t i = 0; words[i]; i += 2)
		assert_int_equal(oom_plan_set(&p, oom_knob_find(words[i]), words[i + 1], &err),
				 OOM_OK);
	return p;
}

#endif
