/* From a text to a value and back, one kind of option at a time; words, the nearest of them, and plans as options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"

#define COLOURS(X) X(RED, "red", "as blood") X(DARK_BLUE, "dark-blue", "as night") X(GREEN, "green", "as grass")
enum { COLOURS(OOM_WORD_ID) };
OOM_WORD_LIST(static, colour, COLOURS)

static const struct oom_option options[] = {
	{.name = "flag", .kind = OOM_OPTION_FLAG},
	{.name = "count", .kind = OOM_OPTION_COUNT, .min = 1, .max = 1000},
	{.name = "auto-count", .kind = OOM_OPTION_COUNT, .min = 0, .max = 1e9, .automatic = true},
	{.name = "real", .kind = OOM_OPTION_REAL, .min = 0, .max = 8},
	{.name = "share", .kind = OOM_OPTION_REAL, .min = 0, .max = 0.5, .percent = true},
	{.name = "version", .kind = OOM_OPTION_VERSION, .min = OOM_VERSION(4, 20), .max = OOM_VERSION(999, 999)},
	{.name = "size", .kind = OOM_OPTION_SIZE},
	{.name = "text", .kind = OOM_OPTION_TEXT},
	{.name = "names", .kind = OOM_OPTION_NAMES},
	{.name = "colour", .kind = OOM_OPTION_CHOICE, .choice = colour},
	{.name = "colours", .kind = OOM_OPTION_LIST, .choice = colour},
	{.name = "idle", .kind = OOM_OPTION_IDLE},
	{.name = "absent", .kind = OOM_OPTION_ABSENT, .note = "nobody has it"},
};

static const struct oom_option *named(const char *name)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (!strcmp(options[i].name, name))
			return &options[i];
	fail_msg("no option %s", name);
	return NULL;
}

static void whole_values(void **state)
{
	static const struct {
		const char *option, *text;
		int64_t whole;
	} cases[] = {
		{"flag", "true", 1}, {"flag", "True", 1}, {"flag", "YES", 1}, {"flag", "on", 1}, {"flag", "1", 1},
		{"flag", "false", 0}, {"flag", "no", 0}, {"flag", "Off", 0}, {"flag", "0", 0},
		{"count", "1", 1}, {"count", "1000", 1000}, {"count", "1k", 1000},
		{"auto-count", "auto", OOM_COUNT_AUTO}, {"auto-count", "Auto", OOM_COUNT_AUTO}, {"auto-count", "5M", 5000000},
		{"version", "newest", 0}, {"version", "4.45", OOM_VERSION(4, 45)}, {"version", "4.45.2", OOM_VERSION(4, 45)},
		{"version", "5", OOM_VERSION(5, 0)}, {"version", "5.0.0rc1", OOM_VERSION(5, 0)},
		{"version", "4.20.1+cu121", OOM_VERSION(4, 20)},
		{"size", "2KiB", 2048},
		{"colour", "red", RED}, {"colour", "RED", RED}, {"colour", "dark_blue", DARK_BLUE}, {"colours", "Dark-Blue", DARK_BLUE},
		{"absent", "false", 0}, {"absent", "0", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_value v = {.whole = 77};
		struct oom_error err = {{0}};

		if (oom_option_read(named(cases[i].option), "--it", cases[i].text, &v, &err))
			fail_msg("%s %s: %s", cases[i].option, cases[i].text, err.text);
		if (v.whole != cases[i].whole)
			fail_msg("%s %s: %lld", cases[i].option, cases[i].text, (long long)v.whole);
	}
}

static void other_values(void **state)
{
	struct oom_value v;

	(void)state;
	assert_int_equal(oom_option_read(named("real"), "--it", "2.5", &v, NULL), OOM_OK);
	assert_true(v.real == 2.5);
	assert_int_equal(oom_option_read(named("share"), "--it", "5%", &v, NULL), OOM_OK);
	assert_true(v.real == 0.05);
	assert_int_equal(oom_option_read(named("share"), "--it", "0.5", &v, NULL), OOM_OK);
	assert_true(v.real == 0.5);
	assert_int_equal(oom_option_read(named("text"), "--it", "some words", &v, NULL), OOM_OK);
	assert_string_equal(v.text, "some words");
	assert_int_equal(oom_option_read(named("size"), "--it", "24 GiB", &v, NULL), OOM_OK);
	assert_string_equal(v.text, "24 GiB");          /* as the user wrote it, for reports */
	assert_int_equal(oom_option_read(named("names"), "--it", "q_proj,v_proj", &v, NULL), OOM_OK);
	assert_string_equal(v.names, "q_proj+v_proj");
	assert_int_equal(oom_option_read(named("names"), "--it", "", &v, NULL), OOM_OK);
	assert_string_equal(v.names, "");
	assert_int_equal(oom_option_read(named("names"), "--it", "^model\\..*_proj$", &v, NULL), OOM_OK);
	assert_string_equal(v.names, "^model\\..*_proj$");      /* a pattern keeps its commas */
	assert_int_equal(oom_option_read(named("idle"), "--it", "whatever", &v, NULL), OOM_OK);
}

/* A refusal begins with the option as it was written. */
static void refusals(void **state)
{
	static const struct {
		const char *option, *text, *says;
	} cases[] = {
		{"flag", "maybe", "--it: \"maybe\" is neither true nor false"},
		{"flag", "2", "--it: \"2\" is neither true nor false"},
		{"count", "0", "--it: 0 is outside 1 to 1000"},
		{"count", "1001", "--it: 1001 is outside 1 to 1000"},
		{"count", "2k", "--it: 2k is outside 1 to 1000"},
		{"count", "auto", "--it: \"auto\" is not a whole number"},
		{"real", "-1", "--it: -1 is outside 0 to 8"},
		{"real", "5%", "--it: \"5%\" is not a number"},
		{"share", "0.6", "--it: 0.6 is outside 0 to 0.5 (did you mean 0.6%?)"},
		{"share", "5", "--it: 5 is outside 0 to 0.5 (did you mean 5%?)"},
		{"share", "60%", "--it: 60% is outside 0 to 0.5"},
		{"share", "99", "--it: 99 is outside 0 to 0.5"},
		{"version", "x", "--it: \"x\" is no version: newest, or MAJOR.MINOR as in 4.20"},
		{"version", "4.", "--it: \"4.\" is no version: newest, or MAJOR.MINOR as in 4.20"},
		{"version", "4.1234", "--it: \"4.1234\" is no version: newest, or MAJOR.MINOR as in 4.20"},
		{"version", "3.5", "--it: 3.5 is older than 4.20, the oldest that is known"},
		{"version", "ds.json", "--it: \"ds.json\" is no version: newest, or MAJOR.MINOR as in 4.20; a library's own file is "
				       "read by --from"},
		{"size", "lots", "--it: \"lots\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"text", "", "--it: the value is empty"},
		{"names", "a,,b", "--it: \"a,,b\" holds an empty name"},
		{"names", ",a", "--it: \",a\" holds an empty name"},
		{"names", "a+", "--it: \"a+\" holds an empty name"},
		{"colour", "grean", "--it: \"grean\" is none of: red, dark-blue, green (did you mean \"green\"?)"},
		{"colour", "xxxxxxxxxxxx", "--it: \"xxxxxxxxxxxx\" is none of: red, dark-blue, green"},
		{"colour", "", "--it: \"\" is none of: red, dark-blue, green"},
		{"absent", "true", "--it: nobody has it"},
		{"absent", "anything", "--it: nobody has it"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_value v = {.whole = 77};
		struct oom_error err = {{0}};

		assert_int_equal(oom_option_read(named(cases[i].option), "--it", cases[i].text, &v, &err), OOM_ERR_INVALID);
		/* of the empty word the nearest is whatever is shortest */
		if (strncmp(err.text, cases[i].says, strlen(cases[i].says)) || (*cases[i].text && strcmp(err.text, cases[i].says)))
			fail_msg("%s %s: %s", cases[i].option, cases[i].text, err.text);
	}
}

static void names_have_room(void **state)
{
	char text[OOM_NAMES_SIZE + 1];
	struct oom_value v;
	struct oom_error err = {{0}};

	(void)state;
	memset(text, 'n', sizeof(text));
	text[OOM_NAMES_SIZE] = 0;
	assert_int_equal(oom_option_read(named("names"), "--it", text, &v, &err), OOM_ERR_INVALID);
	assert_string_equal(err.text, "--it: longer than 255 characters");
	text[OOM_NAMES_SIZE - 1] = 0;
	assert_int_equal(oom_option_read(named("names"), "--it", text, &v, &err), OOM_OK);
}

/* ---- words ---- */

static void words_that_are_the_same(void **state)
{
	static const struct {
		const char *a, *b;
		bool same;
	} cases[] = {
		{"a", "a", true}, {"a", "A", true}, {"a-b", "A_B", true}, {"a", "b", false}, {"a", "ab", false}, {"ab", "a", false},
		{"", "", true}, {"", "a", false}, {"\xc3\xa4", "\xc3\x84", false}, {"I", "i", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(oom_same_word(cases[i].a, cases[i].b), cases[i].same);
}

/* The knob's own word comes before what a framework writes for another one. */
static void frameworks_words_for_a_choice(void **state)
{
	const struct oom_option *optimizer = oom_knob_find("optimizer");

	(void)state;
	for (size_t i = 0; optimizer->choice(i); i++) {
		char first[80];

		assert_int_equal(oom_choice_find(optimizer->choice, optimizer->choice(i)->name), (int)i);
		snprintf(first, sizeof(first), "%.*s", (int)strcspn(optimizer->choice(i)->setting, " "),
			 optimizer->choice(i)->setting);
		if (*first && oom_choice_find(optimizer->choice, first) < 0)
			fail_msg("%s: its framework's word %s leads nowhere", optimizer->choice(i)->name, first);
	}
	assert_int_equal(oom_choice_find(optimizer->choice, "no_such_optimizer"), -1);
	assert_int_equal(oom_choice_find(optimizer->choice, ""), -1);
}

/* Levenshtein's distance (Soviet Physics Doklady 10, 1966): a letter more, less or another is one edit. */
static void nearest_words(void **state)
{
	static const char *const words[] = {"kitten", "mitten", "sitting", "adamw-8bit", NULL};
	static const struct {
		const char *word;
		int most;
		const char *near;
	} cases[] = {
		{"kitten", 0, "kitten"}, {"kittens", 1, "kitten"}, {"KITTEN", 0, "kitten"}, {"kiten", 1, "kitten"},
		{"kitten", 3, "kitten"}, {"bitten", 1, "kitten"}, {"smitten", 1, "mitten"}, {"sittin", 1, "sitting"},
		{"kutten", 0, NULL}, {"xyz", 2, NULL}, {"", 3, NULL}, {"kit", 1, "kitten"},
		{"adam", 1, "adamw-8bit"},              /* a part of it, of three letters at least */
		{"ad", 1, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *near = oom_nearest_within(cases[i].word, words, cases[i].most);

		if ((near == NULL) != (cases[i].near == NULL) || (near && strcmp(near, cases[i].near)))
			fail_msg("%s within %d: %s", cases[i].word, cases[i].most, near ? near : "none");
	}
	assert_null(oom_nearest("anything", (const char *const[]){NULL}));
	/* the same beginning tells more than letters do: fused_ce is four edits away, used_bytes five */
	assert_string_equal(oom_nearest("used_gib", (const char *const[]){"fused_ce", "used_bytes", NULL}), "used_bytes");
	/* very long words are cut, not compared to their end */
	char longest[500];

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	assert_null(oom_nearest_within(longest, words, 10));
}

/* A list that is too long says that it goes on, behind its last whole word; sums by hand. */
static void words_joined(void **state)
{
	static const char *const words[] = {"kitten", "mitten", "sitting", NULL};
	static const struct {
		size_t size;
		const char *joined;
	} cases[] = {
		{24, "kitten, mitten, sitting"}, {23, "kitten, mitten, ..."}, {20, "kitten, mitten, ..."},
		{19, "kitten, ..."}, {12, "kitten, ..."}, {11, ", ..."},
	};
	char buf[24];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(buf, 'x', sizeof(buf));
		assert_string_equal(oom_words_join(words, buf, cases[i].size), cases[i].joined);
		for (size_t k = cases[i].size; k < sizeof(buf); k++)
			assert_int_equal(buf[k], 'x');
	}
	assert_string_equal(oom_words_join((const char *const[]){NULL}, buf, sizeof(buf)), "");
}

/* ---- plans as options ---- */

static void set(struct oom_plan *p, const char *knob, const char *text)
{
	struct oom_error err = {{0}};

	if (oom_plan_set(p, oom_knob_find(knob), text, &err))
		fail_msg("%s", err.text);
}

static void differences_as_options(void **state)
{
	const struct oom_plan usual = oom_plan_default();
	struct oom_plan p = usual;
	char buf[300];

	(void)state;
	assert_string_equal(oom_plan_options(&usual, &p, buf, sizeof(buf)), "");
	set(&p, "micro-batch", "4");
	assert_string_equal(oom_plan_options(&usual, &p, buf, sizeof(buf)), "--micro-batch=4");
	assert_string_equal(oom_plan_options(&p, &usual, buf, sizeof(buf)), "--micro-batch=8");
	set(&p, "qlora", "true");
	set(&p, "lora-r", "8");
	set(&p, "lora-targets", "q_proj,v_proj");
	oom_plan_options(&usual, &p, buf, sizeof(buf));
	assert_non_null(strstr(buf, "--micro-batch=4"));
	assert_non_null(strstr(buf, "--qlora"));
	assert_null(strstr(buf, "--qlora="));
	assert_non_null(strstr(buf, "--lora-targets=q_proj+v_proj"));
	oom_plan_options(&p, &usual, buf, sizeof(buf));
	assert_non_null(strstr(buf, "--no-qlora"));
	/* cut where there is no room */
	assert_ptr_equal(oom_plan_options(&usual, &p, buf, 10), buf);
	assert_true(strlen(buf) < 10);
}

/* A stage that was said is told from one that follows. */
static void a_stage_that_was_said(void **state)
{
	struct oom_plan p = oom_plan_default();

	(void)state;
	assert_int_equal(p.zero_said, 0);
	set(&p, "zero", "0");
	assert_int_equal(p.zero_said, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_values),
		cmocka_unit_test(other_values),
		cmocka_unit_test(refusals),
		cmocka_unit_test(names_have_room),
		cmocka_unit_test(words_that_are_the_same),
		cmocka_unit_test(frameworks_words_for_a_choice),
		cmocka_unit_test(nearest_words),
		cmocka_unit_test(words_joined),
		cmocka_unit_test(differences_as_options),
		cmocka_unit_test(a_stage_that_was_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
