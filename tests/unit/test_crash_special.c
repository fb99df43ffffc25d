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
	{"own", "My GPU limits are unknown, the machine has memory: 32GB.\nOut of memory: Killed process 1234 (python) total-vm:40000000kB, anon-rss:31000000kB, file-rss:0kB\n", 6,
	 "host memory", "the text gives, resources", NULL, "a word of a sentence is no key"},
	{"own", "docker run --gpus all --memory 64g vllm/vllm-openai\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", 6,
	 "gpu_memory_utilization higher", "--memory 64g", NULL, "the host's limit says nothing of a pool on the card"},
	{"patrickbryant1/AFProfile#8", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n"
				       "             parameter allocation:  372.76MiB\n                 total allocation:   14.44GiB\nI am running a 3080 ti GPU.\n", 6,
	 "a smaller batch", NULL, "the card that the text names has 12 GB", "data/gpus.csv, RTX-3080-Ti; a laptop's says so"},
	{"morphik-org/morphik-core#120", "ollama._types.ResponseError: model requires more system memory (11.3 GiB) than is available (11.2 GiB) (status code: 500)\nI have also tried to limit it with `mem_limit: 12g`\n", 1,
	 "mem_limit 12g", NULL, NULL, "the limit is what leaves 11.2 GiB"},
	{"SYSTRAN/faster-whisper#809", "a nvidia GTX 1650\n  - ASR_MODEL=large\n    deploy:\n      resources:\nRuntimeError: CUDA failed with error out of memory\n", 1,
	 "a smaller model", NULL, NULL, "data/gpus.csv, GTX-1650: 4 GB"},
	/* ---- what the run has, or asked for ---- */
	{"zai-org/GLM-4.5#3", "python3 -m sglang.launch_server --model-path zai-org/GLM-4.5-Air-FP8 --tp-size 4 --speculative-algorithm EAGLE --speculative-num-steps 3 --mem-fraction-static 0.7\n"
			      NEW("1.38 GiB", "79.11 GiB", "1.03 GiB", "75.92 GiB", "214.00 MiB"), 1,
	 "without speculative decoding", "--quantization fp8", "quantised weights", "the model was loaded twice, as its own draft; it is FP8 by its name"},
	{"own", "python3 -m sglang.launch_server --model-path own/model-7B --speculative-algorithm NGRAM\n" NEW("1.38 GiB", "79.11 GiB", "1.03 GiB", "75.92 GiB", "214.00 MiB"), 6,
	 "mem-fraction-static", "speculative decoding", NULL, "sglang server_args.py: n-grams of the text are no model"},
	{"OpenMOSE/RWKV5-LM-LoRA#2", "  File \"/l/torch/autograd/__init__.py\", line 173, in backward\n    Variable._execution_engine.run_backward(\nRuntimeError: " OLD("112.00 MiB", "79.15 GiB", "77.24 GiB", "73.69 MiB", "77.82 GiB")
				     "At:\n  /l/torch/nn/functional.py(1243): dropout\n  /l/torch/utils/checkpoint.py(368): unpack\n", 6,
	 "micro-batch", "recompute", "gradient checkpointing", "frames of C++ have their lines in brackets"},
	{"pytorch/pytorch#96814", "os.environ[\"PYTORCH_MPS_HIGH_WATERMARK_RATIO\"] = \"0.0\"\ntrainer.fit(m)\nMPS backend out of memory (MPS allocated: 7.43 GB, other allocations: 24.46 GB, max allowed: 32.00 GB). Tried to allocate "
				  "129.21 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).\n", 1,
	 "export the variable in the shell", "lets the system swap", NULL, "it is set already, and had no effect"},
	{"own, after MPSAllocator.mm", "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0\nMPS backend out of memory (MPS allocated: 30.12 GB, other allocations: 1.10 GB, max allowed: 17179869184.00 GB). Tried to allocate "
				       "4.00 GB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).\n", 6,
	 "smaller model", "export the variable", NULL, "the largest size_t: the variable did its work"},
	{"deepbeepmeep/Wan2GP#551", "video on Windows 11\n" NEW("1.78 GiB", "24.00 GiB", "0 bytes", "17.33 GiB", "5.00 GiB"), 1,
	 "max_split_size_mb", NULL, NULL, "Windows has no expandable segments"},
	{"guochengqian/PointNeXt#147", TRACE AT("examples/segmentation/main.py", "test", "logits = model(data)") OLD("1.22 GiB", "9.77 GiB", "5.92 GiB", "1.16 GiB", "6.52 GiB") "[S3DIS]: Test [5]/[68] cloud, pointnet\n", 1,
	 "whole scenes", "validation images", NULL, "clouds of points are no images"},
	{"ExplainableML/czsl#7", TRACE AT("models/common.py", "evaluate_predictions", "results = self.score(scores, bias = bias)") AT("models/common.py", "score_fast_model", "scores[~mask] += bias")
				 OLD("4.18 GiB", "10.92 GiB", "4.68 GiB", "2.44 GiB", "7.85 GiB"), 1,
	 "outputs to the host", NULL, NULL, "a statement that calls nothing computes with what was kept"},
	{"nianticlabs/monodepth2#236", "Memory error for batch size greater than 3\n" TRACE AT("trainer.py", "train", "losses = self.compute_losses(x)") OLD("20.00 MiB", "7.93 GiB", "2.81 GiB", "25.38 MiB", "3.06 GiB"), 6,
	 "nvidia-smi", "3 -> 1", NULL, "three is what runs"},
	{"AUTOMATIC1111/stable-diffusion-webui#14592", "stable-diffusion-webui, fine with hires fix off\n" OLD("4.00 GiB", "23.99 GiB", "6.20 GiB", "15.63 GiB", "6.73 GiB"), 2,
	 "hires fix with a lower upscale", NULL, NULL, "what the text says makes the difference, behind the driver that refused"},
	{"keras-team/keras#16047", "ResourceExhaustedError: OOM when allocating tensor with shape[5,64,4890,4890] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\nmodel.fit(x)\n", 6,
	 "batch_size", NULL, "one of them takes 5.70 GiB", "64 x 4890 x 4890 x 4 bytes"},
	{"lmstudio-ai/lmstudio-bug-tracker#2133", "- LM Studio 0.4.18+1, Linux, ctx 100975\nggml_vulkan: Device memory allocation of size 1059303232 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
						  "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1059303232\n", 1,
	 "lms load --gpu", "-ngl", NULL, "lmstudio.ai/docs/cli/load; it has no options of llama.cpp"},
	{"2U1/Qwen-VL-Series-Finetune#51", "I am doing full sft with llama-factory of qwen2.5-vl-3B on 8 A100. When the number of images in my prompt is > 4, I get CUDA out of memory error in training. "
					   "I set per_device_train_batch_size=1. If I resize the images to 512x512 this is resolved.\n", 1,
	 "image_max_pixels", NULL, NULL, "of a batch of one the tokens of its images are what is left"},
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
		{"verl-project/verl#217", "I got out of memory when it is initializing the actor_rollout, even before it goes into the loop.\nRuntimeError: CUDA error: out of memory\n", OOM_CRASH_INIT},
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
