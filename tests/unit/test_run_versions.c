/* The column `framework` of runs files: names and versions as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/generations.h"
#include "runs/versions.h"

static void versions_are_found(void **state)
{
	static const struct {
		const char *text;
		int64_t transformers, torch, peft;
	} cases[] = {
		{"transformers==4.45.2 torch==2.4.0+cu121 peft==0.12.0", OOM_VERSION(4, 45), OOM_VERSION(2, 4),
		 OOM_VERSION(0, 12)},
		{"Transformers 4.45, PyTorch 2.4", OOM_VERSION(4, 45), OOM_VERSION(2, 4), 0},
		{"torch-2.6; transformers v4.48.0", OOM_VERSION(4, 48), OOM_VERSION(2, 6), 0},
		{"pytorch: 1.13, peft@0.10", 0, OOM_VERSION(1, 13), OOM_VERSION(0, 10)},
		/* not ours, or without a version */
		{"axolotl 0.5, transformers, flash-attn==2.6.3, torch", 0, 0, 0},
		{"HF Trainer", 0, 0, 0},
		{"", 0, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_error err = {{0}};

		if (oom_run_versions(&p, cases[i].text, &err))
			fail_msg("\"%s\": %s", cases[i].text, err.text);
		if (p.transformers != cases[i].transformers || p.torch != cases[i].torch || p.peft != cases[i].peft)
			fail_msg("\"%s\": %d %d %d", cases[i].text, (int)p.transformers, (int)p.torch, (int)p.peft);
	}
}

static void what_is_no_version_is_an_error(void **state)
{
	static const char *const texts[] = {"transformers 3.5", "peft==0.1000", "peft 0.12, transformers 4.1000"};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_error err = {{0}};

		if (!oom_run_versions(&p, texts[i], &err))
			fail_msg("\"%s\" was taken", texts[i]);
		assert_true(err.text[0]);
	}
}

/* transformers before 5 loads fp32 where nobody says more (modeling_utils.py from_pretrained, torch_dtype=None). */
static void the_row_of_a_knob(void **state)
{
	struct oom_plan p = oom_plan_default();

	(void)state;
	assert_null(oom_plan_aged(&p, "precision"));
	p.transformers = OOM_VERSION(4, 57);
	assert_non_null(oom_plan_aged(&p, "precision"));
	assert_string_equal(oom_plan_aged(&p, "precision")->to, "fp32");
	p.precision = OOM_BF16;
	assert_null(oom_plan_aged(&p, "precision"));
	p.transformers = OOM_VERSION(5, 0);
	p.precision = OOM_AUTO_PRECISION;
	assert_null(oom_plan_aged(&p, "precision"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(versions_are_found),
					   cmocka_unit_test(what_is_no_version_is_an_error),
					   cmocka_unit_test(the_row_of_a_knob)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
