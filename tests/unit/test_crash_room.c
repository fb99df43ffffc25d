/* Answers that say in numbers what would make room where nothing is trained: a server's cache, attention that falls back to
 * its whole matrix, pieces, what a loop keeps. Texts of our own in the form of public threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define TRACE "Traceback (most recent call last):\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define NEEDS(tokens, need, left, fits) \
	"ValueError: To serve at least one request with the model's max seq len (" tokens "), (" need " GiB KV cache is needed, which is larger than the available KV cache memory (" left \
	" GiB). Based on the available memory, the estimated maximum model length is " fits ". Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
#define BEYOND(tried, total, held) \
	"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried " GiB. GPU 0 has a total capacity of " total " GiB of which 1.00 GiB is free. Of the allocated memory " held \
	" GiB is allocated by PyTorch, and 30.00 MiB is reserved by PyTorch but unallocated.\n"
#define SDPA AT("models/own.py", "attention", "out = torch.nn.functional.scaled_dot_product_attention(q, k, v)")

static void test_cache(void **state)
{
	static const struct crash_want wants[] = {
		/* 8 GiB / 100000 = 83.9 KiB; 6 of 8 GiB hold 75000; half of 8 is 4 */
		{"vllm-project/vllm#27508", NEEDS("100000", "8.0", "6.0", "75008"), 1, "max_model_len 75008", NULL, "83.9 KiB each", "a length of which the cache is a multiple"},
		{"the same", NEEDS("100000", "8.0", "6.0", "75008"), 3, "half of 8.00 GiB is 4.00, and 6.00 are left", NULL, NULL, "8 bits are half of it"},
		{"the same", NEEDS("100000", "8.0", "3.0", "37504"), 1, "max_model_len 37504", "half of 8.00", NULL, "half of it does not fit"},
		/* the share of 24 GiB that 2 GiB are: 0.083 */
		{"the same", "NVIDIA GeForce RTX 4090\n" NEEDS("100000", "8.0", "7.0", "87500"), 2, "gpu_memory_utilization 0.95", NULL, NULL, "1 GiB of 24 is 0.042 beyond the default of 0.9"},
		/* 0.5 of 2 GiB would hold 50000 of 200000 */
		{"wtdcode/vllm-backport#15", NEEDS("200000", "2.0", "0.5", "1000"), 1, "missing 1.50 GiB", "max_model_len 1000", "1000 would fit, not 50000", "states of layers without attention"},
		/* 14e9 x 2 bytes are 26.1 GiB of 0.95 x 32 = 30.4 */
		{"QwenLM/Qwen3#12", "vllm serve own/Own-14B-Chat --gpu-memory-utilization 0.95 on a V100 with 32GB\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", 1,
		 "max_model_len", NULL, "of the share of 30.4 GiB the weights take 26.1", "the trial run of the longest context has the rest"},
		{"the same", "vllm serve own/Own-34B-Chat --gpu-memory-utilization 0.95 on a V100 with 32GB\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", 1,
		 "a quantised checkpoint", NULL, NULL, "weights that leave nothing"},
		{"sgl-project/sglang#4330", "With --mem-fraction-static 0.86 I get a CUDA out of memory error, and with 0.83 this:\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n",
		 2, "--tp over more GPUs", "--mem-fraction-static higher", "no share is right", "neither a higher nor a lower share"},
		{"the same", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", 1, "--mem-fraction-static higher", NULL, NULL, "one error alone"},
		{"own", "OOM of vllm: I tried gpu_memory_utilization 0.9, 0.95 and 0.97, all the same\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", 1,
		 "a quantised checkpoint", NULL, NULL, "one error of three shares"},
	};

	(void)state;
	crash_all_met(wants, sizeof(wants) / sizeof(wants[0]));
}

/* sdp_utils.cpp of PyTorch: which types and cards its fused kernels take. */
static void test_scores(void **state)
{
	static const struct crash_want wants[] = {
		{"Francis-Rings/StableAvatar#83", "one V100-32G, python inference.py\n" TRACE SDPA "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 GiB.\n", 1, "torch.float16", NULL, NULL,
		 "bfloat16 before Ampere"},
		{"the same", "one A100, python inference.py\n" TRACE SDPA "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 GiB.\n", 1, "attention without", "torch.float16 as", NULL, "a card that has it"},
		{"ROCm/legacy-rocm-build#5519", "python inference.py\n" TRACE SDPA "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 40.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which 6.00 GiB is free.\n",
		 2, "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1", NULL, NULL, "a Radeon"},
		{"Comfy-Org/ComfyUI#11264", "python ComfyUI/main.py\nThis error means you ran out of memory on your GPU.\n" BEYOND("300.00", "15.92", "8.22"), 2, "cross-attention", "adjacency", NULL,
		 "what draws has no graph of nodes"},
	};

	(void)state;
	crash_all_met(wants, sizeof(wants) / sizeof(wants[0]));
}

static void test_programs(void **state)
{
	static const struct crash_want wants[] = {
		{"lllyasviel/stable-diffusion-webui-forge#2858", TRACE AT("/o/stable-diffusion-webui-forge/backend/nn/flux.py", "forward", "q = q * freqs") BEYOND("2.00", "7.60", "6.00"), 2, "GPU Weights", "--medvram", NULL,
		 "the folder of Forge"},
		{"deepbeepmeep/Wan2GP#957", "CUDA error: out of memory\n" TRACE AT("E:\\o\\Wan2GP\\wgp.py", "generate_video", "seed = set_seed(seed)"), 3, "--profile 4", "the clip in pieces", NULL, "its own memory profiles"},
		{"own", "accelerate launch src/musubi_tuner/wan_train_network.py --task t2v-14B --network_dim 32\n" BEYOND("2.00", "23.65", "22.00"), 6, "in the dataset's TOML", "offload_model", NULL, "Wan's tasks, not Wan's script"},
		{"own", TRACE AT("/o/own/llama.py", "apply_rope", "q = q * cos") BEYOND("2.00", "23.65", "22.00"), 6, "smaller batch", NULL, NULL, "no sampler's block"},
		{"tensorflow/serving#1107", "served by tensorflow/serving:latest-gpu\n{'error': 'OOM when allocating tensor with shape[64,256,160,160] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by "
		 "allocator GPU_0_bfc'}\n", 1, "fewer examples a request", "if it was training", NULL, "a server trains nothing"},
		{"madroidmaq/mlx-omni-server#59", "Three models through an api. The same works when loading with LMStudio.\nlibc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: "
		 "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n", 4, "--max-kv-size", "lms load", NULL, "who is compared with is not who ran"},
		{"DayBreak-u/chineseocr_lite#355", "[E:onnxruntime:, sequential_executor.cc:339] Non-zero status code returned while running Conv node. Name:'12_nchwc' Status Message: bfc_arena.cc:330 "
		 "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 285081600\n", 2, "host memory", "nvidia-smi", "the arena is the host's", "a layout of the CPU's kernels"},
	};

	(void)state;
	crash_all_met(wants, sizeof(wants) / sizeof(wants[0]));
}

static void test_pieces_and_loops(void **state)
{
	static const struct crash_want wants[] = {
		{"csslc/PiSA-SR#9", "python test.py --vae_encoder_tiled_size 1024 --vae_decoder_tiled_size 192\n[Tiled VAE]: Executing Decoder Task Queue: 9%\n" BEYOND("12.00", "23.55", "21.00"), 1,
		 "--vae_decoder_tiled_size 192 -> 96", "recompute", NULL, "the decoder's pieces, not the encoder's"},
		{"huggingface/sentence-transformers#1244", "vectors = model.encode(texts, convert_to_tensor=True)\nRuntimeError: CUDA out of memory.\n", 1, "without convert_to_tensor=True", NULL, NULL, "vectors that stay on the card"},
		{"oobabooga/textgen#536", "Loading own-30b...\nKilled\nWindows 10, WSL Ubuntu, text-generation-webui\n", 3, ".wslconfig", "System, Advanced", NULL, "Linux under Windows has its own limit"},
		{"intel/ipex-llm#11993", "python inference.py on an Arc A380\nNative API returns: -6 (PI_ERROR_OUT_OF_HOST_MEMORY)\n", 6, "memory", NULL, "the host's memory ran out", "a word that no row had"},
		{"ltkong218/IFRNet#30", "It tends to accumulate memory with every run of the loop.\n" TRACE AT("/o/own/run.py", "infer", "out = model.inference(a, b)") BEYOND("0.05", "8.00", "7.19"), 1, "torch.no_grad()", NULL,
		 NULL, "graphs that nobody goes back through"},
	};

	(void)state;
	crash_all_met(wants, sizeof(wants) / sizeof(wants[0]));
}

/* What llama.cpp prints before it is refused: 11910 MiB free, a GiB for what computes, and 400 MiB of weights and 64 of cache
 * (2 x 1024 x 2 bytes x 16384 tokens) for each of 49 layers are 23.4 layers. */
static void test_layers(void **state)
{
#define LOADS(device, command) \
	command "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3060) - 11910 MiB free\n" device "print_info: n_layer          = 48\nprint_info: n_embd_k_gqa     = 1024\n" \
	"print_info: n_embd_v_gqa     = 1024\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 19600.00 MiB on device 0: cudaMalloc failed: out of memory\n" \
	"alloc_tensor_range: failed to allocate CUDA0 buffer of size 20552089600\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
	static const struct crash_want wants[] = {
		{"ggml-org/llama.cpp#7366", LOADS("", "llama-server -m m.gguf -ngl 99 -c 16384\n"), 1, "-ngl 23 or lower: each of the 49 layers takes 400 MiB of weights and 64 of cache", NULL, NULL, "all layers were asked for"},
		/* 19600 / 40 = 490: (11910 - 1024) / (490 + 64) = 19.6 */
		{"the same", LOADS("", "llama-server -m m.gguf -ngl 40 -c 16384\n"), 1, "-ngl 19 or lower: each of the 40 layers", NULL, NULL, "40 of them are in that buffer"},
		{"own", LOADS("", "print_info: n_layer          = 1e300\nprint_info: n_embd_k_gqa     = 1e308\nllama-server -m m.gguf -ngl 1e300 -c 1e30\n"), 1, "-ngl ", NULL, NULL, "numbers of no model"},
		{"the same", LOADS("llama_model_load_from_file_impl: using device CUDA1 (NVIDIA GeForce RTX 3060) - 11910 MiB free\n", "llama-server -m m.gguf -ngl 99 -c 16384\n"), 1, "-ngl lower", "-ngl 23", NULL,
		 "which card holds which layers is not said"},
		{"ollama/ollama#12634", "panic: unable to load model: D:\\own\\blobs\\sha256-1\nggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 437944320\nalloc_tensor_range: failed to allocate CPU buffer "
		 "of size 437944320\nllama_model_load: error loading model: unable to allocate CPU buffer\ngithub.com/ollama/ollama/runner\n", 1, "page file", NULL, NULL, "a refusal of 418 MiB on Windows"},
		{"InternLM/InternLM#79", "model = AutoModelForCausalLM.from_pretrained(\"own/m\", device_map=\"auto\", trust_remote_code=True).cuda()\n" BEYOND("2.00", "23.65", "22.00"), 1, "leave out the .cuda()", NULL, NULL,
		 "all layers on the first card"},
		{"own", "model = AutoModelForCausalLM.from_pretrained(\"own/m\", device_map=\"auto\")\nmodel.generate(tokenizer(\"a\").to(\"cuda\"))\n" BEYOND("2.00", "23.65", "22.00"), 6, "torch", "leave out the .cuda()", NULL,
		 "inputs within a call"},
		{"own", "model = AutoModelForCausalLM.from_pretrained(\"own/m\", device_map=None).cuda()\n" BEYOND("2.00", "23.65", "22.00"), 6, "torch", "leave out the .cuda()", NULL, "nothing was laid anywhere"},
		{"the same", "model = AutoModelForCausalLM.from_pretrained(\"own/m\", device_map=\"auto\")\nx = tokenizer(\"a\").to(\"cuda\")\n" BEYOND("2.00", "23.65", "22.00"), 6, "torch", "leave out the .cuda()", NULL,
		 "the inputs belong there"},
	};

	(void)state;
	crash_all_met(wants, sizeof(wants) / sizeof(wants[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cache), cmocka_unit_test(test_scores), cmocka_unit_test(test_programs), cmocka_unit_test(test_pieces_and_loops), cmocka_unit_test(test_layers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
