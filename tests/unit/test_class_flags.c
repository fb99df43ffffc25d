/* What transformers' classes are known to do (data/class_flags.csv), and that prices follow it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "model_of.h"
#include "oomplan/oomplan.h"

/* Traits of classes that everybody knows (transformers 5.12, data/class_flags.csv). */
static void test_class_flags(void **state)
{
	struct oom_class_flags f;
	struct oom_keys keys;
	struct oom_model *m = model_of("Llama-3.2-1B", &keys);

	(void)state;
	assert_true(oom_class_flags(m, OOM_TASK_CAUSAL_LM, &f));
	assert_string_equal(f.name, "LlamaForCausalLM");
	assert_true(f.checkpointing && f.sdpa && f.flash && f.wraps && f.liger);
	assert_false(f.batchnorm || f.fp16_overflow);
	/* a head that the file does not list: its backbone's */
	assert_true(oom_class_flags(m, OOM_TASK_SEQ_CLS, &f));
	oom_model_free(m);
	oom_keys_release(&keys);
	m = model_of("{\"model_type\":\"resnet\"}", &keys);
	assert_true(oom_class_flags(m, OOM_TASK_IMAGE_CLS, &f));
	assert_true(f.batchnorm && !f.checkpointing);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* Peak of a class under a plan; 0 where it is not priced. */
static uint64_t peak_with(const char *type, const char *task, const char *attn)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_eval e = {0};
	char config[128];

	assert_non_null(ev);
	snprintf(config, sizeof(config), "{\"model_type\":\"%s\"}", type);
	p.micro_batch = 2;
	p.seq_len = 300;
	if (oom_keys_parse(&keys, config, strlen(config), type, &err) || oom_model_new(&m, &keys, &err) ||
	    oom_plan_set(&p, oom_knob_find("task"), task, &err) || oom_plan_set(&p, oom_knob_find("attn"), attn, &err) ||
	    oom_evaluate(ev, m, &p, OOM_EVAL_FAST, &e, &err))
		e.overall_peak = 0;
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return e.overall_peak;
}

/* A class that refuses sdpa runs its own attention whatever is asked for, as when nothing is (modeling_utils.py
 * _check_and_adjust_attn_implementation): one price.  Of GOT-OCR 2 and PP-Chart2Table the text model, a class of its own, has sdpa;
 * BLIP and Pix2Struct are announced as counted from images alone. */
static void test_no_sdpa_is_one_price(void **state)
{
	static const char *const apart[] = {"got_ocr2", "pp_chart2table", "blip", "pix2struct"};
	FILE *f = fopen(OOM_SOURCE_ROOT "/data/class_flags.csv", "r");
	char line[512], task[32], type[64];
	int sdpa, checked = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		bool known = false;

		if (sscanf(line, "%31[^,],%63[^,],%*[^,],%*d,%d", task, type, &sdpa) != 3 || sdpa)
			continue;
		for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
			known |= !strcmp(type, apart[i]);
		if (!known && peak_with(type, task, "sdpa") != peak_with(type, task, "eager"))
			fail_msg("%s, %s: the class refuses sdpa, and has another price with it", type, task);
		checked++;
	}
	fclose(f);
	assert_true(checked > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_class_flags),
		cmocka_unit_test(test_no_sdpa_is_one_price),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
