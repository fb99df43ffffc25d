/* A launch of Megatron as words of its arguments: what tests of its engine begin with.  Included after cmocka.h. */
#ifndef OOM_TESTS_LAUNCH_H
#define OOM_TESTS_LAUNCH_H

#include "oomplan/megatron.h"

static struct oom_megatron launch(const char *const *words)
{
	struct oom_megatron m = oom_megatron_default();
	struct oom_error err = {{0}};

	for (size_t i = 0; words[i]; i += 2)
		assert_int_equal(oom_megatron_set(&m, oom_mg_arg_find(words[i]), words[i + 1],
						  &err),
				 OOM_OK);
	return m;
}

static inline double rows_of(const struct oom_mg_rank *r, enum oom_mg_row_kind kind)
{
	double sum = 0;

	for (size_t i = 0; i < r->n_rows; i++)
		sum += r->row[i].kind == kind ? (double)r->row[i].bytes : 0;
	return sum;
}

#endif
