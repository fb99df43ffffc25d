/* Answers to people who say what they tried, what they watched, and how it ended in words of their own. Texts of our own in
 * the form of public threads; words that one of the first fixes must hold, that none may, and that the evidence holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

#define CARD "CUDA out of memory. Tried to allocate 600.00 MiB (GPU 0; 15.75 GiB total capacity; 14.00 GiB already allocated; 300.00 MiB free; " \
	     "14.25 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define STEP TRACE AT("fit.py", "train_epoch", "loss.backward()") "RuntimeError: " CARD

static const struct {
	const char *text;
	size_t within;                          /* among so many of the first fixes */
	const char *first, *never, *evidence;   /* NULL: not asked */
	enum oom_crash_phase phase;
	const char *reason;
} want[] = {
	/* ---- tried in vain ---- */
	{STEP "\nI already reduced the batch size but it still crashes.\n", 1, "bfloat16", NULL, "tried without success, by the text: a smaller batch", OOM_CRASH_BACKWARD,
	 "what was tried is not the first advice"},
	{STEP "\nI already reduced the batch size but it still crashes.\n", 6, "further than was tried: halve", NULL, NULL, OOM_CRASH_BACKWARD, "it stands last"},
	{STEP "\nReducing the batch size solved it for me.\n", 1, "halve the micro-batch", NULL, NULL, OOM_CRASH_BACKWARD, "what helped was not in vain"},
	{STEP "\nYou should lower the batch size, it still fits.\n", 1, "halve the micro-batch", NULL, NULL, OOM_CRASH_BACKWARD, "advice of others was not tried"},
	{STEP "\nHow do I get it to train? Batch size is 64 and the image size 512.\n", 1, "halve the micro-batch", NULL, NULL, OOM_CRASH_BACKWARD,
	 "a setting is no attempt; the message's own words about max_split_size_mb are none either"},
	{STEP "\nI tried the following:\n- decreasing batch_size to 4\n- calling torch.cuda.empty_cache()\n", 1, "bfloat16", NULL, "a smaller batch", OOM_CRASH_BACKWARD,
	 "a list of what was tried"},
	{"The run fits eight images, even after lowering the batch size to 2 it persists.\nOriginal error: RESOURCE_EXHAUSTED: Failed to allocate request for 64.00MiB "
	 "(67108864B) on device ordinal 0\n", 1, "nvidia-smi shows", "a smaller batch per device", NULL, OOM_CRASH_UNKNOWN, "of JAX: who else holds the card comes first"},
	{"RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.\nI tried:\n"
	 "(1) num_workers set to 0\n(2) a larger shm, now 32 GB\nBoth end in the same error.\n", 1, "a file that is mapped", NULL, "fewer workers, more shared memory", OOM_CRASH_DATA,
	 "without workers, and with room, it is another bus error"},
	/* ---- watched ---- */
	{"RuntimeError: CUDA out of memory while training\nThe GPU usage has been increasing from epoch to epoch: 9.1G, 9.9G, 11.2G.\n", 1, "loss.item()", NULL, NULL, OOM_CRASH_TRAIN_STEP,
	 "growth over epochs that somebody watched"},
	{"RuntimeError: CUDA error: out of memory\nTraining is fine until epoch 40, I suspect a leakage of GPU memory.\n", 1, "loss.item()", NULL, NULL, OOM_CRASH_TRAIN_STEP, "a leak that somebody suspects"},
	/* ---- named because it did not fail ---- */
	{"CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 11.00 GiB total capacity;\nI run python test_final.py. With training I do not have this problem.\n", 1, "evaluation batch", "halve",
	 NULL, OOM_CRASH_EVAL, "what is said to be fine is not what ran"},
	/* ---- adapters put into their base ---- */
	{TRACE AT("combine.py", "<module>", "m = model.merge_and_unload()") AT("/l/peft/tuners/lora/model.py", "merge_and_unload", "return self._unload()")
	 AT("/l/peft/tuners/lora/layer.py", "get_delta_weight", "out = b @ a") "RuntimeError: " CARD, 1, "merge on the CPU", "halve", "no GPU is needed", OOM_CRASH_LOAD, "nothing is learnt"},
	/* ---- a pipeline moved before it is offloaded ---- */
	{"pipe = FluxPipeline.from_pretrained(\"m\", torch_dtype=torch.bfloat16).to(\"cuda\")\npipe.enable_model_cpu_offload()\n\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
	 "90.00 MiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free. Of the allocated memory 11.20 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but "
	 "unallocated.\n", 1, "leave out .to(\"cuda\")", NULL, NULL, OOM_CRASH_LOAD, "all of it was there before it could be offloaded"},
	{TRACE AT("draw.py", "main", "images = pipe([text] * 6, num_inference_steps=30).images") AT("/l/diffusers/pipelines/sd/pipeline.py", "__call__", "noise = self.unet(x)")
	 "RuntimeError: " CARD, 1, "one prompt at a time", NULL, NULL, OOM_CRASH_INFERENCE, "six at once, by the line that ran"},
	/* ---- cards and states ---- */
	{"CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 960.00 MiB total capacity; 200.00 MiB already allocated; 40.00 MiB free; 220.00 MiB reserved in total by PyTorch)\n"
	 "while training my net\n", 1, "another card", NULL, "0.68 of the card's 0.94 GiB are neither free nor in PyTorch's cache", OOM_CRASH_TRAIN_STEP, "960 - 40 - 220 MiB = 0.68 GiB"},
	{"deepspeed.initialize keeps running out of memory\n[INFO] [driver] File \"/l/deepspeed/__init__.py\", line 171, in initialize\n[INFO] [driver] File \"/l/deepspeed/runtime/engine.py\", "
	 "line 1505, in _configure_zero_optimizer\n[INFO] [driver] optimizer = DeepSpeedZeroOptimizer_Stage3(\n", 1, "offload_optimizer", "halve", NULL, OOM_CRASH_INIT,
	 "frames behind a hint, whatever their lines begin with; what is made there are states"},
	/* ---- a program that shows in code alone ---- */
	{"from vllm import LLM\nllm = LLM(model=\"m\")\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 44.50 GiB total capacity; 27.00 GiB already allocated; "
	 "500.00 MiB free; 27.10 GiB reserved in total by PyTorch)\n", 2, "gpu_memory_utilization lower", NULL, NULL, OOM_CRASH_UNKNOWN, "it takes a share of the whole card"},
};

static void decode(const char *text, struct oom_crash *c)
{
	if (!oom_crash_decode(text, strlen(text), c))
		fail_msg("no message: %.60s", text);
}

static bool in_first(const struct oom_crash_answer *a, size_t n, const char *words)
{
	for (size_t i = 0; i < a->n_fix && i < n; i++)
		if (strstr(a->fix[i], words))
			return true;
	return false;
}

static bool in_evidence(const struct oom_crash_answer *a, const char *words)
{
	for (size_t i = 0; i < a->n_evidence; i++)
		if (strstr(a->evidence[i], words))
			return true;
	return false;
}

static void test_tried(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash_answer a;
		struct oom_crash c;

		decode(want[i].text, &c);
		oom_crash_answer(&c, &a);
		if (!in_first(&a, want[i].within, want[i].first))
			fail_msg("%zu (%s): first fix \"%s\", not \"%s\"", i, want[i].reason, a.n_fix ? a.fix[0] : "", want[i].first);
		if (want[i].never && in_first(&a, a.n_fix, want[i].never))
			fail_msg("%zu (%s): has \"%s\"", i, want[i].reason, want[i].never);
		if (want[i].evidence && !in_evidence(&a, want[i].evidence))
			fail_msg("%zu (%s): no evidence \"%s\"", i, want[i].reason, want[i].evidence);
		if (want[i].phase != OOM_CRASH_UNKNOWN && c.phase != want[i].phase)
			fail_msg("%zu (%s): phase %s", i, want[i].reason, oom_crash_phase_str(c.phase));
	}
}

/* What ended a run, in people's words; and the same words about what might. */
static void test_words(void **state)
{
	static const char *const are[] = {"My job is going out of memory on the second step", "I keep getting OutOfMemory here", "The server dies with an out-of-memory error",
					  "Got OOM after ten minutes", "# OOM during validation"},
				 *const are_not[] = {"This option prevents an out-of-memory error.", "Use it to avoid OOM during validation.", "out-of-memory errors are explained below"};
	struct oom_crash c;

	(void)state;
	for (size_t i = 0; i < sizeof(are) / sizeof(are[0]); i++)
		decode(are[i], &c);
	for (size_t i = 0; i < sizeof(are_not) / sizeof(are_not[0]); i++)
		if (oom_crash_decode(are_not[i], strlen(are_not[i]), &c))
			fail_msg("taken for a message: %s (%s)", are_not[i], c.format);
}

/* xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc: the device's memory stands on the line behind the refusal. */
static void test_async(void **state)
{
	static const char text[] = "E0101 gpu_cudamallocasync_allocator.cc:361] gpu_async_0 cuMemAllocAsync failed to allocate 64424509440 bytes: RESOURCE_EXHAUSTED: : "
				   "CUDA_ERROR_OUT_OF_MEMORY: out of memory\n Reported by CUDA: Free memory/Total memory: 10737418240/42949672960\n";
	struct oom_crash_answer a;
	struct oom_crash c;

	(void)state;
	decode(text, &c);
	oom_crash_answer(&c, &a);
	assert_string_equal(c.framework, "jax");
	assert_true(c.bytes[OOM_CRASH_TRIED] == (uint64_t)60 << 30 && c.bytes[OOM_CRASH_FREE] == (uint64_t)10 << 30 && c.bytes[OOM_CRASH_TOTAL] == (uint64_t)40 << 30);
	assert_non_null(strstr(a.fix[0], "make that one array smaller"));
}

/* "and leave about 20G free": of another program. */
static void test_free_elsewhere(void **state)
{
	static const char text[] = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
				   "But with another server it works and leaves about 20G free.\n";
	struct oom_crash c;

	(void)state;
	decode(text, &c);
	assert_false(c.known[OOM_CRASH_FREE]);
}

/* Growth that people tell of has two readings; a figure that settles it is named. */
static void test_settled(void **state)
{
	struct oom_crash_answer a;
	struct oom_crash c;

	(void)state;
	decode("RuntimeError: CUDA out of memory while training, memory keeps increasing from epoch to epoch\n", &c);
	oom_crash_answer(&c, &a);
	assert_non_null(a.settle);
	assert_non_null(strstr(a.settle, "memory_allocated()"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tried), cmocka_unit_test(test_words), cmocka_unit_test(test_async), cmocka_unit_test(test_free_elsewhere), cmocka_unit_test(test_settled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
