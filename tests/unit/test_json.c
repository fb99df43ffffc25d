/* The JSON and CSV writers: exact text, and whatever bytes go in, valid text comes out. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>
#include <cmocka.h>

#include "csvout.h"
#include "json.h"
#include "printed.h"

static void a_document(void **state)
{
	struct oom_json j = {.out = begin()};

	(void)state;
	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan/1");
	oom_json_uint(&j, "bytes", UINT64_MAX);
	oom_json_int(&j, "less", INT64_MIN);
	oom_json_bool(&j, "fits", false);
	oom_json_text(&j, "none", NULL);
	oom_json_array(&j, "list");
	oom_json_object(&j, NULL);
	oom_json_end(&j);
	oom_json_array(&j, NULL);
	oom_json_int(&j, NULL, 1);
	oom_json_int(&j, NULL, 2);
	oom_json_end(&j);
	oom_json_end(&j);
	oom_json_null(&j, "last");
	oom_json_end(&j);
	oom_json_array(&j, NULL);               /* a second document, on a line of its own */
	oom_json_end(&j);
	ends_as(j.out,
		"{\"schema\": \"oomplan/1\", \"bytes\": 18446744073709551615, "
		"\"less\": -9223372036854775808, "
		"\"fits\": false, \"none\": null, \"list\": [{}, [1, 2]], \"last\": null}\n[]\n");
}

/* Malformed sequences: RFC 3629 section 4; the rows of Unicode's table 3-7 that a lax decoder lets
 * through. */
static void strings_are_escaped(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"", "\"\""},
		{"a\"b\\c/", "\"a\\\"b\\\\c/\""},
		{"\n\t\r\x01\x7f", "\"\\n\\t\\u000d\\u0001\\u007f\""},
		{"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		 "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\""},
		{"\xff", "\"\\ufffd\""},
		{"\x80x", "\"\\ufffdx\""},
		{"\xc3", "\"\\ufffd\""}, /* cut */
		{"\xe2\x82", "\"\\ufffd\\ufffd\""},
		{"\xc0\xaf", "\"\\ufffd\\ufffd\""}, /* overlong '/' */
		{"\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\""},
		{"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""}, /* surrogate */
		{"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond U+10FFFF */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FILE *f = begin();

		oom_json_string(f, cases[i].in);
		ends_as(f, cases[i].out);
	}
}

/* Property: the shortest digits that read back as the same double; never a locale's comma. */
static void reals_read_back(void **state)
{
	static const struct {
		double in;
		const char *out;
	} cases[] = {
		{0.02, "0.02"},
		{0.1, "0.1"},
		{1.0 / 3, "0.3333333333333333"},
		{5e-324, "4.94065645841247e-324"},
		{1e22, "1e+22"},
		{NAN, "null"},
		{INFINITY, "null"},
		{-INFINITY, "null"},
		{-0.5, "-0.5"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_json j = {.out = begin()};

		oom_json_real(&j, NULL, cases[i].in);
		assert_int_equal(fclose(j.out), 0);
		if (isfinite(cases[i].in))
			assert_true(strtod(text, NULL) == cases[i].in);
		assert_string_equal(text, cases[i].out);
		free(text);
	}
}

/* Property: random bytes as keys and values come back as well-formed JSON with as many members. */
static void random_bytes_stay_valid(void **state)
{
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct oom_json j = {.out = begin()};
		cJSON *back;

		oom_json_object(&j, NULL);
		for (int i = 0; i < 4; i++) {
			char key[20], value[60];

			for (size_t b = 0; b < sizeof(value); b++) {
				/* Numerical Recipes, section 7.1 */
				seed = seed * 1664525 + 1013904223;
				value[b] = (char)(seed >> 24);
			}
			memcpy(key, value, sizeof(key));
			key[sizeof(key) - 1] = value[sizeof(value) - 1] = 0;
			oom_json_text(&j, key, value);
		}
		oom_json_end(&j);
		assert_int_equal(fclose(j.out), 0);
		back = cJSON_Parse(text);
		assert_non_null(back);
		assert_int_equal(cJSON_GetArraySize(back), 4);
		cJSON_Delete(back);
		free(text);
	}
}

static void deep_enough(void **state)
{
	struct oom_json j = {.out = begin()};
	char want[2 * OOM_JSON_DEPTH + 2];

	(void)state;
	for (int i = 0; i < OOM_JSON_DEPTH; i++)
		oom_json_array(&j, NULL);
	for (int i = 0; i < OOM_JSON_DEPTH; i++)
		oom_json_end(&j);
	memset(want, '[', OOM_JSON_DEPTH);
	memset(want + OOM_JSON_DEPTH, ']', OOM_JSON_DEPTH);
	strcpy(want + 2 * OOM_JSON_DEPTH, "\n");
	ends_as(j.out, want);
}

/* RFC 4180, section 2, rules 5 to 7. */
static void csv_is_quoted_where_needed(void **state)
{
	static const char *const head[] = {"plain", "two words", "a,b", NULL};
	struct oom_csv c = {.out = begin()};

	(void)state;
	oom_csv_head(&c, head);
	oom_csv_text(&c, "say \"hi\"");
	oom_csv_text(&c, "");
	oom_csv_text(&c, "line\nbreak");
	oom_csv_text(&c, " edge");
	oom_csv_uint(&c, 18446744073709551615u);
	oom_csv_end(&c);
	ends_as(c.out, "plain,two words,\"a,b\"\n\"say \"\"hi\"\"\",,\"line\nbreak\",\" "
		       "edge\",18446744073709551615\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document),
		cmocka_unit_test(strings_are_escaped),
		cmocka_unit_test(reals_read_back),
		cmocka_unit_test(random_bytes_stay_valid),
		cmocka_unit_test(deep_enough),
		cmocka_unit_test(csv_is_quoted_where_needed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
