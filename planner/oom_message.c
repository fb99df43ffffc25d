/* The words of out-of-memory messages, and the numbers in them.
 *
 * Wordings: c10/cuda/CUDACachingAllocator.cpp of every release since 1.0 (the sentence changed in
 * 1.4, 1.10, 2.1, 2.2, 2.5 and 2.9), HIP's and XPU's copies of it, aten/mps,
 * c10/core/impl/alloc_cpu.cpp, THC, XLA, TensorFlow's BFC allocator, vLLM's KV-cache check, the
 * kernel's, Slurm's and Kubernetes' kill lines.  PyTorch prints two decimals with binary units,
 * also where old versions label them MB and GB. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- numbers ---- */

static const struct {
	const char *name;
	double bytes;
} units[] = {{"bytes", 1},     {"byte", 1},	    {"Bytes", 1},	    {"KiB", 1024},
	     {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776}, {"kB", 1024},
	     {"KB", 1024},     {"MB", 1048576},	    {"GB", 1073741824},	    {"TB", 1099511627776},
	     {"K", 1024},      {"M", 1048576},	    {"G", 1073741824},	    {"T", 1099511627776},
	     {"B", 1}};

/* A number with its unit at p; *after behind it.  bare: a number alone counts bytes. */
static bool number_at(const char *p, const char *end, bool bare, uint64_t *bytes,
		      const char **after)
{
	char digits[40];
	size_t n = 0;
	double v;

	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	while (p + n < end && n < sizeof(digits) - 1 &&
	       ((p[n] >= '0' && p[n] <= '9') || p[n] == '.'))
		n++;
	if (!n || p[0] == '.')
		return false;
	memcpy(digits, p, n);
	digits[n] = 0;
	v = strtod(digits, NULL);
	p += n;
	if (p < end && *p == ' ')
		p++;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		const size_t u = strlen(units[i].name);

		if (end - p < (ptrdiff_t)u || memcmp(p, units[i].name, u))
			continue;
		v *= units[i].bytes;
		if (!(v >= 0 && v < 18446744073709549568.0))
			return false;
		*bytes = (uint64_t)(v + 0.5);
		*after = p + u;
		return true;
	}
	if (!bare || !(v < 18446744073709549568.0))
		return false;
	*bytes = (uint64_t)(v + 0.5);
	*after = p;
	return true;
}

static void put(struct oom_crash *c, enum oom_crash_number k, uint64_t bytes, const char *from,
		const char *to)
{
	size_t n = 0;

	if (c->known[k])
		return;                         /* the first word counts */
	c->known[k] = true;
	c->bytes[k] = bytes;
	for (const char *p = from; p < to && n < sizeof(c->text[k]) - 1; p++)
		if (*p != '\n' && *p != '\r' && (n || *p != ' '))
			c->text[k][n++] = *p;
	c->text[k][n] = 0;
}

/* "word 1.00 GiB" */
static const char *follows(struct oom_crash *c, enum oom_crash_number k, const char *begin,
			   const char *end, const char *word, bool bare)
{
	const char *p = oom_text_find(begin, end, word), *after;
	uint64_t v;

	if (!p)
		return NULL;
	p += strlen(word);
	if (!number_at(p, end, bare, &v, &after))
		return NULL;
	put(c, k, v, p, after);
	return after;
}

/* "1.00 GiB word": the number ends where word begins */
static void precedes(struct oom_crash *c, enum oom_crash_number k, const char *begin,
		     const char *end, const char *word)
{
	const char *w = oom_text_find(begin, end, word);

	if (!w)
		return;
	for (const char *p = w; p > begin && w - p < 24;) {
		const char *after;
		uint64_t v;

		p--;
		if (p > begin && ((p[-1] >= '0' && p[-1] <= '9') || p[-1] == '.'))
			continue;
		if (*p >= '0' && *p <= '9' && number_at(p, w, false, &v, &after) && after == w) {
			put(c, k, v, p, after);
			return;
		}
	}
}

static void processes(struct oom_crash *c, const char *begin, const char *end)
{
	for (const char *p = begin; (p = oom_text_find(p, end, "Process ")); p += 8) {
		char *stop;
		const long long pid = p[8] >= '0' && p[8] <= '9' ? strtoll(p + 8, &stop, 10) : -1;
		const char *after;
		uint64_t v;

		if (pid < 0 || end - stop < 5 || strncmp(stop, " has ", 5) ||
		    !number_at(stop + 5, end, false, &v, &after) ||
		    c->n_processes == OOM_CRASH_PROCESSES)
			continue;
		c->process[c->n_processes].pid = pid;
		c->process[c->n_processes++].bytes = v;
	}
}

/* "(GPU 0;", "(GPU  0;", "GPU 0 has", "(NPU 2;", "device:GPU:0" */
static void gpu_index(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const words[] = {"(GPU ",	   "GPU ", "(NPU ",
					    "device:GPU:", "GPU:", "device ordinal "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && c->gpu_index < 0; i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *d = p + strlen(words[i]);

			d += d < end && *d == ' ';
			if (d < end && *d >= '0' && *d <= '9') {
				c->gpu_index = strtol(d, NULL, 10);
				break;
			}
		}
}

/* TensorFlow: shape[25088,4096] and type float */
static void tf_shape(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *name;
		int bytes;
	} types[] = {{"float", 4}, {"double", 8}, {"half", 2},	{"bfloat16", 2}, {"int32", 4},
		     {"int64", 8}, {"int8", 1},	  {"uint8", 1}, {"bool", 1},	 {"complex64", 8}};
	const char *p = oom_text_find(at, end, "shape["), *type;
	double n = 1;

	if (!p)
		return;
	for (p += 6; p < end && *p != ']';) {
		char *stop;
		const double d = strtod(p, &stop);

		if (stop == p)
			return;
		n *= d;
		p = *stop == ',' ? stop + 1 : stop;
	}
	type = oom_text_find(p, end, "type ");
	for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strncmp(type + 5, types[i].name, strlen(types[i].name)) &&
		    n * types[i].bytes < 9e18) {
			const char *const shape = oom_text_find(at, end, "shape[");
			char text[40];

			snprintf(text, sizeof(text), "%.*s %s",
				 (int)(p + 1 - shape < 30 ? p + 1 - shape : 30), shape,
				 types[i].name);
			put(c, OOM_CRASH_TRIED, (uint64_t)(n * types[i].bytes), text,
			    text + strlen(text));
			return;
		}
}

/* NumPy before it printed sizes: "array with shape (9681, 9681) and data type float64" */
static void numpy_shape(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *name;
		int bytes;
	} types[] = {{"float64", 8},   {"float32", 4},	  {"float16", 2}, {"int64", 8},
		     {"int32", 4},     {"int16", 2},	  {"int8", 1},	  {"uint8", 1},
		     {"uint16", 2},    {"uint32", 4},	  {"uint64", 8},  {"bool", 1},
		     {"complex64", 8}, {"complex128", 16}};
	const char *p = oom_text_find(at, end, "shape ("), *shape = p, *type;
	double n = 1;

	if (!p)
		return;
	for (p += 7; p < end && *p != ')';) {
		char *stop;
		const double d = strtod(p, &stop);

		if (stop == p)
			return;
		n *= d;
		p = stop + (*stop == ',');
		p += *p == ' ';
	}
	type = oom_text_find(p, end, "data type ");
	for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++) {
		const size_t w = strlen(types[i].name);
		char text[64];

		if (strncmp(type + 10, types[i].name, w) ||
		    (type[10 + w] >= '0' && type[10 + w] <= '9') || !(n * types[i].bytes < 9e18))
			continue;
		snprintf(text, sizeof(text), "shape%.*s %s",
			 (int)(p + 1 - shape - 6 < 22 ? p + 1 - shape - 6 : 22), shape + 6,
			 types[i].name);
		put(c, OOM_CRASH_TRIED, (uint64_t)(n * types[i].bytes), text, text + strlen(text));
		return;
	}
}

static void derive_reserved(struct oom_crash *c)
{
	const uint64_t a = c->bytes[OOM_CRASH_ALLOCATED];

	if (!c->known[OOM_CRASH_ALLOCATED])
		return;
	if (c->known[OOM_CRASH_RESERVED_UNALLOCATED] && !c->known[OOM_CRASH_RESERVED_TOTAL])
		put(c, OOM_CRASH_RESERVED_TOTAL, a + c->bytes[OOM_CRASH_RESERVED_UNALLOCATED], "",
		    "");
	else if (c->known[OOM_CRASH_RESERVED_TOTAL] && !c->known[OOM_CRASH_RESERVED_UNALLOCATED] &&
		 c->bytes[OOM_CRASH_RESERVED_TOTAL] >= a)
		put(c, OOM_CRASH_RESERVED_UNALLOCATED, c->bytes[OOM_CRASH_RESERVED_TOTAL] - a, "",
		    "");
}

static void torch_numbers(struct oom_crash *c, const char *at, const char *end)
{
	follows(c, OOM_CRASH_TRIED, at, end, "Tried to allocate", false);
	precedes(c, OOM_CRASH_TOTAL, at, end, " total capacity");
	follows(c, OOM_CRASH_TOTAL, at, end, "total capacity of", false);
	follows(c, OOM_CRASH_TOTAL, at, end, "total capacty of", false);
	precedes(c, OOM_CRASH_FREE, at, end, " free;");
	follows(c, OOM_CRASH_FREE, at, end, "of which", false);
	precedes(c, OOM_CRASH_FREE, at, end, " free of");
	precedes(c, OOM_CRASH_ALLOCATED, at, end, " already allocated");
	follows(c, OOM_CRASH_ALLOCATED, at, end, "Of the allocated memory", false);
	precedes(c, OOM_CRASH_RESERVED_UNALLOCATED, at, end, " cached");
	precedes(c, OOM_CRASH_RESERVED_TOTAL, at, end, " reserved in total");
	precedes(c, OOM_CRASH_RESERVED_UNALLOCATED, at, end, " is reserved by PyTorch but");
	follows(c, OOM_CRASH_PROCESS, at, end, "this process has", false);
	precedes(c, OOM_CRASH_PRIVATE_POOL, at, end, " allocated in private pools");
	precedes(c, OOM_CRASH_ALLOWED, at, end, " allowed;");
	follows(c, OOM_CRASH_ALLOCATED, at, end, "MPS allocated:", false);
	follows(c, OOM_CRASH_OTHER, at, end, "other allocations:", false);
	follows(c, OOM_CRASH_TOTAL, at, end, "max allowed:", false);
	processes(c, at, end);
	gpu_index(c, at, end);
	derive_reserved(c);
}

bool oom_decode_allocated(const char *at, const char *end, uint64_t *bytes)
{
	struct oom_crash c = {0};

	precedes(&c, OOM_CRASH_ALLOCATED, at, end, " already allocated");
	follows(&c, OOM_CRASH_ALLOCATED, at, end, "Of the allocated memory", false);
	if (c.known[OOM_CRASH_ALLOCATED])
		*bytes = c.bytes[OOM_CRASH_ALLOCATED];
	return c.known[OOM_CRASH_ALLOCATED];
}

static const char *line_begin(const char *begin, const char *at)
{
	while (at > begin && at[-1] != '\n')
		at--;
	return at;
}

/* ggml: "allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory" */
static void allocating_before(struct oom_crash *c, const char *begin, const char *at)
{
	const char *line = line_begin(begin, at), *device = oom_text_find(line, at, "on device ");

	follows(c, OOM_CRASH_TRIED, line, at, "allocating", false);
	if (device && device[10] >= '0' && device[10] <= '9')
		c->gpu_index = strtol(device + 10, NULL, 10);
}

/* vLLM: "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory
 * utilization (0.95, 45.01 GiB)" */
static void free_of_total(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *p = oom_text_find(line_begin(begin, at), at, "(");
	char text[40];
	double part, whole;

	for (const char *q = p; q && (q = oom_text_find(q + 1, at, "(")); p = q)
		;
	if (p && sscanf(p, "(%lf/%lf GiB)", &part, &whole) == 2 && part >= 0 && part < 1e6 &&
	    whole >= 0 && whole < 1e6) {
		const int n = snprintf(text, sizeof(text), "%.2f GiB", part);

		put(c, OOM_CRASH_FREE, (uint64_t)(part * 1073741824 + 0.5), text, text + n);
		put(c, OOM_CRASH_TOTAL, (uint64_t)(whole * 1073741824 + 0.5), p, p);
	}
	p = oom_text_find(at, end, "utilization (");
	p = p ? oom_text_find(p, end, ", ") : NULL;
	if (p)
		follows(c, OOM_CRASH_TRIED, p, end, ", ", false);
}

/* The kernel's: "anon-rss:506500kB" */
static void anon_rss(struct oom_crash *c, const char *begin, const char *end)
{
	const char *p = oom_text_find(begin, end, "anon-rss:"), *after;
	uint64_t v;

	if (p && number_at(p + 9, end, false, &v, &after))
		put(c, OOM_CRASH_ALLOCATED, v, p, after);
}

/* Ray's monitor: "was running was 219.41GB / 230.40GB (0.952289), which exceeds ..." */
static void ray_usage(struct oom_crash *c, const char *begin, const char *at)
{
	const char *line = line_begin(begin, at), *p = NULL, *after;

	for (const char *q = line; (q = oom_text_find(q, at, "was ")); q++)
		p = q;
	if (!p)
		return;
	after = follows(c, OOM_CRASH_ALLOCATED, p, at, "was ", false);
	if (after)
		follows(c, OOM_CRASH_TOTAL, after, at, "/", false);
}

/* TensorFlow's own pool: "failed to allocate 7.35G (7889485824 bytes) from device:
 * CUDA_ERROR_OUT_OF_MEMORY" */
static void driver_pool(struct oom_crash *c, const char *begin, const char *at)
{
	const char *p = oom_text_find(line_begin(begin, at), at, "failed to allocate");

	p = p ? oom_text_find(p, at, "(") : NULL;
	if (p)
		follows(c, OOM_CRASH_TRIED, p, at + 5, "(", false);
}

static void other_numbers(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	static const char *const asks[] = {"you tried to allocate",
					   "while trying to allocate",
					   "trying to allocate",
					   "Attempting to allocate",
					   "Attempting to reserve",
					   "Failed to allocate request for",
					   "Failed to allocate",
					   "Unable to allocate",
					   "Out of memory allocating",
					   "Cannot allocate",
					   "(rounded to",
					   "unable to mmap",
					   "Failed to CUDA calloc async",
					   "Failed to CUDA calloc"};
	const char *p;

	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
		follows(c, OOM_CRASH_TRIED, at, end, asks[i], false);
	if (!strcmp(c->format, "xla-tpu-hbm")) {
		p = follows(c, OOM_CRASH_TRIED, at, end, "Used", false);
		if (p)
			follows(c, OOM_CRASH_TOTAL, p, end, "of", false);
	}
	if (!strcmp(c->format, "onnxruntime-arena"))
		follows(c, OOM_CRASH_TRIED, at, end, "requested buffer of size", true);
	if (!strcmp(c->format, "tf-device-driver"))
		driver_pool(c, begin, at);
	if (!strcmp(c->format, "ray-oom"))
		ray_usage(c, begin, at);
	if (!strcmp(c->format, "numpy-memory-error") && !c->known[OOM_CRASH_TRIED])
		numpy_shape(c, at, end);
	if (!strcmp(c->framework, "tensorflow")) {
		tf_shape(c, at, end);
		follows(c, OOM_CRASH_TOTAL, begin, end, "Limit:", true);
		follows(c, OOM_CRASH_ALLOCATED, begin, end, "InUse:", true);
	}
	if (!strcmp(c->format, "kernel-oom-kill") || !strcmp(c->format, "oom-kill"))
		anon_rss(c, begin, end);
	if (!strcmp(c->format, "ggml-cuda"))
		allocating_before(c, begin, at);
	if (!strcmp(c->format, "vllm-free-memory"))
		free_of_total(c, begin, at, end);
	if (!strcmp(c->format, "vllm-kv-budget")) {
		precedes(c, OOM_CRASH_TRIED, line_begin(begin, at), end, " KV cache is needed");
		follows(c, OOM_CRASH_FREE, at, end, "available KV cache memory (", false);
	}
	precedes(c, OOM_CRASH_ALLOCATED, at, end, " memory has been allocated");
	follows(c, OOM_CRASH_FREE, at, end, "available memory is only", false);
	precedes(c, OOM_CRASH_FREE, at, end, " free.");
	precedes(c, OOM_CRASH_FREE, at, end, " free,");
	gpu_index(c, at, end);
}

/* ---- names ---- */

static void torch_format(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *mark, *suffix;
	} marks[] = {
		{"PYTORCH_ALLOC_CONF", "2.9-alloc-conf"}, {" cached)", "1.0-cached"}, {"total capacty", "2.1-capacty"},
		{"reserved in total by PyTorch) If", "1.10-split-advice"}, {"reserved in total", "1.4-reserved-total"}};
	const char *base = c->format[0] == 'h' ? "hip" :
			   c->format[0] == 'x' ? "xpu" :
			   c->format[0] == 'n' ? "npu" :
						 "cuda";

	if (!strcmp(c->framework, "torch-mps")) {
		snprintf(c->format, sizeof(c->format), "%s",
			 strstr(c->text[OOM_CRASH_ALLOCATED], "iB") ? "mps-gib" : "mps-gb");
		return;
	}
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (oom_text_find(at, end, marks[i].mark)) {
			snprintf(c->format, sizeof(c->format), "%s-%s", base, marks[i].suffix);
			return;
		}
	if (!strcmp(c->exception, "torch.OutOfMemoryError"))
		snprintf(c->format, sizeof(c->format), "%s-2.5-OutOfMemoryError", base);
	else if (oom_text_find(at, end, "total capacity of"))
		snprintf(c->format, sizeof(c->format), "%s-2.2-capacity", base);
	else
		snprintf(c->format, sizeof(c->format), "%s-%s", base,
			 c->known[OOM_CRASH_TRIED] ? "other" : "no-numbers");
	if (!c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_TRIED])
		snprintf(c->format, sizeof(c->format), "%s-other", base);
}

static bool name_char(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
	       ch == '.' || ch == '_';
}

/* Kill lines are printed by others than the program: an exception before them is another story. */
static bool has_exception(const struct oom_crash *c)
{
	static const char *const none[] = {"oom-kill",	    "slurm-oom-kill", "kernel-oom-kill",
					   "k8s-oomkilled", "k8s-evicted",    "bare-killed",
					   "exit-137"};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (!strcmp(c->format, none[i]))
			return false;
	return true;
}

/* The class before the last colon in front of the message: "torch.OutOfMemoryError: CUDA ..." */
static void exception_of(struct oom_crash *c, const char *begin, const char *at)
{
	int lines = 0;

	for (const char *p = at; p > begin && lines < 12 && at - p < 900; p--) {
		const char *word = p;

		lines += p[-1] == '\n';
		if (*p != ':' || p - begin < 6 ||
		    (memcmp(p - 5, "Error", 5) &&
		     (p - begin < 10 || memcmp(p - 9, "Exception", 9))))
			continue;
		while (word > begin && name_char(word[-1]))
			word--;
		snprintf(c->exception, sizeof(c->exception), "%.*s", (int)(p - word), word);
		return;
	}
}

/* "[rank1]:", "rank 3:", "Rank 0:" nearest before the message */
static void rank_of(struct oom_crash *c, const char *begin, const char *at)
{
	for (const char *p = at; p > begin && at - p < 400; p--)
		if (p - begin >= 5 && !memcmp(p - 5, "[rank", 5) && *p >= '0' && *p <= '9') {
			c->rank = strtol(p, NULL, 10);
			return;
		}
}

static void summary_table(struct oom_crash *c, const char *begin, const char *end)
{
	const char *p = oom_text_find(begin, end, "CUDA OOMs:");

	if (p)
		c->ooms = strtoull(p + 10, NULL, 10);
	p = oom_text_find(begin, end, "cudaMalloc retries:");
	if (p)
		c->retries = strtoull(p + 19, NULL, 10);
}

void oom_decode_numbers(struct oom_crash *c, const struct oom_trigger *t, const char *begin,
			const char *at, const char *end)
{
	memset(c, 0, sizeof(*c));
	c->gpu_index = c->rank = -1;
	c->strength = t->strength;
	snprintf(c->framework, sizeof(c->framework), "%s", t->framework);
	snprintf(c->format, sizeof(c->format), "%s", t->format);
	if (has_exception(c))
		exception_of(c, begin, at);
	rank_of(c, begin, at + 1);
	if (!strcmp(c->format, "python-memory-error") &&
	    oom_text_find(at, end - at > 160 ? at + 160 : end, "Unable to allocate"))
		snprintf(c->format, sizeof(c->format), "numpy-memory-error");
	if (!strncmp(c->framework, "torch", 5) &&
	    (!strcmp(c->format, "cuda") || !strcmp(c->format, "hip") || !strcmp(c->format, "xpu") ||
	     !strcmp(c->format, "npu") || !strcmp(c->format, "mps"))) {
		torch_numbers(c, at, end);
		torch_format(c, at, end);
	} else {
		other_numbers(c, begin, at, end);
	}
	if (!strcmp(c->format, "oom-kill"))
		snprintf(c->format, sizeof(c->format), "%s",
			 oom_text_find(begin, end, "slurm") ? "slurm-oom-kill" : "kernel-oom-kill");
	summary_table(c, begin, end);
}
