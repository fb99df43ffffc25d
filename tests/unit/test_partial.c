/* Tables that are continued: what was noted stays, what was not is written again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "partial.h"

static char dir[] = "/tmp/oomplan-partial-XXXXXX", target[64];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(target, sizeof(target), "%s/t.csv", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(target);
	return rmdir(dir);
}

static void expect_file(const char *path, const char *text)
{
	char buf[200] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = 0;
	fclose(f);
	assert_string_equal(buf, text);
}

static void test_continue(void **state)
{
	struct oom_partial p;
	struct oom_error err = {{0}};

	(void)state;
	/* nothing there: from the start */
	assert_int_equal(oom_partial_open(&p, target, 77, true, &err), OOM_OK);
	assert_int_equal(p.cells, 0);
	fputs("head\n", p.file);
	assert_int_equal(oom_partial_note(&p, 0, 0, &err), OOM_OK);
	oom_partial_leave(&p);
	/* no cell yet: from the start too */
	assert_int_equal(oom_partial_open(&p, target, 77, true, &err), OOM_OK);
	fputs("head\none\ntwo\n", p.file);
	assert_int_equal(oom_partial_note(&p, 20, 2, &err), OOM_OK);
	fputs("lost", p.file);
	oom_partial_leave(&p);
	assert_int_not_equal(access(target, F_OK), 0);  /* no half file under the name asked for */

	assert_int_equal(oom_partial_open(&p, target, 77, false, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "--resume"));
	assert_int_equal(oom_partial_open(&p, target, 78, true, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "another sweep"));

	assert_int_equal(oom_partial_open(&p, target, 77, true, &err), OOM_OK);
	assert_int_equal(p.cells, 20);
	assert_int_equal(p.rows, 2);
	fputs("three\n", p.file);
	assert_int_equal(oom_partial_finish(&p, &err), OOM_OK);
	expect_file(target, "head\none\ntwo\nthree\n");
	assert_int_not_equal(access(p.path, F_OK), 0);
	assert_int_not_equal(access(p.state, F_OK), 0);
}

static void test_bad(void **state)
{
	struct oom_partial p;
	struct oom_error err = {{0}};
	FILE *f;

	(void)state;
	assert_int_equal(oom_partial_open(&p, "/nowhere/at/all.csv", 1, true, &err), OOM_ERR_IO);
	assert_int_equal(oom_partial_open(&p, target, 1, true, &err), OOM_OK);
	fputs("row\n", p.file);
	assert_int_equal(oom_partial_note(&p, 1, 1, &err), OOM_OK);
	oom_partial_leave(&p);
	/* the machine went down before the rows reached the disk */
	assert_int_equal(truncate(p.path, 2), 0);
	assert_int_equal(oom_partial_open(&p, target, 1, true, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "shorter"));
	f = fopen(p.state, "w");                        /* not our state: from the start */
	assert_non_null(f);
	fputs("oomplan-sweep/1 0.0.0 zz\n", f);
	fclose(f);
	assert_int_equal(oom_partial_open(&p, target, 1, true, &err), OOM_OK);
	assert_int_equal(p.cells, 0);
	oom_partial_leave(&p);
	unlink(p.path);
	unlink(p.state);
}

/* A process that was killed between the two calls that end a table: the table has its name, the state is
 * still there. */
static void a_finished_table_is_not_continued(void **state)
{
	struct oom_partial p;
	struct oom_error err = {{0}};

	(void)state;
	for (int resume = 0; resume < 2; resume++) {
		assert_int_equal(oom_partial_open(&p, target, 5, false, &err), OOM_OK);
		fputs("row\n", p.file);
		assert_int_equal(oom_partial_note(&p, 1, 1, &err), OOM_OK);
		assert_int_equal(rename(p.path, target), 0);
		oom_partial_leave(&p);
		assert_int_equal(oom_partial_open(&p, target, 5, resume, &err), OOM_OK);
		assert_int_equal(p.cells, 0);
		fputs("again\n", p.file);
		assert_int_equal(oom_partial_finish(&p, &err), OOM_OK);
		expect_file(target, "again\n");
		assert_int_not_equal(access(p.state, F_OK), 0);
	}
}

/* Two processes that write one table would interleave their rows; the first may have finished it,
 * under the name the second opened. */
static void a_second_writer_is_refused(void **state)
{
	struct oom_partial one, two;
	struct oom_error err;

	(void)state;
	assert_int_equal(oom_partial_open(&one, target, 7, false, &err), OOM_OK);
	fputs("a\n", one.file);
	assert_int_equal(oom_partial_open(&two, target, 7, true, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "being written by another process"));
	assert_null(two.file);
	assert_int_equal(oom_partial_note(&one, 1, 1, &err), OOM_OK);
	assert_int_equal(oom_partial_open(&two, target, 7, true, &err), OOM_ERR_INVALID);
	assert_int_equal(oom_partial_finish(&one, &err), OOM_OK);
	expect_file(target, "a\n");
	/* and now it is a new one */
	assert_int_equal(oom_partial_open(&two, target, 7, true, &err), OOM_OK);
	assert_int_equal((int)two.cells, 0);
	fputs("b\n", two.file);
	assert_int_equal(oom_partial_finish(&two, &err), OOM_OK);
	expect_file(target, "b\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_continue),
					   cmocka_unit_test(test_bad),
					   cmocka_unit_test(a_finished_table_is_not_continued),
					   cmocka_unit_test(a_second_writer_is_refused)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
