/* The option engine: every form an option can be written in, and what each wrong one is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"
#include "view.h"

#define COLOURS(X) \
	X(RED, "red", "of blood") X(GREEN, "green", "of grass") X(DARK_BLUE, "dark-blue", "of the sea")
OOM_WORD_LIST(static, colours, COLOURS)

static struct target {
	bool flag, loud, stop;
	const char *text;
	int colour;
	int64_t count;
	double share, degree;
	struct oom_size size;
	struct oom_list any, some;
} t;

static const struct oom_option rows[] = {
	{.name = "flag", .letter = 'f', .kind = OOM_OPTION_FLAG, .target = &t.flag,
	 .summary = "a flag"},
	{.name = "loud", .letter = 'l', .kind = OOM_OPTION_FLAG, .target = &t.loud,
	 .summary = "another"},
	{.name = "text", .letter = 't', .kind = OOM_OPTION_TEXT, .target = &t.text,
	 .metavar = "TEXT", .summary = "any text"},
	{.name = "colour", .kind = OOM_OPTION_CHOICE, .target = &t.colour, .metavar = "WORD",
	 .choice = colours, .unset = "red", .summary = "a colour"},
	{.name = "count", .letter = 'n', .kind = OOM_OPTION_COUNT, .target = &t.count,
	 .metavar = "N", .min = -5, .max = 1e9, .summary = "how many"},
	{.name = "wide", .kind = OOM_OPTION_COUNT, .target = &t.count, .metavar = "N", .min = 0,
	 .max = 1e300, .summary = "a range wider than the type"},
	{.name = "share", .kind = OOM_OPTION_REAL, .target = &t.share, .metavar = "P", .min = 0,
	 .max = 1, .percent = true, .summary = "a part"},
	{.name = "any", .kind = OOM_OPTION_LIST, .target = &t.any, .metavar = "WORDS",
	 .summary = "any words"},
	{.name = "some", .kind = OOM_OPTION_LIST, .target = &t.some, .metavar = "WORDS",
	 .choice = colours, .summary = "some words"},
	{.name = "stop", .kind = OOM_OPTION_FLAG, .target = &t.stop, .summary = "ends parsing"},
	{.name = "size", .kind = OOM_OPTION_SIZE, .target = &t.size, .metavar = "SIZE",
	 .summary = "memory"},
	{.name = "degree", .kind = OOM_OPTION_REAL, .target = &t.degree, .metavar = "X", .min = -9,
	 .max = 9, .summary = "no part of anything"},
	{.name = NULL},
};

/* Parses one line, words divided by blanks ('~' stands for an empty word); returns the failure's
 * text or "". */
static const char *parse(const char *line, struct oom_plan *plan, struct oom_list *words)
{
	static char copy[4096];
	static struct oom_error err;
	struct oom_list none = {{NULL}, 0};
	const struct oom_options set = {
		.own = rows, .plan = plan, .words = words ? words : &none, .stop = &rows[9]};
	char *argv[200], *save = NULL;
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w && argc < 200; w = strtok_r(NULL, " ", &save))
		argv[argc++] = strcmp(w, "~") ? w : w + 1;
	memset(&t, 0, sizeof(t));
	t.colour = -1;
	memset(&err, 0, sizeof(err));
	return oom_options_parse(&set, argc, argv, &err) ? err.text : "";
}

static void all_forms_are_read(void **state)
{
	(void)state;
	assert_string_equal(parse("--flag --text a --colour=dark_blue -n 3 --share 5%", NULL, NULL),
			    "");
	assert_true(t.flag);
	assert_string_equal(t.text, "a");
	assert_int_equal(t.colour, 2);
	assert_int_equal(t.count, 3);
	assert_true(t.share > 0.0499 && t.share < 0.0501);

	assert_string_equal(parse("-fl -tx=y", NULL, NULL), "");
	assert_true(t.flag && t.loud);
	assert_string_equal(t.text, "x=y");

	assert_string_equal(parse("-flt - --flag=off", NULL, NULL), "");
	assert_true(!t.flag && t.loud);
	assert_string_equal(t.text, "-");

	assert_string_equal(parse("--flag --no-flag --loud=YES -n=-5", NULL, NULL), "");
	assert_true(!t.flag && t.loud);
	assert_int_equal(t.count, -5);
}

static void counts_take_units(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} cases[] = {
		{"2k", 2000},	   {"2K", 2000},     {"2Ki", 2048}, {"1M", 1000000},
		{"1Mi", 1048576}, {"0", 0},	     {"007", 7},    {"1G", 1000000000},
		{"-5", -5},	   {"-0", 0},
	};
	/* not written as a count, but plain */
	static const struct {
		const char *text, *meant;
	} bad[] = {{"", NULL},	    {"x", NULL},     {"2.5", NULL},  {"2kk", NULL},
		   {"2 k", NULL},   {"inf", NULL},   {"nan", NULL},  {"--", NULL},
		   {"1e", NULL},    {"1e999", NULL}, {"5%", NULL},   {"2i", NULL},
		   {"-", NULL},	    {"k", NULL},     {"4x", NULL},   {"1,5", NULL},
		   {"0x10", "16"},  {"1e3", "1000"}, {" 4", "4"},    {"+4", "4"},
		   {"4 ", "4"},	    {"8.0", "8"},    {"0.5k", "500"}, {"1.5M", "1500000"}};
	char line[80], want[120];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(line, sizeof(line), "--count=%s", cases[i].text);
		assert_string_equal(parse(line, NULL, NULL), "");
		assert_int_equal(t.count, cases[i].value);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *argv[] = {line};
		struct oom_error err = {{0}};
		struct oom_list words = {{NULL}, 0};
		const struct oom_options set = {.own = rows, .words = &words};

		snprintf(line, sizeof(line), "--count=%s", bad[i].text);
		snprintf(want, sizeof(want), "--count: \"%s\" is not a %swhole number%s%s",
			 bad[i].text, bad[i].meant ? "plain " : "", bad[i].meant ? "; write " : "",
			 bad[i].meant ? bad[i].meant : "");
		t.count = 77;
		assert_int_equal(oom_options_parse(&set, 1, argv, &err), OOM_ERR_INVALID);
		assert_string_equal(err.text, want);
		assert_int_equal(t.count, 77);          /* outputs untouched */
	}
}

/* One grammar; exponents for reals, percent where the row says so, units for sizes. */
static void reals_and_sizes_are_read(void **state)
{
	(void)state;
	assert_string_equal(parse("--share 2.5e-1 --degree -1.5 --size 23.65GiB", NULL, NULL), "");
	assert_true(t.share == 0.25 && t.degree == -1.5);
	assert_true(t.size.bytes == 25393994138);
	assert_string_equal(t.size.text, "23.65GiB");
	assert_string_equal(parse("--share .5 --degree 3. --size 24gb", NULL, NULL), "");
	assert_true(t.share == 0.5 && t.degree == 3);
	assert_true(t.size.bytes == 24000000000);
	assert_string_equal(parse("--size 1TiB", NULL, NULL), "");
	assert_true(t.size.bytes == 1099511627776);
	assert_string_equal(parse("--size 25769803776", NULL, NULL), "");
	assert_true(t.size.bytes == 25769803776);
}

static const struct {
	const char *line, *text;
} wrong[] = {
	{"--flg", "unknown option --flg (did you mean --flag?)"},
	{"--flg=3", "unknown option --flg=3 (did you mean --flag?)"},
	{"--", ""},
	{"-x", "unknown option -x"},
	{"-flx", "unknown option -x"},
	{"-flxx", "unknown option -x"},
	{"--=3", "unknown option --=3"},
	{"--no-", "unknown option --no-"},
	{"--no-text", "unknown option --no-text (did you mean --text?)"},
	{"--text", "--text needs a value (TEXT)"},
	{"--text --flag", "--text needs a value (TEXT)"},
	{"-t", "-t needs a value (TEXT)"},
	{"--text ~", "--text: the value is empty"},
	{"--count -6", "--count: -6 is outside -5 to 1000000000"},
	{"--count=1000000001", "--count: 1000000001 is outside -5 to 1000000000"},
	{"--wide 9223372036854775808", "--wide: 9223372036854775808 is too large"},
	{"--wide 99999999999999999999", "--wide: 99999999999999999999 is too large"},
	{"--wide 9223372036854775807k", "--wide: 9223372036854775807k is too large"},
	{"--share 1.5", "--share: 1.5 is outside 0 to 1 (did you mean 1.5%?)"},
	{"--share 150%", "--share: 150% is outside 0 to 1"},
	{"--share -1", "--share: -1 is outside 0 to 1"},
	{"--share half", "--share: \"half\" is not a number"},
	{"--share 0x1p-1", "--share: \"0x1p-1\" is not a number"},
	{"--share nan", "--share: \"nan\" is not a number"},
	{"--share inf", "--share: \"inf\" is not a number"},
	{"--share 1e999", "--share: \"1e999\" is not a number"},
	{"--share +1", "--share: \"+1\" is not a number"},
	{"--share 0,5", "--share: \"0,5\" is not a number"},
	{"--share .", "--share: \".\" is not a number"},
	{"--share %", "--share: \"%\" is not a number"},
	{"--share 5%%", "--share: \"5%%\" is not a number"},
	{"--degree 5%", "--degree: \"5%\" is not a number"},
	{"--degree 50", "--degree: 50 is outside -9 to 9"},
	{"--size 24", "--size: 24 bytes? write 24GiB"},
	{"--size 24.5", "--size: 24.5 bytes? write 24.5GiB"},
	{"--size 81038", "--size: 81038 bytes? write 81038MiB"},
	{"--size lots",
	 "--size: \"lots\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
	{"--size 1e9GiB",
	 "--size: \"1e9GiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
	{"--size -1GiB",
	 "--size: \"-1GiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
	{"--size 0", "--size: \"0\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
	{"--colour blue", "--colour: \"blue\" is none of: red, green, dark-blue (did you "
			  "mean \"dark-blue\"?)"},
	{"--colour ~", "--colour: \"\" is none of: red, green, dark-blue"},
	{"--some red,grn",
	 "--some: \"grn\" is none of: red, green, dark-blue (did you mean \"green\"?)"},
	{"--some red,", "--some: \"\" is none of: red, green, dark-blue"},
	{"--flag=3", "--flag: \"3\" is neither true nor false"},
	{"--no-flag=1", "--no-flag takes no value"},
	{"--micro-batch 3",
	 "unknown option --micro-batch"}, /* a knob, where there are none */
};

static void wrong_ones_are_told_why(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_string_equal(parse(wrong[i].line, NULL, NULL), wrong[i].text);
}

static void lists_collect(void **state)
{
	char line[1000] = "";

	(void)state;
	assert_string_equal(
		parse("--any a,b --any c --some green,red --some=DARK_blue", NULL, NULL), "");
	assert_int_equal(t.any.n, 2);
	assert_string_equal(t.any.items[0], "a,b");
	assert_string_equal(t.any.items[1], "c");
	assert_int_equal(t.some.n, 3);
	assert_string_equal(t.some.items[0], "green");
	assert_string_equal(t.some.items[2], "dark-blue");
	assert_string_equal(parse("--some green+red,dark-blue", NULL, NULL), "");
	assert_int_equal(t.some.n, 3);

	for (int i = 0; i < OOM_LIST_MAX; i++)
		strcat(line, "--any=x ");
	assert_string_equal(parse(line, NULL, NULL), "");
	assert_int_equal(t.any.n, OOM_LIST_MAX);
	strcat(line, "--any=y");
	assert_string_equal(parse(line, NULL, NULL), "--any: more than 64");
}

static void words_and_the_end_of_options(void **state)
{
	struct oom_list words = {{NULL}, 0};

	(void)state;
	assert_string_equal(parse("one --flag - -- --loud -x", NULL, &words), "");
	assert_true(t.flag && !t.loud);
	assert_int_equal(words.n, 4);
	assert_string_equal(words.items[0], "one");
	assert_string_equal(words.items[1], "-");
	assert_string_equal(words.items[2], "--loud");
	assert_string_equal(words.items[3], "-x");

	assert_string_equal(parse("--stop --nonsense", NULL, NULL),
			    ""); /* --help wins over what follows */
	assert_true(t.stop);
}

/* Every knob of the table is an option by its name and by its column, and takes its own default. */
static void knobs_are_appended(void **state)
{
	const struct oom_option *k;
	size_t n = 0, seen = 0;
	struct oom_view v;

	(void)state;
	for (; (k = oom_knob_at(n)) != NULL; n++) {
		struct oom_plan plan = oom_plan_default(), before = plan;
		char line[300], def[140];

		oom_plan_get(&plan, k, def, sizeof(def));
		if (!*def)
			continue;
		memset((char *)&plan + k->offset, 1, 8);        /* no default has this value */
		snprintf(line, sizeof(line), "--%s=%s", n % 2 ? k->column : k->name, def);
		if (!oom_knob_find(k->column) || oom_knob_find(k->name) != k)
			fail_msg("%s: not found by its own name", k->name);
		assert_string_equal(parse(line, &plan, NULL), "");
		assert_memory_equal((char *)&plan + k->offset, (char *)&before + k->offset, 8);
	}
	for (size_t i = 0; oom_view_at(rows, true, i, &v); i++)
		seen++;
	assert_int_equal(seen, sizeof(rows) / sizeof(rows[0]) - 1 + n);
}

static void knob_flags_and_failures(void **state)
{
	struct oom_plan plan = oom_plan_default();

	(void)state;
	assert_string_equal(parse("--no-double-quant --qlora --micro_batch 2Ki", &plan, NULL), "");
	assert_int_equal(plan.double_quant, 0);
	assert_int_equal(plan.qlora, 1);
	assert_int_equal(plan.micro_batch, 2048);
	assert_string_equal(parse("--qlora=false", &plan, NULL), "");
	assert_int_equal(plan.qlora, 0);
	assert_string_equal(parse("--no-precision", &plan, NULL),
			    "unknown option --no-precision (did you mean --precision?)");
	assert_string_equal(parse("--micro-batch", &plan, NULL), "--micro-batch needs a value (N)");
	assert_string_equal(parse("--micro-batch=0", &plan, NULL),
			    "--micro-batch: 0 is outside 1 to 1048576");
	assert_int_equal(plan.micro_batch, 2048);       /* as it was */
	assert_string_equal(parse("--micro-bath 3", &plan, NULL),
			    "unknown option --micro-bath (did you mean --micro-batch?)");
}

static void long_arguments_are_cut_not_overrun(void **state)
{
	static char big[100000];
	char *forms[] = {big, big, big};
	static const char *const heads[] = {
		"--",           "--count=",        "--colour=", "--some=", "--micro-batch=",
		"--precision=", "--lora-targets=", "-",         "--no-"};
	struct oom_plan plan = oom_plan_default();

	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		struct oom_list words = {{NULL}, 0};
		const struct oom_options set = {.own = rows, .plan = &plan, .words = &words};
		struct oom_error err = {{0}};
		const size_t n = strlen(heads[i]);

		memset(big, 'z', sizeof(big) - 1);
		memcpy(big, heads[i], n);
		assert_int_not_equal(oom_options_parse(&set, 1, forms, &err), OOM_OK);
		assert_true(strlen(err.text) > 10 && strlen(err.text) < sizeof(err.text));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_forms_are_read),
		cmocka_unit_test(counts_take_units),
		cmocka_unit_test(reals_and_sizes_are_read),
		cmocka_unit_test(wrong_ones_are_told_why),
		cmocka_unit_test(lists_collect),
		cmocka_unit_test(words_and_the_end_of_options),
		cmocka_unit_test(knobs_are_appended),
		cmocka_unit_test(knob_flags_and_failures),
		cmocka_unit_test(long_arguments_are_cut_not_overrun),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
