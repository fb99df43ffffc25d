/* The words that may open an out-of-memory message, and how a log is searched for them.
 *
 * Wordings: c10/cuda/CUDACachingAllocator.cpp of every release since 1.0 (the sentence changed in
 * 1.4, 1.10, 2.1, 2.2, 2.5 and 2.9), HIP's and XPU's copies of it, aten/mps,
 * c10/core/impl/alloc_cpu.cpp, THC, XLA, TensorFlow's BFC allocator, vLLM's KV-cache check, the
 * kernel's, Slurm's and Kubernetes' kill lines. */
#include <string.h>

#include "oom_parts.h"

/* Longer words first where one begins another. */
static const struct oom_trigger triggers[] = {
	{"CUDA out of memory", "torch", "cuda", 3},
	{"HIP out of memory", "torch-rocm", "hip", 3},
	{"XPU out of memory", "torch-xpu", "xpu", 3},
	{"MPS backend out of memory", "torch-mps", "mps", 3},
	{"NPU out of memory", "torch-npu", "npu", 3},
	{"can NOT allocate memory block", "torch-xpu", "xpu", 3},
	{"Tried to allocate", "torch", "cuda", 3},
	{"NVML_SUCCESS == ", "torch", "cuda-nvml-assert", 3},
	{"DefaultCPUAllocator", "torch-cpu", "cpu-allocator", 3},
	{"posix_memalign", "torch-cpu", "cpu-allocator", 3},
	{"OOM when allocating tensor", "tensorflow", "tf-oom-tensor", 3},
	{"ran out of memory trying to allocate", "tensorflow", "tf-bfc-allocator", 2},
	{"Ran out of memory trying to allocate", "tensorflow", "tf-bfc-allocator", 2},
	{"bytes) from device", "tensorflow", "tf-device-driver", 3},
	{"requested buffer of size", "onnxruntime", "onnxruntime-arena", 3},
	{"std::bad_alloc: CUDA error", "rmm", "rmm", 3},
	{"std::bad_alloc: out_of_memory", "rmm", "rmm", 3},
	{"RMM_ERROR_OUT_OF_MEMORY", "rmm", "rmm", 3},
	{"Out of memory error on GPU", "paddle", "paddle", 3},
	{"cudaMalloc failed: out of memory", "ggml", "ggml-cuda", 3},
	{"cupy.cuda.memory.OutOfMemoryError", "cupy", "cupy", 3},
	{"cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation", "cupy", "cupy", 3},
	{"Ran out of memory in memory space", "torch-xla", "xla-tpu-hbm", 3},
	{"Out of memory allocating", "jax", "xla-resource-exhausted", 3},
	{"Failed to allocate request for", "jax", "xla-resource-exhausted", 3},
	{"while trying to allocate", "jax", "xla-resource-exhausted", 3},
	{"RESOURCE_EXHAUSTED", "jax", "xla-resource-exhausted", 2},
	{"Resource exhausted", "jax", "xla-resource-exhausted", 2},
	{"No available memory for the cache blocks", "vllm", "vllm-kv-budget", 3},
	{"stored in KV cache", "vllm", "vllm-kv-budget", 3},
	{"larger than the available KV cache memory", "vllm", "vllm-kv-budget", 3},
	{"less than desired GPU memory utilization", "vllm", "vllm-free-memory", 3},
	{"out of resource: shared memory", "triton", "triton-out-of-resources", 3},
	{"out of resource: registers", "triton", "triton-out-of-resources", 3},
	{"out of resource: tensor memory", "triton", "triton-out-of-resources", 3},
	{"Error out of memory at line", "bitsandbytes", "bitsandbytes-error", 3},
	{"cuda runtime error (2)", "torch", "thc-runtime-error-2", 3},
	{"CUDA Error 2", "tinygrad", "tinygrad", 3},
	{"Cuda failure 'out of memory'", "nccl", "nccl", 3},
	{"Cuda failure 2 'out of memory'", "nccl", "nccl", 3},
	{"CUBLAS_STATUS_ALLOC_FAILED", "torch", "cublas-alloc-failed", 3},
	{"CUDNN_STATUS_ALLOC_FAILED", "torch", "cudnn-alloc-failed", 3},
	{"CUDA error: out of memory", "torch", "cuda-error-no-numbers", 3},
	{"HIP error: out of memory", "torch-rocm", "hip-error-no-numbers", 3},
	{"hipErrorOutOfMemory", "torch-rocm", "hip-error-no-numbers", 3},
	{"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "torch-xpu", "xpu-error-no-numbers", 3},
	{"UR_RESULT_ERROR_OUT_OF_RESOURCES", "torch-xpu", "xpu-error-no-numbers", 3},
	{"CUDA_ERROR_OUT_OF_MEMORY", "torch", "cuda-error-no-numbers", 3},
	{"cudaErrorMemoryAllocation", "torch", "cuda-error-no-numbers", 3},
	{"CUDA error:", "torch", "cuda-error-other", 1},
	{"node running low on memory", "host", "ray-oom", 3},
	{"exceeds the memory usage threshold", "host", "ray-oom", 3},
	{"OutOfMemoryError", "torch", "cuda-no-numbers", 2},
	{"killed due to memory pressure", "host", "ray-oom", 2},
	{"low on resource: memory", "host", "k8s-evicted", 2},
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
	{"(SIGKILL)", "host", "elastic-exitcode", 2},
	{"SIGKILL", "host", "elastic-exitcode", 1},
	{"exit code 137", "host", "exit-137", 2},
	{"exit status 137", "host", "exit-137", 2},
	{"Exit Code:    137", "host", "k8s-oomkilled", 2},
	{"code: 137", "host", "exit-137", 2},
	{"ExitCode 137", "host", "exit-137", 2},
	{"exitCode: 137", "host", "k8s-oomkilled", 2},
	{"signal 9", "host", "elastic-exitcode", 1},
	{"Unable to allocate", "host", "numpy-memory-error", 2},
	{"std::bad_alloc", "host", "bad-alloc", 2},
	{"Cannot allocate memory", "host", "errno-12", 2},
	{"MemoryError", "host", "python-memory-error", 2},
	{"Killed", "host", "bare-killed", 1},
};

const char *oom_text_find(const char *begin, const char *end, const char *needle)
{
	const size_t n = strlen(needle);

	for (const char *p = begin; p && end - p >= (ptrdiff_t)n; p++) {
		p = memchr(p, needle[0], (size_t)(end - p) - n + 1);
		if (!p)
			return NULL;
		if (!memcmp(p, needle, n))
			return p;
	}
	return NULL;
}

const struct oom_trigger *oom_trigger_at(const char *at, size_t left, const char *begin)
{
	if (left < OOM_TRIGGER_MIN)
		return NULL;
	for (size_t i = 0; i < sizeof(triggers) / sizeof(triggers[0]); i++) {
		size_t n;

		if (at[0] != triggers[i].needle[0] || at[1] != triggers[i].needle[1])
			continue;
		n = strlen(triggers[i].needle);
		if (left < n || memcmp(at, triggers[i].needle, n))
			continue;
		/* the shell's bare word stands alone on its line */
		if (!strcmp(triggers[i].format, "bare-killed") &&
		    ((at > begin && at[-1] != '\n' && at[-1] != ' ') ||
		     (left > n && at[n] != '\n' && at[n] != '\r' && at[n] != ' ')))
			continue;
		return &triggers[i];
	}
	return NULL;
}

/* Wu and Manber's shifts (A fast algorithm for multi-pattern searching, 1994) over the first
 * OOM_TRIGGER_MIN bytes of every needle, by the three bytes a window ends in: how far its end
 * may move on; 0: a needle may begin here. */
void oom_trigger_shifts(uint8_t shift[65536])
{
	memset(shift, OOM_TRIGGER_MIN - 2, 65536);
	for (size_t i = 0; i < sizeof(triggers) / sizeof(triggers[0]); i++)
		for (int j = 2; j < OOM_TRIGGER_MIN; j++) {
			uint8_t *s = &shift[oom_trigger_hash(triggers[i].needle + j)];

			if (*s > OOM_TRIGGER_MIN - 1 - j)
				*s = (uint8_t)(OOM_TRIGGER_MIN - 1 - j);
		}
}
