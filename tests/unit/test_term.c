/* Text in columns: widths, wrapping, bars, tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "page.h"
#include "table.h"
#include "term.h"
#include "printed.h"

/* Widths: Unicode's EastAsianWidth.txt and general categories. */
static void widths(void **state)
{
	static const struct {
		const char *in;
		size_t width;
	} cases[] = {
		{"", 0},
		{"abc", 3},
		{"\xc3\xa9", 1},
		{"e\xcc\x81", 1},
		{"\xe6\x97\xa5\xe6\x9c\xac", 4},
		{"\xf0\x9f\x98\x80", 2},
		{"\xff", 1},
		{"\xe6\x97", 2},
		{"a\x1b[", 2},
		{"\xe2\x96\x88", 1},
		{"\xef\xbc\xa1", 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(oom_display_width(cases[i].in), cases[i].width);
}

static void wrapping(void **state)
{
	FILE *f = begin();

	(void)state;
	oom_wrap(f, "one two  three four", 0, 2, 9);
	ends_as(f, "one two\n  three\n  four\n");
	f = begin();
	oom_wrap(f, "unbreakable-word x", 4, 4, 9);
	ends_as(f, "unbreakable-word\n    x\n");
	f = begin();
	oom_wrap(f, "  ", 4, 4, 9);
	ends_as(f, "\n");
}

static void bars(void **state)
{
	char buf[200];

	(void)state;
	assert_string_equal(oom_bar(1, 2, 10, false, buf, sizeof(buf)), "#####");
	assert_string_equal(oom_bar(2, 2, 4, true, buf, sizeof(buf)), "\u2588\u2588\u2588\u2588");
	assert_string_equal(oom_bar(3, 16, 4, true, buf, sizeof(buf)),
			    "\u258a"); /* 0.75 columns: six eighths */
	assert_string_equal(oom_bar(9, 2, 4, false, buf, sizeof(buf)),
			    "####"); /* never beyond the whole */
	assert_string_equal(oom_bar(1, UINT64_MAX, 4, false, buf, sizeof(buf)),
			    "#"); /* never nothing for something */
	assert_string_equal(oom_bar(0, 5, 4, true, buf, sizeof(buf)), "");
	assert_string_equal(oom_bar(5, 0, 4, true, buf, sizeof(buf)), "");
	assert_string_equal(oom_bar(5, 5, -1, true, buf, sizeof(buf)), "");
	for (size_t room = 1; room < 40; room++) /* cut at a character, never beyond the room */
		assert_true(strlen(oom_bar(1, 1, 12, true, buf, room)) < room &&
			    strlen(buf) % 3 == 0);
}

static void scrubbing(void **state)
{
	/* ESC, BEL, DEL, U+009B (CSI), a single byte 0x9b, ESC in three bytes; then what stays */
	char name[] = "a\033[2J\a\x7f\xc2\x9b\x9b\xe0\x80\x9b \u00e9\u2588\xff";

	(void)state;
	oom_scrub(name);
	assert_string_equal(name, "a?[2J????????" " \u00e9\u2588\xff");
	assert_string_equal(oom_shown("x\ny"), "x?y");
}

static void tables(void **state)
{
	static const char *const columns[] = {"name", ">size", "note", NULL}, *const bare[] = {
										      "", ">",
										      NULL};
	struct oom_table t;
	FILE *f = begin();

	(void)state;
	oom_table_init(&t, columns);
	oom_table_cell(&t, "a");
	oom_table_cell(&t, "5");
	oom_table_cell(&t, "");
	oom_table_cell(&t, "\xe6\x97\xa5\xe6\x9c\xac\xe6\x97\xa5");
	oom_table_cell(&t, "10000");
	oom_table_cell(&t, "words that go on\tfor more");
	assert_true(oom_table_print(&t, f, 0));
	assert_true(oom_table_print(&t, f, 36));
	oom_table_release(&t);
	ends_as(f, "name     size  note\n"
		"a           5\n"
		"\xe6\x97\xa5\xe6\x9c\xac\xe6\x97\xa5  10000  words that go on for more\n"
		"name     size  note\n"
		"a           5\n"
		"\xe6\x97\xa5\xe6\x9c\xac\xe6\x97\xa5  10000  words that go on for\n"
		"               more\n");
	f = begin();
	oom_table_init(&t, bare);
	assert_true(oom_table_print(&t, f, 0));         /* no rows, no heads: nothing */
	oom_table_cell(&t, "x");
	oom_table_cell(&t, "7");
	oom_table_cell(&t, "a row that was never finished");
	assert_true(oom_table_print(&t, f, 0));
	oom_table_release(&t);
	oom_table_release(&t);
	ends_as(f, "x                              7\n");
}

/* Lines of a report: columns stay, numbers keep their units, colours take no room, commands stay whole. */
static void folding(void **state)
{
	static const struct {
		const char *line;
		int width;
		const char *want;
	} cases[] = {
		{"  short", 20, "  short\n"},
		{"", 20, "\n"},
		{"  one two three four", 12, "  one two\n    three\n    four\n"},
		{"  a   b   c", 20, "  a   b   c\n"},
		{"used 12.5 GiB of it", 12, "used\n  12.5 GiB\n  of it\n"},
		{"\033[1mone\033[0m two", 7, "\033[1mone\033[0m two\n"},
		{"\xc3\xa9\xc3\xa9 \xc3\xa9", 4, "\xc3\xa9\xc3\xa9 \xc3\xa9\n"},
		{"  oomplan estimate --model GPT-2", 12, "  oomplan estimate --model GPT-2\n"},
		{"unbreakable-word x", 6, "unbreakable-word\n  x\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FILE *f = begin();

		oom_fold_line(f, cases[i].line, cases[i].width);
		ends_as(f, cases[i].want);
	}
}

static void locales(void **state)
{
	static const struct {
		const char *all, *ctype, *lang;
		bool unicode;
	} cases[] = {
		{NULL, NULL, "en_US.UTF-8", true},
		{NULL, NULL, "de_DE.utf8", true},
		{NULL, NULL, "C", false},
		{"C", NULL, "en_US.UTF-8", false},
		{"", "C.UTF-8", "C", true},
		{NULL, NULL, NULL, false},
		{NULL, "POSIX", "en_US.UTF-8", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cases[i].all ? setenv("LC_ALL", cases[i].all, 1) : unsetenv("LC_ALL");
		cases[i].ctype ? setenv("LC_CTYPE", cases[i].ctype, 1) : unsetenv("LC_CTYPE");
		cases[i].lang ? setenv("LANG", cases[i].lang, 1) : unsetenv("LANG");
		assert_int_equal(oom_term_unicode(), cases[i].unicode);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(widths),
		cmocka_unit_test(wrapping),
		cmocka_unit_test(bars),
		cmocka_unit_test(scrubbing),
		cmocka_unit_test(tables),
		cmocka_unit_test(folding),
		cmocka_unit_test(locales),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
