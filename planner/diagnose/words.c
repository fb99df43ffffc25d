/* The words that may open an out-of-memory message, and how a log is searched for them.
 *
 * Wordings: c10/cuda/CUDACachingAllocator.cpp of every release since 1.0 (the sentence changed in
 * 1.4, 1.10, 2.1, 2.2, 2.5 and 2.9), HIP's and XPU's copies of it, aten/mps,
 * c10/core/impl/alloc_cpu.cpp, THC, XLA, TensorFlow's BFC allocator, vLLM's KV-cache check, the
 * kernel's, Slurm's and Kubernetes' kill lines. */
#include <assert.h>
#include <string.h>

#include "parts.h"

/* What gives the same letters another sense. */
static const char *const no_kill[] = {"\": false", "=false", ": false", ":false", NULL};
static const char *const other_class[] = {": CUDA out of", ": HIP out of", ": XPU out of", ": NPU out of", NULL};
static const char *const a_class[] = {"OutOf", NULL};
/* a launcher ends the ranks that are left, after one of them failed */
static const char *const by_launcher[] = {"exiting via ", "exiting via Signals.", NULL};
static const char *const by_launcher_or_ray[] = {"exiting via ", "exiting via Signals.", "is killed by ", NULL};
/* advice about a later run: "If you encounter CUDA out of memory, try ..." */
static const char *const advice[] = {"encounter ", "encountering ", "get ", "avoid ", "prevent ", "hit ", "see a ", NULL};

/* Further columns by their names. */
#define SAYS(needle_, framework_, format_, ...) \
	{.needle = needle_, .framework = framework_, .format = format_, .strength = __VA_ARGS__}

/* Longer words first where one begins another. */
static const struct oom_trigger triggers[] = {
	/* one buffer above what the device allows, whatever is free */
	SAYS("can NOT allocate memory block", "torch-xpu", "xpu", 3),
	SAYS("maximum allowed buffer size", "mlx", "mlx-buffer-limit", 3),
	SAYS("total bytes of NDArray >", "torch-mps", "mps-ndarray-limit", 3),
	SAYS("exceeds device memory allocation limit", "ggml", "ggml-buffer-limit", 3),
	SAYS("exceeds device buffer size limit", "ggml", "ggml-buffer-limit", 3),
	SAYS("is larger than buffer maximum", "ggml", "ggml-buffer-limit", 3),
	SAYS("Exceeded max size of memory object", "openvino", "openvino-buffer-limit", 3),
	SAYS("CUDA out of memory", "torch", "cuda", 3, .not_after = advice),
	SAYS("HIP out of memory", "torch-rocm", "hip", 3),
	SAYS("XPU out of memory", "torch-xpu", "xpu", 3),
	SAYS("MPS backend out of memory", "torch-mps", "mps", 3),
	SAYS("Invalid buffer size: ", "torch-mps", "mps-buffer-size", 3),
	SAYS("NPU out of memory", "torch-npu", "npu", 3),
	SAYS("Failed to allocate private MTLBuffer", "torch-mps", "mps-no-buffer", 3),
	SAYS("[malloc_or_wait]", "mlx", "mlx-malloc", 3),
	SAYS("[metal::malloc] Resource limit", "mlx", "mlx-resource-limit", 3),
	SAYS("[metal::malloc]", "mlx", "mlx-malloc", 3),
	SAYS("[METAL] Command buffer execution failed: Insufficient", "mlx", "mlx-command-buffer", 3),
	SAYS("kIOGPUCommandBufferCallbackErrorOutOfMemory", "metal", "metal-command-buffer", 3),
	SAYS("Tried to allocate", "torch", "cuda", 3, .continues = true),
	SAYS("cuda out of memory. tried to allocate", "torch", "cuda", 3, .continues = true),
	SAYS("CUDA memory summary, device", "torch", "cuda-memory-summary", 1),
	SAYS("Allocation on device", "torch", "cuda-malloc-async", 3),
	SAYS("NVML_SUCCESS == ", "torch", "cuda-nvml-assert", 3),
	SAYS("DefaultCPUAllocator", "torch-cpu", "cpu-allocator", 3),
	SAYS("not enough memory: you tried", "torch-cpu", "cpu-allocator", 3),
	SAYS("posix_memalign", "torch-cpu", "cpu-allocator", 3),
	SAYS("OOM when allocating tensor", "tensorflow", "tf-oom-tensor", 3),
	SAYS("ran out of memory trying to allocate", "tensorflow", "tf-bfc-allocator", 2),
	SAYS("Ran out of memory trying to allocate", "tensorflow", "tf-bfc-allocator", 2),
	/* the table that the allocator prints first, where the message was cut off */
	SAYS("Sum Total of in-use chunks", "tensorflow", "tf-bfc-dump", 1),
	SAYS("bytes) from device", "tensorflow", "tf-device-driver", 3),
	SAYS("bytes on host: ", "tensorflow", "tf-host-pinned", 3),
	SAYS("exceeds 10% of", "tensorflow", "tf-host-warning", 1),
	SAYS("failed to create cublas handle", "tensorflow", "cublas-alloc-failed", 3),
	SAYS("requested buffer of size", "onnxruntime", "onnxruntime-arena", 3),
	SAYS("std::bad_alloc: CUDA error", "rmm", "rmm", 3),
	SAYS("std::bad_alloc: out_of_memory", "rmm", "rmm", 3),
	SAYS("RMM_ERROR_OUT_OF_MEMORY", "rmm", "rmm", 3),
	SAYS("RMM failure at", "rmm", "rmm", 3),
	SAYS("Out of memory error on GPU", "paddle", "paddle", 3),
	SAYS("allocating <= available failed", "paddle", "paddle", 3),
	SAYS("hipMalloc failed: out of memory", "ggml", "ggml-cuda", 3),
	SAYS("ggml_vulkan: Device memory allocation of size", "ggml", "ggml-vulkan", 3),
	SAYS("of pinned memory: out of memory", "ggml", "ggml-pinned", 1),
	SAYS("Failed to allocate pinned memory", "ggml", "ggml-pinned", 1),
	SAYS("ErrorOutOfDeviceMemory", "ggml", "ggml-vulkan", 2, .unless = {"pinned memory", -120}),
	SAYS("ErrorOutOfHostMemory", "ggml", "ggml-vulkan", 2),
	SAYS("ggml_aligned_malloc: insufficient memory", "ggml", "ggml-cpu", 3),
	SAYS("buffer_type_alloc_buffer: failed to allocate buffer", "ggml", "ggml-buffer", 3),
	SAYS("buffer_type_alloc_buffer: error: failed to allocate buffer", "ggml", "ggml-buffer", 3),
	SAYS("failed to allocate buffer for kv cache", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate CPU buffer", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate CUDA", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate ROCm", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate Vulkan", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate Metal", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate SYCL", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate compute buffers", "ggml", "ggml-buffer", 2),
	SAYS("failed to allocate compute pp buffers", "ggml", "ggml-buffer", 2),
	SAYS("unable to allocate backend buffer", "ggml", "ggml-buffer", 2),
	SAYS("enough space in the context's memory pool", "ggml", "ggml-pool", 3),
	SAYS("enough space in the buffer", "ggml", "ggml-pool", 2),
	SAYS("requires more system memory", "ollama", "ollama-system-memory", 3),
	SAYS("cudaMalloc failed: out of memory", "ggml", "ggml-cuda", 3),
	SAYS("cupy.cuda.memory.OutOfMemoryError", "cupy", "cupy", 3),
	SAYS("out of memory to allocate", "cupy", "cupy", 3),
	SAYS("Out of memory allocating", "cupy", "cupy", 3, .needs = {"allocated so far", 120}),
	SAYS("cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation", "cupy", "cupy", 3),
	/* whatever space of a core it is (vmem, smem, cmem, sflag): none of them is the memory */
	SAYS("Ran out of memory in memory space hbm", "torch-xla", "xla-tpu-hbm", 3),
	SAYS("Ran out of memory in memory space host", "torch-xla", "xla-tpu-hbm", 3),
	SAYS("memory in memory space ", "torch-xla", "xla-tpu-vmem", 3),
	SAYS("memory space vmem", "torch-xla", "xla-tpu-vmem", 3),
	SAYS("would exceed memory (size=", "torch-xla", "xla-tpu-hbm", 2),
	SAYS("to have enough device memory. Requires", "jax", "xla-early-abort", 3),
	SAYS("Error allocating device buffer", "jax", "xla-resource-exhausted", 3),
	SAYS("Dst tensor is not initialized", "tensorflow", "tf-dst-tensor", 2),
	SAYS("Out of memory allocating", "jax", "xla-resource-exhausted", 3),
	SAYS("Failed to allocate request for", "jax", "xla-resource-exhausted", 3),
	SAYS("bytes for new constant", "jax", "xla-resource-exhausted", 3),
	SAYS("while trying to allocate", "jax", "xla-resource-exhausted", 3),
	SAYS("RESOURCE_EXHAUSTED", "jax", "xla-resource-exhausted", 2),
	SAYS("Resource exhausted", "jax", "xla-resource-exhausted", 2),
	/* the list of buffers behind such a message, where the message was cut off */
	SAYS("BufferAssignment OOM Debugging", "jax", "xla-buffers", 1),
	SAYS("XLA Label: ", "jax", "xla-buffers", 1),
	SAYS("Entry Parameter Subshape: ", "jax", "xla-buffers", 1),
	SAYS("insufficient GPU memory", "tensorrt-llm", "trtllm-executor", 3, .needs = {"xecutor", -120}),
	SAYS("Faiss device allocator fail", "faiss", "faiss-alloc", 3),
	SAYS("cudaMalloc error out of memory", "faiss", "faiss-alloc", 3),
	SAYS("(error 2 out of memory", "faiss", "faiss-alloc", 3, .needs = {"cudaMalloc", -120}),
	SAYS("Not enough memory to handle", "tgi", "tgi-prefill-budget", 3),
	SAYS("Prefill out of memory", "sglang", "sglang-prefill", 3),
	SAYS("Decode out of memory", "sglang", "sglang-decode", 3),
	SAYS("memory capacity is unbalanced", "sglang", "sglang-unbalanced", 3),
	SAYS("Error in memory profiling. Initial free", "vllm", "vllm-profiling", 3),
	SAYS("nsufficient VRAM for model", "exllama", "exllama-vram", 3),
	SAYS("cumem_allocator.cpp", "vllm", "cuda-error-no-numbers", 2),
	SAYS("No available memory for the cache blocks", "vllm", "vllm-kv-budget", 3),
	SAYS("Not enough memory. Please try to increase --mem", "sglang", "sglang-kv-budget", 3),
	SAYS("memory for KV cache", "vllm", "vllm-kv-budget", 3, .needs = {"not enough", -40}),
	SAYS("stored in KV cache", "vllm", "vllm-kv-budget", 3),
	SAYS("larger than the available KV cache memory", "vllm", "vllm-kv-budget", 3),
	SAYS("less than desired GPU memory utilization", "vllm", "vllm-free-memory", 3),
	SAYS("out of resource: ", "triton", "triton-out-of-resources", 3),
	SAYS("Error out of memory at line", "bitsandbytes", "bitsandbytes-error", 3),
	SAYS("cuda runtime error (2)", "torch", "thc-runtime-error-2", 3),
	SAYS("error=2 : out of memory", "torch", "thc-runtime-error-2", 3),
	SAYS("CUDA Error 2", "tinygrad", "tinygrad", 3),
	SAYS("cudaSuccess (2 vs", "caffe", "caffe", 3),
	SAYS("cudaSuccess. 2 vs", "caffe", "caffe", 3),
	SAYS("cudaSuccess: CUDA: out of memory", "mxnet", "mxnet", 3),
	/* dlib/cuda/cuda_errors.h: "Error while calling cudaMalloc(&data, n) in file ... code: 2, reason: out of memory" */
	SAYS("reason: out of memory", "dlib", "dlib", 3, .needs = {"rror while calling cuda", -400}),
	SAYS("Create cublas handle failed", "mxnet", "cublas-alloc-failed", 3),
	SAYS("CUDA failure 2: out of memory", "onnxruntime", "onnxruntime-cuda", 3),
	SAYS("Cuda Runtime (out of memory)", "tensorrt", "tensorrt", 3),
	SAYS("of GPU memory (", "tensorrt", "tensorrt", 3),
	SAYS("Error Code 2: OutOfMemory", "tensorrt", "tensorrt", 3),
	SAYS("allocate: 2 (out of memory)", "tensorrt", "tensorrt", 3),
	SAYS("insufficient memory on requested size of", "tensorrt", "tensorrt", 2),
	SAYS("cuMemAlloc failed: out of memory", "pycuda", "pycuda", 3),
	SAYS("Allocation failed for size::", "habana", "hpu-devmem", 3),
	SAYS("is more than total mem size", "mindspore", "mindspore-alloc", 3),
	SAYS("memory isn't enough and alloc failed", "mindspore", "mindspore-alloc", 3),
	SAYS("Memory isn't enough", "mindspore", "mindspore-alloc", 3),
	SAYS("ACL_ERROR_RT_MEMORY_ALLOCATION", "torch-npu", "npu-error-no-numbers", 3),
	SAYS("EL0004", "torch-npu", "npu-error-no-numbers", 3),
	SAYS("error code is 207001", "torch-npu", "npu-error-no-numbers", 3),
	SAYS("Failed to allocate NPU memory", "torch-npu", "npu-error-no-numbers", 3),
	SAYS("rtMalloc fail", "torch-npu", "npu-rtmalloc", 3),
	SAYS("Cuda failure 'out of memory'", "nccl", "nccl", 3),
	SAYS("Cuda failure 2 'out of memory'", "nccl", "nccl", 3),
	SAYS("CUBLAS_STATUS_ALLOC_FAILED", "torch", "cublas-alloc-failed", 3),
	SAYS("CUDNN_STATUS_ALLOC_FAILED", "torch", "cudnn-alloc-failed", 3),
	SAYS("CUSOLVER_STATUS_ALLOC_FAILED", "torch", "cusolver-alloc-failed", 3),
	SAYS("CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "torch", "cusparse-no-resources", 3),
	SAYS("CUFFT_ALLOC_FAILED", "torch", "cufft-alloc-failed", 3),
	/* what these libraries say when they were refused memory, among other things */
	SAYS("CUBLAS_STATUS_NOT_INITIALIZED", "torch", "cublas-not-initialized", 2),
	SAYS("CUDNN_STATUS_NOT_INITIALIZED", "torch", "cudnn-not-initialized", 2),
	SAYS("Unable to find a valid cuDNN algorithm", "torch", "cudnn-no-algorithm", 2),
	SAYS("unable to find an engine to execute", "torch", "cudnn-no-algorithm", 2),
	SAYS("No executable batch size found", "torch", "no-executable-batch-size", 3),
	SAYS("CUDA error: out of memory", "torch", "cuda-error-no-numbers", 3),
	SAYS("CUDA driver error: out of memory", "torch", "cuda-error-no-numbers", 3),
	SAYS("CUDA failed with error out of memory", "ctranslate2", "cuda-error-no-numbers", 3),
	SAYS("error 2 out of memory", "torch", "cuda-error-no-numbers", 3),
	SAYS("HIP error: out of memory", "torch-rocm", "hip-error-no-numbers", 3),
	SAYS("hipErrorOutOfMemory", "torch-rocm", "hip-error-no-numbers", 3),
	SAYS("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "torch-xpu", "xpu-error-no-numbers", 3),
	SAYS("UR_RESULT_ERROR_OUT_OF_RESOURCES", "torch-xpu", "xpu-error-no-numbers", 3),
	SAYS("PI_ERROR_OUT_OF_RESOURCES", "torch-xpu", "xpu-error-no-numbers", 3),
	SAYS("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "torch-xpu", "xpu-error-no-numbers", 3),
	SAYS("HSA_STATUS_ERROR_OUT_OF_RESOURCES", "torch-rocm", "hip-error-no-numbers", 3),
	SAYS("CUDA_ERROR_OUT_OF_MEMORY", "torch", "cuda-error-no-numbers", 3),
	SAYS("cudaErrorMemoryAllocation", "torch", "cuda-error-no-numbers", 3),
	SAYS("CL_MEM_OBJECT_ALLOCATION_FAILURE", "opencl", "opencl-error", 3),
	SAYS("CL_OUT_OF_RESOURCES", "opencl", "opencl-error", 2),
	SAYS("Could not allocate tensor with", "directml", "directml", 3),
	SAYS("enough GPU video memory available", "directml", "directml", 2),
	SAYS("CUDA runtime error: out of memory", "torch", "cuda-error-no-numbers", 3),
	SAYS("CUDA runtime error in ", "torch", "cuda-error-no-numbers", 3, .needs = {"out of memory", 400}),
	SAYS("cuDevicePrimaryCtxRetain", "torch", "cuda-context", 2),
	SAYS("NvMapMemAlloc", "torch", "jetson-nvmap", 2),
	SAYS("HIP_ERROR_OutOfMemory", "torch-rocm", "hip-error-no-numbers", 3),
	SAYS("Memory allocation error on worker", "xgboost", "xgboost", 3),
	SAYS("CUDA error:", "torch", "cuda-error-other", 1),
	SAYS("node running low on memory", "host", "ray-oom", 3),
	SAYS("exceeds the memory usage threshold", "host", "ray-oom", 3),
	SAYS("of the memory on node", "host", "ray-oom", 3),
	SAYS("RAY_memory_usage_threshold", "host", "ray-oom", 2),
	SAYS("JavaScript heap out of memory", "host", "node-heap", 2),
	SAYS("Perhaps out of memory?", "host", "gunicorn-killed", 2),
	SAYS("excessive memory usage causing the", "host", "loky-killed", 2),
	SAYS("% memory budget", "host", "dask-memory", 2, .needs = {"Worker", 0}),
	SAYS("killed by SIGKILL by OOM killer", "host", "ray-worker-died", 2),
	SAYS("killed by the OOM killer", "host", "systemd-oom", 2),
	SAYS("systemd-oomd killed", "host", "systemd-oom", 2),
	SAYS("result 'oom-kill'", "host", "systemd-oom", 2),
	SAYS("earlyoom", "host", "earlyoom", 1),
	SAYS("signaled to shutdown with signal 9", "host", "elastic-exitcode", 2),
	SAYS("memory allocation of ", "host", "rust-alloc", 1, .needs = {"bytes failed", 60}),
	SAYS("exceeds limits for resource memory", "host", "container-memory", 2),
	SAYS("MemoryPressure", "host", "k8s-evicted", 1, .unless = {"False", 40}),
	SAYS("low on resource: ephemeral-storage", "host", "k8s-disk", 2),
	SAYS("java.lang.OutOfMemoryError", "host", "java-heap", 2),
	SAYS("Container killed", "host", "container-memory", 3),
	SAYS("OutOfMemoryError", "torch", "cuda-no-numbers", 2, .not_before = other_class),
	SAYS("killed due to memory pressure", "host", "ray-oom", 2),
	SAYS("low on resource: memory", "host", "k8s-evicted", 2),
	SAYS("paging file is too small", "host", "paging-file", 3),
	SAYS("TERM_MEMLIMIT", "host", "lsf-memlimit", 2),
	SAYS("PBS: job killed: mem", "host", "pbs-memlimit", 2),
	SAYS("exceeded memory limit", "host", "slurm-memlimit", 2),
	SAYS("xceeded job memory limit", "host", "slurm-memlimit", 2),
	SAYS("xceeded step memory limit", "host", "slurm-memlimit", 2),
	SAYS("OUT_OF_ME+", "host", "slurm-oom-kill", 2),
	SAYS("State=OUT_OF_MEMORY", "host", "slurm-oom-kill", 2),
	SAYS("using all available RAM", "host", "notebook-ram", 2),
	SAYS("allocate more memory than is available", "host", "notebook-ram", 2),
	SAYS("insufficient shared memory", "host", "torch-shm", 2),
	SAYS("unable to write to file </torch_", "host", "torch-shm", 2),
	SAYS("unable to open shared memory object", "host", "torch-shm", 2),
	SAYS("unable to mmap ", "host", "torch-mmap", 2),
	/* who ran into it, and the call trace behind; the line that names the victim counts more */
	SAYS("oom-killer", "host", "oom-kill", 1),
	SAYS("oom_kill_", "host", "oom-kill", 1),
	SAYS("oom-kill", "host", "oom-kill", 2),
	SAYS("Memory cgroup out of memory", "host", "kernel-oom-kill", 2),
	SAYS("Out of memory: Kill", "host", "kernel-oom-kill", 2),
	SAYS("OOMKilled", "host", "k8s-oomkilled", 2, .not_before = no_kill),
	SAYS("OOM Killed", "host", "k8s-oomkilled", 2),
	SAYS(": Out Of Memory", "host", "slurm-oom-kill", 2),
	SAYS("oom_kill", "host", "slurm-oom-kill", 2),
	SAYS("is killed by signal", "host", "dataloader-signal", 2),
	SAYS("exited unexpectedly", "host", "dataloader-signal", 1),
	SAYS("exitcode: -9", "host", "elastic-exitcode", 2),
	SAYS("exitcode  : -9", "host", "elastic-exitcode", 2),
	SAYS("exitcode : -9", "host", "elastic-exitcode", 2),
	SAYS("exits with return code = -9", "host", "elastic-exitcode", 2),
	SAYS("code -9", "host", "elastic-exitcode", 2),
	SAYS("Signals.SIGKILL", "host", "elastic-exitcode", 2, .not_after = by_launcher),
	SAYS("signal: killed", "host", "elastic-exitcode", 2),
	SAYS("(SIGKILL)", "host", "elastic-exitcode", 2),
	SAYS("SIGKILL", "host", "elastic-exitcode", 1, .not_after = by_launcher_or_ray),
	SAYS("sigkill_handler] Killing", "host", "launcher-killing", 1),
	SAYS("code 137", "host", "exit-137", 2),
	SAYS("atus 137", "host", "exit-137", 2),
	SAYS("Exited (137)", "host", "exit-137", 2),
	SAYS("Docker Container: 137", "host", "exit-137", 2),
	SAYS("ExitCode\": 137", "host", "exit-137", 2),
	SAYS("Exit Code:", "host", "k8s-oomkilled", 2, .value = "137", .unless = {" Error\n", -60}),
	SAYS("Exit Code:", "host", "exit-137-error", 2, .value = "137"),
	SAYS("code: 137", "host", "exit-137", 2),
	SAYS("ExitCode 137", "host", "exit-137", 2),
	SAYS("exitCode: 137", "host", "k8s-oomkilled", 2),
	SAYS("signal 9", "host", "elastic-exitcode", 1),
	SAYS("Unable to allocate", "host", "numpy-memory-error", 2),
	SAYS("std::bad_alloc", "host", "bad-alloc", 2),
	SAYS("Cannot allocate memory", "host", "errno-12", 2),
	/* PaddlePaddle's allocator of the host */
	SAYS("Fail to alloc memory of ", "host", "host-alloc", 2),
	SAYS("file write failed", "torch", "disk-full", 2, .needs = {"inline_container", -160}),
	SAYS(". unexpected pos ", "torch", "disk-full", 2, .needs = {"inline_container", -160}),
	SAYS("Disk quota exceeded", "host", "disk-full", 2),
	SAYS("StorageFull", "host", "disk-full", 2),
	SAYS("enough free disk space", "host", "disk-full", 1),
	SAYS("Not enough disk space", "host", "disk-full", 1),
	SAYS("Insufficient disk space", "host", "disk-full", 1),
	SAYS("DUE TO TIME LIMIT", "host", "time-limit", 1),
	SAYS("DUE TO PREEMPTION", "host", "time-limit", 1),
	SAYS("Watchdog caught collective operation timeout", "torch", "nccl-timeout", 1),
	SAYS("No space left on device", "host", "errno-28", 1),
	SAYS("MemoryError", "host", "python-memory-error", 2, .not_after = a_class),
	SAYS("Killed", "host", "bare-killed", 1, .alone = true),
	SAYS("zsh: killed ", "host", "bare-killed", 1),
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

static bool any_begins(const char *const *words, const char *at, size_t left)
{
	for (; words && *words; words++)
		if (begins(at, left, *words))
			return true;
	return false;
}

static bool any_ends(const char *const *words, const char *begin, const char *at)
{
	for (; words && *words; words++)
		if (ends(begin, at, *words))
			return true;
	return false;
}

static bool reaches(const char *word, int reach, const char *begin, const char *at, size_t left)
{
	const size_t span = (size_t)(reach < 0 ? -reach : reach);

	if (reach > 0)
		return oom_text_find(at, at + (left < span ? left : span), word) != NULL;
	return oom_text_find(reach && (size_t)(at - begin) > span ? at - span : begin, at, word) != NULL;
}

/* The shell's bare word: "Killed", "[1]  Killed", "Killed: 9". */
static bool stands_alone(const char *begin, const char *at, size_t n, size_t left)
{
	return !((at > begin && at[-1] != '\n' && at[-1] != ' ' && at[-1] != ']') ||
		 (left > n && at[n] != '\n' && at[n] != '\r' && at[n] != ' ' && !begins(at + n, left - n, ": 9")));
}

static bool followed_by(const char *value, const char *at, size_t left)
{
	size_t blanks = 0;

	while (blanks < left && (at[blanks] == ' ' || at[blanks] == '\t'))
		blanks++;
	return begins(at + blanks, left - blanks, value) &&
	       !(left - blanks > strlen(value) && at[blanks + strlen(value)] >= '0' && at[blanks + strlen(value)] <= '9');
}

/* The same words in another sense: n bytes at "at", left of them to the end. */
static bool other_meaning(const struct oom_trigger *t, const char *at, size_t left, size_t n, const char *begin)
{
	return any_begins(t->not_before, at + n, left - n) || any_ends(t->not_after, begin, at) ||
	       (t->alone && !stands_alone(begin, at, n, left)) ||
	       (t->value && !followed_by(t->value, at + n, left - n)) ||
	       (t->needs.word && !reaches(t->needs.word, t->needs.reach, begin, at, left)) ||
	       (t->unless.word && reaches(t->unless.word, t->unless.reach, begin, at, left));
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

	static_assert(COUNT <= OOM_TRIGGERS_MAX, "a chain has a place for every word");
	memset(index, 0, sizeof(*index));
	memset(shift, OOM_TRIGGER_MIN - 2, sizeof(index->shift));
	/* from the last: a chain has the order of the table */
	for (size_t i = COUNT; i > 0; i--) {
		uint16_t *const first = &index->first[first_hash(triggers[i - 1].needle)];

		index->next[i] = *first;
		*first = (uint16_t)i;
	}
	for (size_t i = 0; i < COUNT; i++)
		for (int j = 2; j < OOM_TRIGGER_MIN; j++) {
			uint8_t *s = &shift[oom_trigger_hash(triggers[i].needle + j)];

			if (*s > OOM_TRIGGER_MIN - 1 - j)
				*s = (uint8_t)(OOM_TRIGGER_MIN - 1 - j);
		}
}
