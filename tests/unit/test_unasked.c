/* What is said of a plan that asks for no images and no audio. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"

/* The sentence for a model type as it is by default. */
static const char *unasked(const char *json, const struct oom_plan *p)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	const char *said;

	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, &keys, &err))
		fail_msg("%s: %s", json, err.text);
	said = oom_model_unasked(m, p);         /* static, so that it outlives the model */
	oom_model_free(m);
	oom_keys_release(&keys);
	return said;
}

/* Each row: a type, the task asked for, and a word that the sentence has; NULL: there is none. */
static void towers_are_told_of(void **state)
{
	static const struct {
		const char *json;
		enum oom_task task;
		const char *word;
	} cases[] = {
		{"{\"model_type\": \"qwen2_vl\"}", OOM_TASK_AUTO, "--images N"},
		{"{\"model_type\": \"mllama\"}", OOM_TASK_IMAGE_TEXT, "--images N"},
		/* MllamaForCausalLM is the text model, which has no tower */
		{"{\"model_type\": \"mllama\"}", OOM_TASK_CAUSAL_LM, NULL},
		{"{\"model_type\": \"voxtral\"}", OOM_TASK_AUTO, "--audio-seconds"},
		{"{\"model_type\": \"qwen2_5_omni_thinker\"}", OOM_TASK_AUTO, "images or audio"},
		{"{\"model_type\": \"idefics\"}", OOM_TASK_AUTO, "not counted"},
		{"{\"model_type\": \"phi4_multimodal\"}", OOM_TASK_AUTO, "not counted"},
		{"{\"model_type\": \"wav2vec2\"}", OOM_TASK_AUTO, "10 seconds of audio"},
		{"{\"model_type\": \"qwen2\"}", OOM_TASK_AUTO, NULL},
		{"{\"model_type\": \"vit\"}", OOM_TASK_AUTO, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		const char *said;

		p.task = cases[i].task;
		said = unasked(cases[i].json, &p);
		if (cases[i].word ? !strstr(said, cases[i].word) : *said)
			fail_msg("%s: \"%s\"", cases[i].json, said);
	}
}

static void who_asks_is_not_told(void **state)
{
	struct oom_plan p = oom_plan_default(), film = p, sound = p;

	(void)state;
	p.images = 1;
	film.video_frames = 4;
	sound.audio_seconds = 10;
	assert_string_equal(unasked("{\"model_type\": \"qwen2_vl\"}", &p), "");
	assert_string_equal(unasked("{\"model_type\": \"qwen2_vl\"}", &film), "");
	assert_string_equal(unasked("{\"model_type\": \"voxtral\"}", &sound), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(towers_are_told_of),
		cmocka_unit_test(who_asks_is_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
