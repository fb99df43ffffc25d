/* Answers to people who say what they tried, what they watched, and how it ended in words of their own. Texts of our own in
 * the form of public threads; words that one of the first fixes must hold, that none may, and that the evidence holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
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
	{"python sd-scripts/train_network.py --network_module networks.lora --train_batch_size 1\n" TRACE AT("sd-scripts/train_network.py", "train", "loss.backward()") "RuntimeError: " CARD, 1,
	 "--gradient_checkpointing", "train_batch_size", "a batch of one", OOM_CRASH_BACKWARD, "an option of a command is no batch that works, whatever words stand beside it"},
	/* ---- a checkpoint to go on from ---- */
	{"CUDA out of memory when resuming training, from scratch it fits\n", 1, "map_location=\"cpu\"", "halve", "states read from a checkpoint", OOM_CRASH_LOAD,
	 "what is new is the checkpoint"},
	{"CUDA out of memory. I resumed the model at epoch 3, Epoch 3: 12% 40/330 [00:12<01:10, 4.1 it/s, loss=0.4]\n", 1, "halve", "map_location", NULL, OOM_CRASH_UNKNOWN,
	 "steps were counted since: it is over"},
	{TRACE AT("fit.py", "<module>", "t.restore(p)") AT("own/util.py", "load_opt_state", "c = th.load(p)") AT("/l/site-packages/torch/serialization.py", "load", "return _load(f)")
	 "RuntimeError: " CARD, 1, "map_location=\"cpu\"", NULL, NULL, OOM_CRASH_LOAD, "an optimizer's states, by the function's name"},
	/* ---- of other runtimes ---- */
	{"I fit several models in a for loop and get:\nResource exhausted: OOM when allocating tensor with shape[512,512]\n" TRACE AT("grid.py", "<module>", "m.fit(x, y)")
	 AT("/l/site-packages/keras/engine/training.py", "fit", "outs = f(ins)"), 1, "clear_session()", NULL, NULL, OOM_CRASH_UNKNOWN, "graphs of those before stay"},
	{"RuntimeError: [enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 950009856 bytes.\n", 2, "page file", NULL, NULL,
	 OOM_CRASH_UNKNOWN, "the words of Windows' build"},
	/* "fine-tuning with 4-bit QLoRA, bs=1, is still oom" */
	{"\xe7\x94\xa8qlora\xe5\xbe\xae\xe8\xb0\x83\xef\xbc\x8c bs=1 \xef\xbc\x8c\xe8\xbf\x98\xe6\x98\xafoom\xe3\x80\x82\n", 1, "recompute", "halve", "a batch of one",
	 OOM_CRASH_TRAIN_STEP, "Chinese words; a batch of one, adapters and 4 bits are there"},
	{"Cuda out of memory while testing. Training takes 3 of 4 GB.\n", 1, "evaluation batch", "halve", NULL, OOM_CRASH_EVAL, "what is tested is evaluated"},
	{"my colab: RAM crash at this line\n\nstates = torch.load(path, map_location='cpu')\n", 2, "mmap=True", NULL, NULL, OOM_CRASH_LOAD, "host memory, by a call that somebody shows"},
	/* ---- frames and code that people show ---- */
	{"I have one big graph. This loop:\n```\n    for batch in loader:\n        loss = f(model(batch.x, batch.edge_index), batch.y)\n        loss.backward()\n        optimizer.step()\n```\ngives me "
	 "an out-of-memory error\n", 1, "a part of the graph at a time", NULL, NULL, OOM_CRASH_TRAIN_STEP, "of a loop nobody knows which line it was"},
	{"# cuda out of memory on my card\n\n\xe2\x94\x82 /l/torch/cuda/amp/grad_scaler.py:290 in _maybe_opt_step  \xe2\x94\x82\n\xe2\x94\x82 \xe2\x9d\xb1 290  retval = optimizer.step(*args)  \xe2\x94\x82\n", 1, "optimizer state", "autocast", NULL,
	 OOM_CRASH_OPTIMIZER, "a box of frames behind a title"},
	{"CUDA out of memory when DDP starts\n" TRACE AT("own.py", "main", "setup(rank)") AT("own.py", "setup", "dist.init_process_group('nccl')"), 1, "set_device(local_rank)", "FSDP", "before any tensor",
	 OOM_CRASH_INIT, "no model is there yet"},
	{TRACE AT("own/predict.py", "predict_case", "labels = probabilities.argmax(0)") "MemoryError\n", 2, "each in pieces", "second copy", NULL, OOM_CRASH_INFERENCE, "what computes loads nothing"},
	/* 3000 entries of 50000 letters: 600 MB */
	{"MemoryError: Unable to allocate array with shape (3000,) and data type <U50000\n", 1, "dtype=object", NULL, NULL, OOM_CRASH_UNKNOWN, "each entry is as wide as the longest"},
	/* ---- no message at all ---- */
	{"# OOM with an 8B model on two cards\n\n" TRACE AT("/l/openrlhf/trainer/ppo_trainer.py", "fit", "status = self.training_step(x)"), 1, "micro_batch_size lower", NULL, NULL, OOM_CRASH_TRAIN_STEP,
	 "a title, and frames"},
	{"Calibration with AWQModifier needs 120 GB, then it is running out of host memory.\n", 2, "more host memory", "nvidia-smi", NULL, OOM_CRASH_UNKNOWN, "of the host"},
	{"# hbm OOM\nMy GAN in PyTorch trains with batchsize=1 successfully. With batchsize=8 it fails.\n", 1, "batchsize 8 -> 4", NULL, NULL, OOM_CRASH_UNKNOWN, "what works is no batch of one that failed"},
	{"Total number of batches 2631\nKilledg in train batch: 1276 / 2631\n", 1, "more host memory", NULL, NULL, OOM_CRASH_UNKNOWN, "a kill writes over the line of a bar"},
	{"# Cuda memory usage increases over time in my training\nIt is killed at epoch 500 or so.\n", 1, "loss.item()", NULL, NULL, OOM_CRASH_UNKNOWN, "who watched it grow writes no message down"},
	{"(ActorModelRayActor pid=12) Train epoch [1/1]: 12% 31/256\n7B model with PPO on four cards, OOM\n", 1, "micro_batch_size", "environments", NULL, OOM_CRASH_UNKNOWN, "no simulation"},
	/* ---- a program that shows in code alone ---- */
	{"from vllm import LLM\nllm = LLM(model=\"m\")\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 44.50 GiB total capacity; 27.00 GiB already allocated; "
	 "500.00 MiB free; 27.10 GiB reserved in total by PyTorch)\n", 2, "gpu_memory_utilization 0.59", NULL, NULL, OOM_CRASH_UNKNOWN, "it takes a share of the whole card: (44.5 - 16.9) / 44.5, less two hundredths"},
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
					  "Got OOM after ten minutes", "# OOM during validation",
					  "My GPU runs out of memory with this flag", "\xe6\x98\xbe\xe5\xad\x98\xe4\xb8\x8d\xe8\xb6\xb3" /* the card's memory is short */},
				 *const are_not[] = {"This option prevents an out-of-memory error.", "Use it to avoid OOM during validation.", "out-of-memory errors are explained below", "Set it to avoid OOM.", "It might OOM there.",
						       "the kernel's OOM killer and oom_score_adj", "bloom and zoom"};
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

/* A title stands above the log that it is about: eleven lines and one of a peak that rises by 40 MB each. */
static void test_below(void **state)
{
	struct oom_crash_log log;
	struct oom_error err;
	struct oom_crash c;
	FILE *f = fopen("tried.log", "w");

	(void)state;
	assert_non_null(f);
	fputs("CUDA out of memory during validation\n\n", f);
	for (int i = 0; i < 14; i++)
		fprintf(f, "Eval  [%d/500]  time: 0.05  max mem: %d\n", 10 * i, 17000 + 40 * i);
	fclose(f);
	assert_int_equal(oom_crash_read("tried.log", NULL, NULL, &c, &log, &err), OOM_OK);
	remove("tried.log");
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_LEAK);
	assert_int_equal(c.phase, OOM_CRASH_EVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tried), cmocka_unit_test(test_words), cmocka_unit_test(test_async), cmocka_unit_test(test_free_elsewhere), cmocka_unit_test(test_settled), cmocka_unit_test(test_below),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
