/* Answers where nothing is trained: servers, quantisers, XLA, TensorFlow's sessions, Macs, the host. Texts of our own in the
 * form of public threads; words that one of the first fixes must hold, that none may, and that the evidence holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define FULL(total, held) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB. GPU 0 has a total capacity of " total " GiB of which 20.00 MiB is free. " \
			  "Of the allocated memory " held " GiB is allocated by PyTorch, and 30.00 MiB is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"

static const struct {
	const char *text;
	size_t within;                          /* among so many of the first fixes */
	const char *first, *never, *evidence;   /* NULL: not asked */
	enum oom_crash_phase phase;
	const char *reason;
} want[] = {
	/* ---- how far it came ---- */
	/* 8e9 x 4 bytes = 29.8 GiB */
	{"python -m vllm.entrypoints.openai.api_server --model own/Some-8B-Chat --dtype float32\n" FULL("23.50", "23.00"), 1, "weights in 16 bits", "max_num_seqs", "29.8 GiB",
	 OOM_CRASH_LOAD, "a server's name says nothing of how far it came; fp32 weights are larger than the card"},
	/* 13e9 x 2 bytes = 24.2 GiB */
	{"I start a 13B model on my 12 GB card with python chat_demo.py\n" FULL("12.00", "11.50"), 2, "4 bits", NULL, "24.2 GiB", OOM_CRASH_LOAD, "a size in people's words"},
	{"from some import Thing\nmodel = Auto.from_pretrained(path)\nout = model.generate(**inputs)\n\n" FULL("23.50", "23.00"), 6, "", "shard by shard", NULL, OOM_CRASH_UNKNOWN,
	 "code that goes on behind the line that loads"},
	{TRACE AT("examples/chat.py", "<module>", "cache = Cache(model)") AT("/l/exllamav2/cache.py", "create_state_tensors", "k = torch.zeros(shape)") FULL("23.50", "23.00"), 1,
	 "max_seq_len lower (-l", NULL, "the cache of keys and values", OOM_CRASH_INIT, "ExLlama's cache, made once the weights are there"},
	{"python examples/chat.py -m m -cq4\n" TRACE AT("/l/exllamav2/cache.py", "create_state_tensors", "k = torch.zeros(shape)") FULL("23.50", "23.00"), 1, "max_seq_len lower", "cache_mode",
	 NULL, OOM_CRASH_INIT, "a cache of four bits is set"},
	{"reason: OOMKilled\nmessage: I0101 TRITONBACKEND_ModelInstanceInitialize: net_0 (device 0)\nexitCode: 137\n", 3, "fewer models loaded", NULL, NULL, OOM_CRASH_LOAD,
	 "Triton reads the weights when an instance is made"},
	{TRACE AT("own.py", "<module>", "m = Auto.from_pretrained(p)") AT("/l/transformers/modeling_utils.py", "from_pretrained", "cls._load_pretrained_model(x)") FULL("7.60", "7.20"), 1,
	 "load_in_4bit", "without an fp32 copy", NULL, OOM_CRASH_LOAD, "a card that weights have filled holds no second copy of them"},
	{TRACE AT("eval.py", "main", "model.generate(**x)") AT("/l/own/modeling.py", "forward", "attention_mask = torch.ones(q_len, k_len)") "torch.OutOfMemoryError: CUDA out of memory. Tried to "
	 "allocate 95.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 57.00 GiB is free.\n", 3, "without a dense mask", NULL, "grow with the square", OOM_CRASH_INFERENCE, "a dense mask"},
	/* ---- the allocator's variable, by the era of the message ---- */
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 200.00 MiB is free. Of the allocated memory 15.00 GiB is allocated "
	 "by PyTorch, and 8.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
	 "python generate_text.py\n", 1, "PYTORCH_ALLOC_CONF=expandable_segments:True", "CUDA_ALLOC_CONF", NULL, OOM_CRASH_INFERENCE, "2.9 names it anew"},
	{TRACE AT("/l/vllm/model_executor/models/x.py", "__init__", "self.attn = Attention()") AT("/l/vllm/model_executor/layers/linear.py", "__init__", "self.weight = Parameter(torch.empty(n))")
	 FULL("79.00", "78.00"), 2, "tensor_parallel_size", "gpu_memory_utilization", NULL, OOM_CRASH_LOAD, "a server's module is made with room for its weights"},
	{"We deploy it with from_pretrained(p, device_map='auto') on 4 GPUs, it fails in generation on the first.\n" FULL("79.00", "78.00"), 1, "max_memory={0:", NULL, NULL, OOM_CRASH_INFERENCE,
	 "a device map that fills the first card with weights"},
	{"my RAM gets to 100% in ComfyUI and then it crashes\n", 2, "page file", NULL, NULL, OOM_CRASH_UNKNOWN, "a task manager's figure"},
	/* ---- quantisers: what they make is not what they were given ---- */
	{"from auto_gptq import BaseQuantizeConfig\nc = BaseQuantizeConfig(bits=4, group_size=128)\nm = X.from_pretrained(\"own/Net-8B\", c).to(\"cuda\")\n" FULL("15.70", "15.00"), 1,
	 "leave the weights in the host's memory", "fewer bits", NULL, OOM_CRASH_LOAD, "sixteen bits are loaded before four are made"},
	{"from awq import AutoAWQForCausalLM\nm = AutoAWQForCausalLM.from_pretrained(p)\nm.quantize(t, quant_config=q)\n\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB. "
	 "GPU 0 has a total capacity of 44.00 GiB of which 42.00 GiB is free.\n", 2, "max_calib_samples", NULL, NULL, OOM_CRASH_INFERENCE, "samples that run through it"},
	{TRACE AT("/l/awq/quantize/quantizer.py", "_search", "out = self.forward(x)") FULL("79.00", "78.00"), 1, "max_calib_samples", NULL, NULL, OOM_CRASH_INFERENCE,
	 "weights come layer by layer: the samples fill the card"},
	{"GPTQModifier: 30%\nKilled\n", 2, "offload_to_disk", NULL, NULL, OOM_CRASH_UNKNOWN, "a quantiser's host memory"},
	{"layers:  40%|####      | 10/25 [09:00<13:00]\ncollecting calibration activations:  77%|#######Killed\n", 2, "fewer and shorter samples", NULL, NULL, OOM_CRASH_INFERENCE,
	 "a kill ends the line of a bar"},
	{"While quantizing with llmcompressor, host memory grows until all of it is completely exhausted.\n", 1, "more host memory", "nvidia-smi", NULL, OOM_CRASH_INFERENCE,
	 "the host's, in people's words"},
	{"# OOM in save_pretrained of the quantized model\nThe OOM was for CPU RAM, the GPU is half empty. llmcompressor writes it.\n", 1, "hold less while it saves", "nvidia-smi", NULL,
	 OOM_CRASH_SAVE, "whose memory it was is said behind the title"},
	/* ---- servers ---- */
	/* sglang/srt/mem_cache/kv_cache_configurator.py */
	{"ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise --mem-fraction-static above 0.773 (minimum viable = 1 - available/pre = 0.7728).\n",
	 1, "above 0.773", NULL, NULL, OOM_CRASH_INIT, "the message says itself what share the weights take"},
	/* ray/_raylet.pyx */
	{"The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. The worker may have exceeded K8s pod memory limits.\n",
	 1, "more host memory", NULL, NULL, OOM_CRASH_UNKNOWN, "what Ray adds to every such line in Kubernetes"},
	{"ERROR warmup{max_prefill_tokens=128}:warmup: text_generation_client: Server error: Not enough memory to handle 128 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n",
	 1, "--quantize", "prefill-tokens lower", "128 tokens at once", OOM_CRASH_INIT, "a trial that is as small as it gets"},
	{"ERROR warmup{}:warmup: text_generation_client: Server error: Not enough memory to handle 16384 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n", 1,
	 "--max-batch-prefill-tokens", NULL, NULL, OOM_CRASH_INIT, "a large one is made smaller"},
	{"ERROR" AT("/l/vllm/model_executor/models/qwen2_vl.py", "gather", "out = all_gather_interleave(x)") AT("/l/vllm/model_executor/models/qwen2_vl.py", "forward", "torch.cat(all_gather(x))")
	 FULL("60.00", "54.00"), 1, "limit_mm_per_prompt", NULL, "activations gathered", OOM_CRASH_INFERENCE, "a server gathers no parameters"},
	{"load: ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\nllama_model_load: error loading model\n"
	 "level=ERROR msg=\"error loading llama server\" error=\"llama runner process has terminated: cudaMalloc failed: out of memory\"\n", 1, "num_gpu", NULL, NULL, OOM_CRASH_LOAD,
	 "the size stands with the first refusal"},
	{"vllm serve m\nINFO EngineCore: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 40.00 GiB total capacity; 15.00 GiB already allocated; 0.50 GiB free; 15.50 GiB "
	 "reserved in total by PyTorch)\n", 2, "gpu_memory_utilization 0.38 or less: others hold 24.00 of 40.00 GiB", "0.90 to 0.85", NULL, OOM_CRASH_UNKNOWN,
	 "(40 - 24) / 40, less two hundredths"},
	{"vllm serve m --gpu-memory-utilization 0.95\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", 2,
	 "tensor_parallel_size", "utilization higher", NULL, OOM_CRASH_INIT, "weights have taken nearly all of the card"},
	{"ERROR [executor.py:9]  File \"/l/vllm/v1/worker/gpu_model_runner.py\", line 9, in _allocate_kv_cache_tensors\nERROR [executor.py:9] " FULL("40.00", "39.00"), 2, "gpu_memory_utilization lower", NULL,
	 NULL, OOM_CRASH_INIT, "the cache is made before anything is served"},
	/* 9.3 GiB of cache */
	{"[TensorRT-LLM][INFO] Max tokens in paged KV cache: 20000. Allocating 10000000000 bytes.\n[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, s): out of memory "
	 "(/c/tensorrt_llm/runtime/tllmBuffers.h:112)\n", 1, "free_gpu_memory_fraction lower", NULL, NULL, OOM_CRASH_INIT, "the line before says what was asked for"},
	{"TensorRT-LLM runs out of memory:\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 22.00 GiB of which 1.00 MiB is free. Process 77 has "
	 "21.90 GiB memory in use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n", 1, "free_gpu_memory_fraction lower", NULL, NULL,
	 OOM_CRASH_UNKNOWN, "an engine's weights and cache are not PyTorch's"},
	{"Three other models are hosted on the same server. Failed to allocate memory for requested buffer of size 3000000000 [E:onnxruntime:, sequential_executor.cc:514] bfc_arena.cc:376 "
	 "onnxruntime::BFCArena::AllocateRawInternal\n", 1, "fewer models", NULL, NULL, OOM_CRASH_UNKNOWN, "sessions beside one another"},
	{"allocating 100.00 MiB on device 3: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA3 buffer of size 104857600\nllama-server -m x.gguf\n", 3, "-ts", NULL, NULL,
	 OOM_CRASH_INIT, "a small request on a card that is not the first"},
	/* ---- pictures ---- */
	{"got prompt\n" AT("/c/ComfyUI/custom_nodes/own/net.py", "forward", "return super().forward(x)") AT("/l/torch/nn/modules/conv.py", "_conv_forward", "return F.conv3d(")
	 "torch.OutOfMemoryError: Allocation on device\n", 1, "VAE Decode (Tiled)", NULL, "the decoder of latents", OOM_CRASH_INFERENCE, "convolutions over time are a video's decoder"},
	{"A1111 with an upscale of 3 says:\nCUDA out of memory. Tried to allocate 40.00 GiB (GPU 0; 12.00 GiB total capacity; 3.00 GiB already allocated; 7.00 GiB free; 3.50 GiB reserved in total by "
	 "PyTorch)\nwhen I generate\n", 2, "--opt-sdp-attention", NULL, NULL, OOM_CRASH_INFERENCE, "every pixel against every other"},
	{"I call pipe.enable_model_cpu_offload() and it dies in decoding\n" FULL("11.50", "11.20"), 2, "enable_vae_tiling", NULL, NULL, OOM_CRASH_UNKNOWN, "Diffusers by its call"},
	/* ---- TensorFlow ---- */
	{"It works for the first forty pictures, then:\nResourceExhaustedError: OOM when allocating tensor with shape[64,64,3,3] and type float\n\t [[Node: block2_conv1_41/convolution = Conv2D[T=DT_FLOAT]]]\n",
	 1, "build or load the model once", NULL, NULL, OOM_CRASH_UNKNOWN, "a layer with a name of its own, for the forty-second time"},
	{"ResourceExhaustedError: OOM when allocating tensor with shape[64,64,3,3] and type float\n\t [[Node: conv2d_77/convolution = Conv2D[T=DT_FLOAT]]]\n", 6, "", "build or load", NULL,
	 OOM_CRASH_UNKNOWN, "Keras numbers the layers of one network so"},
	{"Training was fine with no issue but while I am predicting on the test set I get an error:\nResourceExhaustedError: OOM when allocating tensor with shape[512,512,512] and type float\n"
	 "\t [[Node: c/Relu = Relu[T=DT_FLOAT]]]\n", 2, "predict()", "evaluate", NULL, OOM_CRASH_INFERENCE, "what stands before a but is over"},
	{TRACE AT("/l/tensorflow/keras/engine/training.py", "predict", "nest.map_structure_up_to(batch_outputs, concat, outputs)")
	 "ResourceExhaustedError: OOM when allocating tensor with shape[900,64,64,64] and type float by allocator GPU_0_bfc [Op:ConcatV2] name: concat\n", 1, "no outputs collected",
	 "a smaller batch_size in predict", NULL, OOM_CRASH_INFERENCE, "what is joined is as large as all inputs"},
	{"python infer.py --in x\nResource exhausted: OOM when allocating tensor with shape[60000,60000] and type float on device:GPU:0 by allocator GPU_0_bfc\n", 1, "smaller inputs", NULL, NULL,
	 OOM_CRASH_INFERENCE, "13 GiB at once are one input, no batch"},
	/* ---- XLA ---- */
	{"Ran out of memory in memory space hbm. Used 20.00G of 16.00G hbm. Exceeded hbm capacity by 4.00G.\n\n  Largest program allocations in hbm:\n\n  1. Size: 16.00G\n     Operator: "
	 "op_name=\"jit(f)/add\"\n     Shape: f32[4194304,8,2]{2,1,0:T(8,128)}\n     Unpadded size: 256.00M\n     Extra memory due to padding: 15.75G (64.0x expansion)\n", 1, "a long dimension last",
	 NULL, "64 times", OOM_CRASH_COMPILE, "a TPU's tiles"},
	{"  File \"own/predict.py\", line 8, in main\n    out = net(params, x)\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\n", 2,
	 "smaller inputs", "cache", NULL, OOM_CRASH_INFERENCE, "JAX draws no pictures and serves no cache by itself"},
	{"RESOURCE_EXHAUSTED: Failed to allocate request for 300.00MiB (314572800B) on device ordinal 0\nwith the same batch size for T5 on jaxlib\n", 6, "", "5 -> 2", NULL, OOM_CRASH_UNKNOWN,
	 "a digit of a name"},
	{"running localcolabfold on a long chain: RuntimeError: Resource exhausted: Failed to allocate request for 3.00GiB (3221225472B) on device ordinal 0 (jax)\n", 1, "fewer residues", "optax", NULL,
	 OOM_CRASH_UNKNOWN, "a folding program by its name in people's words"},
	/* ---- Macs, the host ---- */
	{"MPS backend out of memory (MPS allocated: 6.00 GB, other allocations: 100.00 MB, max allowed: 6.77 GB). Tried to allocate 900.00 MB on private pool.\n", 2, "torch.no_grad", NULL, NULL,
	 OOM_CRASH_UNKNOWN, "on a Mac it seldom trains"},
	{"I load 4 models at the same time through the API:\n[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"
	 "libc++abi: terminating due to uncaught exception of type std::runtime_error\n", 1, "one model at a time", NULL, NULL, OOM_CRASH_UNKNOWN, "models beside one another, by their number"},
	{TRACE AT("/l/monai/data/dataset.py", "_fill_cache", "return list(pool)") AT("/l/monai/data/dataset.py", "_load_cache_item", "item = apply_transform(t, item)")
	 "RuntimeError: [enforce fail at alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough memory: you tried to allocate 700000000 bytes.\n", 1, "cache_rate", "second copy", NULL,
	 OOM_CRASH_DATA, "MONAI keeps what its transforms make"},
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

static void test_served(void **state)
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

/* A layer above says again what a layer below was refused: 9000 MiB. */
static void test_layers(void **state)
{
	struct oom_crash c;

	(void)state;
	decode("allocating 9000.00 MiB on device 1: cudaMalloc failed: out of memory\nllama_model_load: error loading model\nerror=\"llama runner process no longer running: cudaMalloc failed: "
	       "out of memory\"\n", &c);
	assert_true(c.known[OOM_CRASH_TRIED] && c.bytes[OOM_CRASH_TRIED] == (uint64_t)9000 << 20);
	assert_int_equal(c.gpu_index, 1);
}

/* [2,2,2,512,512] float is 8 MiB; the 4 bytes are a later message's. And no card has 400 GiB. */
static void test_sizes(void **state)
{
	struct oom_crash c;

	(void)state;
	decode("W op_kernel.cc:1318] OP_REQUIRES failed at assign_op.h:112 : Resource exhausted: OOM when allocating tensor with shape[2,2,2,512,512] and type float on device:GPU:0 by allocator GPU_0_bfc\n"
	       "W bfc_allocator.cc:275] Allocator (GPU_0_bfc) ran out of memory trying to allocate 4B.\n", &c);
	assert_true(c.bytes[OOM_CRASH_TRIED] == (uint64_t)8 << 20);
	assert_int_equal(c.phase, OOM_CRASH_INIT);
	decode("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 429496729600 bytes.\n", &c);
	assert_true(c.cause[0].cause == OOM_CAUSE_TOO_LARGE && c.cause[0].confidence >= 0.8);
}

/* 128 + 9 is a signal that others send too: not said with four fifths. Kubernetes' own word is. */
static void test_signals(void **state)
{
	struct oom_crash c;

	(void)state;
	decode("command terminated with exit code 137\n", &c);
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_HOST_RAM);
	assert_true(c.cause[0].confidence < 0.8);
	decode("    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n", &c);
	assert_true(c.cause[0].cause == OOM_CAUSE_HOST_RAM && c.cause[0].confidence >= 0.9);
}

/* "avail mem" is what is left, no figure of what a run holds. */
static void test_left(void **state)
{
	static const char text[] = "Load weight end. avail mem=70.00 GB\nMemory pool end. avail mem=12.00 GB\nCapture cuda graph begin. avail mem=11.00 GB\nCapture cuda graph failed\n"
				   "torch.AcceleratorError: CUDA error: out of memory\n";
	struct oom_crash_log log;
	struct oom_error err;
	struct oom_crash c;
	FILE *f = fopen("served.log", "w");

	(void)state;
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(oom_crash_read("served.log", NULL, NULL, &c, &log, &err), OOM_OK);
	remove("served.log");
	assert_true(log.run.memory_samples == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_served), cmocka_unit_test(test_layers), cmocka_unit_test(test_sizes), cmocka_unit_test(test_signals), cmocka_unit_test(test_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
