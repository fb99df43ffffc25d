/* Crashes in our own words, after forms met in public threads of 2023 to 2026 (named per row), with what an
 * expert reads from them: part of the run, what the memory was for, cause, program, work, and a word that one
 * of the first four things to do must hold, and one that none may.
 *
 * Expectations were written before the decoder saw the text the row is after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

#define TRAINING "gradient_accumulation"
#define CUDA "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.50 GiB of which " \
	     "512.00 MiB is free. Of the allocated memory 22.50 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"

static const struct {
	const char *after, *text;
	enum oom_crash_phase phase;
	enum oom_crash_part part;
	enum oom_cause cause;
	const char *program;
	enum oom_crash_work work;
	const char *first, *never;      /* NULL: not asked */
} want[] = {
	/* phases by the line's verb, and by what a line says is over */
	{"vllm-project/vllm#7593", "(VllmWorkerProcess pid=3) INFO 08-19 07:51:12 model_runner.py:1024] Capturing the model for CUDA graphs.\n"
				   "(VllmWorkerProcess pid=3) ERROR 08-19 07:51:20 utils.py:2] torch.OutOfMemoryError: CUDA out of memory.\n",
	 OOM_CRASH_INIT, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "vllm", OOM_WORK_SERVER_SETUP, "gpu_memory_utilization", TRAINING},
	{"sgl-project/sglang#10741", "[2025-09-22 10:25:22 TP0] Capture cuda graph begin. avail mem=8.73 GB\n"
				     "[2025-09-22 10:25:30 TP0] Scheduler hit an exception: torch.OutOfMemoryError: CUDA out of memory.\n",
	 OOM_CRASH_INIT, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "sglang", OOM_WORK_SERVER_SETUP, "--mem-fraction-static", TRAINING},
	{"meta-llama/llama-models#334", "> initializing pipeline with size 1\nLoading a checkpoint (shards=8)\nModel args:\n"
					"E0429 3 api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 21) of binary: /usr/bin/python3\n",
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_HOST_RAM, "", OOM_WORK_LOADING, "second copy", TRAINING},
	{"ddalcu/mlx-serve#321", "Loading model.safetensors...\nLoaded 1324 weights\n[METAL] Command buffer execution failed: Insufficient Memory\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, NULL, "optim"},
	/* ggml's requesting function */
	{"ikawrakow/ik_llama.cpp#749", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\n"
				       "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 9437184000\n",
	 OOM_CRASH_INIT, OOM_PART_SCRATCH, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_SERVER_SETUP, "-ub lower", TRAINING},
	{"ggml-org/llama.cpp#7366", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 2: cudaMalloc failed: out of memory\n"
				    "alloc_tensor_range: failed to allocate CUDA2 buffer of size 943718400\nllama_model_load: error loading model\n",
	 OOM_CRASH_LOAD, OOM_PART_WEIGHTS, OOM_CAUSE_TOO_LARGE, "llama.cpp", OOM_WORK_LOADING, "-ngl", TRAINING},
	{"ggml-org/llama.cpp#18160", "ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory\n"
				     "ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 8753520640\n",
	 OOM_CRASH_INIT, OOM_PART_SCRATCH, OOM_CAUSE_BUFFER_LIMIT, "", OOM_WORK_SERVER_SETUP, "-ub", TRAINING},
	/* an evaluation deeper than its training; a server's loop; a warm-up around a generation */
	{"openseg-group/openseg.pytorch#41", AT("seg/trainer.py", "train", "self.__train()") AT("seg/trainer.py", "__val", "outputs = self.net(*inputs)")
					     AT("torch/nn/modules/module.py", "__call__", "result = self.forward(*input)")
					     AT("seg/base.py", "forward", "x = self.scale * x") CUDA,
	 OOM_CRASH_EVAL, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_EVAL, "evaluation batch", TRAINING},
	{"noonghunna/club-3090#58", "(EngineCore pid=104)   File \"/v/vllm/v1/engine/core.py\", line 1170, in run_busy_loop\n"
				    "(EngineCore pid=104)     self._process_engine_step()\n(EngineCore pid=104) " CUDA,
	 OOM_CRASH_INFERENCE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "vllm", OOM_WORK_INFERENCE, "gpu_memory_utilization", TRAINING},
	{"huggingface/text-generation-inference#1769", AT("/o/text_generation_server/models/flash.py", "warmup", "_, batch, _ = self.generate_token(batch)")
						       AT("/o/text_generation_server/models/flash.py", "generate_token", "out = self.forward(batch)") CUDA,
	 OOM_CRASH_INIT, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "tgi", OOM_WORK_SERVER_SETUP, "--max-batch-prefill-tokens", TRAINING},
	/* a forward pass that nobody calls a training */
	{"QwenLM/Qwen3#873", AT("lib/torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)") CUDA, OOM_CRASH_FORWARD,
	 OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "if it was training", NULL},
	/* what the memory was for */
	{"pytorch/pytorch#123070", AT("enc.py", "forward", "y = self.att(x, x, x)")
				   AT("lib/torch/nn/functional.py", "_canonical_mask", "torch.zeros_like(mask, dtype=t)") CUDA,
	 OOM_CRASH_FORWARD, OOM_PART_SCORES, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "full score matrix", NULL},
	{"verl-project/verl#2828", AT("/verl/workers/actor/dp_actor.py", "compute_log_prob", "e, l = self._forward_micro_batch(mb)")
				   AT("/verl/utils/torch_functional.py", "entropy_from_logits", "e = torch.logsumexp(logits, dim=-1)") CUDA,
	 OOM_CRASH_FORWARD, OOM_PART_LOGITS, OOM_CAUSE_TOO_LARGE, "verl", OOM_WORK_TRAINING, "log_prob_micro_batch_size_per_gpu", "torch.autocast(\"mps\")"},
	{"Vaibhavs10/insanely-fast-whisper#140", AT("/l/transformers/generation/utils.py", "generate", "out = self(**inputs)")
						 AT("/l/transformers/models/m.py", "forward", "k = torch.cat([past_key_value[0], k], dim=2)") CUDA,
	 OOM_CRASH_INFERENCE, OOM_PART_KV, OOM_CAUSE_TOO_LARGE, "generate", OOM_WORK_INFERENCE, "cache_implementation", TRAINING},
	{"huggingface/trl#2776", AT("/l/torch/optim/adamw.py", "_multi_tensor_adamw", "torch._foreach_sqrt(exp_avg_sqs)") CUDA, OOM_CRASH_OPTIMIZER,
	 OOM_PART_STATES, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_TRAINING, "8-bit", NULL},
	/* limits, codes and arrays of the host */
	{"kubernetes/kubernetes#122256", "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:       137\n", OOM_CRASH_UNKNOWN,
	 OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "", OOM_WORK_UNKNOWN, NULL, "resources.limits.memory"},
	{"theislab/single-cell-tutorial#85", "numpy.core._exceptions.MemoryError: Unable to allocate 926. GiB for an array with shape (6794880, 36601) and data type float32\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_HOST_RAM, "", OOM_WORK_UNKNOWN, "sparse", TRAINING},
	{"intel/intel-extension-for-pytorch#846", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated "
						  "memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_BUFFER_LIMIT, "", OOM_WORK_UNKNOWN, "one allocation may not pass", NULL},
	{"vllm-project/vllm#8318", "RuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space smem. Used 1.00M of 1.00M smem.\n",
	 OOM_CRASH_COMPILE, OOM_PART_UNKNOWN, OOM_CAUSE_NOT_OOM, "", OOM_WORK_COMPILING, "smaller blocks", TRAINING},
	{"NVIDIA/TensorRT#4254", "[E] [virtualMemoryBuffer.cpp::resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 16581132288 bytes.)\n",
	 OOM_CRASH_COMPILE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_COMPILING, "workspace", TRAINING},
	{"Comfy-Org/ComfyUI#7171", "MPS backend out of memory (MPS allocated: 16.91 GB, other allocations: 2.77 MB, max allowed: 18.13 GB). Tried to allocate 1.28 GB on private pool.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "PYTORCH_MPS_HIGH_WATERMARK_RATIO", NULL},
	/* programs: of what is built on another, the upper; of what infers, its training's own words */
	{"unslothai/unsloth#3373", "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\nTraceback (most recent call last):\n"
				   AT("/l/transformers/trainer.py", "train", "return inner_training_loop(") "OutOfMemoryError: CUDA out of memory.\n",
	 OOM_CRASH_TRAIN_STEP, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "unsloth", OOM_WORK_TRAINING, "use_gradient_checkpointing", NULL},
	{"d8ahazard/sd_dreambooth_extension#657", AT("/h/stable-diffusion-webui/venv/torch/autograd/__init__.py", "backward", "engine.run_backward(") CUDA,
	 OOM_CRASH_BACKWARD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "webui", OOM_WORK_TRAINING, "--gradient_checkpointing", "cross-entropy"},
	{"davabase/whisper_real_time#8", AT("demo.py", "main", "m = whisper.load_model(name)")
					 AT("/l/whisper/__init__.py", "load_model", "return model.to(device)") CUDA,
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "whisper", OOM_WORK_LOADING, "a smaller model", "from_pretrained"},
	{"casper-hansen/AutoAWQ#423", AT("/l/awq/quantize/quantizer.py", "quantize", "].to(common_device)") CUDA, OOM_CRASH_LOAD, OOM_PART_UNKNOWN,
	 OOM_CAUSE_TOO_LARGE, "quantiser", OOM_WORK_LOADING, "samples", TRAINING},
};

static bool among(const struct oom_crash_answer *a, size_t most, const char *word)
{
	for (size_t i = 0; i < a->n_fix && i < most; i++)
		if (strstr(a->fix[i], word))
			return true;
	return false;
}

static int wrong(const char *after, const char *what, const char *expected, const char *got)
{
	if (!strcmp(expected, got))
		return 0;
	print_error("%s: %s: wanted \"%s\", got \"%s\"\n", after, what, expected, got);
	return 1;
}

static void test_answers(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		bad += wrong(want[i].after, "phase", oom_crash_phase_str(want[i].phase), oom_crash_phase_str(c.phase));
		bad += wrong(want[i].after, "cause", oom_cause_info(want[i].cause)->name, oom_cause_info(c.cause[0].cause)->name);
		bad += wrong(want[i].after, "program", want[i].program, c.program);
		bad += wrong(want[i].after, "work", oom_crash_work_str(want[i].work), oom_crash_work_str(oom_crash_work(&c)));
		if (want[i].part != c.part) {
			print_error("%s: part %d, not %d\n", want[i].after, (int)c.part, (int)want[i].part);
			bad++;
		}
		if (want[i].first && !among(&a, 4, want[i].first)) {
			print_error("%s: \"%s\" is not among the first, which begin with \"%s\"\n", want[i].after, want[i].first, a.fix[0]);
			bad++;
		}
		if (want[i].never && among(&a, OOM_ANSWER_FIXES, want[i].never)) {
			print_error("%s: \"%s\" is offered\n", want[i].after, want[i].never);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

/* What is not training is never offered a training's ladder; nothing is named a cause below even odds; a
 * sentence claims no figure that the text does not give. */
static void test_promises(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		assert_true(c.n_causes > 0 && c.cause[0].confidence >= 0.5);
		assert_true(a.n_fix > 0 && *a.happened);
		if (oom_crash_work(&c) != OOM_WORK_TRAINING)
			assert_false(a.training);
		if (!c.known[OOM_CRASH_FREE])
			assert_null(strstr(a.happened, "were free"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_promises),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
