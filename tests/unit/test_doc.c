/* Doors into trees of settings: places, quotes, anchors, limits, encodings.  Expected values are
 * read off the texts by hand; YAML's rules: yaml.org/spec/1.1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/doc.h"

static struct doc yaml(const char *text)
{
	struct oom_error err = {{0}};
	struct doc doc = {0};

	if (doc_read_yaml(&doc, text, strlen(text), "f", &err))
		fail_msg("%s", err.text);
	return doc;
}

static void refused(const char *text, const char *words)
{
	struct oom_error err = {{0}};
	struct doc doc = {0};

	assert_int_equal(doc_read_yaml(&doc, text, strlen(text), "f", &err), OOM_ERR_PARSE);
	if (!strstr(err.text, words))
		fail_msg("\"%s\" does not say \"%s\"", err.text, words);
	assert_null(doc.chunks);
}

static void test_places(void **state)
{
	struct doc doc = yaml("# one\na: 1\nb:\n  - x\n  - c: \"2\"\n    d:\n");
	const struct doc_node *n = doc_find(&doc, "b.1.c");

	(void)state;
	assert_non_null(n);
	assert_int_equal(n->line, 5);
	assert_int_equal(n->column, 5);
	assert_true(n->quoted);
	assert_string_equal(n->text, "2");
	assert_int_equal(doc_find(&doc, "b.1.d")->kind, DOC_NULL);
	assert_int_equal(doc_find(&doc, "b")->n, 2);
	assert_null(doc_find(&doc, "b.2"));
	assert_null(doc_find(&doc, "b.x"));
	assert_null(doc_find(&doc, "a.b"));
	doc_release(&doc);
}

static void test_names(void **state)
{
	struct doc doc = yaml("Micro-Batch: 1\na.b: 2\na: {b: 3}\nx: 1\nx: 2\n");

	(void)state;
	assert_string_equal(doc_find(&doc, "micro_batch")->text, "1");
	assert_string_equal(doc_find(&doc, "a.b")->text, "2");
	assert_string_equal(doc_find(&doc, "x")->text, "2");    /* the last of equal keys */
	doc_release(&doc);
}

static void test_anchors(void **state)
{
	struct doc doc = yaml("base: &b {x: 1, y: [1, 2]}\nc: *b\nd:\n  <<: *b\n  x: 9\n");

	(void)state;
	assert_string_equal(doc_find(&doc, "c.y.1")->text, "2");
	assert_string_equal(doc_find(&doc, "d.x")->text, "9");
	assert_string_equal(doc_find(&doc, "d.y.0")->text, "1");
	doc_release(&doc);
	refused("a: &a [*a]\n", "f:1:8: an alias within its own anchor");
	refused("a: *b\n", "f:1:4: an alias of an anchor that the file does not have");
	refused("a: &a [x, x, x, x, x, x, x, x, x, x]\n"
		"b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
		"c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
		"d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
		"e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n"
		"f: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n",
		"more than 20000 values");
}

static void test_refusals(void **state)
{
	(void)state;
	refused("a: {{ model }}\n", "placeholder");
	refused("a: [1\nb: 2\n", "f:2:");
	refused("\tx: 1\n", "f:1:1: not YAML");
	refused("\"\\0\": a\n", "NUL");
	refused("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "64 levels");
}

static void test_documents(void **state)
{
	struct doc doc = yaml("a: 1\n---\nb: [\n");

	(void)state;
	assert_non_null(doc_find(&doc, "a"));
	assert_null(doc_find(&doc, "b"));
	assert_true(doc.n_documents > 1);
	doc_release(&doc);
	doc = yaml("");
	assert_null(doc.root);
	doc_release(&doc);
	doc = yaml("x: !!python/name:torch.bfloat16 ''\ny: !!int \"3\"\n");
	assert_non_null(doc_find(&doc, "x")->tag);
	assert_null(doc_find(&doc, "y")->tag);
	doc_release(&doc);
}

static void test_values(void **state)
{
	static const struct {
		const char *text;
		bool whole, on, off;
		int64_t value;
	} cases[] = {
		{"a: 8", true, false, false, 8},
		{"a: 1_000", true, false, false, 1000},
		{"a: 5e8", true, false, false, 500000000},
		{"a: 8.0", true, false, false, 8},
		{"a: 0x10", true, false, false, 16},
		{"a: 1", true, true, false, 1},
		{"a: 0", true, false, true, 0},
		{"a: 8.5", false, false, false, 0},
		{"a: 1e99", false, false, false, 0},
		{"a: nan", false, false, false, 0},
		{"a: Yes", false, true, false, 0},
		{"a: 'off'", false, false, true, 0},
		{"a: null", false, false, true, 0},
		{"a: []", false, false, true, 0},
		{"a: [1]", false, false, false, 0},
		{"a: eight", false, false, false, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doc doc = yaml(cases[i].text);
		const struct doc_node *n = doc_find(&doc, "a");
		int64_t value = 0;

		if (doc_whole(n, &value) != cases[i].whole || value != cases[i].value ||
		    doc_is_true(n) != cases[i].on || doc_is_off(n) != cases[i].off)
			fail_msg("%s", cases[i].text);
		doc_release(&doc);
	}
}

static void test_json(void **state)
{
	static const char text[] = "{\"a\": {\"b\": [1, 5e8, true, null, \"x\"]},\n \"c\": 0.25}";
	struct oom_error err = {{0}};
	struct doc doc = {0};

	(void)state;
	assert_int_equal(doc_read_json(&doc, text, sizeof(text) - 1, "f", &err), OOM_OK);
	assert_string_equal(doc_find(&doc, "a.b.1")->text, "500000000");
	assert_true(doc_is_true(doc_find(&doc, "a.b.2")));
	assert_int_equal(doc_find(&doc, "a.b.3")->kind, DOC_NULL);
	assert_true(doc_find(&doc, "a.b.4")->quoted);
	assert_string_equal(doc_find(&doc, "c")->text, "0.25");
	assert_int_equal(doc_find(&doc, "c")->line, 2);
	doc_release(&doc);
	assert_int_equal(doc_read_json(&doc, "{\"a\": 1,}", 9, "f", &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "f:1:"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places), cmocka_unit_test(test_names),
		cmocka_unit_test(test_anchors), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_documents), cmocka_unit_test(test_values),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
