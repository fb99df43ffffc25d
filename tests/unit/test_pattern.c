/* Names and regular expressions over module paths; what is expected of the expressions is what Python
 * 3.13's re says of the same texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/pattern.h"

static const char q3[] = "model.layers.3.self_attn.q_proj", up13[] = "model.layers.13.mlp.up_proj";

static const struct {
	const char *pattern, *text;
	bool search, whole;
} cases[] = {
	{"layers\\.3\\.", q3, true, false},
	{"layers\\.3\\.", up13, false, false},
	{"^(?!.*layers\\.3\\.)", up13, true, false},
	{"^(?!.*layers\\.3\\.)", q3, false, false},
	{".*\\.layers\\.[13]\\.(self_attn|mlp)\\.(q|up)_proj", q3, true, true},
	{".*\\.layers\\.[13]\\.(self_attn|mlp)\\.(q|up)_proj", up13, false, false},
	{"^(?!.*visual).*(?:q_proj|v_proj).*", q3, true, true},
	{"^(?!.*visual).*(?:q_proj|v_proj).*", "visual.blocks.1.q_proj", false, false},
	{"model.layers.\\d+.mlp.(gate|up|down)_proj", up13, true, true},
	{"model.layers.\\d{2}.mlp.up_proj", up13, true, true},
	{"model.layers.\\d{3,}.mlp.up_proj", up13, false, false},
	{"(model|x)\\.(layers\\.)+1?3.*", up13, true, true},
	{"a*?b", "aaab", true, true},
	{"(a|ab)(c|bcd)(d*)", "abcd", true, true},
	{"(?P<name>q)_proj$", q3, true, false},
	{"q_proj|k_proj", "k_proj", true, true},
	{"[^.]+", "q_proj", true, true},
	{"[^.]+", q3, true, false},
	{"[]a]+", "]a]", true, true},
	{"[\\w.]+", q3, true, true},
	{"\\bproj\\b", q3, false, false},
	{"\\bself_attn\\b", q3, true, false},
	{"", q3, true, false},
	{"()*x", "x", true, true},
	{"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false, false},
	{"x{,2}y", "xxy", true, true},
	{"x{a}", "x{a}", true, true},
};

static void expressions(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (oom_pattern_search(cases[i].pattern, cases[i].text) != cases[i].search ||
		    oom_pattern_matches(cases[i].pattern, cases[i].text) != cases[i].whole)
			fail_msg("%s on %s", cases[i].pattern, cases[i].text);
}

static void what_is_none_is_said(void **state)
{
	static const char *const wrong[] = {"(", ")", "[a", "*", "a**", "a\\", "(?<=a)b", "(?P<x", "\\1", "a{3,2}", "a{5000}"};
	struct oom_error err;
	char deep[256] = "";

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (oom_pattern_check(wrong[i], &err) != OOM_ERR_INVALID)
			fail_msg("%s", wrong[i]);
		assert_false(oom_pattern_search(wrong[i], q3));
	}
	memset(deep, '(', 255);
	assert_int_equal(oom_pattern_check(deep, &err), OOM_ERR_INVALID);
	assert_int_equal(oom_pattern_check("(a|b)*c{2,3}?", &err), OOM_OK);
}

/* Backtracking without end ends. */
static void patience_ends(void **state)
{
	char text[200];

	(void)state;
	memset(text, 'a', 199);
	text[199] = 0;
	assert_false(oom_pattern_matches("(a|a|a)*(a|a)*(a*)*b", text));
	assert_false(oom_pattern_search("((a*)*)*b", text));
}

static void names(void **state)
{
	(void)state;
	assert_true(oom_targets_name("k_proj+q_proj", q3));
	assert_true(oom_targets_name("self_attn.q_proj", q3));
	assert_false(oom_targets_name("attn.q_proj", q3));
	assert_false(oom_targets_name("proj", q3));
	assert_true(oom_names_touch("layers.3", q3));
	assert_true(oom_names_touch("embed_tokens+self_attn", q3));
	assert_false(oom_names_touch("layers.1", up13));
	assert_false(oom_names_touch("embed_tokens", q3));
	assert_true(oom_names_touch("embed+proj", q3));
	assert_true(oom_names_count("layers.3"));
	assert_true(oom_names_count("layers\\.[0-2]\\."));
	assert_false(oom_names_count("w1+fc2+linear_1"));
	assert_false(oom_names_count("layers\\."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expressions),
		cmocka_unit_test(what_is_none_is_said),
		cmocka_unit_test(patience_ends),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
