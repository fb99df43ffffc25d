/* Numbers as text: the grammar of units.h, case by case, and what is refused with a suggestion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/plan.h"
#include "oomplan/units.h"

static void counts(void **state)
{
	static const struct {
		const char *text;
		int64_t count;
	} cases[] = {
		{"0", 0}, {"8", 8}, {"008", 8}, {"-4", -4}, {"8k", 8000}, {"8K", 8000}, {"8Ki", 8192}, {"2M", 2000000},
		{"2Mi", 2097152}, {"1G", 1000000000}, {"1Gi", 1073741824}, {"-1k", -1000},
		{"9223372036854775807", INT64_MAX}, {"-9223372036854775807", -INT64_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		int64_t n = 77;

		if (oom_parse_count(cases[i].text, &n, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_int_equal(n, cases[i].count);
	}
}

/* What is no count, with what was probably meant; the number is left as it was. */
static void no_counts(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"", "\"\" is not a whole number"},
		{"x", "\"x\" is not a whole number"},
		{"-", "\"-\" is not a whole number"},
		{"1.5", "\"1.5\" is not a whole number"},
		{"8 ", "\"8 \" is not a plain whole number; write 8"},
		{" 8", "\" 8\" is not a plain whole number; write 8"},
		{"+8", "\"+8\" is not a plain whole number; write 8"},
		{"1e3", "\"1e3\" is not a plain whole number; write 1000"},
		{"0x10", "\"0x10\" is not a plain whole number; write 16"},
		{"1.5M", "\"1.5M\" is not a plain whole number; write 1500000"},
		{"2.0", "\"2.0\" is not a plain whole number; write 2"},
		{"inf", "\"inf\" is not a whole number"},
		{"nan", "\"nan\" is not a whole number"},
		{"8kk", "\"8kk\" is not a whole number"},
		{"8m", "\"8m\" is not a whole number"},
		{"--8", "\"--8\" is not a whole number"},
		{"1,000", "\"1,000\" is not a whole number"},
		{"9223372036854775808", "9223372036854775808 is too large"},
		{"99999999999999999999999", "99999999999999999999999 is too large"},
		{"9999999999G", "9999999999G is too large"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		int64_t n = 77;

		assert_int_equal(oom_parse_count(cases[i].text, &n, &err), OOM_ERR_INVALID);
		if (strcmp(err.text, cases[i].says))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_int_equal(n, 77);
	}
}

static void reals(void **state)
{
	static const struct {
		const char *text;
		double real;
	} cases[] = {
		{"0", 0}, {"0.02", 0.02}, {"5e-2", 0.05}, {"5E-2", 0.05}, {"5e+2", 500}, {".5", 0.5}, {"5.", 5}, {"-1.25", -1.25},
		{"1e308", 1e308}, {"007.5", 7.5},
	};
	static const char *const wrong[] = {"", ".", "-", "e5", "5e", "5e+", "+1", " 1", "1 ", "0x1p3", "inf", "nan", "1,5", "1e309",
					    "infinity", "1.2.3", "--1"};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		double v = 77;

		if (oom_parse_real(cases[i].text, &v, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_true(v == cases[i].real);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct oom_error err = {{0}};
		double v = 77;

		if (!oom_parse_real(wrong[i], &v, &err))
			fail_msg("%s is read as %g", wrong[i], v);
		assert_true(v == 77);
		assert_non_null(strstr(err.text, "is not a number"));
	}
}

/* IEC 80000-13: kibi and its likes are powers of 1024, SI's kilo of 1000. */
static void bytes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{"512B", 512}, {"1KB", 1000}, {"1KiB", 1024}, {"1k", 1000}, {"1Ki", 1024}, {"24GB", 24000000000},
		{"24GiB", 25769803776}, {"24 GiB", 25769803776}, {"24   GiB", 25769803776}, {"24gib", 25769803776},
		{"24G", 24000000000}, {"24Gi", 25769803776}, {"1.5TiB", 1649267441664}, {"2TB", 2000000000000},
		{"81038MiB", 84974501888}, {"0.5MiB", 524288}, {"0GiB", 0}, {".5KiB", 512}, {"1048576", 1048576},
		{"84974501888", 84974501888}, {"23.65GiB", 25393994138},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		uint64_t n = 77;

		if (oom_parse_bytes(cases[i].text, &n, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		if (n != cases[i].bytes)
			fail_msg("%s: %llu", cases[i].text, (unsigned long long)n);
	}
}

/* A bare number below 2^20 is no size that anybody means: cards are spoken of in GiB, nvidia-smi prints MiB. */
static void no_bytes(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"24", "24 bytes? write 24GiB"},
		{"80", "80 bytes? write 80GiB"},
		{"81038", "81038 bytes? write 81038MiB"},
		{"", "\"\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"lots", "\"lots\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"GiB", "\"GiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"-1GiB", "\"-1GiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"1e3GiB", "\"1e3GiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"24GiBs", "\"24GiBs\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"24 G B", "\"24 G B\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"24,5GiB", "\"24,5GiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"0", "\"0\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
		{"10000000TiB", "\"10000000TiB\" is not a size: expected e.g. 23.65GiB, 24GB or 81038MiB"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		uint64_t n = 77;

		assert_int_equal(oom_parse_bytes(cases[i].text, &n, &err), OOM_ERR_INVALID);
		if (strcmp(err.text, cases[i].says))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_int_equal(n, 77);
	}
}

static void written(void **state)
{
	static const struct {
		uint64_t n;
		const char *bytes, *count;
	} cases[] = {
		{0, "0 B", "0"},
		{1, "1 B", "1"},
		{1023, "1023 B", "1023"},
		{1024, "1.00 KiB", "1024"},
		{1048575, "1024.00 KiB", "1.0 M"},
		{1048576, "1.00 MiB", "1.0 M"},
		{8519680, "8.12 MiB", "8.5 M"},         /* a cuBLAS workspace before Hopper; 8.125 to even */
		{124439808, "118.68 MiB", "124.4 M"},   /* GPT-2's parameters */
		{1073741824, "1.00 GiB", "1.07 B"},
		{8030261248, "7.48 GiB", "8.03 B"},     /* Llama-3.1-8B's */
		{UINT64_C(1) << 60, "1073741824.00 GiB", "1152921504.61 B"},
	};
	char buf[40];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_ptr_equal(oom_format_bytes(cases[i].n, buf, sizeof(buf)), buf);
		assert_string_equal(buf, cases[i].bytes);
		assert_ptr_equal(oom_format_count(cases[i].n, buf, sizeof(buf)), buf);
		assert_string_equal(buf, cases[i].count);
	}
	assert_string_equal(oom_format_bytes(8519680, buf, 4), "8.1");  /* cut, never overrun */
}

static void versions(void **state)
{
	static const struct {
		int64_t version;
		const char *text;
	} cases[] = {{0, "newest"}, {OOM_VERSION(4, 45), "4.45"}, {OOM_VERSION(2, 0), "2.0"}, {OOM_VERSION(0, 12), "0.12"},
		     {OOM_VERSION(12, 999), "12.999"}};
	char buf[40];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(oom_write_version(cases[i].version, buf, sizeof(buf)), cases[i].text);
	/* later versions are larger numbers */
	assert_true(OOM_VERSION(4, 9) < OOM_VERSION(4, 45) && OOM_VERSION(4, 999) < OOM_VERSION(5, 0));
}

/* The shortest text that is the same number again. */
static void the_shortest_text(void **state)
{
	static const struct {
		double real;
		const char *text;
	} cases[] = {{0, "0"}, {0.1, "0.1"}, {0.05, "0.05"}, {1.0 / 3, "0.3333333333333333"}, {1e-9, "1e-09"}, {8.6, "8.6"},
		     {123456789, "123456789"}, {-2.5, "-2.5"}, {1e22, "1e+22"}};
	char buf[40];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_string_equal(oom_write_real(cases[i].real, buf, sizeof(buf)), cases[i].text);
		assert_true(oom_strtod(buf, NULL) == cases[i].real);
	}
}

/* Whatever is written is read as the same number, by its own reader. */
static void round_trips(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct oom_error err = {{0}};
		char text[40];
		int64_t n;
		double r;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		snprintf(text, sizeof(text), "%lld", (long long)(seed >> (seed & 31)) / 2);
		assert_int_equal(oom_parse_count(text, &n, &err), OOM_OK);
		assert_int_equal(n, (long long)(seed >> (seed & 31)) / 2);
		oom_write_real((double)(seed >> 12) / (double)(1 + (seed & 0xfff)), text, sizeof(text));
		assert_int_equal(oom_parse_real(text, &r, &err), OOM_OK);
		assert_true(r == (double)(seed >> 12) / (double)(1 + (seed & 0xfff)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),   cmocka_unit_test(no_counts),	 cmocka_unit_test(reals),
		cmocka_unit_test(bytes),    cmocka_unit_test(no_bytes),		 cmocka_unit_test(written),
		cmocka_unit_test(versions), cmocka_unit_test(the_shortest_text), cmocka_unit_test(round_trips),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
