/* Every sentence about what is not counted is told, whichever came first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"

static struct oom_eval price(const char *json, const struct oom_plan *p, char said[OOM_WARNINGS_SIZE])
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_model *model = NULL;
	struct oom_keys keys = {0};
	struct oom_eval e = {0};

	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&model, &keys, &err) ||
	    oom_evaluate(ev, model, p, OOM_EVAL_FAST, &e, &err))
		fail_msg("%s: %s", json, err.text);
	oom_warnings_of(model, &e, said);
	oom_model_free(model);
	oom_keys_release(&keys);
	oom_evaluator_free(ev);
	return e;
}

/* What a text model does not look at is three facts, that it has no loss of routers is a fourth, and that its weights are
 * stored in four bits and none of them trains a fifth. */
static void of_a_step(void **state)
{
	struct oom_plan p = oom_plan_default();
	char said[OOM_WARNINGS_SIZE];
	struct oom_eval e;

	(void)state;
	p.seq_len = 64;
	e = price("{\"model_type\": \"llama\"}", &p, said);
	assert_null(e.warning[0]);
	assert_string_equal(said, "");
	p.images = 1;
	p.video_frames = 2;
	p.audio_seconds = 3;
	p.router_logits = 1;
	e = price("{\"model_type\": \"llama\"}", &p, said);
	assert_non_null(strstr(said, "images are not counted"));
	assert_non_null(strstr(said, "video is not counted"));
	assert_non_null(strstr(said, "audio is not counted"));
	assert_non_null(strstr(said, "output-router-logits has no effect"));
	assert_non_null(e.warning[3]);
	assert_null(e.warning[4]);
	price("{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}", &p, said);
	assert_non_null(strstr(said, "output-router-logits has no effect"));
	assert_non_null(strstr(said, "quant"));
}

/* The head of a masked language model that is not fused does not hide what attention leaves out. */
static void of_model_and_step(void **state)
{
	struct oom_plan p = oom_plan_default();
	char said[OOM_WARNINGS_SIZE];

	(void)state;
	p.seq_len = 1024;
	p.images = 1;
	price("{\"model_type\": \"longformer\"}", &p, said);
	assert_non_null(strstr(said, "without global attention"));
	assert_non_null(strstr(said, "images are not counted"));
	/* the model's own sentence comes first */
	price("{\"model_type\": \"canine\"}", &p, said);
	assert_ptr_equal(strstr(said, "canine: parameters are exact"), said);
	assert_non_null(strstr(said, "images are not counted"));
}

/* Megatron's ranks: what a graph's pool and user buffers hold is no part of the closed form. */
static void of_megatron(void **state)
{
	static const char *const sentences[] = {"pools of CUDA graphs are not counted", "user buffers of tp-comm-overlap are not counted"};
	struct oom_plan p = oom_plan_default();
	char said[OOM_WARNINGS_SIZE];

	(void)state;
	p.engine = OOM_ENGINE_MEGATRON;
	p.precision = OOM_BF16;
	p.seq_len = 64;
	p.gpus = p.tp = 2;
	for (int told = 0; told < 2; told++) {
		p.cuda_graphs = p.tp_overlap = told;
		price("{\"model_type\": \"llama\"}", &p, said);
		for (int i = 0; i < 2; i++)
			assert_int_equal(strstr(said, sentences[i]) != NULL, told);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(of_a_step), cmocka_unit_test(of_model_and_step),
					    cmocka_unit_test(of_megatron)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
