/* Which part of a run failed, by the words of people, of commands and of functions' names. Sentences, commands and
 * frames are ours; what each means is plain English. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

static const char *phase_of(const char *text)
{
	struct oom_crash c;

	assert_true(oom_crash_decode(text, strlen(text), &c));
	return oom_crash_phase_str(c.phase);
}

/* What people say they were doing when it failed; the sentences are ours. */
static void test_own_words(void **state)
{
	static const struct {
		const char *said;
		enum oom_crash_phase phase;
	} want[] = {
		{"OOM when saving the final model\n", OOM_CRASH_SAVE},
		{"It works fine when training, but I get OOM when saving\n", OOM_CRASH_SAVE},
		{"Validation fails with this error:\n", OOM_CRASH_EVAL},
		{"The error appears at the validation stage of epoch 3\n", OOM_CRASH_EVAL},
		{"When it has finished the training and does the validation, memory is short\n", OOM_CRASH_EVAL},
		{"It crashes while loading the training data\n", OOM_CRASH_DATA},
		{"OOM on the first backward pass\n", OOM_CRASH_BACKWARD},
		{"Memory was short.\n", OOM_CRASH_UNKNOWN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[300];

		snprintf(text, sizeof(text), "%sRuntimeError: CUDA error: out of memory\n", want[i].said);
		assert_string_equal(phase_of(text), oom_crash_phase_str(want[i].phase));
	}
}

/* A folder's name speaks where all of it says so; commands by their second word or their module. */
static void test_commands(void **state)
{
	static const struct {
		const char *line;
		enum oom_crash_phase phase;
	} want[] = {
		{"python /home/user/train-my-kites/show.py\n", OOM_CRASH_UNKNOWN},
		{"python /home/user/train/show.py\n", OOM_CRASH_TRAIN_STEP},
		{"$ CUDA_VISIBLE_DEVICES=0 swift export --merge_lora true\n", OOM_CRASH_LOAD},
		{"python -m mlx_lm.lora --model m\n", OOM_CRASH_TRAIN_STEP},
		{"yolo val model=best.pt\n", OOM_CRASH_EVAL},
		/* prose */
		{"people export models here\n", OOM_CRASH_UNKNOWN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[300];

		snprintf(text, sizeof(text), "%sRuntimeError: CUDA error: out of memory\n", want[i].line);
		assert_string_equal(phase_of(text), oom_crash_phase_str(want[i].phase));
	}
}

/* Names of functions by their verb; the nouns that a forward pass makes are none of generation. */
static void test_verbs_of_functions(void **state)
{
	static const struct {
		const char *function;
		enum oom_crash_phase phase;
	} want[] = {
		{"_generate_speech_in_parts", OOM_CRASH_INFERENCE}, {"generate_square_mask", OOM_CRASH_FORWARD},
		{"Runner._dummy_sampler_run", OOM_CRASH_INIT}, {"fsdp_save_ckpt", OOM_CRASH_SAVE},
		{"save_model_and_optimizer_sharded", OOM_CRASH_SAVE}, {"quantize_and_save", OOM_CRASH_FORWARD},
		{"load_balancing_loss", OOM_CRASH_FORWARD}, {"train_and_evaluate", OOM_CRASH_FORWARD},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[400];

		snprintf(text, sizeof(text), "  File \"a.py\", line 1, in %s\n    x = f(y)\n  File \"b.py\", line 2, in forward\n    return self.g(x)\n"
			 "RuntimeError: CUDA error: out of memory\n", want[i].function);
		assert_string_equal(phase_of(text), oom_crash_phase_str(want[i].phase));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_words), cmocka_unit_test(test_commands),
					   cmocka_unit_test(test_verbs_of_functions)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
