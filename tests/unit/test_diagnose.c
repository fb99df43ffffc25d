/* Messages in every era's wording, written here after the format strings of c10/cuda/CUDACachingAllocator.cpp and others:
 * numbers by hand (printed value x unit), absent where the text has none. */
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
	struct oom_crash c = decode("RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 3; 10.00 GiB total capacity; "
				    "7.00 GiB already allocated; 0.25 GiB free; 2.00 GiB cached)");

	(void)state;
	assert_string_equal(c.format, "cuda-1.0-cached");
	near_gib(&c, OOM_CRASH_RESERVED_TOTAL, 9);      /* cached is beside allocated in this era */
	assert_int_equal(c.gpu_index, 3);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_FRAGMENTATION);    /* 2.00 stranded >= 1.50, a fifth of the card */
	c = decode("RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 10.00 GiB total capacity; 9.00 GiB already "
		   "allocated; 0.25 GiB free; 9.50 GiB reserved in total by PyTorch)");
	assert_string_equal(c.format, "cuda-1.4-reserved-total");
	near_gib(&c, OOM_CRASH_RESERVED_UNALLOCATED, 0.5);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_TOO_LARGE);
	c = decode("[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 5 has a total capacity of 79.15 "
		   "GiB of which 100.00 MiB is free. Process 11 has 60.00 GiB memory in use. Including non-PyTorch memory, this process "
		   "has 19.00 GiB memory in use. Of the allocated memory 18.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by "
		   "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
		   "PYTORCH_ALLOC_CONF=expandable_segments:True");
	assert_string_equal(c.format, "cuda-2.9-alloc-conf");
	assert_int_equal(c.rank, 5);
	assert_int_equal(c.process[0].pid, 11);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_OTHER_PROCESS);
	c = decode("HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.98 GiB of which 8.00 MiB is free.");
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

/* [64,1024,1024] floats: 64 x 2^20 x 4 bytes. */
static void test_shape(void **state)
{
	const struct oom_crash c = decode("ResourceExhaustedError: OOM when allocating tensor with shape[64,1024,1024] and type float on "
					  "/device:GPU:1 by allocator GPU_1_bfc [[Node: conv1/Relu]]");

	(void)state;
	assert_int_equal(c.bytes[OOM_CRASH_TRIED], 268435456);
	assert_int_equal(c.gpu_index, 1);
	assert_int_equal(c.phase, OOM_CRASH_FORWARD);
}

static void test_phases(void **state)
{
	static const struct {
		const char *frame;
		enum oom_crash_phase phase;
	} want[] = {
		{"  File \"x/torch/optim/adamw.py\", line 1, in step\n    _multi_tensor_adamw(", OOM_CRASH_OPTIMIZER},
		{"  File \"train.py\", line 9\n    loss.backward()\n", OOM_CRASH_BACKWARD},
		{"  File \"trainer.py\", line 1, in evaluation_loop\n  File \"m.py\", line 2, in forward\n", OOM_CRASH_EVAL},
		{"  File \"m.py\", line 2, in forward\n    x = self.fc(x)\n", OOM_CRASH_FORWARD},
		{"    model = AutoModel.from_pretrained(name)\n", OOM_CRASH_LOAD},
		{"    model.to(device)\n", OOM_CRASH_TO_DEVICE},
		{"    trainer.save_pretrained(d)\n", OOM_CRASH_SAVE},
		{"", OOM_CRASH_UNKNOWN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		char text[400];

		snprintf(text, sizeof(text), "%storch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", want[i].frame);
		assert_int_equal(decode(text).phase, want[i].phase);
	}
}

static void test_nothing(void **state)
{
	struct oom_crash c;
	static const char calm[] = "step 100 loss 2.1\nstep 200 loss 2.0\nKilledHorse is no kill\n";

	(void)state;
	assert_false(oom_crash_decode(calm, sizeof(calm) - 1, &c));
	assert_false(oom_crash_decode("", 0, &c));
}

/* The tables: every cause says what to do, every rung it names exists, and all twenty entries are there. */
static void test_tables(void **state)
{
	(void)state;
	for (int i = 0; i < OOM_CAUSES; i++) {
		assert_true(strlen(oom_cause_info((enum oom_cause)i)->remedy) > 5);
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
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_eras), cmocka_unit_test(test_others), cmocka_unit_test(test_shape),
					   cmocka_unit_test(test_phases), cmocka_unit_test(test_nothing), cmocka_unit_test(test_tables)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
