/* The JSON checker by itself: RFC 8259 to the letter, the place of the first mistake, a mark for every value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "input/json_check.h"

/* The text is changed in place: a copy of it, with its NUL. */
static enum oom_status check(const char *text, size_t size, struct json_marks *marks, struct oom_error *err,
			     char **changed)
{
	char *copy = malloc(size + 1);
	enum oom_status st;

	assert_non_null(copy);
	memcpy(copy, text, size);
	copy[size] = 0;
	st = oom_json_check(copy, size, "t", marks, err);
	if (changed)
		*changed = copy;
	else
		free(copy);
	return st;
}

static void what_is_json(void **state)
{
	static const struct {
		const char *text;
		size_t values;
	} cases[] = {
		{"{}", 1}, {"[]", 1}, {"0", 1}, {"-0", 1}, {"-0.0e-0", 1}, {"1e999", 1}, {"\"\"", 1}, {"null", 1},
		{" \t\r\n[ 1 , 2 ] \n", 3}, {"{\"a\":{\"b\":[true,false,null]}}", 6}, {"\"\\u00e9\\ud83d\\ude00\"", 1},
		{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", 1}, {"\xef\xbb\xbf[]", 1}, {"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"", 1},
		{"{\"a\":1,\"a\":2}", 3}, {"\"\x7f\"", 1}, {"[1.5E+10]", 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct json_marks marks = {0};
		struct oom_error err = {{0}};

		if (check(cases[i].text, strlen(cases[i].text), &marks, &err, NULL))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_int_equal(marks.n, cases[i].values);
		free(marks.items);
	}
}

/* Line and column of the first mistake, and what was expected there. */
static void what_is_not(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"", "t:1:1: the text is empty"},
		{"  \n ", "t:2:2: the text is empty"},
		/* what a download leaves that went wrong */
		{"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "t:1:1: this is Git LFS's pointer to the file, not the file: git lfs pull fetches it"},
		{"\n<!DOCTYPE html>", "t:2:1: this is a web page, not JSON: the download gave something else"},
		{"// a\n{}", "t:1:1: JSON has no comments"},
		{"{", "t:1:2: the text ends in the middle"},
		{"[1,", "t:1:4: the text ends in the middle"},
		{"{\"a\"", "t:1:5: ':' was expected here"},
		{"{\"a\" 1}", "t:1:6: ':' was expected here"},
		{"{a: 1}", "t:1:2: a key in double quotes was expected here"},
		{"{'a': 1}", "t:1:2: a key in double quotes was expected here"},
		{"{\"a\": 1,}", "t:1:9: a key in double quotes was expected here"},
		{"[1,]", "t:1:4: a value was expected here"},
		{"[1 2]", "t:1:4: ',' or ']' was expected here"},
		{"{\"a\": 1 \"b\": 2}", "t:1:9: ',' or '}' was expected here"},
		{"[1}", "t:1:3: ',' or ']' was expected here"},
		{"[] []", "t:1:4: more text after the end of the JSON value"},
		{"{}\n// why", "t:2:1: more text after the end of the JSON value"},
		{"[01]", "t:1:2: a number with a leading zero"},
		{"[1.]", "t:1:2: a number ends in its point"},
		{"[.5]", "t:1:2: a value was expected here"},
		{"[+1]", "t:1:2: a value was expected here"},
		{"[1e]", "t:1:2: a number ends in its exponent"},
		{"[0x10]", "t:1:3: ',' or ']' was expected here"},
		{"[nan]", "t:1:2: a value was expected here"},
		{"[True]", "t:1:2: a value was expected here"},
		{"\"ab", "t:1:1: a string has no closing quote"},
		{"\"a\\", "t:1:3: a string has no closing quote"},
		{"\"a\nb\"", "t:1:3: a line break or control character within a string"},
		{"\"\\x41\"", "t:1:2: unknown escape in a string"},
		{"\"\\u12\"", "t:1:2: \\u needs four hexadecimal digits"},
		{"\"\\u0000\"", "t:1:2: \\u0000 in a string"},
		{"\"\\ud83d\"", "t:1:2: half of a \\u surrogate pair"},
		{"\"\\ud83d\\u0041\"", "t:1:2: half of a \\u surrogate pair"},
		{"\"\\ude00\"", "t:1:2: half of a \\u surrogate pair"},
		{"\"\xc3\xa9\xff\"", "t:1:3: bytes that are not UTF-8"},
		{"{\n  \"\xc3\xa9\": oops\n}", "t:2:8: a value was expected here"},
		{"1234567890123456789012345678901234567890123456789012345678901234", "t:1:1: a number of more than 62 characters"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct json_marks marks = {.n = 77};
		struct oom_error err = {{0}};

		assert_int_equal(check(cases[i].text, strlen(cases[i].text), &marks, &err, NULL), OOM_ERR_PARSE);
		if (strcmp(err.text, cases[i].says))
			fail_msg("%s: \"%s\", expected \"%s\"", cases[i].text, err.text, cases[i].says);
		assert_int_equal(marks.n, 77);          /* untouched on failure */
	}
}

static void other_encodings(void **state)
{
	static const struct {
		const char *text;
		size_t size;
	} cases[] = {{"\xff\xfe{\0}\0", 6}, {"\xfe\xff\0{\0}", 6}, {"{\0}\0", 4}, {"\0{\0}", 4}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct json_marks marks = {0};
		struct oom_error err = {{0}};

		assert_int_equal(check(cases[i].text, cases[i].size, &marks, &err, NULL), OOM_ERR_PARSE);
		assert_string_equal(err.text, "t:1:1: the file is in UTF-16: save it as UTF-8");
	}
}

/* Python's json module writes them; they keep their width, so that offsets stay. */
static void numbers_that_only_python_writes(void **state)
{
	static const char text[] = "{\"a\": NaN,\n\"b\": Infinity, \"c\": -Infinity, \"d\": \"NaN\"}";
	struct json_marks marks = {0};
	char *changed;

	(void)state;
	assert_int_equal(check(text, strlen(text), &marks, NULL, &changed), OOM_OK);
	assert_int_equal(marks.n, 5);
	assert_true(marks.items[1].is_nan);
	for (size_t i = 2; i < 5; i++)
		assert_false(marks.items[i].is_nan);
	assert_int_equal(marks.items[1].line, 1);
	assert_int_equal(marks.items[2].line, 2);
	assert_string_equal(changed, "{\"a\": 0.0,\n\"b\": 1e999   , \"c\": -1e999   , \"d\": \"NaN\"}");
	free(changed);
	free(marks.items);
}

/* A member's line is its key's. */
static void lines_of_values(void **state)
{
	static const char text[] = "\n{\n\"a\":\n\n1,\n\"b\": [\n2,\n3\n]\n}";
	static const uint32_t lines[] = {2, 3, 6, 7, 8};
	struct json_marks marks = {0};

	(void)state;
	assert_int_equal(check(text, strlen(text), &marks, NULL, NULL), OOM_OK);
	assert_int_equal(marks.n, 5);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(marks.items[i].line, lines[i]);
	free(marks.items);
}

static void depth(void **state)
{
	char text[2 * JSON_MAX_DEPTH + 3];

	(void)state;
	for (size_t n = JSON_MAX_DEPTH; n <= JSON_MAX_DEPTH + 1; n++) {
		struct json_marks marks = {0};
		struct oom_error err = {{0}};

		memset(text, '[', n);
		memset(text + n, ']', n);
		if (n == JSON_MAX_DEPTH) {
			assert_int_equal(check(text, 2 * n, &marks, &err, NULL), OOM_OK);
			assert_int_equal(marks.n, n);
			free(marks.items);
		} else {
			assert_int_equal(check(text, 2 * n, &marks, &err, NULL), OOM_ERR_PARSE);
			assert_string_equal(err.text, "t:1:1001: nested more than 1000 deep");
		}
	}
}

/* RFC 3629, section 4: the table of well-formed sequences, its bounds and what lies just beyond them. */
static void utf8(void **state)
{
	static const struct {
		const char *bytes;
		size_t n, length;
	} cases[] = {
		{"a", 1, 1}, {"\x7f", 1, 1}, {"\x80", 1, 0}, {"\xc1\xbf", 2, 0}, {"\xc2\x80", 2, 2}, {"\xdf\xbf", 2, 2},
		{"\xc2", 1, 0}, {"\xc2\x41", 2, 0}, {"\xe0\x9f\xbf", 3, 0}, {"\xe0\xa0\x80", 3, 3}, {"\xed\x9f\xbf", 3, 3},
		{"\xed\xa0\x80", 3, 0}, {"\xee\x80\x80", 3, 3}, {"\xef\xbf\xbf", 3, 3}, {"\xe2\x82", 2, 0},
		{"\xf0\x8f\xbf\xbf", 4, 0}, {"\xf0\x90\x80\x80", 4, 4}, {"\xf4\x8f\xbf\xbf", 4, 4}, {"\xf4\x90\x80\x80", 4, 0},
		{"\xf5\x80\x80\x80", 4, 0}, {"\xff", 1, 0}, {"\xe2\x82\x41", 3, 0}, {"\xf0\x90\x80", 3, 0},
	};

	(void)state;
	assert_int_equal(oom_utf8_length((const unsigned char *)"", 0), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(oom_utf8_length((const unsigned char *)cases[i].bytes, cases[i].n), cases[i].length);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_json),
		cmocka_unit_test(what_is_not),
		cmocka_unit_test(other_encodings),
		cmocka_unit_test(numbers_that_only_python_writes),
		cmocka_unit_test(lines_of_values),
		cmocka_unit_test(depth),
		cmocka_unit_test(utf8),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
