/* What the text itself gives. Texts of our own in the form of public threads (named per row),
 * the expectations written from what the thread settled or from the arithmetic beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define NEW(tried, total, free, held, idle) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
					    " is free. Of the allocated memory " held " is allocated by PyTorch, and " idle " is reserved by PyTorch but unallocated.\n"

static const struct crash_want want[] = {
	/* ---- trainers of pictures by their own names ---- */
	{"SimpleTuner#1728", "{\"model_family\": \"flux\", \"train_batch_size\": 1, \"lora_rank\": 16}\n" TRACE AT("/w/SimpleTuner/simpletuner/helpers/training/trainer.py", "train", "self.accelerator.backward(loss)") NEW("54.00 MiB", "79.11 GiB", "33.00 MiB", "77.60 GiB", "700.00 MiB"), 6,
	 "--base_model_precision int8-quanto", "--fp8_base", NULL, "OPTIONS.md of SimpleTuner"},
	{"own", "name: own_flux\nnetwork:\n  type: \"lora\"\n" TRACE AT("/w/ai-toolkit/jobs/process/BaseSDTrainProcess.py", "run", "loss_dict = self.hook_train_loop(batch)") NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "quantize_te: true", "--fp8_base", NULL, "its examples' YAML"},
	{"own", TRACE AT("/w/musubi-tuner/src/musubi_tuner/hv_train_network.py", "train", "accelerator.backward(loss)") NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "--fp8_base with --fp8_scaled", "--lowram", NULL, "docs/block_swap.md of musubi-tuner"},
	{"own", TRACE AT("/w/diffusion-pipe/train.py", "<module>", "loss = model_engine.train_batch()") AT("/l/deepspeed/runtime/pipe/engine.py", "train_batch", "self._exec_schedule(sched)") NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "activation_checkpointing = true", NULL, NULL, "main_example.toml of diffusion-pipe"},
};

static void test_given(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		bad += crash_unmet(&want[i]);
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_given)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
