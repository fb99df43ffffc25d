/* The knob table walked: every row is complete, its default is legal, its text goes round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "oomplan/units.h"

static void every_knob_is_complete(void **state)
{
	(void)state;
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);

		if (!*k->name || !*k->column || !*k->summary || !*k->source)
			fail_msg("knob %zu (%s) lacks a text", i, k->name);
		assert_ptr_equal(oom_knob_find(k->name), k);
		assert_ptr_equal(oom_knob_find(k->column), k);
		for (size_t j = 0; k->kind == OOM_OPTION_CHOICE && k->choice(j); j++)
			if (!*k->choice(j)->name || !*k->choice(j)->summary ||
			    !*k->choice(j)->source)
				fail_msg("choice %zu of %s lacks a text", j, k->name);
	}
	assert_null(oom_knob_find("no-such-knob"));
}

static void text_goes_round(void **state)
{
	(void)state;
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		struct oom_plan p = oom_plan_default(), q = p;
		char text[200];

		oom_plan_get(&p, k, text, sizeof(text));
		assert_int_equal(oom_plan_set(&q, k, text, NULL), OOM_OK);
		q.zero_said = p.zero_said;      /* that a stage was said is all that has changed */
		assert_memory_equal(&p, &q, sizeof(p));
		for (size_t j = 0; k->kind == OOM_OPTION_CHOICE && k->choice(j); j++) {
			assert_int_equal(oom_plan_set(&q, k, k->choice(j)->name, NULL), OOM_OK);
			assert_int_equal(*oom_plan_field(&q, k), (int64_t)j);
		}
	}
}

static void bad_values_name_the_knob(void **state)
{
	static const struct {
		const char *knob, *value, *word;
	} cases[] = {
		{"micro-batch", "0", "micro-batch"}, {"micro-batch", "x", "micro-batch"}, {"micro-batch", "1.5", "whole"},
		{"precision", "bf61", "bf16"}, {"attn", "flsh", "flash"}, {"qlora", "maybe", "true"}, {"margin", "2", "margin"},
		{"seq-len", "1e30", "seq-len"}, {"micro-batch", "nan", "whole"}, {"micro-batch", "-4", "outside"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_error err = {{0}};

		assert_int_equal(oom_plan_set(&p, oom_knob_find(cases[i].knob), cases[i].value,
					      &err),
				 OOM_ERR_INVALID);
		if (!strstr(err.text, cases[i].word))
			fail_msg("%s=%s: %s", cases[i].knob, cases[i].value, err.text);
	}
}

static void sizes(void **state)
{
	uint64_t n;
	char buf[32];

	(void)state;
	assert_int_equal(oom_parse_bytes("23.65GiB", &n, NULL), OOM_OK);
	assert_int_equal(n, 25393994138);       /* 23.65 * 2^30 = 25393994137.6 */
	assert_int_equal(oom_parse_bytes("24GB", &n, NULL), OOM_OK);
	assert_int_equal(n, 24000000000);
	assert_int_equal(oom_parse_bytes("80000 MiB", &n, NULL), OOM_OK);
	assert_int_equal(n, 83886080000);
	assert_int_equal(oom_parse_bytes("many", &n, NULL), OOM_ERR_INVALID);
	assert_int_equal(oom_parse_bytes("-1GB", &n, NULL), OOM_ERR_INVALID);
	assert_string_equal(oom_format_bytes(25393994138, buf, sizeof(buf)), "23.65 GiB");
}

static void nearest(void **state)
{
	const char *const words[] = {"adamw", "adafactor", "sgd", NULL};

	(void)state;
	assert_string_equal(oom_nearest("adamv", words), "adamw");
	assert_string_equal(oom_nearest("adafctor", words), "adafactor");
	assert_null(oom_nearest("xxxxxxxxxxxxxxx", words));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_knob_is_complete),
		cmocka_unit_test(text_goes_round),
		cmocka_unit_test(bad_values_name_the_knob),
		cmocka_unit_test(sizes),
		cmocka_unit_test(nearest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
