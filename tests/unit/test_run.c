/* What a log says about its run.  The lines are in the forms that the programs named print; figures by
 * hand. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

#define GIB 1073741824.0

static const char oom[] = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
			  "79.15 GiB of which 1.11 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and "
			  "900.00 MiB is reserved by PyTorch but unallocated.\n";

static char path[] = "/tmp/oomplan-run-XXXXXX";

static FILE *begin_log(void)
{
	int fd;
	FILE *f;

	memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
	fd = mkstemp(path);
	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	assert_non_null(f);
	return f;
}

static struct oom_crash end_log(FILE *f, struct oom_crash_log *log)
{
	struct oom_error err = {{0}};
	struct oom_crash c;

	assert_int_equal(fclose(f), 0);
	assert_int_equal(oom_crash_read(path, NULL, NULL, &c, log, &err), OOM_OK);
	unlink(path);
	return c;
}

static void same(double a, double b)
{
	assert_true(a - b < 1e-6 * (b < 0 ? -b : b) + 1e-9 && b - a < 1e-6 * (b < 0 ? -b : b) + 1e-9);
}

/* Steps 3, 4, ... of 50 with loss and, where the form has one, memory. */
static void test_forms(void **state)
{
	static const struct {
		const char *line;       /* step, loss, GiB */
		bool of, memory;
	} forms[] = {
		{"{'loss': %2$.1f, 'learning_rate': 2e-05, 'step': %1$d}\n", false, false},
		{"step: %1$2d  loss: %2$7.4f  memory: %3$.2fGiB(57.12%%)  tps: 3,100\n", false, true},
		{" iteration %1$8d/      50 | elapsed time per iteration (ms): 5.1 | lm loss: %2$.6E | loss scale: 1.0 |\n", true, false},
		{"iter %1$d: loss %2$.4f, time 12.00ms\n", false, false},
		{"{\"step\": %1$d, \"train_loss\": %2$.3f, \"gpu_mem\": \"%3$.2f GiB\"}\n", false, true},
		{"[INFO] step=%1$d loss=%2$.3f max_memory_allocated=%3$.2fGiB\n", false, true},
		{"Epoch 0:   6%%|6   | %1$d/50 [00:09<02:21,  1.1it/s, loss=%2$.2f]\n", true, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct oom_crash_log log;
		FILE *f = begin_log();

		for (int step = 3; step < 8; step++)
			fprintf(f, forms[i].line, step, 2.5 - 0.1 * step, 40.0 + step % 2);
		fputs(oom, f);
		(void)end_log(f, &log);
		assert_int_equal(log.run.first_step, 3);
		assert_int_equal(log.run.last_step, 7);
		assert_int_equal(log.run.of_steps, forms[i].of ? 50 : 0);
		assert_true(log.run.has_loss);
		same(log.run.first_loss, 2.2);
		same(log.run.last_loss, 1.8);
		assert_int_equal(log.run.memory_samples, forms[i].memory ? 5 : 0);
		if (forms[i].memory)
			same(log.run.memory_last, 41 * GIB);
	}
}

/* A CSV names its columns once. */
static void test_csv(void **state)
{
	struct oom_crash_log log;
	FILE *f = begin_log();

	(void)state;
	fputs("step,train_loss,gpu_mem,lr\n", f);
	for (int step = 0; step < 40; step++)
		fprintf(f, "%d,%.2f,%.3f,0.0001\n", step, 3 - 0.01 * step, 10 + 0.25 * step);
	fputs(oom, f);
	(void)end_log(f, &log);
	assert_int_equal(log.run.last_step, 39);
	same(log.run.memory_slope, 0.25);
	same(log.run.memory_fit, 1);
	assert_false(log.run.memory_in_bytes);
}

/* The unit may stand in the name alone. */
static void test_named_units(void **state)
{
	static const struct {
		const char *head, *line, *key;
		double slope;
	} cases[] = {
		{"step,loss,allocated_gib\n", "%1$d,%2$.2f,%3$.3f\n", "allocated_gib", 0.25 * GIB},
		{"", "{\"step\": %1$d, \"loss\": %2$.2f, \"mem_mb\": %3$.3f}\n", "mem_mb", 0.25 * 1048576},
		{"step,loss,max_memory_allocated_gib\n", "%1$d,%2$.2f,%3$.3f\n", "max_memory_allocated_gi", 0.25 * GIB},
		{"", "step=%1$d loss=%2$.2f alloc/bytes=%3$.3f\n", "alloc/bytes", 0.25},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_crash_log log;
		FILE *f = begin_log();

		fputs(cases[i].head, f);
		for (int step = 0; step < 40; step++)
			fprintf(f, cases[i].line, step, 3 - 0.01 * step, 10 + 0.25 * step);
		fputs(oom, f);
		(void)end_log(f, &log);
		assert_int_equal(log.run.last_step, 39);
		assert_string_equal(log.run.memory_key, cases[i].key);
		assert_true(log.run.memory_in_bytes);
		same(log.run.memory_slope / cases[i].slope, 1);
	}
}

static struct oom_crash with_memory(double a_step, struct oom_crash_log *log)
{
	FILE *f = begin_log();

	for (int step = 1; step <= 100; step++)
		fprintf(f, "step: %d loss: 1.0 memory: %.3fGiB\n", step, 40 + a_step * step + 0.01 * (step % 3));
	fputs(oom, f);
	return end_log(f, log);
}

/* A tenth of a GiB per step, 100 steps: a leak; the same every step: none. */
static void test_leak(void **state)
{
	struct oom_crash_log log;
	struct oom_crash c = with_memory(0.1, &log);

	(void)state;
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_LEAK);
	assert_true(log.run.memory_slope > 0.099 * GIB && log.run.memory_slope < 0.101 * GIB);
	assert_non_null(strstr(c.cause[0].evidence, "a step"));
	c = with_memory(0, &log);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_TOO_LARGE);
	/* a late death of a training whose memory does not rise: said, not claimed */
	assert_int_equal(c.cause[1].cause, OOM_CAUSE_LONGEST_BATCH);
	assert_true(c.cause[1].confidence < 0.5);
}

/* What stands behind the message is another run's. */
static void test_order(void **state)
{
	struct oom_crash_log log;
	struct oom_crash c;
	FILE *f = begin_log();

	(void)state;
	fputs("Resuming from checkpoint-40\nstep: 41 loss: 1.5\nstep: 42 loss: 1.4\n", f);
	fputs(oom, f);
	fputs("step: 1 loss: 9.0\n***** Running Evaluation *****\n", f);
	c = end_log(f, &log);
	assert_int_equal(log.run.last_step, 42);
	assert_true(log.run.resumed);
	assert_int_equal(log.run.steps_since_resume, 2);
	assert_int_equal(log.run.evaluations, 0);
	assert_int_equal(c.phase, OOM_CRASH_TRAIN_STEP);
}

/* One step went through, the second dies in its forward pass: Adam's states are new. */
static void test_second_step(void **state)
{
	struct oom_crash_answer a;
	struct oom_crash_log log;
	struct oom_crash c;
	FILE *f = begin_log();

	(void)state;
	fputs("step: 1 loss: 11.2\nTraceback (most recent call last):\n  File \"t.py\", line 2, in forward\n    x = self.mlp(x)\n", f);
	fputs(oom, f);
	c = end_log(f, &log);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_TOO_LARGE);
	assert_int_equal(c.cause[1].cause, OOM_CAUSE_STEP_2);
	/* what is new comes before the batch, which went through once */
	oom_crash_answer(&c, &a);
	assert_non_null(strstr(a.fix[0], "optimizer state"));
}

/* Lengths between 1000 and 1390, then one of 4000: the batch that died is named beside the longest before it. */
static void test_longest(void **state)
{
	struct oom_crash_log log;
	struct oom_crash c;
	FILE *f = begin_log();

	(void)state;
	/* a limit that is set before the first step is no batch */
	fputs("max_length: 8192\n", f);
	for (int step = 1; step <= 40; step++)
		fprintf(f, "step %d loss 2.0 seq_len %d\n", step, 1000 + 10 * step);
	fputs("step 41 seq_len 4000\n", f);
	fputs(oom, f);
	c = end_log(f, &log);
	assert_int_equal(log.run.longest, 4000);
	assert_int_equal(log.run.longest_before, 1400);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_LONGEST_BATCH);
	assert_non_null(strstr(c.cause[0].evidence, "4000 tokens, the longest before it 1400"));
}

/* "mem 9.2 GiB" beside a step is a figure without a colon, in prose it is none. */
static void test_bare_figures(void **state)
{
	struct oom_crash_log log;
	FILE *f = begin_log();

	(void)state;
	for (int step = 1; step <= 40; step++)
		fprintf(f, "step %d/900 | loss 2.0 | mem %d MiB | 812 tok/s\n", step, 30000 + 40 * step);
	fputs("the allocated memory 1.0 GiB is less\n", f);
	fputs(oom, f);
	(void)end_log(f, &log);
	assert_int_equal(log.run.memory_samples, 40);
	same(log.run.memory_slope, 40.0 * 1048576);
}

/* vLLM's advice about its own option, three times over, is no memory of the run (vllm/v1/worker/gpu_worker.py's wording). */
static void test_options(void **state)
{
	struct oom_crash_log log;
	FILE *f = begin_log();

	(void)state;
	for (int i = 0; i < 3; i++)
		fprintf(f, "set `--kv-cache-memory=%d000000000` to fit, or --max-mem %d\n", 12 + i, 30 + i);
	fputs(oom, f);
	(void)end_log(f, &log);
	assert_int_equal(log.run.memory_samples, 0);
	f = begin_log();
	for (int i = 0; i < 3; i++)
		fprintf(f, "step: %d - mem: %d.0GiB -- gpu_mem: 3\n", i, 30 + i);
	fputs(oom, f);
	(void)end_log(f, &log);
	assert_int_equal(log.run.memory_samples, 3);
	/* what is free or wanted (backend/memory_management.py of Forge) is not held */
	f = begin_log();
	fprintf(f, "[M] Current Free GPU Memory: 9773.37 MB\n[M] Required Model Memory: 6246.84 MB\n%s", oom);
	(void)end_log(f, &log);
	assert_int_equal(log.run.memory_samples, 0);
}

/* The Trainer announces its evaluation; frames of a model alone say nothing of it. Once its result is printed, it is
 * over. */
static void test_first_evaluation(void **state)
{
	static const char frames[] = "Traceback (most recent call last):\n  File \"run.py\", line 9, in <module>\n    trainer.train()\n"
				     "  File \"/l/transformers/models/llama/modeling_llama.py\", line 2, in forward\n    x = self.mlp(x)\n";
	struct oom_crash_answer a;
	struct oom_crash_log log;
	struct oom_crash c;
	FILE *f = begin_log();

	(void)state;
	fputs("{'loss': 1.5, 'epoch': 0.1}\n{'loss': 1.4, 'epoch': 0.2}\n***** Running Evaluation *****\n  Num examples = 20\n", f);
	fputs(frames, f);
	fputs(oom, f);
	c = end_log(f, &log);
	assert_int_equal(c.phase, OOM_CRASH_EVAL);
	oom_crash_answer(&c, &a);
	assert_non_null(strstr(a.fix[0], "per_device_eval_batch_size"));
	f = begin_log();
	fputs("{'loss': 1.5, 'epoch': 0.1}\n***** Running Evaluation *****\n{'eval_loss': 1.3, 'eval_runtime': 9.1}\n", f);
	fputs(frames, f);
	fputs(oom, f);
	c = end_log(f, &log);
	assert_int_equal(c.phase, OOM_CRASH_FORWARD);
}

/* Four ranks, one message each, of rising sizes: one crash, and no leak. */
static void test_ranks(void **state)
{
	struct oom_crash_log log;
	struct oom_crash c;
	FILE *f = begin_log();

	(void)state;
	for (int i = 0; i < 4; i++)
		fprintf(f, "[rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d.00 GiB. GPU %d has a total capacity of "
			   "79.15 GiB of which 1.11 GiB is free. Of the allocated memory %d.00 GiB is allocated by PyTorch, and 10.00 MiB "
			   "is reserved by PyTorch but unallocated.\n", 3 - i, 2 + (i == 3), 3 - i, 40 + 5 * i);
	c = end_log(f, &log);
	assert_int_equal(log.ranks, 4);
	assert_int_equal(log.first_rank, 3);
	assert_int_equal(log.first_rank_line, 1);
	assert_true(log.ranks_differ);
	assert_false(log.rising);
	for (size_t i = 0; i < c.n_causes; i++)
		assert_int_not_equal(c.cause[i].cause, OOM_CAUSE_LEAK);
}

/* Of ranks that die together the first is shown; after another step it is another crash, and a rank's second message
 * stands for its first. */
static void test_first_rank(void **state)
{
	static const char message[] = "[rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d.00 GiB. GPU %d has a total capacity of "
				      "79.15 GiB of which 1.11 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved "
				      "by PyTorch but unallocated.\n";
	struct oom_crash_log log;
	struct oom_crash c;
	FILE *f = begin_log();

	(void)state;
	fputs("step: 7 loss: 2.0\n", f);
	for (int rank = 2; rank >= 0; rank--)
		fprintf(f, message, rank, 3, rank);
	c = end_log(f, &log);
	assert_int_equal(c.rank, 2);
	assert_int_equal(c.line, 2);
	assert_int_equal(log.ranks, 3);
	assert_false(log.ranks_differ);
	f = begin_log();
	fputs("step: 7 loss: 2.0\n", f);
	fprintf(f, message, 2, 3, 2);
	fputs("retried with half the batch\nstep: 8 loss: 1.9\n", f);
	fprintf(f, message, 1, 5, 1);
	fprintf(f, message, 0, 2, 0);
	fprintf(f, message, 1, 6, 1);
	c = end_log(f, &log);
	assert_int_equal(c.rank, 1);
	assert_int_equal(c.line, 7);
	assert_int_equal(log.first_rank, 1);
	assert_int_equal(log.first_rank_line, 5);
	assert_int_equal(log.ranks, 2);
	assert_true(log.ranks_differ);
}

/* 40 MiB of steps: a part of it is read, the slope and the last step are found. */
static void test_large(void **state)
{
	const int steps = 800000;
	struct oom_crash_log log;
	FILE *f = begin_log();

	(void)state;
	for (int step = 1; step <= steps; step++)
		fprintf(f, "step: %d loss: 1.0 memory: %.6fGiB of much more text\n", step, 40 + 2e-5 * step);
	fputs(oom, f);
	(void)end_log(f, &log);
	assert_int_equal(log.run.last_step, steps);
	assert_true(log.run.memory_samples > 100000 && log.run.memory_samples < (uint64_t)steps);
	assert_true(log.run.memory_slope > 1.9e-5 * GIB && log.run.memory_slope < 2.1e-5 * GIB);
}

/* nvidia-smi's table beside a message without numbers */
static void test_smi(void **state)
{
	static const char text[] =
		"| 30%   45C    P2              70W / 300W |  24010MiB / 24564MiB |      0%      Default |\n"
		"|    0   N/A  N/A      4711      C   python3                         21034MiB |\n"
		"    model.to(\"cuda\")\nRuntimeError: CUDA error: out of memory\n";
	struct oom_crash_answer a;
	struct oom_crash c;

	(void)state;
	assert_true(oom_crash_decode(text, sizeof(text) - 1, &c));
	assert_int_equal(c.smi.used, UINT64_C(24010) << 20);
	assert_int_equal(c.smi.total, UINT64_C(24564) << 20);
	assert_int_equal(c.smi.pid, 4711);
	assert_string_equal(c.smi.name, "python3");
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_OTHER_PROCESS);
	/* the table's figures are not the message's */
	assert_false(c.known[OOM_CRASH_TOTAL]);
	oom_crash_answer(&c, &a);
	/* behind what the frame says of who asked */
	assert_non_null(strstr(a.evidence[a.n_evidence - 1], "by process 4711"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms), cmocka_unit_test(test_csv), cmocka_unit_test(test_named_units),	  cmocka_unit_test(test_leak),
		cmocka_unit_test(test_order), cmocka_unit_test(test_options), cmocka_unit_test(test_second_step), cmocka_unit_test(test_ranks), cmocka_unit_test(test_first_rank),
		cmocka_unit_test(test_longest), cmocka_unit_test(test_bare_figures), cmocka_unit_test(test_first_evaluation),
		cmocka_unit_test(test_large), cmocka_unit_test(test_smi)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
