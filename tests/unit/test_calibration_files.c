/* Calibrations as files, and the rows of measured runs that they are made of. */
#include <math.h>
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

#include "oomplan/calibrate.h"

#define GIB 1073741824.0
#define MIB 1048576.0

static void test_rows(void **state)
{
	static const char csv[] =
		"id,pred_states,pred_activations,pred_transient,pred_reserved,pred_context_bytes,"
		"allocated,reserved,nvidia_smi\n"
		"a,8GiB,4GiB,1GiB,14GiB,482MiB,13.1GiB,14.2GiB,14900MiB\n"
		"b,8GiB,4GiB,1GiB,,,,,\n";
	static const char *const wrong[] = {
		"predicted,measured\n1,two\n", "predicted,measured\n-1,2\n",
		"predicted,measured\nnan,2\n", "predicted,measured\n1e300,2\n", "a,b\n1,2\n", ""};
	struct oom_calibration_row *r;
	struct oom_error err = {{0}};
	size_t n, skipped;

	(void)state;
	assert_int_equal(oom_calibration_rows_parse(csv, strlen(csv), "m.csv", &r, &n, &skipped, &err),
			 OOM_OK);
	assert_int_equal(n, 1);
	assert_int_equal(skipped, 1);
	assert_string_equal(r->name, "a");
	assert_true(r->predicted.split && r->predicted.overheads && !r->predicted.many);
	assert_true(fabs(r->predicted.part[1] - 4 * GIB) < 1);
	assert_true(fabs(r->measured[OOM_MEASURE_USED] - 14900 * MIB) < 1);
	free(r);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err.text[0] = 0;
		assert_int_not_equal(oom_calibration_rows_parse(wrong[i], strlen(wrong[i]), "w.csv", &r,
								&n, &skipped, &err),
				     OOM_OK);
		assert_non_null(strstr(err.text, i < 4 ? "w.csv:2" : "w.csv"));
	}
}

static void test_files(void **state)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{"", "no calibration"},
		{"\x01\x02", "no calibration"},
		{"scale 1.02\noffset_bytes 0\n", "run oomplan calibrate on the measurements again"},
		{"oomplan-calibration 3\n", "version 3"},
		{"oomplan-calibration 2\nend\n", "every term"},
		{"oomplan-calibration 2\nruns 3\n", "cut off"},
		{"oomplan-calibration 2\nrums 3\n", "runs"},
		{"oomplan-calibration 2\nterm states fitted allocated nan 0 1 1 -\n", ":2:"},
		{"oomplan-calibration 2\nterm states fitted allocated 1e9 0 1 1 -\n", ":2:"},
		{"oomplan-calibration 2\nterm states fitted allocated 1 0 1 1 logits\n", "logits"},
		{"oomplan-calibration 2\nterm state fitted allocated 1 0 1 1 -\n", "states"},
		{"oomplan-calibration 2\ntail 2 0 0 0 0\n", ":2:"},
		{"oomplan-calibration 2\ntail 0.1 0 0\n", "SHAPE"},
		{"oomplan-calibration 2\ntail 0.1 0 0 0 1\nbeyond 1\nbeyond 1\n", ":4:"},
		{"oomplan-calibration 2\ntail 0.1 0 0 0 3\nbeyond 1\nbeyond 2\n", ":4:"},
	};
	struct oom_calibration a, b;
	struct oom_error err = {{0}};
	char path[] = "/tmp/cal-XXXXXX", text[OOM_CALIBRATION_TEXT], *cut;
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(oom_calibration_default(&a, &err), OOM_OK);
	/* the shipped rows are an emulator's: allocated to the byte, no context, one GPU */
	for (int k = 0; k < OOM_SCALES; k++)
		assert_true(fabs(a.term[k].value - 1) < 1e-3);
	assert_int_equal(a.term[OOM_TERM_CONTEXT].state, OOM_TERM_UNMEASURED);
	oom_calibration_write(&a, text);
	assert_true(strlen(text) < sizeof(text) - 100);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	assert_int_equal(oom_calibration_read(&b, path, &err), OOM_OK);
	unlink(path);
	assert_memory_equal(a.cov, b.cov, sizeof(a.cov));
	for (int k = 0; k < OOM_TERMS; k++)
		assert_true(fabs(a.term[k].value - b.term[k].value) < 1e-15 &&
			    a.term[k].state == b.term[k].state && a.term[k].with == b.term[k].with);
	assert_memory_equal(a.spread, b.spread, sizeof(a.spread));
	assert_memory_equal(a.beyond, b.beyond, sizeof(a.beyond));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err.text[0] = 0;
		assert_int_not_equal(oom_calibration_parse(&b, wrong[i].text, strlen(wrong[i].text),
							   "w.cal", &err),
				     OOM_OK);
		if (!strstr(err.text, wrong[i].says))
			fail_msg("%s: no \"%s\" in it", err.text, wrong[i].says);
	}
	/* a covariance no standard errors allow */
	cut = strstr(text, "tail ");
	memmove(cut + 30, cut, strlen(cut) + 1);
	memcpy(cut, "cov states activations 1e9    ", 29);
	cut[29] = '\n';
	assert_int_equal(oom_calibration_parse(&b, text, strlen(text), "w.cal", &err),
			 OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "covariance"));
	assert_int_equal(oom_calibration_read(&b, "/nonexistent.cal", &err), OOM_ERR_IO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
