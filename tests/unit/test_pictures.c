/* What is written for browsers and CI: SVG elements, the gate's tables.  Names come from files and command lines, so nothing
 * in them may end an element, a cell or a line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check_tables.h"
#include "svg.h"

static char *text;
static size_t size;

static FILE *begin(void)
{
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	return out;
}

static void is(FILE *out, const char *want)
{
	fclose(out);
	assert_string_equal(text, want);
	free(text);
}

/* ---- SVG ---- */

static void elements(void **state)
{
	FILE *out = begin();

	(void)state;
	oom_svg_rect(out, 1, 2.25, 3.04, 4.06, "#ff0000", NULL);
	is(out, "<rect x=\"1.0\" y=\"2.2\" width=\"3.0\" height=\"4.1\" fill=\"#ff0000\"/>\n");
	out = begin();
	oom_svg_rect(out, 0, 0, 1, 1, "none", "a tip");
	is(out, "<rect x=\"0.0\" y=\"0.0\" width=\"1.0\" height=\"1.0\" fill=\"none\"><title>a tip</title></rect>\n");
	out = begin();
	oom_svg_line(out, 0, 1, 2, 3, "#000000", NULL);
	oom_svg_line(out, 0, 1, 2, 3, "#000000", "4 3");
	is(out, "<line x1=\"0.0\" y1=\"1.0\" x2=\"2.0\" y2=\"3.0\" stroke=\"#000000\"/>\n"
		"<line x1=\"0.0\" y1=\"1.0\" x2=\"2.0\" y2=\"3.0\" stroke=\"#000000\" stroke-dasharray=\"4 3\"/>\n");
	out = begin();
	oom_svg_text(out, 1, 2, 10, OOM_ANCHOR_MIDDLE, "#123456", "%d of %s", 3, "four");
	is(out, "<text x=\"1.0\" y=\"2.0\" font-size=\"10.0\" text-anchor=\"middle\" fill=\"#123456\">3 of four</text>\n");
	out = begin();
	oom_svg_text_up(out, 1, 2, 10, "#123456", "up");
	is(out, "<text x=\"1.0\" y=\"2.0\" font-size=\"10.0\" text-anchor=\"end\" fill=\"#123456\" "
		"transform=\"rotate(-90 1.0 2.0)\">up</text>\n");
}

/* Words across lines have a white seam. */
static void ink_has_a_seam(void **state)
{
	FILE *out = begin();

	(void)state;
	oom_svg_text(out, 0, 0, 10, OOM_ANCHOR_START, OOM_SVG_INK, "x");
	fclose(out);
	assert_non_null(strstr(text, "stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">x</text>"));
	free(text);
}

static void names_end_no_element(void **state)
{
	FILE *out = begin();

	(void)state;
	oom_svg_text(out, 0, 0, 1, OOM_ANCHOR_END, "#000000", "%s", "</text><script>a && \"b\"\x01\x7f");
	fclose(out);
	assert_non_null(strstr(text, ">&lt;/text&gt;&lt;script&gt;a &amp;&amp; &quot;b&quot;  </text>"));
	free(text);
	out = begin();
	oom_svg_begin(out, 10, 20, "<&>");
	oom_svg_end(out);
	fclose(out);
	assert_non_null(strstr(text, "<title>&lt;&amp;&gt;</title>"));
	assert_non_null(strstr(text, "viewBox=\"0 0 10 20\""));
	assert_string_equal(text + strlen(text) - 7, "</svg>\n");
	free(text);
}

static void long_words_are_cut(void **state)
{
	char word[2000];
	FILE *out = begin();

	(void)state;
	memset(word, 'x', sizeof(word) - 1);
	word[sizeof(word) - 1] = 0;
	oom_svg_text(out, 0, 0, 1, OOM_ANCHOR_START, "#000000", "%s", word);
	fclose(out);
	assert_true(size < 600);
	assert_string_equal(text + size - 8, "</text>\n");
	free(text);
}

/* ---- the gate's tables ---- */

static struct oom_check_row rows[] = {
	{.name = (char *)"a.yaml: Llama on 4090", .text = (char *)"", .fits = true, .used_bytes = 10737418240, .capacity_bytes = 25254952960},
	{.name = (char *)"b|c_d*<e>", .text = (char *)"fits the GPU, not the host", .used_bytes = 1073741824, .capacity_bytes = 25254952960},
	{.name = (char *)"r.csv:3 \"x\" & y", .text = (char *)"micro-batch: \"x\" is not a whole number\nor", .failed = true},
};
static const struct oom_job job;
static const struct oom_check check = {.job = &job, .row = rows, .n = 3};

static void write_as(const char *format, const char *want)
{
	const char *file;
	const struct check_format *f = check_format(format, &file);
	FILE *out = begin();

	assert_non_null(f);
	assert_null(file);
	f->write(out, &check, 1);
	is(out, want);
}

static void formats(void **state)
{
	const char *file = "untouched";

	(void)state;
	write_as("text", "FITS          10.00 of 23.52 GiB    a.yaml: Llama on 4090\n"
			 "DOES NOT FIT  1.00 of 23.52 GiB     b|c_d*<e>: fits the GPU, not the host\n"
			 "ERROR                               r.csv:3 \"x\" & y: micro-batch: \"x\" is not a whole number?or\n"
			 "1 of 3 fit\n");
	write_as("md", "**oomplan**: 1 of 3 fit\n\n| set-up | verdict | used | capacity | |\n|---|---|---:|---:|---|\n"
		       "| a.yaml: Llama on 4090 | FITS | 10.00 GiB | 23.52 GiB |  |\n"
		       "| b\\|c\\_d\\*&lt;e> | DOES NOT FIT | 1.00 GiB | 23.52 GiB | fits the GPU, not the host |\n"
		       "| r.csv:3 \"x\" &amp; y | ERROR |  |  | micro-batch: \"x\" is not a whole number?or |\n");
	write_as("junit",
		 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
		 "<testsuite name=\"oomplan\" tests=\"3\" failures=\"1\" errors=\"1\">\n"
		 "<testcase classname=\"oomplan\" name=\"a.yaml: Llama on 4090\"><system-out>10.00 of 23.52 GiB</system-out></testcase>\n"
		 "<testcase classname=\"oomplan\" name=\"b|c_d*&lt;e&gt;\"><failure message=\"DOES NOT FIT: 1.00 of 23.52 GiB: fits the "
		 "GPU, not the host\"></failure></testcase>\n"
		 "<testcase classname=\"oomplan\" name=\"r.csv:3 &quot;x&quot; &amp; y\"><error message=\"ERROR: micro-batch: &quot;x&quot; "
		 "is not a whole number?or\"></error></testcase>\n</testsuite>\n</testsuites>\n");
	write_as("json",
		 "{\"schema\": \"oomplan-check/1\", \"fitting\": 1, \"rows\": 3, \"setups\": ["
		 "{\"name\": \"a.yaml: Llama on 4090\", \"fits\": true, \"used_bytes\": 10737418240, "
		 "\"capacity_bytes\": 25254952960, \"text\": \"\"}, "
		 "{\"name\": \"b|c_d*<e>\", \"fits\": false, \"used_bytes\": 1073741824, \"capacity_bytes\": 25254952960, "
		 "\"text\": \"fits the GPU, not the host\"}, "
		 "{\"name\": \"r.csv:3 \\\"x\\\" & y\", \"fits\": null, "
		 "\"text\": \"micro-batch: \\\"x\\\" is not a whole number\\nor\"}]}\n");
	assert_non_null(check_format("md:report.md", &file));
	assert_string_equal(file, "report.md");
	assert_non_null(check_format("junit:a:b", &file));
	assert_string_equal(file, "a:b");
	assert_null(check_format("xml", &file));
	assert_null(check_format("m", &file));
	assert_null(check_format("", &file));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements),	       cmocka_unit_test(ink_has_a_seam), cmocka_unit_test(names_end_no_element),
		cmocka_unit_test(long_words_are_cut), cmocka_unit_test(formats),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
