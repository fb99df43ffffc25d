/* Patterns over module paths as PEFT takes them: re.fullmatch(target_modules, key) (peft/tuners/tuners_utils.py,
 * check_target_module_exists).  What is expected of each text, and where a pattern is wrong, is what Python
 * 3.11's re says; what no pattern can exceed follows from the sizes in plan/regex.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/plan.h"
#include "plan/pattern.h"
#include "plan/regex.h"

static const char *const path[] = {"model.layers.12.self_attn.q_proj", "model.layers.3.mlp.experts.7.down_proj",
				   "vision_model.encoder.layers.3.self_attn.q_proj"};
enum { PATHS = sizeof(path) / sizeof(path[0]) };

static void whole_paths(void **state)
{
	static const struct {
		const char *pattern;
		bool matches[PATHS];
	} rows[] = {
		{".*self_attn\\.(q|k|v|o)_proj", {true, false, true}},
		{"model\\.layers\\.\\d+\\.self_attn\\.q_proj", {true, false, false}},
		{".*\\.(1[0-2]|[3-5])\\..*_proj", {true, true, true}},
		{"(?!vision_model).*\\.q_proj", {true, false, false}},
		{"^(?!.*experts).*proj$", {true, false, true}},
		{".*experts\\.[0-7]\\.(up|down)_proj", {false, true, false}},
		{".*layers\\.(?:[0-9]|1[01])\\.self_attn\\..*", {false, false, true}},
		{".*layers\\.1\\.self_attn.*", {false, false, false}},
		{"q_proj", {false, false, false}},
		{"model.*?proj", {true, true, false}},
		{"(?:model|vision_model\\.encoder)\\.layers\\.\\d{1,2}\\.\\w+\\.q_proj", {true, false, true}},
		{"[^.]*\\.layers\\..*", {true, true, false}},
		{"\\w+", {false, false, false}},
		{"(\\w+\\.?){6}", {true, false, true}},
		{"(\\w+\\.){5}\\w+", {false, false, true}},
		{"(?=.*mlp).*", {false, true, false}},
		{".+\\b12\\b.+", {true, false, false}},
		{".*_\\Bproj", {true, true, true}},
		{"\\Amodel.*\\Z", {true, true, false}},
		{"model\\.layers\\.{1,}12.*", {true, false, false}},
		/* any number of them; at most three */
		{"model\\.layers.{,}", {true, true, false}},
		{"model\\.layers.{,3}", {false, false, false}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t k = 0; k < PATHS; k++)
			if (oom_pattern_matches(rows[i].pattern, path[k]) != rows[i].matches[k])
				fail_msg("%s on %s", rows[i].pattern, path[k]);
}

/* At the character where re.error.pos says it, too. */
static void what_cannot_be_repeated(void **state)
{
	static const struct {
		const char *pattern;
		int at;
	} rows[] = {{"^*", 1}, {"a|$?", 3}, {"\\b+", 2}, {"{2}", 0}, {"(?:{1,2})", 3}, {"a|*", 2},
		    {"*", 0}, {"a{1,2}{3}", 6}, {"a+?*", 3}, {"a?{2}", 2}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_regex r;

		oom_regex_parse(&r, rows[i].pattern);
		if (!r.why || r.at != rows[i].pattern + rows[i].at)
			fail_msg("%s: %s at %td", rows[i].pattern, r.why ? r.why : "taken", r.at - rows[i].pattern);
	}
}

/* A brace that is no repetition is a character, wherever it stands; so is one that only closes. */
static void braces_that_are_characters(void **state)
{
	static const char *const rows[][2] = {{"{", "{"}, {"{}", "{}"}, {"a{", "a{"}, {"a{b}", "a{b}"}, {"^{b", "{b"},
					      {"a{1,", "a{1,"}, {"a{1,b}", "a{1,b}"}, {"}+", "}}"}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!oom_pattern_matches(rows[i][0], rows[i][1]))
			fail_msg("%s on %s", rows[i][0], rows[i][1]);
}

/* The kinds of node, in the order in which they follow one another. */
static void nodes_of_a_sequence(void **state)
{
	static const enum oom_regex_kind want[] = {OOM_RE_EMPTY, OOM_RE_BEGIN, OOM_RE_CHAR, OOM_RE_REPEAT, OOM_RE_SET,
						   OOM_RE_CLASS, OOM_RE_GROUP, OOM_RE_LOOK, OOM_RE_WORD_EDGE, OOM_RE_END};
	static const char pattern[] = "^a.{2,5}?[^x-z]\\d(b|c)(?!d)\\b$";
	struct oom_regex r;
	short i = oom_regex_parse(&r, pattern);

	(void)state;
	assert_null(r.why);
	assert_int_equal(r.depth, 0);
	for (size_t k = 0; k < sizeof(want) / sizeof(want[0]); k++, i = r.node[i].next) {
		const struct oom_regex_node *n = &r.node[i];

		assert_true(i >= 0 && i < r.n);
		assert_int_equal(n->kind, want[k]);
		if (n->kind == OOM_RE_REPEAT) {
			assert_int_equal(n->min, 2);
			assert_int_equal(n->max, 5);
			assert_true(n->lazy);
			assert_int_equal(r.node[n->a].kind, OOM_RE_ANY);
		} else if (n->kind == OOM_RE_SET) {
			assert_true(n->negative);
			assert_int_equal(n->to - n->from, 3);
			assert_memory_equal(n->from, "x-z", 3);
		} else if (n->kind == OOM_RE_GROUP) {
			assert_int_equal(r.node[n->a].kind, OOM_RE_SPLIT);
		} else if (n->kind == OOM_RE_LOOK) {
			assert_true(n->negative);
		}
	}
	assert_int_equal(i, -1);
}

/* A knob's text has OOM_NAMES_SIZE - 1 characters: of whatever there may be most, they are not too many. */
static void the_longest_have_room(void **state)
{
	static const char *const units[] = {"|", "a", "a*", "a|", "()", "[a]", "a?|", "(|)", "\\d+", "^", "(?=)"};
	char text[OOM_NAMES_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		const size_t n = strlen(units[i]);
		struct oom_regex r;

		memset(text, 0, sizeof(text));
		for (size_t at = 0; at + n < sizeof(text); at += n)
			memcpy(text + at, units[i], n);
		oom_regex_parse(&r, text);
		if (r.why)
			fail_msg("%s: %s", units[i], r.why);
		assert_true(r.n <= OOM_REGEX_NODES);
		assert_int_equal(*r.at, 0);
	}
}

static void names_of_classes(void **state)
{
	(void)state;
	for (int c = 0; c < 128; c++)
		assert_int_equal(oom_regex_is_class((char)c), c == 'd' || c == 'w' || c == 's' || c == 'D' || c == 'W' || c == 'S');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_paths),
		cmocka_unit_test(what_cannot_be_repeated),
		cmocka_unit_test(braces_that_are_characters),
		cmocka_unit_test(nodes_of_a_sequence),
		cmocka_unit_test(the_longest_have_room),
		cmocka_unit_test(names_of_classes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
