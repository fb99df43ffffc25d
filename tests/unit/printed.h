/* What is printed, held against a text.  Included after cmocka.h. */
#ifndef OOM_TESTS_PRINTED_H
#define OOM_TESTS_PRINTED_H

#include <stdio.h>
#include <stdlib.h>

static char *text;
static size_t size;

static FILE *begin(void)
{
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	return f;
}

static void ends_as(FILE *f, const char *want)
{
	assert_int_equal(fclose(f), 0);
	assert_string_equal(text, want);
	free(text);
}

#endif
