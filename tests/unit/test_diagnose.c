/* Messages in every era's wording, written here after the format strings of
 * c10/cuda/CUDACachingAllocator.cpp and others: numbers by hand (printed value x unit), absent
 * where the text has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"
#include "oomplan/ladder.h"
#include "oomplan/lore.h"

#define GIB 1073741824.0

static struct oom_crash decode(const char *text)
{
	struct oom_crash c;

	assert_true(oom_crash_decode(text, strlen(text), &c));
	return c;
}

static void near_gib(const struct oom_crash *c, enum oom_crash_number n, double gib)
{
	assert_true(c->known[n]);
	assert_true((double)c->bytes[n] - gib * GIB < 1 && (double)c->bytes[n] - gib * GIB > -1);
}

static void test_eras(void **state)
{
	struct oom_crash c = decode("RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB "
				    "(GPU 3; 10.00 GiB total capacity; "
				    "7.00 GiB already allocated; 0.25 GiB free; 2.00 GiB cached)");

	(void)state;
	assert_string_equal(c.format, "cuda-1.0-cached");
	near_gib(&c, OOM_CRASH_RESERVED_TOTAL, 9);      /* cached is beside allocated in this era */
	assert_int_equal(c.gpu_index, 3);
	/* 2.00 stranded >= 1.50, a fifth of the card */
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_FRAGMENTATION);
	c = decode("RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 10.00 GiB "
		   "total capacity; 9.00 GiB already "
		   "allocated; 0.25 GiB free; 9.50 GiB reserved in total by PyTorch)");
	assert_string_equal(c.format, "cuda-1.4-reserved-total");
	near_gib(&c, OOM_CRASH_RESERVED_UNALLOCATED, 0.5);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_TOO_LARGE);
	c = decode(
		"[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 "
		"MiB. GPU 5 has a total capacity of 79.15 "
		"GiB of which 100.00 MiB is free. Process 11 has 60.00 GiB memory in use. "
		"Including non-PyTorch memory, this process "
		"has 19.00 GiB memory in use. Of the allocated memory 18.00 GiB is allocated by "
		"PyTorch, and 200.00 MiB is reserved by "
		"PyTorch but unallocated. If reserved but unallocated memory is large try setting "
		"PYTORCH_ALLOC_CONF=expandable_segments:True");
	assert_string_equal(c.format, "cuda-2.9-alloc-conf");
	assert_int_equal(c.rank, 5);
	assert_int_equal(c.process[0].pid, 11);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_OTHER_PROCESS);
	c = decode("HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
		   "15.98 GiB of which 8.00 MiB is free.");
	assert_string_equal(c.framework, "torch-rocm");
	assert_false(c.known[OOM_CRASH_ALLOCATED]);     /* the text was cut: absent, not zero */
	assert_false(c.known[OOM_CRASH_RESERVED_TOTAL]);
}

static void test_others(void **state)
{
	static const struct {
		const char *text, *framework;
		enum oom_cause cause;
	} want[] = {
		{"Epoch 3\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0.", "host", OOM_CAUSE_HOST_RAM},
		{"RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", "host", OOM_CAUSE_SHM},
		{"RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault.", "host", OOM_CAUSE_NOT_OOM},
		{"RuntimeError: CUDA error: device-side assert triggered", "torch", OOM_CAUSE_NOT_OOM},
		{"ValueError: No available memory for the cache blocks.", "vllm", OOM_CAUSE_KV_CACHE},
		{"MemoryError: Unable to allocate 12.0 GiB for an array", "host", OOM_CAUSE_HOST_RAM},
		{"command terminated with exit code 137", "host", OOM_CAUSE_HOST_RAM},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct oom_crash c = decode(want[i].text);

		assert_string_equal(c.framework, want[i].framework);
		assert_int_equal(c.cause[0].cause, want[i].cause);
	}
}

/* Wordings of wrappers and of other frameworks, after the threads named; the numbers were
 * changed and computed by hand. */
static const struct {
	const char *text, *framework, *format;
	enum oom_cause cause;
	uint64_t tried, total, free_bytes, allocated;   /* 0: absent */
} wordings[] = {
	/* vllm-project/vllm#20305 */
	{"ValueError: Free memory on device (12.50/48.00 GiB) on startup is less than desired GPU memory utilization (0.9, 43.2 GiB). "
	 "Decrease GPU memory utilization or reduce GPU memory used by other processes.", "vllm", "vllm-free-memory",
	 OOM_CAUSE_OTHER_PROCESS, 46385646797, 51539607552, 13421772800, 0},
	/* vllm-project/vllm#16118 */
	{"ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed, which is "
	 "larger than the available KV cache memory (8.00 GiB). Try increasing `gpu_memory_utilization`", "vllm", "vllm-kv-budget",
	 OOM_CAUSE_KV_CACHE, 25769803776, 0, 8589934592, 0},
	/* vllm/worker/worker.py determine_num_available_blocks */
	{"INFO worker.py:267] model weights take 7.00GiB; non_torch_memory takes 0.10GiB; PyTorch activation peak memory takes "
	 "1.50GiB; the rest of the memory reserved for KV Cache is -1.05GiB.", "vllm", "vllm-kv-budget", OOM_CAUSE_KV_CACHE, 0, 0, 0, 0},
	/* triton-lang/triton#8182: on-chip memory, not the card's */
	{"triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing "
	 "block sizes or `num_stages` may help.", "triton", "triton-out-of-resources", OOM_CAUSE_NOT_OOM, 0, 0, 0, 0},
	/* PaddlePaddle/PaddleOCR#7091 */
	{"Out of memory error on GPU 0. Cannot allocate 64.000000MB memory on GPU 0, 7.500000GB memory has been allocated and available "
	 "memory is only 12.000000MB.", "paddle", "paddle", OOM_CAUSE_TOO_LARGE, 67108864, 0, 12582912, 8053063680},
	/* ggml-org/llama.cpp#11476 */
	{"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 1: cudaMalloc failed: out of memory", "ggml",
	 "ggml-cuda", OOM_CAUSE_TOO_LARGE, 1073741824, 0, 0, 0},
	/* pytorch/xla#3470 */
	{"(1) RESOURCE_EXHAUSTED: Attempting to reserve 6.00G at the bottom of memory. That was not possible. There are 7.00G free, 0B "
	 "reserved, and 3.00G reservable.", "jax", "xla-resource-exhausted", OOM_CAUSE_FRAGMENTATION, 6442450944, 0, 7516192768, 0},
	/* tensorflow/tensorflow#43546: a warning, no failure */
	{"W bfc_allocator.cc:246] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB with freed_by_count=0. The caller "
	 "indicates that this is not a failure, but may mean that there could be performance gains", "tensorflow", "tf-bfc-allocator",
	 OOM_CAUSE_NOT_OOM, 1610612736, 0, 0, 0},
	/* bitsandbytes-foundation/bitsandbytes#464 */
	{"Error out of memory at line 351 in file /x/csrc/pythonInterface.c", "bitsandbytes", "bitsandbytes-error", OOM_CAUSE_UNKNOWN, 0, 0,
	 0, 0},
	/* OpenRLHF/OpenRLHF#911: Ray's monitor watches the host */
	{"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "host", "ray-oom", OOM_CAUSE_HOST_RAM, 0,
	 0, 0, 0},
	/* msr-fiddle/pipedream#28 */
	{"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "host",
	 "torch-shm", OOM_CAUSE_SHM, 0, 0, 0, 0},
	/* facebookresearch/detectron2#384 */
	{"RuntimeError: DataLoader worker (pid(s) 25) exited unexpectedly", "host", "dataloader-signal", OOM_CAUSE_HOST_RAM, 0, 0, 0, 0},
	/* ArjunaCluster/ArjunaUsers#52 */
	{"Epoch: [0][511/1736]\t Loss 0.5 MAE 0.6\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup.", "host",
	 "slurm-oom-kill", OOM_CAUSE_HOST_RAM, 0, 0, 0, 0},
	/* nextflow-io/nextflow#5932 */
	{"slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.", "host",
	 "slurm-oom-kill", OOM_CAUSE_HOST_RAM, 0, 0, 0, 0},
	/* intel/intel-extension-for-pytorch, Level Zero's word */
	{"RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", "torch-xpu",
	 "xpu-error-no-numbers", OOM_CAUSE_UNKNOWN, 0, 0, 0, 0},
	/* an unsigned subtraction below zero: 2^64 - 2 GiB, printed in GiB */
	{"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which "
	 "17179869182.00 GiB is free.", "torch-rocm", "hip-2.5-OutOfMemoryError", OOM_CAUSE_WRONG_CAPACITY, 2147483648, 8589934592,
	 18446744071562067968u, 0},
};

static void test_wrappers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(wordings) / sizeof(wordings[0]); i++) {
		const struct oom_crash c = decode(wordings[i].text);
		const uint64_t numbers[] = {wordings[i].tried, wordings[i].total, wordings[i].free_bytes};
		static const enum oom_crash_number which[] = {OOM_CRASH_TRIED, OOM_CRASH_TOTAL,
							      OOM_CRASH_FREE};

		assert_string_equal(c.framework, wordings[i].framework);
		assert_string_equal(c.format, wordings[i].format);
		assert_string_equal(oom_cause_info(c.cause[0].cause)->name,
				    oom_cause_info(wordings[i].cause)->name);
		for (int k = 0; k < 3; k++) {
			assert_int_equal(c.known[which[k]], numbers[k] != 0);
			assert_int_equal(c.bytes[which[k]], numbers[k]);
		}
		assert_int_equal(c.bytes[OOM_CRASH_ALLOCATED], wordings[i].allocated);
	}
}

/* [64,1024,1024] floats: 64 x 2^20 x 4 bytes. */
static void test_shape(void **state)
{
	const struct oom_crash c = decode(
		"ResourceExhaustedError: OOM when allocating tensor with shape[64,1024,1024] and "
		"type float on "
		"/device:GPU:1 by allocator GPU_1_bfc [[Node: conv1/Relu]]");

	(void)state;
	assert_int_equal(c.bytes[OOM_CRASH_TRIED], 268435456);
	assert_int_equal(c.gpu_index, 1);
	assert_int_equal(c.phase, OOM_CRASH_FORWARD);
}

/* The node on the message's line, in the names Keras gives: training/OPTIMIZER/gradients,
 * gradient_tape, or the model's own. */
static void test_nodes(void **state)
{
	static const struct {
		const char *node;
		enum oom_crash_phase phase;
	} want[] = {{"[[{{node training/Adam/gradients/conv_grad/Conv2DBackpropFilter}}]]",
		     OOM_CRASH_BACKWARD},
		    {"[[node gradient_tape/model/conv/Conv2D/Conv2DBackpropInput (defined at "
		     "a.py:1) ]]",
		     OOM_CRASH_BACKWARD},
		    {"[[{{node model/dense/MatMul}}]]", OOM_CRASH_FORWARD},
		    {"[Op:Conv2D]", OOM_CRASH_FORWARD},
		    {"[Op:BiasAddGrad]", OOM_CRASH_BACKWARD}};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[300];

		snprintf(text, sizeof(text),
			 "ResourceExhaustedError: OOM when allocating tensor with shape[2,3] and "
			 "type float by allocator "
			 "GPU_0_bfc %s\n",
			 want[i].node);
		assert_int_equal(decode(text).phase, want[i].phase);
	}
}

static void test_phases(void **state)
{
	static const struct {
		const char *before;
		enum oom_crash_phase phase;
	} want[] = {
		{"  File \"x/torch/optim/adamw.py\", line 1, in step\n    _multi_tensor_adamw(", OOM_CRASH_OPTIMIZER},
		{"  File \"train.py\", line 9\n    loss.backward()\n", OOM_CRASH_BACKWARD},
		{"  File \"trainer.py\", line 1, in evaluation_loop\n  File \"m.py\", line 2, in forward\n", OOM_CRASH_EVAL},
		{"  File \"m.py\", line 2, in forward\n    x = self.fc(x)\n", OOM_CRASH_FORWARD},
		{"    model = AutoModel.from_pretrained(name)\n", OOM_CRASH_LOAD},
		{"    model.to(device)\n", OOM_CRASH_TO_DEVICE},
		{"  File \"engine.py\", line 1, in _optimizer_step\n    self.step_fn()\n", OOM_CRASH_OPTIMIZER},
		{"  File \"c.py\", line 1, in collate_batch\n    return torch.stack(x).cuda()\n", OOM_CRASH_DATA},
		{"  File \"main.py\", line 8, in run\n    trainer.validate(model)\n  File \"m.py\", line 2, in forward\n", OOM_CRASH_EVAL},
		{"  File \"u.py\", line 4, in _load_pretrained_model\n    v = v.to(d)\n", OOM_CRASH_LOAD},
		{"    trainer.save_pretrained(d)\n", OOM_CRASH_SAVE},
		{"", OOM_CRASH_UNKNOWN},
		/* Lightning calls the step's passes from inside the optimizer:
		 * cell2location#168, DIYA frames */
		{"  File \"torch/optim/adam.py\", line 66, in step\n    loss = closure()\n  File \"lightning/closure.py\", line 1, in closure\n"
		 "    step_output = self._step_fn()\n  File \"m.py\", line 2, in forward\n", OOM_CRASH_FORWARD},
		{"  File \"torch/optim/adam.py\", line 66, in step\n    loss = closure()\n  File \"lightning/closure.py\", line 1, in closure\n"
		 "    self._backward_fn(step_output.closure_loss)\n", OOM_CRASH_BACKWARD},
		/* ZeRO runs the optimizer once while it is set up: deepspeedai/DeepSpeed#237 */
		{"  File \"deepspeed_zero_optimizer.py\", line 333, in __init__\n    self.initialize_optimizer_states()\n  File "
		 "\"apex/optimizers/fused_adam.py\", line 129, in step\n", OOM_CRASH_INIT},
		/* Rich prints the neighbours of the line that runs: Linaqruf/kohya-trainer#333 */
		{"Traceback (most recent call last)\n/content/train.py:552 in forward\n    550 \xe2\x94\x82 loss.backward()\n\xe2\x9d\xb1  552 \xe2\x94\x82 "
		 "x = self.proj(x)\n", OOM_CRASH_FORWARD},
		/* a checkpoint's progress bar long before the traceback does not make it a load:
		 * instructlab/instructlab#2568 */
		{"Loading checkpoint shards: 100%|###| 1/1 [00:00<00:00]\nTraceback (most recent call last):\n  File \"main.py\", line 5, in "
		 "<module>\n    loss.backward()\n", OOM_CRASH_BACKWARD},
		/* no frames, a log: McGregorWwww/UCTransNet#2 */
		{"[Train] Epoch: [1][371/4899]  Loss:0.417\n", OOM_CRASH_TRAIN_STEP},
		{"Evaluating:  12%|#         | 3/25 [00:01<00:11,  1.9it/s]\n", OOM_CRASH_EVAL},
		/* bitsandbytes#102 */
		{"$ accelerate launch train_dreambooth.py --x\n", OOM_CRASH_TRAIN_STEP},
		{"$ python inference_demo.py\n", OOM_CRASH_INFERENCE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[700];

		snprintf(text, sizeof(text),
			 "%storch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
			 "GiB.",
			 want[i].before);
		assert_string_equal(oom_crash_phase_str(decode(text).phase),
				    oom_crash_phase_str(want[i].phase));
	}
}

/* A message without anything around it: its numbers do not say what ran. */
static void test_bare(void **state)
{
	struct oom_crash c = decode(
		"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.00 GiB total capacity; "
		"9.00 GiB already "
		"allocated; 0.01 GiB free; 9.50 GiB reserved in total by PyTorch)");

	(void)state;
	assert_int_equal(c.phase, OOM_CRASH_UNKNOWN);
	assert_true(c.phase_confidence == 0);
	c = decode("  File \"m.py\", line 2, in forward\nCUDA out of memory. Tried to allocate "
		   "20.00 MiB");
	assert_true(c.phase_confidence > 0.5);
	assert_true(c.traceback);
}

/* Who ran: by packages of frames, by loggers, by what messages speak of; of none, the runtime. */
static void test_programs(void **state)
{
	static const struct {
		const char *before, *program;
		enum oom_crash_phase phase;
	} want[] = {
		{"  File \"/s/vllm-ascend/vllm_ascend/models/q.py\", line 3, in forward\n", "vllm", OOM_CRASH_INFERENCE},
		{"  File \"/h/Fooocus/backend/sd.py\", line 2, in decode\n", "fooocus", OOM_CRASH_INFERENCE},
		{"  File \"/h/lightning/pytorch/s.py\", line 6, in f\n  File \"m.py\", line 1, in forward\n", "lightning", OOM_CRASH_FORWARD},
		{"  File \"C:\\x\\ComfyUI\\comfy\\ldm\\a.py\", line 1, in forward\n", "comfyui", OOM_CRASH_INFERENCE},
		/* a training, of whatever part */
		{"[launch.py:319:sigkill_handler] Killing subprocess 12\n", "deepspeed", OOM_CRASH_TRAIN_STEP},
		/* a file of that name is no package */
		{"  File \"/h/vllm.py\", line 2, in f\n", "", OOM_CRASH_UNKNOWN},
		{"", "", OOM_CRASH_UNKNOWN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[400];
		struct oom_crash c;

		snprintf(text, sizeof(text), "%storch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", want[i].before);
		c = decode(text);
		assert_string_equal(c.program, want[i].program);
		assert_string_equal(oom_crash_phase_str(c.phase), oom_crash_phase_str(want[i].phase));
	}
}

static void test_nothing(void **state)
{
	struct oom_crash c;
	static const char calm[] = "step 100 loss 2.1\nstep 200 loss 2.0\nKilledHorse is no kill\n";

	/* a launcher that ends the ranks which are left names the signal: modelscope/ms-swift#4411 */
	static const char ended[] = "[WARNING] Unable to shutdown process 73 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n"
				    "[ERROR] failed (exitcode: 1) local_rank: 0 (pid: 73) of binary: python\n";

	(void)state;
	assert_false(oom_crash_decode(ended, sizeof(ended) - 1, &c));
	assert_false(oom_crash_decode(calm, sizeof(calm) - 1, &c));
	assert_false(oom_crash_decode("", 0, &c));
}

/* What settled a phase is the function that says so. */
static void test_evidence(void **state)
{
	const struct oom_crash c = decode("  File \"run.py\", line 3, in generate\n    out = model(x)\n"
					  "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.");

	(void)state;
	assert_int_equal(c.phase, OOM_CRASH_INFERENCE);
	assert_string_equal(c.phase_evidence, "the function \"generate\"");
}

/* The tables: every cause says what to do, every rung it names exists, and all twenty entries
 * are there. */
static void test_tables(void **state)
{
	(void)state;
	for (int i = 0; i < OOM_CAUSES; i++) {
		assert_true(strlen(oom_cause_info((enum oom_cause)i)->meaning) > 5);
		assert_true(oom_cause_info((enum oom_cause)i)->rung <= OOM_RUNGS);
	}
	for (int i = 1; i <= 20; i++) {
		char id[8];

		snprintf(id, sizeof(id), "m%d", i);
		assert_non_null(oom_lore_find(id));
	}
	assert_null(oom_lore_at(20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_eras),	 cmocka_unit_test(test_others),
		cmocka_unit_test(test_wrappers), cmocka_unit_test(test_bare),
		cmocka_unit_test(test_shape),	 cmocka_unit_test(test_phases),
		cmocka_unit_test(test_programs), cmocka_unit_test(test_nodes),	 cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_tables), cmocka_unit_test(test_evidence)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
