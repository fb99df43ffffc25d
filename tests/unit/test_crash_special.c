/* What a text itself says is special: in which part it fails and which works, the card, the limit and the share it names, a model
 * whose size its name gives. Texts of our own in the form of public threads (named per row); the expectations are what the
 * thread settled, or the arithmetic beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define OLD(tried, total, held, free, reserved) "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried " (GPU 0; " total " total capacity; " held " already allocated; " free \
						" free; " reserved " reserved in total by PyTorch)\n"

#define NEW(tried, total, free, held, idle) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
					    " is free. Of the allocated memory " held " is allocated by PyTorch, and " idle " is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define FLUX(offload) "from diffusers import FluxPipeline\npipe = FluxPipeline.from_pretrained(\"black-forest-labs/FLUX.1-schnell\", torch_dtype=torch.float16)\n" offload "image = pipe(prompt, num_inference_steps=4).images[0]\n"

static const struct crash_want want[] = {
	/* ---- a part that is larger than the card ---- */
	{"black-forest-labs/flux#459", FLUX("pipe.enable_model_cpu_offload()\n") NEW("80.00 MiB", "14.74 GiB", "10.00 MiB", "14.60 GiB", "4.00 MiB"), 1,
	 "enable_sequential_cpu_offload", "vae_tiling", "x 2 bytes (weights in 16 bits) = 22.4 GiB", "12e9 x 2 bytes; moving whole parts is not enough"},
	{"the same", FLUX("pipe.enable_model_cpu_offload()\n") NEW("800.00 MiB", "39.50 GiB", "500.00 MiB", "38.60 GiB", "4.00 MiB"), 6,
	 "vae_tiling", NULL, NULL, "22.4 GiB fit a card of 40"},
	{"own, after flux2#11", "FLUX.1-dev in nf4\n" FLUX("pipe.to(\"cuda\")\n") NEW("80.00 MiB", "14.74 GiB", "10.00 MiB", "14.60 GiB", "4.00 MiB"), 6,
	 "enable_model_cpu_offload", "larger than the card", NULL, "of fewer bits the name says nothing"},
	/* ---- a server's share ---- */
	{"MeetKai/functionary#61", "python3 server_vllm.py --model \"own/functionary-7b\" --dtype float --gpu-memory-utilization .5\n"
				   TRACE AT("/l/vllm/worker/worker.py", "init_model", "self.model = get_model(self.model_config)") NEW("172.00 MiB", "14.58 GiB", "137.00 MiB", "14.32 GiB", "1.20 MiB"), 2,
	 "gpu_memory_utilization 0.95, not 0.5: the weights are 13.0 GiB", NULL, NULL, "7e9 x 2 bytes beside half of 14.58 GiB"},
	{"ovg-project/kvcached#110", "ValueError: Free memory on device (67.24/79.25 GiB) on startup is less than desired GPU memory utilization (0.9, 71.33 GiB).\n"
				     "Does this mean that even with kvcached enabled we cannot simply remove the parameter gpu_memory_utilization?\n", 1,
	 "gpu_memory_utilization 0.84 or less", "further than was tried", NULL, "a question says nothing of what was tried"},
	/* ---- an engine on the card of a trainer ---- */
	{"huggingface/trl#3128", "[rank0]: " TRACE "[rank0]: " AT("/l/trl/trainer/grpo_trainer.py", "__init__", "self.llm = LLM(") "[rank0]: " AT("/l/vllm/engine/llm_engine.py", "_initialize_kv_caches", "self.model_executor.initialize_cache(n)")
				 "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.82 GiB. GPU 7 has a total capacity of 79.35 GiB of which 1.23 GiB is free. Process 51234 has 15.81 GiB memory in use. "
				 "Process 51230 has 62.30 GiB memory in use. Of the allocated memory 60.98 GiB is allocated by PyTorch, and 84.00 MiB is reserved by PyTorch but unallocated.\n", 1,
	 "vllm_gpu_memory_utilization", NULL, NULL, "the other process is a rank that trains: the engine's share is what can be less"},
	/* ---- limits and cards that are named ---- */
	{"opendatahub-io/odh-manifests#704", "the 3 pods have the exit code 137 OOMKilled\n  limits:\n    cpu: '1'\n    memory: 500Mi\n  requests:\n    cpu: 500m\n    memory: 128Mi\n", 1,
	 "resources.limits.memory 500Mi", NULL, NULL, "the limit, not the request"},
	{"patrickbryant1/AFProfile#8", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n"
				       "             parameter allocation:  372.76MiB\n                 total allocation:   14.44GiB\nI am running a 3080 ti GPU.\n", 6,
	 "a smaller batch", NULL, "the card that the text names has 12 GB", "data/gpus.csv, RTX-3080-Ti; a laptop's says so"},
	/* ---- what cannot matter ---- */
	{"fcomitani/simpsom#32", "MemoryError: Unable to allocate 876. GiB for an array with shape (60000, 2500, 784) and data type float64\n", 1,
	 "no common host holds it", "DataLoader workers", NULL, "no loader has so many workers"},
	{"hpcaitech/ColossalAI#3512", "torchrun --nproc_per_node=1 train_sft.py --pretrain ./llama-7b --model llama --strategy colossalai_zero2 --dataset d.json --batch_size 1\n" TRACE
				      AT("train_sft.py", "train", "trainer = SFTTrainer(model=model,") AT("/l/coati/trainer/sft.py", "__init__", "self.optimizer = strategy.setup_optimizer(optim, self.model)")
				      AT("/l/colossalai/zero/low_level_optim.py", "__init__", "fp32_flat_current_rank = fp16_flat_current_rank.float()") OLD("25.10 GiB", "31.75 GiB", "25.10 GiB", "5.46 GiB", "25.12 GiB"), 6,
	 "LowLevelZeroPlugin", "tuner_type", NULL, "its trainers have TRL's names"},
};

static void test_special(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

/* What stands behind "but" is what fails, where something before it works. */
static void test_contrast(void **state)
{
	static const struct {
		const char *after, *text;
		enum oom_crash_phase phase;
	} rows[] = {
		{"paTRICK-swk/D3DP#9", "training evaluation CUDA out of memory\nwhen I am training on one card:\n" OLD("21.40 GiB", "23.70 GiB", "1.60 GiB", "20.10 GiB", "1.90 GiB")
				       "The training is all fine, but after training and in the evaluation part it occurs again.\n", OOM_CRASH_EVAL},
		{"JamesQFreeman/LoRA-ViT#6", "I can do a forward pass through my model with no issues, but trying to train it crashes with\n"
					     OLD("1.40 GiB", "15.78 GiB", "13.30 GiB", "1.20 GiB", "13.40 GiB"), OOM_CRASH_TRAIN_STEP},
		/* both work: the words alone decide, as before */
		{"own", "Training works, but evaluation works too.\n" OLD("1.40 GiB", "15.78 GiB", "13.30 GiB", "1.20 GiB", "13.40 GiB"), OOM_CRASH_TRAIN_STEP},
	};
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_crash c;

		assert_true(oom_crash_decode(rows[i].text, strlen(rows[i].text), &c));
		if (c.phase != rows[i].phase) {
			print_error("%s: %s, by %s\n", rows[i].after, oom_crash_phase_str(c.phase), c.phase_evidence);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_special), cmocka_unit_test(test_contrast)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
