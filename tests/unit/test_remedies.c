/* The answers' table: every program, phase and cause has a sentence and something to do, in that program's
 * words, and a training's fixes are offered to trainings alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

/* Words that mean nothing outside a training. */
static const char *const of_training[] = {"gradient accumulation", "gradient_accumulation", "micro-batch",
					  "micro_batch", "gradient_checkpointing", "--update-freq",
					  "per_device_train", "8-bit or paged AdamW"};

static struct oom_crash crash(const char *framework, const char *program, enum oom_crash_phase phase,
			      enum oom_cause cause)
{
	struct oom_crash c = {.phase = phase, .phase_confidence = 0.9, .n_causes = 1, .gpu_index = -1, .rank = -1};

	snprintf(c.framework, sizeof(c.framework), "%s", framework);
	snprintf(c.program, sizeof(c.program), "%s", program);
	c.cause[0].cause = cause;
	c.cause[0].confidence = 0.9;
	snprintf(c.cause[0].evidence, sizeof(c.cause[0].evidence), "because");
	return c;
}

static void check(const struct oom_crash *c)
{
	const bool training = oom_crash_work(c) == OOM_WORK_TRAINING;
	struct oom_crash_answer a;
	char first[300];

	oom_crash_answer(c, &a);
	assert_true(strlen(a.happened) > 20);
	assert_true(a.happened[strlen(a.happened) - 1] == '.');
	assert_true(a.n_fix > 0);
	assert_true(a.training == training);
	assert_string_equal(oom_crash_fix(c, c->cause[0].cause, first, sizeof(first)), a.fix[0]);
	for (size_t i = 0; i < a.n_fix; i++) {
		assert_true(strlen(a.fix[i]) > 3 && strlen(a.fix[i]) < sizeof(a.fix[0]) - 1);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(a.fix[i], a.fix[k]);
		for (size_t w = 0; !training && w < sizeof(of_training) / sizeof(of_training[0]); w++)
			if (strstr(a.fix[i], of_training[w]) && strncmp(a.fix[i], "if it was training", 18) &&
			    /* "--eval-micro-batch-size" is the evaluation's own, or the row says that it takes the training's */
			    !((c->phase == OOM_CRASH_EVAL || c->cause[0].cause == OOM_CAUSE_EVAL_LOGITS) && strstr(a.fix[i], "eval")) &&
			    c->cause[0].cause != OOM_CAUSE_LONGEST_BATCH && c->cause[0].cause != OOM_CAUSE_STEP_2)
				fail_msg("%s %s in phase %d, cause %d: \"%s\"", c->framework, c->program,
					 (int)c->phase, (int)c->cause[0].cause, a.fix[i]);
	}
}

static void test_every_cell(void **state)
{
	static const char *const frameworks[] = {"torch", "torch-rocm", "torch-mps", "torch-npu", "torch-xpu",
						 "torch-cpu", "jax", "torch-xla", "tensorflow", "ggml", "metal",
						 "mlx", "vllm", "sglang", "tgi", "ollama", "onnxruntime", "openvino",
						 "directml", "opencl", "tensorrt", "ctranslate2", "paddle",
						 "mindspore", "cupy", "rmm", "xgboost", "host", "never heard of"};

	(void)state;
	for (int p = 0; p < OOM_CRASH_PHASES; p++)
		for (int k = 0; k < OOM_CAUSES; k++) {
			for (size_t f = 0; f < sizeof(frameworks) / sizeof(frameworks[0]); f++) {
				const struct oom_crash c = crash(frameworks[f], "", (enum oom_crash_phase)p,
								 (enum oom_cause)k);
				check(&c);
			}
			for (size_t i = 0; oom_crash_program(i); i++) {
				const struct oom_crash c = crash("torch", oom_crash_program(i),
								 (enum oom_crash_phase)p, (enum oom_cause)k);
				check(&c);
			}
		}
}

static void has(const struct oom_crash *c, const char *words)
{
	struct oom_crash_answer a;

	oom_crash_answer(c, &a);
	for (size_t i = 0; i < a.n_fix; i++)
		if (strstr(a.fix[i], words))
			return;
	fail_msg("%s in phase %d: nothing of \"%s\", first \"%s\"", c->program, (int)c->phase, words, a.fix[0]);
}

/* The words that each program's own documentation uses (the sources stand in dialect.c). */
static void test_words(void **state)
{
	static const struct {
		const char *framework, *program;
		enum oom_crash_phase phase;
		enum oom_cause cause;
		const char *words;
	} want[] = {
		{"torch", "vllm", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "gpu_memory_utilization"},
		{"torch", "vllm", OOM_CRASH_LOAD, OOM_CAUSE_TOO_LARGE, "tensor_parallel_size"},
		{"torch", "vllm", OOM_CRASH_INIT, OOM_CAUSE_TOO_LARGE, "enforce_eager"},
		{"vllm", "", OOM_CRASH_INIT, OOM_CAUSE_KV_CACHE, "max_model_len"},
		{"torch", "sglang", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "--mem-fraction-static"},
		{"torch", "tgi", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "--max-batch-prefill-tokens"},
		{"ggml", "llama.cpp", OOM_CRASH_LOAD, OOM_CAUSE_TOO_LARGE, "-ngl"},
		{"ggml", "llama.cpp", OOM_CRASH_INIT, OOM_CAUSE_TOO_LARGE, "-ctk q8_0"},
		{"ggml", "ollama", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "num_ctx"},
		{"torch", "comfyui", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "--lowvram"},
		{"torch", "diffusers", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "enable_model_cpu_offload"},
		{"torch", "trainer", OOM_CRASH_BACKWARD, OOM_CAUSE_TOO_LARGE, "per_device_train_batch_size"},
		{"torch", "trainer", OOM_CRASH_EVAL, OOM_CAUSE_EVAL_LOGITS, "eval_accumulation_steps"},
		{"torch", "deepspeed", OOM_CRASH_OPTIMIZER, OOM_CAUSE_TOO_LARGE, "offload_optimizer"},
		{"torch", "fsdp", OOM_CRASH_SAVE, OOM_CAUSE_TOO_LARGE, "SHARDED_STATE_DICT"},
		{"torch", "lightning", OOM_CRASH_TRAIN_STEP, OOM_CAUSE_TOO_LARGE, "accumulate_grad_batches"},
		{"torch", "trl", OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE, "num_generations"},
		{"torch-mps", "", OOM_CRASH_INFERENCE, OOM_CAUSE_WATERMARK_CAP, "PYTORCH_MPS_HIGH_WATERMARK_RATIO"},
		{"torch-npu", "", OOM_CRASH_FORWARD, OOM_CAUSE_OTHER_PROCESS, "npu-smi"},
		{"torch-rocm", "", OOM_CRASH_FORWARD, OOM_CAUSE_OTHER_PROCESS, "rocm-smi"},
		{"torch-npu", "transformers", OOM_CRASH_FORWARD, OOM_CAUSE_FRAGMENTATION, "PYTORCH_NPU_ALLOC_CONF"},
		{"jax", "", OOM_CRASH_UNKNOWN, OOM_CAUSE_OTHER_PROCESS, "XLA_PYTHON_CLIENT_PREALLOCATE"},
		{"jax", "", OOM_CRASH_TRAIN_STEP, OOM_CAUSE_TOO_LARGE, "jax.checkpoint"},
		{"tensorflow", "keras", OOM_CRASH_BACKWARD, OOM_CAUSE_TOO_LARGE, "batch_size in fit()"},
		{"mlx", "mlx-lm", OOM_CRASH_INFERENCE, OOM_CAUSE_BUFFER_LIMIT, "--prefill-step-size"},
		{"rmm", "", OOM_CRASH_UNKNOWN, OOM_CAUSE_FRACTION_CAP, "maximum_pool_size"},
		{"host", "", OOM_CRASH_DATA, OOM_CAUSE_SHM, "--shm-size"},
		{"host", "ultralytics", OOM_CRASH_DATA, OOM_CAUSE_HOST_RAM, "workers="},
		{"host", "deepspeed", OOM_CRASH_INIT, OOM_CAUSE_HOST_RAM, "nvme"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct oom_crash c = crash(want[i].framework, want[i].program, want[i].phase, want[i].cause);

		has(&c, want[i].words);
	}
}

/* Only what the text gives: no figure of free memory without one, and no line to look for where the
 * text says all. */
static void test_numbers(void **state)
{
	struct oom_crash c = crash("torch-xpu", "", OOM_CRASH_FORWARD, OOM_CAUSE_BUFFER_LIMIT);
	struct oom_crash_answer a;

	(void)state;
	c.known[OOM_CRASH_TRIED] = true;
	c.bytes[OOM_CRASH_TRIED] = (uint64_t)6 << 30;
	snprintf(c.text[OOM_CRASH_TRIED], sizeof(c.text[0]), "6.00 GiB");
	oom_crash_answer(&c, &a);
	assert_non_null(strstr(a.happened, "6.00 GiB"));
	assert_null(strstr(a.happened, "free:"));
	assert_null(strstr(a.happened, "were free"));
	c = crash("torch", "", OOM_CRASH_UNKNOWN, OOM_CAUSE_TOO_LARGE);
	oom_crash_answer(&c, &a);
	assert_non_null(a.settle);
	assert_false(a.training);
	/* 184.13 GiB on 79.14 GiB: 2.3 times */
	c = crash("torch", "", OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE);
	c.known[OOM_CRASH_TRIED] = c.known[OOM_CRASH_TOTAL] = true;
	c.bytes[OOM_CRASH_TRIED] = (uint64_t)197708082053;
	c.bytes[OOM_CRASH_TOTAL] = (uint64_t)84975927951;
	oom_crash_answer(&c, &a);
	assert_non_null(strstr(a.evidence[1], "2.3 times"));
	/* a server's own advice comes first */
	c = crash("vllm", "vllm", OOM_CRASH_INIT, OOM_CAUSE_KV_CACHE);
	c.advised_tokens = 34736;
	oom_crash_answer(&c, &a);
	assert_non_null(strstr(a.fix[0], "max_model_len 34736"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_cell), cmocka_unit_test(test_words),
					   cmocka_unit_test(test_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
