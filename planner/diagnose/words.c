/* The words that may open an out-of-memory message, and how a log is searched for them.
 *
 * Wordings: c10/cuda/CUDACachingAllocator.cpp of every release since 1.0 (the sentence changed in
 * 1.4, 1.10, 2.1, 2.2, 2.5 and 2.9), HIP's and XPU's copies of it, aten/mps,
 * c10/core/impl/alloc_cpu.cpp, THC, XLA, TensorFlow's BFC allocator, vLLM's KV-cache check, the
 * kernel's, Slurm's and Kubernetes' kill lines. */
#include <assert.h>
#include <string.h>

#include "parts.h"

/* Longer words first where one begins another. */
static const struct oom_trigger triggers[] = {
	/* one buffer above what the device allows, whatever is free */
	{"can NOT allocate memory block", "torch-xpu", "xpu", 3},
	{"maximum allowed buffer size", "mlx", "mlx-buffer-limit", 3},
	{"total bytes of NDArray >", "torch-mps", "mps-ndarray-limit", 3},
	{"exceeds device memory allocation limit", "ggml", "ggml-buffer-limit", 3},
	{"is larger than buffer maximum", "ggml", "ggml-buffer-limit", 3},
	{"Exceeded max size of memory object", "openvino", "openvino-buffer-limit", 3},
	{"CUDA out of memory", "torch", "cuda", 3},
	{"HIP out of memory", "torch-rocm", "hip", 3},
	{"XPU out of memory", "torch-xpu", "xpu", 3},
	{"MPS backend out of memory", "torch-mps", "mps", 3},
	{"Invalid buffer size: ", "torch-mps", "mps-buffer-size", 3},
	{"NPU out of memory", "torch-npu", "npu", 3},
	{"Failed to allocate private MTLBuffer", "torch-mps", "mps-no-buffer", 3},
	{"[malloc_or_wait]", "mlx", "mlx-malloc", 3},
	{"[metal::malloc]", "mlx", "mlx-malloc", 3},
	{"[METAL] Command buffer execution failed: Insufficient", "mlx", "mlx-command-buffer", 3},
	{"kIOGPUCommandBufferCallbackErrorOutOfMemory", "metal", "metal-command-buffer", 3},
	{"Tried to allocate", "torch", "cuda", 3},
	{"Allocation on device", "torch", "cuda-malloc-async", 3},
	{"NVML_SUCCESS == ", "torch", "cuda-nvml-assert", 3},
	{"DefaultCPUAllocator", "torch-cpu", "cpu-allocator", 3},
	{"not enough memory: you tried", "torch-cpu", "cpu-allocator", 3},
	{"posix_memalign", "torch-cpu", "cpu-allocator", 3},
	{"OOM when allocating tensor", "tensorflow", "tf-oom-tensor", 3},
	{"ran out of memory trying to allocate", "tensorflow", "tf-bfc-allocator", 2},
	{"Ran out of memory trying to allocate", "tensorflow", "tf-bfc-allocator", 2},
	{"bytes) from device", "tensorflow", "tf-device-driver", 3},
	{"bytes on host: ", "tensorflow", "tf-host-pinned", 3},
	{"exceeds 10% of", "tensorflow", "tf-host-warning", 1},
	{"failed to create cublas handle", "tensorflow", "cublas-alloc-failed", 3},
	{"requested buffer of size", "onnxruntime", "onnxruntime-arena", 3},
	{"std::bad_alloc: CUDA error", "rmm", "rmm", 3},
	{"std::bad_alloc: out_of_memory", "rmm", "rmm", 3},
	{"RMM_ERROR_OUT_OF_MEMORY", "rmm", "rmm", 3},
	{"Out of memory error on GPU", "paddle", "paddle", 3},
	{"allocating <= available failed", "paddle", "paddle", 3},
	{"hipMalloc failed: out of memory", "ggml", "ggml-cuda", 3},
	{"ggml_vulkan: Device memory allocation of size", "ggml", "ggml-vulkan", 3},
	{"of pinned memory: out of memory", "ggml", "ggml-pinned", 1},
	{"ErrorOutOfDeviceMemory", "ggml", "ggml-vulkan", 2},
	{"ErrorOutOfHostMemory", "ggml", "ggml-vulkan", 2},
	{"ggml_aligned_malloc: insufficient memory", "ggml", "ggml-cpu", 3},
	{"buffer_type_alloc_buffer: failed to allocate buffer", "ggml", "ggml-buffer", 3},
	{"buffer_type_alloc_buffer: error: failed to allocate buffer", "ggml", "ggml-buffer", 3},
	{"failed to allocate buffer for kv cache", "ggml", "ggml-buffer", 2},
	{"failed to allocate CPU buffer", "ggml", "ggml-buffer", 2},
	{"failed to allocate CUDA", "ggml", "ggml-buffer", 2},
	{"failed to allocate ROCm", "ggml", "ggml-buffer", 2},
	{"failed to allocate Vulkan", "ggml", "ggml-buffer", 2},
	{"failed to allocate Metal", "ggml", "ggml-buffer", 2},
	{"failed to allocate SYCL", "ggml", "ggml-buffer", 2},
	{"failed to allocate compute buffers", "ggml", "ggml-buffer", 2},
	{"failed to allocate compute pp buffers", "ggml", "ggml-buffer", 2},
	{"unable to allocate backend buffer", "ggml", "ggml-buffer", 2},
	{"enough space in the context's memory pool", "ggml", "ggml-pool", 3},
	{"enough space in the buffer", "ggml", "ggml-pool", 2},
	{"requires more system memory", "ollama", "ollama-system-memory", 3},
	{"cudaMalloc failed: out of memory", "ggml", "ggml-cuda", 3},
	{"cupy.cuda.memory.OutOfMemoryError", "cupy", "cupy", 3},
	{"cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation", "cupy", "cupy", 3},
	{"memory space vmem", "torch-xla", "xla-tpu-vmem", 3},
	{"Ran out of memory in memory space hbm", "torch-xla", "xla-tpu-hbm", 3},
	{"would exceed memory (size=", "torch-xla", "xla-tpu-hbm", 2},
	{"to have enough device memory. Requires", "jax", "xla-early-abort", 3},
	{"Error allocating device buffer", "jax", "xla-resource-exhausted", 3},
	{"Dst tensor is not initialized", "tensorflow", "tf-dst-tensor", 2},
	{"Out of memory allocating", "jax", "xla-resource-exhausted", 3},
	{"Failed to allocate request for", "jax", "xla-resource-exhausted", 3},
	{"bytes for new constant", "jax", "xla-resource-exhausted", 3},
	{"while trying to allocate", "jax", "xla-resource-exhausted", 3},
	{"RESOURCE_EXHAUSTED", "jax", "xla-resource-exhausted", 2},
	{"Resource exhausted", "jax", "xla-resource-exhausted", 2},
	{"Not enough memory to handle", "tgi", "tgi-prefill-budget", 3},
	{"Prefill out of memory", "sglang", "sglang-prefill", 3},
	{"Decode out of memory", "sglang", "sglang-decode", 3},
	{"memory capacity is unbalanced", "sglang", "sglang-unbalanced", 3},
	{"Error in memory profiling. Initial free", "vllm", "vllm-profiling", 3},
	{"nsufficient VRAM for model", "exllama", "exllama-vram", 3},
	{"cumem_allocator.cpp", "vllm", "cuda-error-no-numbers", 2},
	{"No available memory for the cache blocks", "vllm", "vllm-kv-budget", 3},
	{"Not enough memory. Please try to increase --mem", "sglang", "sglang-kv-budget", 3},
	{"stored in KV cache", "vllm", "vllm-kv-budget", 3},
	{"larger than the available KV cache memory", "vllm", "vllm-kv-budget", 3},
	{"less than desired GPU memory utilization", "vllm", "vllm-free-memory", 3},
	{"out of resource: ", "triton", "triton-out-of-resources", 3},
	{"Error out of memory at line", "bitsandbytes", "bitsandbytes-error", 3},
	{"cuda runtime error (2)", "torch", "thc-runtime-error-2", 3},
	{"error=2 : out of memory", "torch", "thc-runtime-error-2", 3},
	{"CUDA Error 2", "tinygrad", "tinygrad", 3},
	{"cudaSuccess (2 vs", "caffe", "caffe", 3},
	{"cudaSuccess: CUDA: out of memory", "mxnet", "mxnet", 3},
	{"Create cublas handle failed", "mxnet", "cublas-alloc-failed", 3},
	{"CUDA failure 2: out of memory", "onnxruntime", "onnxruntime-cuda", 3},
	{"Cuda Runtime (out of memory)", "tensorrt", "tensorrt", 3},
	{"of GPU memory (", "tensorrt", "tensorrt", 3},
	{"cuMemAlloc failed: out of memory", "pycuda", "pycuda", 3},
	{"Allocation failed for size::", "habana", "hpu-devmem", 3},
	{"memory isn't enough and alloc failed", "mindspore", "mindspore-alloc", 3},
	{"Memory isn't enough", "mindspore", "mindspore-alloc", 3},
	{"ACL_ERROR_RT_MEMORY_ALLOCATION", "torch-npu", "npu-error-no-numbers", 3},
	{"EL0004", "torch-npu", "npu-error-no-numbers", 3},
	{"error code is 207001", "torch-npu", "npu-error-no-numbers", 3},
	{"Failed to allocate NPU memory", "torch-npu", "npu-error-no-numbers", 3},
	{"rtMalloc fail", "torch-npu", "npu-rtmalloc", 3},
	{"Cuda failure 'out of memory'", "nccl", "nccl", 3},
	{"Cuda failure 2 'out of memory'", "nccl", "nccl", 3},
	{"CUBLAS_STATUS_ALLOC_FAILED", "torch", "cublas-alloc-failed", 3},
	{"CUDNN_STATUS_ALLOC_FAILED", "torch", "cudnn-alloc-failed", 3},
	{"CUSOLVER_STATUS_ALLOC_FAILED", "torch", "cusolver-alloc-failed", 3},
	{"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "torch", "cusparse-no-resources", 3},
	{"CUFFT_ALLOC_FAILED", "torch", "cufft-alloc-failed", 3},
	/* what these libraries say when they were refused memory, among other things */
	{"CUBLAS_STATUS_NOT_INITIALIZED", "torch", "cublas-not-initialized", 2},
	{"CUDNN_STATUS_NOT_INITIALIZED", "torch", "cudnn-not-initialized", 2},
	{"Unable to find a valid cuDNN algorithm", "torch", "cudnn-no-algorithm", 2},
	{"unable to find an engine to execute", "torch", "cudnn-no-algorithm", 2},
	{"No executable batch size found", "torch", "no-executable-batch-size", 3},
	{"CUDA error: out of memory", "torch", "cuda-error-no-numbers", 3},
	{"CUDA driver error: out of memory", "torch", "cuda-error-no-numbers", 3},
	{"CUDA failed with error out of memory", "ctranslate2", "cuda-error-no-numbers", 3},
	{"error 2 out of memory", "torch", "cuda-error-no-numbers", 3},
	{"HIP error: out of memory", "torch-rocm", "hip-error-no-numbers", 3},
	{"hipErrorOutOfMemory", "torch-rocm", "hip-error-no-numbers", 3},
	{"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "torch-xpu", "xpu-error-no-numbers", 3},
	{"UR_RESULT_ERROR_OUT_OF_RESOURCES", "torch-xpu", "xpu-error-no-numbers", 3},
	{"PI_ERROR_OUT_OF_RESOURCES", "torch-xpu", "xpu-error-no-numbers", 3},
	{"ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "torch-xpu", "xpu-error-no-numbers", 3},
	{"HSA_STATUS_ERROR_OUT_OF_RESOURCES", "torch-rocm", "hip-error-no-numbers", 3},
	{"CUDA_ERROR_OUT_OF_MEMORY", "torch", "cuda-error-no-numbers", 3},
	{"cudaErrorMemoryAllocation", "torch", "cuda-error-no-numbers", 3},
	{"CL_MEM_OBJECT_ALLOCATION_FAILURE", "opencl", "opencl-error", 3},
	{"CL_OUT_OF_RESOURCES", "opencl", "opencl-error", 2},
	{"enough GPU video memory available", "directml", "directml", 3},
	{"CUDA runtime error: out of memory", "torch", "cuda-error-no-numbers", 3},
	{"CUDA runtime error in ", "torch", "cuda-error-no-numbers", 3},
	{"cuDevicePrimaryCtxRetain", "torch", "cuda-context", 2},
	{"NvMapMemAlloc", "torch", "jetson-nvmap", 2},
	{"HIP_ERROR_OutOfMemory", "torch-rocm", "hip-error-no-numbers", 3},
	{"Memory allocation error on worker", "xgboost", "xgboost", 3},
	{"CUDA error:", "torch", "cuda-error-other", 1},
	{"node running low on memory", "host", "ray-oom", 3},
	{"exceeds the memory usage threshold", "host", "ray-oom", 3},
	{"of the memory on node", "host", "ray-oom", 3},
	{"RAY_memory_usage_threshold", "host", "ray-oom", 2},
	{"JavaScript heap out of memory", "host", "node-heap", 2},
	{"Perhaps out of memory?", "host", "gunicorn-killed", 2},
	{"excessive memory usage causing the", "host", "loky-killed", 2},
	{"% memory budget", "host", "dask-memory", 2},
	{"killed by the OOM killer", "host", "systemd-oom", 2},
	{"systemd-oomd killed", "host", "systemd-oom", 2},
	{"result 'oom-kill'", "host", "systemd-oom", 2},
	{"earlyoom", "host", "systemd-oom", 1},
	{"signaled to shutdown with signal 9", "host", "elastic-exitcode", 2},
	{"memory allocation of ", "host", "rust-alloc", 1},
	{"exceeds limits for resource memory", "host", "container-memory", 2},
	{"MemoryPressure", "host", "k8s-evicted", 1},
	{"low on resource: ephemeral-storage", "host", "k8s-disk", 2},
	{"java.lang.OutOfMemoryError", "host", "java-heap", 2},
	{"Container killed", "host", "container-memory", 3},
	{"OutOfMemoryError", "torch", "cuda-no-numbers", 2},
	{"killed due to memory pressure", "host", "ray-oom", 2},
	{"low on resource: memory", "host", "k8s-evicted", 2},
	{"paging file is too small", "host", "paging-file", 3},
	{"TERM_MEMLIMIT", "host", "lsf-memlimit", 2},
	{"PBS: job killed: mem", "host", "pbs-memlimit", 2},
	{"exceeded memory limit", "host", "slurm-memlimit", 2},
	{"xceeded job memory limit", "host", "slurm-memlimit", 2},
	{"xceeded step memory limit", "host", "slurm-memlimit", 2},
	{"OUT_OF_ME+", "host", "slurm-oom-kill", 2},
	{"State=OUT_OF_MEMORY", "host", "slurm-oom-kill", 2},
	{"using all available RAM", "host", "notebook-ram", 2},
	{"allocate more memory than is available", "host", "notebook-ram", 2},
	{"insufficient shared memory", "host", "torch-shm", 2},
	{"unable to write to file </torch_", "host", "torch-shm", 2},
	{"unable to open shared memory object", "host", "torch-shm", 2},
	{"unable to mmap ", "host", "torch-mmap", 2},
	{"oom-kill", "host", "oom-kill", 2},
	{"Memory cgroup out of memory", "host", "kernel-oom-kill", 2},
	{"Out of memory: Kill", "host", "kernel-oom-kill", 2},
	{"OOMKilled", "host", "k8s-oomkilled", 2},
	{"OOM Killed", "host", "k8s-oomkilled", 2},
	{": Out Of Memory", "host", "slurm-oom-kill", 2},
	{"oom_kill", "host", "slurm-oom-kill", 2},
	{"is killed by signal", "host", "dataloader-signal", 2},
	{"exited unexpectedly", "host", "dataloader-signal", 1},
	{"exitcode: -9", "host", "elastic-exitcode", 2},
	{"exitcode  : -9", "host", "elastic-exitcode", 2},
	{"exitcode : -9", "host", "elastic-exitcode", 2},
	{"exits with return code = -9", "host", "elastic-exitcode", 2},
	{"code -9", "host", "elastic-exitcode", 2},
	{"Signals.SIGKILL", "host", "elastic-exitcode", 2},
	{"signal: killed", "host", "elastic-exitcode", 2},
	{"(SIGKILL)", "host", "elastic-exitcode", 2},
	{"SIGKILL", "host", "elastic-exitcode", 1},
	{"code 137", "host", "exit-137", 2},
	{"atus 137", "host", "exit-137", 2},
	{"Exited (137)", "host", "exit-137", 2},
	{"Docker Container: 137", "host", "exit-137", 2},
	{"ExitCode\": 137", "host", "exit-137", 2},
	{"Exit Code:    137", "host", "k8s-oomkilled", 2},
	{"code: 137", "host", "exit-137", 2},
	{"ExitCode 137", "host", "exit-137", 2},
	{"exitCode: 137", "host", "k8s-oomkilled", 2},
	{"signal 9", "host", "elastic-exitcode", 1},
	{"Unable to allocate", "host", "numpy-memory-error", 2},
	{"std::bad_alloc", "host", "bad-alloc", 2},
	{"Cannot allocate memory", "host", "errno-12", 2},
	{"file write failed", "torch", "disk-full", 2},
	{". unexpected pos ", "torch", "disk-full", 2},
	{"Disk quota exceeded", "host", "disk-full", 2},
	{"StorageFull", "host", "disk-full", 2},
	{"enough free disk space", "host", "disk-full", 1},
	{"Not enough disk space", "host", "disk-full", 1},
	{"Insufficient disk space", "host", "disk-full", 1},
	{"DUE TO TIME LIMIT", "host", "time-limit", 1},
	{"DUE TO PREEMPTION", "host", "time-limit", 1},
	{"Watchdog caught collective operation timeout", "torch", "nccl-timeout", 1},
	{"No space left on device", "host", "errno-28", 1},
	{"MemoryError", "host", "python-memory-error", 2},
	{"Killed", "host", "bare-killed", 1},
	{"zsh: killed ", "host", "bare-killed", 1},
};

enum { COUNT = sizeof(triggers) / sizeof(triggers[0]) };

static bool begins(const char *at, size_t left, const char *word)
{
	return left >= strlen(word) && !memcmp(at, word, strlen(word));
}

static bool ends(const char *begin, const char *at, const char *word)
{
	const size_t n = strlen(word);

	return (size_t)(at - begin) >= n && !memcmp(at - n, word, n);
}

/* The same words in another sense: n bytes at "at", left of them to the end. */
static bool other_meaning(const struct oom_trigger *t, const char *at, size_t left, size_t n,
			  const char *begin)
{
	/* advice about a later run: "If you encounter CUDA out of memory, try ..." */
	static const char *const advice[] = {"encounter ", "encountering ", "get ",  "avoid ",
					     "prevent ",   "hit ",	    "see a "};

	/* the shell's bare word stands alone on its line */
	if (!strcmp(t->needle, "Killed"))
		return (at > begin && at[-1] != '\n' && at[-1] != ' ' && at[-1] != ']') ||
		       (left > n && at[n] != '\n' && at[n] != '\r' && at[n] != ' ' &&
			!begins(at + n, left - n, ": 9"));
	if (!strcmp(t->needle, "OOMKilled"))
		return begins(at + n, left - n, "\": false") || begins(at + n, left - n, "=false") ||
		       begins(at + n, left - n, ": false") || begins(at + n, left - n, ":false");
	if (!strcmp(t->needle, "CUDA runtime error in "))
		return !oom_text_find(at, at + (left < 400 ? left : 400), "out of memory");
	/* a launcher ends the ranks that are left, after one of them failed */
	if (!strcmp(t->needle, "Signals.SIGKILL"))
		return ends(begin, at, "exiting via ");
	if (!strcmp(t->needle, "SIGKILL"))
		return ends(begin, at, "exiting via Signals.");
	if (!strcmp(t->needle, "MemoryPressure"))
		return oom_text_find(at, at + (left < 40 ? left : 40), "False") != NULL;
	if (!strcmp(t->needle, "memory allocation of "))
		return !oom_text_find(at, at + (left < 60 ? left : 60), "bytes failed");
	if (!strcmp(t->needle, "% memory budget"))
		return !oom_text_find(begin, at, "Worker");
	if (!strcmp(t->needle, "file write failed") || !strcmp(t->needle, ". unexpected pos "))
		return !oom_text_find(at - begin > 160 ? at - 160 : begin, at, "inline_container");
	if (!strcmp(t->needle, "MemoryError"))
		return ends(begin, at, "OutOf");
	/* the class before its own message, which is found by its words */
	if (!strcmp(t->needle, "OutOfMemoryError"))
		return begins(at + n, left - n, ": CUDA out of") ||
		       begins(at + n, left - n, ": HIP out of") ||
		       begins(at + n, left - n, ": XPU out of") ||
		       begins(at + n, left - n, ": NPU out of");
	if (!strcmp(t->needle, "CUDA out of memory"))
		for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++)
			if (ends(begin, at, advice[i]))
				return true;
	return false;
}

/* Of the first four bytes: every needle has OOM_TRIGGER_MIN. */
static uint8_t first_hash(const char *needle)
{
	uint32_t four;

	memcpy(&four, needle, sizeof(four));
	return (uint8_t)(four * UINT32_C(0x9e3779b1) >> 24);
}

const struct oom_trigger *oom_trigger_at(const struct oom_trigger_index *index, const char *at,
					 size_t left, const char *begin)
{
	if (left < OOM_TRIGGER_MIN)
		return NULL;
	for (size_t i = index->first[first_hash(at)]; i; i = index->next[i]) {
		const struct oom_trigger *const t = &triggers[i - 1];
		const size_t n = strlen(t->needle);

		if (left >= n && !memcmp(at, t->needle, n) &&
		    !other_meaning(t, at, left, n, begin))
			return t;
	}
	return NULL;
}

/* Wu and Manber's shifts (A fast algorithm for multi-pattern searching, 1994) over the first
 * OOM_TRIGGER_MIN bytes of every needle, by the three bytes a window ends in: how far its end
 * may move on; 0: a needle may begin here. */
void oom_trigger_index_init(struct oom_trigger_index *index)
{
	uint8_t *const shift = index->shift;

	static_assert(COUNT < 255, "places are bytes");
	memset(index, 0, sizeof(*index));
	memset(shift, OOM_TRIGGER_MIN - 2, sizeof(index->shift));
	/* from the last: a chain has the order of the table */
	for (size_t i = COUNT; i > 0; i--) {
		uint8_t *const first = &index->first[first_hash(triggers[i - 1].needle)];

		index->next[i] = *first;
		*first = (uint8_t)i;
	}
	for (size_t i = 0; i < COUNT; i++)
		for (int j = 2; j < OOM_TRIGGER_MIN; j++) {
			uint8_t *s = &shift[oom_trigger_hash(triggers[i].needle + j)];

			if (*s > OOM_TRIGGER_MIN - 1 - j)
				*s = (uint8_t)(OOM_TRIGGER_MIN - 1 - j);
		}
}
