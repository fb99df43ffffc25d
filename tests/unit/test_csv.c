/* Tables with named columns: what RFC 4180 says, what is refused, and that what was written reads back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "csvout.h"
#include "input/csv_rows.h"

/* What was read: cells joined by '|', rows ended by ';', each with its line before it. */
struct seen {
	char text[4000];
	size_t rows;
	enum oom_status stop;           /* returned for the second row */
};

static enum oom_status on_row(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct seen *s = ctx;
	size_t n = strlen(s->text);

	n += (size_t)snprintf(s->text + n, sizeof(s->text) - n, "%zu:", row->line);
	for (size_t i = 0; i < row->n; i++)
		n += (size_t)snprintf(s->text + n, sizeof(s->text) - n, "%s%s", i ? "|" : "", row->cells[i]);
	snprintf(s->text + n, sizeof(s->text) - n, ";");
	return ++s->rows == 2 && s->stop ? oom_error_set(err, s->stop, "enough") : OOM_OK;
}

static void rows_as_rfc_4180_has_them(void **state)
{
	static const struct {
		const char *text, *seen;
	} cases[] = {
		{"a,b\n1,2\n", "2:1|2;"},
		{"a,b\n1,2", "2:1|2;"},                         /* no end of the last line */
		{"a,b\r\n1,2\r\n", "2:1|2;"},
		{"a,b\n\"x, y\",2\n", "2:x, y|2;"},
		{"a,b\n\"say \"\"no\"\"\",2\n", "2:say \"no\"|2;"},
		{"a,b\n\"two\nlines\",2\n3,4\n", "3:two\nlines|2;4:3|4;"},
		{"a,b\n1\n", "2:1|;"},                          /* what is missing at the end is empty */
		{"a,b\n\n\n1,2\n", "4:1|2;"},                   /* empty lines are none */
		{"a,b\n,\n", "2:|;"},
		{"\xef\xbb\xbf" "a,b\n1,2\n", "2:1|2;"},        /* Excel's byte-order mark */
		{"a,b\n", ""},
		/* what libcsv 3.0.3 says by itself of lines that do not need it, and of some that do */
		{"a,b\n\"\",\"2\"\n", "2:|2;"},
		{"a,b\n 1 ,\t2\n3,4 5\n", "2:1|2;3:3|4 5;"},
		{"a,b\n\"1\" ,2\n\" 3\",4\r\n", "2:1|2;3: 3|4;"},
		{"a,b\n5\" pipe,2\n\"x\"y\",2\n", "2:5\" pipe|2;3:x\"y|2;"},
		{"a,b\r1,2\r3,\"4\r5\"\n6,7\n", "1:1|2;1:3|4\r5;2:6|7;"},
		{"a,b\n1,2\r\"3\n4\",5\n6,7\n", "2:1|2;3:3\n4|5;4:6|7;"},
		{"a,b\n \n,\r\n\"x,y\",\"z\"\n", "3:|;4:x,y|z;"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seen s = {.text = ""};
		struct oom_error err = {{0}};

		if (oom_csv_parse(cases[i].text, strlen(cases[i].text), "t.csv", on_row, &s, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_string_equal(s.text, cases[i].seen);
	}
}

static enum oom_status first_name(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	(void)err;
	*(const char **)ctx = oom_csv_cell(row, "a");
	assert_null(oom_csv_cell(row, "A"));
	assert_null(oom_csv_cell(row, ""));
	assert_string_equal(row->file, "t.csv");
	return OOM_OK;
}

static void a_cell_by_its_column(void **state)
{
	static const char text[] = "\xef\xbb\xbf" "a,b\n5,6\n";
	const char *cell = NULL;

	(void)state;
	assert_int_equal(oom_csv_parse(text, strlen(text), "t.csv", first_name, &cell, NULL), OOM_OK);
	assert_non_null(cell);
}

static void what_is_no_table(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"", "t.csv: empty: a header line was expected"},
		{"\n\n", "t.csv: empty: a header line was expected"},
		{"a,b\n1,2,3\n", "t.csv:2: 3 cells, but the header names 2 columns"},
		{"a,b\n1,2\n\n1,2,3\n", "t.csv:4: 3 cells, but the header names 2 columns"},
		{"a,b\n\"1,2\n3,4\n", "t.csv: ends inside a quoted cell"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seen s = {.text = ""};
		struct oom_error err = {{0}};

		assert_int_equal(oom_csv_parse(cases[i].text, strlen(cases[i].text), "t.csv", on_row, &s, &err),
				 OOM_ERR_PARSE);
		assert_string_equal(err.text, cases[i].says);
	}
}

/* Cut off at the NUL byte, the first would read as 2; Excel's "Unicode text" is UTF-16. */
static void bytes_of_no_text(void **state)
{
	static const struct {
		const char *text;
		size_t size;
		const char *says;
	} cases[] = {
		{"a,b\n1,2\0" "5\n", 10, "t.csv:2: a NUL byte in a cell"},
		{"\xff\xfe" "a\0,\0b\0\n\0", 10, "t.csv:1: the file is in UTF-16: save it as UTF-8"},
		{"\xfe\xff\0a\0,\0b\0\n", 10, "t.csv:1: the file is in UTF-16: save it as UTF-8"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seen s = {.text = ""};
		struct oom_error err = {{0}};

		assert_int_equal(oom_csv_parse(cases[i].text, cases[i].size, "t.csv", on_row, &s, &err), OOM_ERR_PARSE);
		assert_string_equal(err.text, cases[i].says);
	}
}

/* A row of a megabyte and one of 4096 columns are the most. */
static void bounds(void **state)
{
	enum { CELLS = 4097, LONG = (1 << 20) + 10 };
	char *text = malloc(LONG + 10);
	struct seen s = {.text = ""};
	struct oom_error err = {{0}};

	(void)state;
	assert_non_null(text);
	memset(text, ',', CELLS);
	text[CELLS] = 0;
	assert_int_equal(oom_csv_parse(text, CELLS, "wide.csv", on_row, &s, &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "wide.csv:1: a row longer than 1 MiB or wider than 4096 columns"));
	assert_int_equal(oom_csv_parse(text, CELLS - 2, "wide.csv", on_row, &s, &err), OOM_OK);
	memset(text, 'x', LONG);
	assert_int_equal(oom_csv_parse(text, LONG, "long.csv", on_row, &s, &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "long.csv:1:"));
	free(text);
}

/* A cell is no longer kept than a row may be: the reason is its length, not the end of the file. */
static void a_cell_without_an_end(void **state)
{
	enum { LONG = 5 << 20 };
	char *text = malloc(LONG);
	struct seen s = {.text = ""};
	struct oom_error err = {{0}};

	(void)state;
	assert_non_null(text);
	memset(text, '\n', LONG);
	memcpy(text, "a,b\n1,\"", 7);
	assert_int_equal(oom_csv_parse(text, LONG, "t.csv", on_row, &s, &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "a row longer than 1 MiB"));
	free(text);
}

/* Lines of blanks are no row, however many there are: none of them counts as a part of the next. */
static void blanks_between_rows(void **state)
{
	enum { LONG = 5 << 20 };
	char *text = malloc(LONG);
	struct seen s = {.text = ""};
	struct oom_error err = {{0}};

	(void)state;
	assert_non_null(text);
	memset(text, ' ', LONG);
	memcpy(text, "a,b\n", 4);
	for (size_t i = 100; i < LONG - 4; i += 100)
		text[i] = '\n';
	memcpy(text + LONG - 5, "\n1,2\n", 5);
	assert_int_equal(oom_csv_parse(text, LONG, "t.csv", on_row, &s, &err), OOM_OK);
	free(text);
}

/* What a reader of rows says ends the reading, and is what is said. */
static void a_row_that_is_refused(void **state)
{
	static const char text[] = "a\n1\n2\n3\n";
	struct seen s = {.text = "", .stop = OOM_ERR_UNKNOWN};
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_csv_parse(text, strlen(text), "t.csv", on_row, &s, &err), OOM_ERR_UNKNOWN);
	assert_string_equal(err.text, "enough");
	assert_string_equal(s.text, "2:1;3:2;");
}

static void a_file_that_is_not_there(void **state)
{
	struct oom_error err = {{0}};
	struct seen s = {.text = ""};

	(void)state;
	assert_int_equal(oom_csv_read("no/such/file.csv", on_row, &s, &err), OOM_ERR_IO);
	assert_string_equal(err.text, "no/such/file.csv: No such file or directory");
}

/* ---- writing ---- */

static const char *const cells[] = {"plain", "", "a,b", "say \"no\"", "two\nlines", " blank before", "behind ",
				    "\xc3\xa9t\xc3\xa9", "\"", ",", "a\rb"};
enum { CELLS = sizeof(cells) / sizeof(cells[0]) };

static char *written(void (*write)(FILE *out), size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);

	assert_non_null(out);
	write(out);
	fclose(out);
	return text;
}

/* Both writers: of runs files (input) and of reports (cli). */
static void put_cells(FILE *out)
{
	fputs("c0,c1,c2,c3,c4,c5,c6,c7,c8,c9,c10\n", out);
	for (size_t i = 0; i < CELLS; i++) {
		if (i)
			putc(',', out);
		oom_csv_put(out, cells[i]);
	}
	putc('\n', out);
}

static void report_cells(FILE *out)
{
	static const char *const names[] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", NULL};
	struct oom_csv c = {.out = out};

	oom_csv_head(&c, names);
	for (size_t i = 0; i < CELLS; i++)
		oom_csv_text(&c, cells[i]);
	oom_csv_end(&c);
}

static enum oom_status same_cells(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	(void)err;
	assert_int_equal(row->n, CELLS);
	++*(int *)ctx;
	/* blanks at the ends of a cell that is not quoted are no part of it: the runs files' writer keeps no such */
	for (size_t i = 0; i < CELLS; i++)
		if (*(int *)ctx == 2 || (*cells[i] != ' ' && cells[i][strlen(cells[i]) - (*cells[i] != 0)] != ' '))
			assert_string_equal(row->cells[i], cells[i]);
	return OOM_OK;
}

static void what_was_written_reads_back(void **state)
{
	int rows = 0;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct oom_error err = {{0}};
		size_t size;
		char *text = written(i ? report_cells : put_cells, &size);

		if (oom_csv_parse(text, size, "t.csv", same_cells, &rows, &err))
			fail_msg("%s: %s", text, err.text);
		free(text);
	}
	assert_int_equal(rows, 2);
}

static void numbers_and_ends(FILE *out)
{
	struct oom_csv c = {.out = out};

	oom_csv_uint(&c, 0);
	oom_csv_uint(&c, UINT64_MAX);
	oom_csv_text(&c, "x");
	oom_csv_end(&c);
	oom_csv_text(&c, "y");
	oom_csv_end(&c);
}

static void lines_end_in_lf(void **state)
{
	size_t size;
	char *text = written(numbers_and_ends, &size);

	(void)state;
	assert_string_equal(text, "0,18446744073709551615,x\ny\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_as_rfc_4180_has_them),
		cmocka_unit_test(a_cell_by_its_column),
		cmocka_unit_test(what_is_no_table),
		cmocka_unit_test(bytes_of_no_text),
		cmocka_unit_test(bounds), cmocka_unit_test(a_cell_without_an_end), cmocka_unit_test(blanks_between_rows),
		cmocka_unit_test(a_row_that_is_refused),
		cmocka_unit_test(a_file_that_is_not_there),
		cmocka_unit_test(what_was_written_reads_back),
		cmocka_unit_test(lines_end_in_lf),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
