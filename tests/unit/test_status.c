/* Every status has words of its own; an error text is cut, never overrun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/status.h"

static void every_status_has_words(void **state)
{
	(void)state;
	for (int s = OOM_ERR_LIMIT; s <= OOM_OK; s++)
		for (int o = OOM_ERR_LIMIT; o < s; o++)
			assert_string_not_equal(oom_status_str((enum oom_status)s),
						oom_status_str((enum oom_status)o));
	assert_string_equal(oom_status_str((enum oom_status)-99), "unknown status");
}

static void error_text_is_cut(void **state)
{
	struct oom_error err = {{0}};
	char big[2000];

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	assert_int_equal(oom_error_set(&err, OOM_ERR_IO, "%s", big), OOM_ERR_IO);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_int_equal(oom_error_set(NULL, OOM_ERR_PARSE, "nobody listens"), OOM_ERR_PARSE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_status_has_words),
		cmocka_unit_test(error_text_is_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
