/* Sweeps as text, and the files they read.  Included after cmocka.h. */
#ifndef OOM_TESTS_WRITTEN_SWEEP_H
#define OOM_TESTS_WRITTEN_SWEEP_H

#include <stdio.h>

#include "oomplan/sweep.h"

static struct oom_sweep *grid(const char *const *axes)
{
	const struct oom_plan base = oom_plan_default();
	struct oom_sweep *s = oom_sweep_new(&base);
	struct oom_error err = {{0}};

	for (size_t i = 0; axes[i]; i++)
		if (oom_sweep_axis(s, axes[i], &err))
			fail_msg("%s", err.text);
	return s;
}

static char *written(struct oom_sweep *s, struct oom_sweep_options o, size_t *size)
{
	struct oom_error err = {{0}};
	uint64_t rows;
	char *text = NULL;
	FILE *f = open_memstream(&text, size);

	assert_int_equal(oom_sweep_run(s, &o, f, &rows, &err), OOM_OK);
	fclose(f);
	return text;
}

#endif
