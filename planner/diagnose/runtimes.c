/* The runtimes whose allocators refuse, and what their programs are called where no program shows. */
#include "tables.h"

/* PyTorch on a card with a memory of its own. */
#define CARD (OOM_RUNTIME_TORCH | OOM_RUNTIME_CARD)
#define GIB (UINT64_C(1) << 30)

static const struct oom_runtime runtimes[] = {
	{"torch", CARD, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}}},
	{"jax", OOM_RUNTIME_EXECUTABLE | OOM_RUNTIME_WORDY, 0, 0, {"", "the JAX program", OOM_ACTIVITY_EITHER, "jax", {NULL}}},
	{"torch-xla", OOM_RUNTIME_EXECUTABLE | OOM_RUNTIME_WORDY, 0, 0, {"", "the XLA program", OOM_ACTIVITY_EITHER, "jax", {NULL}}},
	{"tensorflow", OOM_RUNTIME_GRAPH, 0, 0, {"", "the TensorFlow program", OOM_ACTIVITY_EITHER, "tensorflow", {NULL}}},
	{"ggml", OOM_RUNTIME_LAYERED, 0, 0, {"", "the ggml program", OOM_ACTIVITY_INFERS, "llama.cpp", {NULL}}},
	{"metal", OOM_RUNTIME_LAYERED, 0, 0, {"", "the Metal program", OOM_ACTIVITY_INFERS, "mlx", {NULL}}},
	{"ollama", 0, 0, 0, {"ollama", "Ollama", OOM_ACTIVITY_SERVES, "ollama", {NULL}}},
	{"mlx", 0, 0, 0, {"", "MLX", OOM_ACTIVITY_EITHER, "mlx", {NULL}}},
	{"vllm", 0, 0, 0, {"vllm", "vLLM", OOM_ACTIVITY_SERVES, "vllm", {NULL}}},
	{"sglang", 0, 0, 0, {"sglang", "SGLang", OOM_ACTIVITY_SERVES, "sglang", {NULL}}},
	{"tgi", 0, 0, 0, {"tgi", "text-generation-inference", OOM_ACTIVITY_SERVES, "tgi", {NULL}}},
	{"exllama", 0, 0, 0, {"exllama", "ExLlama", OOM_ACTIVITY_INFERS, "exllama", {NULL}}},
	{"onnxruntime", OOM_RUNTIME_SILENT, 0, 0, {"", "ONNX Runtime", OOM_ACTIVITY_INFERS, "onnxruntime", {NULL}}},
	{"openvino", 0, 0, 0, {"", "OpenVINO", OOM_ACTIVITY_INFERS, "runtime", {NULL}}},
	{"directml", 0, 0, 0, {"", "DirectML", OOM_ACTIVITY_EITHER, "runtime", {NULL}}},
	{"opencl", 0, 0, 0, {"", "the OpenCL program", OOM_ACTIVITY_EITHER, "runtime", {NULL}}},
	{"tensorrt", 0, 0, 0, {"", "TensorRT", OOM_ACTIVITY_INFERS, "tensorrt", {NULL}}},
	{"tensorrt-llm", 0, 0, 0, {"tensorrt-llm", "TensorRT-LLM", OOM_ACTIVITY_SERVES, "trtllm", {NULL}}},
	{"lmdeploy", 0, 0, 0, {"lmdeploy", "LMDeploy", OOM_ACTIVITY_SERVES, "lmdeploy", {NULL}}},
	{"ctranslate2", 0, 0, 0, {"", "CTranslate2", OOM_ACTIVITY_INFERS, "ctranslate2", {NULL}}},
	{"paddle", 0, 0, 0, {"", "Paddle", OOM_ACTIVITY_EITHER, "paddle", {NULL}}},
	{"mindspore", 0, 0, 0, {"", "MindSpore", OOM_ACTIVITY_EITHER, "mindspore", {NULL}}},
	{"mxnet", 0, 0, 0, {"", "MXNet", OOM_ACTIVITY_EITHER, "runtime", {NULL}}},
	{"cupy", 0, 0, 0, {"", "CuPy", OOM_ACTIVITY_EITHER, "cupy", {NULL}}},
	{"rmm", OOM_RUNTIME_SILENT, 0, 0, {"", "RMM (RAPIDS)", OOM_ACTIVITY_EITHER, "rmm", {NULL}}},
	{"faiss", OOM_RUNTIME_SILENT, 0, 0, {"", "Faiss", OOM_ACTIVITY_INFERS, "faiss", {NULL}}},
	{"xgboost", 0, 0, 0, {"", "XGBoost", OOM_ACTIVITY_EITHER, "xgboost", {NULL}}},
	{"torch-mps", OOM_RUNTIME_TORCH | OOM_RUNTIME_WATERMARK, 0, 0, {"", "PyTorch on the Apple GPU", OOM_ACTIVITY_EITHER, "mps", {NULL}}},
	{"torch-npu", CARD, 0, 0, {"", "PyTorch on the NPU", OOM_ACTIVITY_EITHER, "npu", {NULL}}},
	/* Level Zero refuses single allocations above 4 GiB unless a kernel is compiled for them
	 * (UR_L0_USE_RELAXED_ALLOCATION_LIMITS, ZE_RELAXED_ALLOCATION_LIMITS_MAX_SIZE_EXP_FLAG) */
	{"torch-xpu", CARD, 4 * GIB, 0, {"", "PyTorch on the Intel GPU", OOM_ACTIVITY_EITHER, "xpu", {NULL}}},
	/* AMD's cards report all but some MiB of 4, 8, 12 ... GiB */
	{"torch-rocm", CARD, 0, 4 * GIB, {"", "PyTorch on the AMD GPU", OOM_ACTIVITY_EITHER, "rocm", {NULL}}},
	{"torch-cpu", OOM_RUNTIME_HOST, 0, 0, {"", "the program", OOM_ACTIVITY_EITHER, "torch", {NULL}}},
	{"host", OOM_RUNTIME_HOST, 0, 0, {"", "the process", OOM_ACTIVITY_EITHER, "torch", {NULL}}},
	/* libraries of PyTorch programs that speak for themselves */
	{"nccl", 0, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}}},
	{"triton", 0, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}}},
	{"bitsandbytes", 0, 0, 0, {"", "the PyTorch program", OOM_ACTIVITY_EITHER, "torch", {NULL}}},
};
static const struct oom_runtime other = {"", 0, 0, 0, {"", "the program", OOM_ACTIVITY_EITHER, "torch", {NULL}}};

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
