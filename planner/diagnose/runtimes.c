/* The runtimes whose allocators refuse, and what their programs are called where no program shows. */
#include "tables.h"

/* PyTorch on a card with a memory of its own. */
#define CARD (OOM_RUNTIME_TORCH | OOM_RUNTIME_CARD)
#define GIB (UINT64_C(1) << 30)

static const struct oom_runtime runtimes[] = {
	{"torch", CARD, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}},
	{"jax", OOM_RUNTIME_EXECUTABLE | OOM_RUNTIME_WORDY, 0, 0, {"", "the JAX program", OOM_ACTIVITY_EITHER, "jax", {NULL}, NULL, {NULL}}},
	{"torch-xla", OOM_RUNTIME_EXECUTABLE | OOM_RUNTIME_WORDY | OOM_RUNTIME_EITHER_XLA, 0, 0, {"", "the XLA program", OOM_ACTIVITY_EITHER, "torch-xla", {NULL}, NULL, {NULL}}},
	{"tensorflow", OOM_RUNTIME_GRAPH, 0, 0, {"", "the TensorFlow program", OOM_ACTIVITY_EITHER, "tensorflow", {NULL}, NULL, {NULL}}},
	{"ggml", OOM_RUNTIME_LAYERED, 0, 0, {"", "the ggml program", OOM_ACTIVITY_INFERS, "llama.cpp", {NULL}, NULL, {NULL}}},
	{"metal", OOM_RUNTIME_LAYERED, 0, 0, {"", "the Metal program", OOM_ACTIVITY_INFERS, "metal", {NULL}, NULL, {NULL}}},
	{"ollama", 0, 0, 0, {"ollama", "Ollama", OOM_ACTIVITY_SERVES, "ollama", {NULL}, NULL, {NULL}}},
	{"mlx", 0, 0, 0, {"", "MLX", OOM_ACTIVITY_EITHER, "mlx", {NULL}, NULL, {NULL}}},
	{"vllm", 0, 0, 0, {"vllm", "vLLM", OOM_ACTIVITY_SERVES, "vllm", {NULL}, NULL, {NULL}}},
	{"sglang", 0, 0, 0, {"sglang", "SGLang", OOM_ACTIVITY_SERVES, "sglang", {NULL}, NULL, {NULL}}},
	{"tgi", 0, 0, 0, {"tgi", "text-generation-inference", OOM_ACTIVITY_SERVES, "tgi", {NULL}, NULL, {NULL}}},
	/* a part of vLLM or SGLang that keeps their cache in a pool of its own */
	{"lmcache", 0, 0, 0, {"vllm", "vLLM", OOM_ACTIVITY_SERVES, "vllm", {NULL}, NULL, {NULL}}},
	{"exllama", 0, 0, 0, {"exllama", "ExLlama", OOM_ACTIVITY_INFERS, "exllama", {NULL}, NULL, {NULL}}},
	{"onnxruntime", OOM_RUNTIME_SILENT, 0, 0, {"", "ONNX Runtime", OOM_ACTIVITY_INFERS, "onnxruntime", {NULL}, NULL, {NULL}}},
	{"openvino", 0, 0, 0, {"", "OpenVINO", OOM_ACTIVITY_INFERS, "runtime", {NULL}, NULL, {NULL}}},
	{"directml", 0, 0, 0, {"", "DirectML", OOM_ACTIVITY_EITHER, "runtime", {NULL}, NULL, {NULL}}},
	{"vulkan", 0, 0, 0, {"", "the Vulkan program", OOM_ACTIVITY_EITHER, "runtime", {NULL}, NULL, {NULL}}},
	{"opencl", 0, 0, 0, {"", "the OpenCL program", OOM_ACTIVITY_EITHER, "runtime", {NULL}, NULL, {NULL}}},
	{"tensorrt", 0, 0, 0, {"", "TensorRT", OOM_ACTIVITY_INFERS, "tensorrt", {NULL}, NULL, {NULL}}},
	{"tensorrt-llm", 0, 0, 0, {"tensorrt-llm", "TensorRT-LLM", OOM_ACTIVITY_SERVES, "trtllm", {NULL}, NULL, {NULL}}},
	{"lmdeploy", 0, 0, 0, {"lmdeploy", "LMDeploy", OOM_ACTIVITY_SERVES, "lmdeploy", {NULL}, NULL, {NULL}}},
	{"ctranslate2", 0, 0, 0, {"", "CTranslate2", OOM_ACTIVITY_INFERS, "ctranslate2", {NULL}, NULL, {NULL}}},
	{"paddle", 0, 0, 0, {"", "Paddle", OOM_ACTIVITY_EITHER, "paddle", {NULL}, NULL, {NULL}}},
	{"mindspore", 0, 0, 0, {"", "MindSpore", OOM_ACTIVITY_EITHER, "mindspore", {NULL}, NULL, {NULL}}},
	{"caffe", 0, 0, 0, {"", "the Caffe program", OOM_ACTIVITY_EITHER, "caffe", {NULL}, NULL, {NULL}}},
	{"mxnet", 0, 0, 0, {"", "MXNet", OOM_ACTIVITY_EITHER, "runtime", {NULL}, NULL, {NULL}}},
	{"tinygrad", 0, 0, 0, {"", "the tinygrad program", OOM_ACTIVITY_EITHER, "tinygrad", {NULL}, NULL, {NULL}}},
	{"candle", 0, 0, 0, {"", "the Rust program (candle)", OOM_ACTIVITY_INFERS, "runtime", {NULL}, NULL, {NULL}}},
	{"cuda", OOM_RUNTIME_NO_TENSORS, 0, 0, {"", "the CUDA program", OOM_ACTIVITY_EITHER, "cuda", {NULL}, NULL, {NULL}}},
	{"device", OOM_RUNTIME_NOBODYS, 0, 0, {"", "the program", OOM_ACTIVITY_EITHER, "runtime", {NULL}, NULL, {NULL}}},
	{"dlib", 0, 0, 0, {"", "dlib", OOM_ACTIVITY_EITHER, "runtime", {NULL}, NULL, {NULL}}},
	{"cupy", 0, 0, 0, {"", "CuPy", OOM_ACTIVITY_EITHER, "cupy", {NULL}, NULL, {NULL}}},
	{"rmm", OOM_RUNTIME_SILENT, 0, 0, {"", "RMM (RAPIDS)", OOM_ACTIVITY_EITHER, "rmm", {NULL}, NULL, {NULL}}},
	{"faiss", OOM_RUNTIME_SILENT, 0, 0, {"", "Faiss", OOM_ACTIVITY_INFERS, "faiss", {NULL}, NULL, {NULL}}},
	{"xgboost", 0, 0, 0, {"", "XGBoost", OOM_ACTIVITY_EITHER, "xgboost", {NULL}, NULL, {NULL}}},
	{"torch-mps", OOM_RUNTIME_TORCH | OOM_RUNTIME_WATERMARK, 0, 0, {"", "PyTorch on the Apple GPU", OOM_ACTIVITY_EITHER, "mps", {NULL}, NULL, {NULL}}},
	{"torch-npu", CARD, 0, 0, {"", "PyTorch on the NPU", OOM_ACTIVITY_EITHER, "npu", {NULL}, NULL, {NULL}}},
	/* Level Zero refuses single allocations above 4 GiB unless a kernel is compiled for them
	 * (UR_L0_USE_RELAXED_ALLOCATION_LIMITS, ZE_RELAXED_ALLOCATION_LIMITS_MAX_SIZE_EXP_FLAG) */
	{"torch-xpu", CARD, 4 * GIB, 0, {"", "PyTorch on the Intel GPU", OOM_ACTIVITY_EITHER, "xpu", {NULL}, NULL, {NULL}}},
	/* AMD's cards report all but some MiB of 4, 8, 12 ... GiB */
	{"torch-rocm", CARD | OOM_RUNTIME_LIBRARIES, 0, 4 * GIB, {"", "PyTorch on the AMD GPU", OOM_ACTIVITY_EITHER, "rocm", {NULL}, NULL, {NULL}}},
	{"torch-cpu", OOM_RUNTIME_HOST, 0, 0, {"", "the program", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}},
	{"host", OOM_RUNTIME_HOST, 0, 0, {"", "the process", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}},
	/* libraries of PyTorch programs that speak for themselves */
	{"nccl", 0, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}},
	{"triton", 0, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}},
	{"bitsandbytes", 0, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}},
};
static const struct oom_runtime other = {"", 0, 0, 0, {"", "the program", OOM_ACTIVITY_EITHER, "torch", {NULL}, NULL, {NULL}}};

const struct oom_runtime *oom_runtime_named(const char *framework)
{
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
		if (!strcmp(runtimes[i].framework, framework))
			return &runtimes[i];
	return &other;
}

bool oom_crash_of_card(const struct oom_crash *c)
{
	return oom_runtime_is(c, OOM_RUNTIME_CARD);
}
