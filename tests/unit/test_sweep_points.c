/* Sweeps over a list of points in place of axes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/sweep.h"
#include "written_sweep.h"

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* A list of points gives the rows a grid gives for the same values, in the list's order. */
static void test_points(void **state)
{
	const struct oom_plan base = oom_plan_default();
	struct oom_sweep *s = oom_sweep_new(&base);
	struct oom_sweep *g = grid((const char *const[]){"model=GPT-2,SmolLM2-135M",
							 "micro-batch=1,3", "attn=sdpa,eager",
							 NULL});
	struct oom_error err = {{0}};
	char path[] = "/tmp/oomplan-points-XXXXXX", *list, *whole;
	const int fd = mkstemp(path);
	size_t n, m;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	write_file(path,
		   "model,micro-batch\nGPT-2,1\nGPT-2,3\nSmolLM2-135M,1\n\"SmolLM2-135M\",3\n");
	assert_int_equal(oom_sweep_points(s, path, &err), OOM_OK);
	assert_int_equal(oom_sweep_axis(s, "attn=sdpa,eager", &err), OOM_OK);
	assert_int_equal(oom_sweep_cells(s), 8);
	list = written(s, (struct oom_sweep_options){0}, &n);
	whole = written(g, (struct oom_sweep_options){0}, &m);
	assert_string_equal(list, whole);
	free(list);
	free(whole);
	/* the list sets it */
	assert_int_not_equal(oom_sweep_axis(s, "micro-batch=1", &err), OOM_OK);
	assert_non_null(strstr(err.text, "twice"));
	oom_sweep_free(s);
	oom_sweep_free(g);
	unlink(path);
}

static void test_bad_points(void **state)
{
	static const struct {
		const char *text, *word;
	} bad[] = {{"micro-batch,seq_len\n1,2\n1,-5\n", ":3: column seq_len"},
		   {"micro-bacth\n1\n", "micro-batch"},
		   {"", "header"},
		   {"micro-batch\n", "no points"},
		   {"micro-batch,micro_batch\n1,1\n", "twice"},
		   {"gpu\nA1000-40G\n", ":2: column gpu"},
		   {"gpu,seq-len\n,3\n", "gpu is empty"},
		   {"seq-len,tp\n1,2,3\n", "3 cells"},
		   {"seq-len\n\"1\n", "quote"},
		   {"seq-len\n99999999999999999999\n", "column seq_len"}};
	char path[] = "/tmp/oomplan-points-XXXXXX";
	const int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct oom_plan base = oom_plan_default();
		struct oom_sweep *s = oom_sweep_new(&base);
		struct oom_error err = {{0}};

		write_file(path, bad[i].text);
		assert_int_not_equal(oom_sweep_points(s, path, &err), OOM_OK);
		if (!strstr(err.text, bad[i].word))
			fail_msg("%s: %s", bad[i].text, err.text);
		assert_int_equal(oom_sweep_cells(s), 0);
		oom_sweep_free(s);
	}
	unlink(path);
	assert_int_equal(fd < 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_points),
		cmocka_unit_test(test_bad_points),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
