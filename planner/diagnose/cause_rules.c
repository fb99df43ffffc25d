/* Causes that words give, without a number: rows of wording, runtime and a word near the message.
 *
 * Confidences are the shares that were right where texts are labelled (tests/crashes/README.md), rounded down to
 * a twentieth; where fewer than ten texts of a row are, they are judgements. */
#include "tables.h"

#define CAUSE(name) OOM_CAUSE_##name
#define IN(name) OOM_PLACE_##name
/* Further columns by their names. */
#define RULE(format_, runtime_, word_, where_, cause_, confidence_, ...) \
	{.format = format_, .runtime = runtime_, .word = word_, .where = where_, .cause = cause_, \
	 .confidence = confidence_, .evidence = __VA_ARGS__}
#define HOST OOM_RUNTIME_HOST

static const char one_limit[] = "the message names the limit of one buffer";
static const char unified[] = "CPU and GPU share one memory here, and the system has none left";
static const char pinned[] = "page-locked host memory was refused";
static const char no_context[] =
	"not even the context could be made: the memory was taken before this process had any";
static const char dev_shm[] = "/dev/shm is the device that is full";

const struct oom_cause_rule oom_causes_named[] = {
	/* wordings of one cause */
	RULE("triton-out-of-resources", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.9,
	 "a kernel wants more on-chip memory than the card's cores have: smaller blocks or num_stages, not a smaller model"),
	RULE("xla-tpu-vmem", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.8,
	 "a kernel wants more on-chip memory than a core has: smaller blocks, not a smaller model"),
	RULE("cuda-error-other", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.9, "a CUDA error of another kind"),
	RULE("vllm-kv-budget", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.95, "the KV cache does not fit what is left"),
	RULE("sglang-kv-budget", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.9,
	 "weights leave nothing of the static share for the KV cache"),
	RULE("sglang-prefill", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.8, "the pool of tokens, which has the size that the static share gave it, is full: bytes of the card are not asked for"),
	RULE("sglang-decode", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.8, "the pool of tokens, which has the size that the static share gave it, is full: bytes of the card are not asked for"),
	RULE("sglang-slots", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.7, "slots for requests ran out, a count: bytes of the card are not asked for"),
	RULE("vllm-sampler-warmup", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.7,
	 "weights and KV cache left no room for the sampler of that many requests"),
	RULE("tf-host-pinned", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.9, pinned, .pinned = true),
	RULE("tf-host-warning", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.8, "a warning about one large tensor on the host, no failure"),
	RULE(NULL, OOM_RUNTIME_TORCH, "more than 1EB memory", IN(LINE), CAUSE(NOT_OOM), 0.8,
	 "no tensor has an exabyte: a length or index went below zero or was never set, or a kernel wrote over it"),
	/* Ray's list of what may have been */
	RULE("ray-worker-died", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.6, "Ray names the kernel's OOM killer first among what may have ended its worker"),
	/* ray/_raylet.pyx adds the sentence wherever KUBERNETES_SERVICE_HOST is set, whatever ended the worker */
	RULE("ray-pod-guess", 0, NULL, IN(ANY), CAUSE(UNKNOWN), 0.5, "Ray says so of every worker that exits unexpectedly in Kubernetes", .more = true),
	RULE("ray-pod-guess", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.45, "a pod's memory limit is one of the things that end a worker without a word"),
	RULE("launcher-killing", 0, NULL, IN(ANY), CAUSE(UNKNOWN), 0.5, "the launcher ends its processes after one of them stopped; the line does not say why", .more = true),
	RULE("launcher-killing", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.45, "no error stands above it, as when the kernel killed a process for memory"),
	RULE("ggml-pool", 0, "not enough space in the buffer", IN(LINE), CAUSE(NOT_OOM), 0.7,
	 "ggml's own buffer was planned too small for its graph: a defect of that version, not a full memory"),
	RULE("disk-full", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.9, "a file could not be written: the disk or a quota is full"),
	RULE("k8s-disk", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.9, "the node's disk (ephemeral storage) is full"),
	RULE("time-limit", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.9, "the scheduler ended the job: its time was up"),
	RULE("nccl-timeout", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.7,
	 "a collective timed out: another rank stopped or died before, read its log"),
	RULE("trtllm-executor", 0, "created: KV cache", IN(BEHIND), CAUSE(KV_CACHE), 0.8, "the component that could not be made is the KV cache"),
	RULE("mlx-resource-limit", 0, NULL, IN(ANY), CAUSE(LEAK), 0.65,
	 "Metal counts buffers: arrays are kept from step to step, or a graph stays unevaluated", .more = true),
	RULE("mlx-resource-limit", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.3, "their number is the limit, not their bytes"),
	RULE("lmcache-pool", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.7, "LMCache's pool has the size that it was given, and is full"),
	RULE("tgi-prefill-budget", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.9,
	 "the warm-up with the largest prefill did not fit beside the weights"),
	RULE("exllama-vram", 0, NULL, IN(ANY), CAUSE(KV_CACHE), 0.7, "weights and cache do not fit together"),
	RULE("sglang-unbalanced", 0, NULL, IN(ANY), CAUSE(OTHER_PROCESS), 0.9,
	 "the GPUs differ in what is free before the engine starts"),
	RULE("vllm-profiling", 0, NULL, IN(ANY), CAUSE(OTHER_PROCESS), 0.8,
	 "memory of the card changed while vLLM measured it: somebody else uses it"),
	RULE("cuda-context", 0, NULL, IN(ANY), CAUSE(OTHER_PROCESS), 0.6, no_context),
	RULE("jetson-nvmap", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.8, unified, .unified = true),
	RULE("ollama-system-memory", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.95, "the message compares with the system's memory"),
	/* the blocked layout of ONNX Runtime's CPU kernels (core/optimizer/nchwc_transformer.cc), and their allocator's name */
	RULE("onnxruntime-arena", 0, "_nchwc", IN(LINE), CAUSE(HOST_RAM), 0.85, "a node of that layout runs on the CPU alone: the arena is the host's"),
	RULE("onnxruntime-arena", 0, "for Cpu", IN(LINE), CAUSE(HOST_RAM), 0.85, "the arena is the host's"),
	RULE("xpu-error-no-numbers", 0, "_OUT_OF_HOST_MEMORY", IN(LINE), CAUSE(HOST_RAM), 0.6, "the driver says that the host's memory ran out, from which it gives integrated and small cards theirs"),
	RULE("ggml-cpu", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.9, "the buffer lies in the host's memory"),
	RULE("ggml-pinned", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.6, pinned, .pinned = true),
	RULE("xla-early-abort", 0, NULL, IN(ANY), CAUSE(TOO_LARGE), 0.9,
	 "the compiler says what the program needs and what the device has"),
	RULE("mps-ndarray-limit", 0, NULL, IN(ANY), CAUSE(BUFFER_LIMIT), 0.9, "Metal's arrays may not pass 2^32 bytes"),
	RULE("mps-buffer-size", 0, NULL, IN(ANY), CAUSE(BUFFER_LIMIT), 0.8, "PyTorch refuses what is above the device's largest buffer"),
	RULE("ggml-buffer-limit", 0, NULL, IN(ANY), CAUSE(BUFFER_LIMIT), 0.9, one_limit),
	RULE("openvino-buffer-limit", 0, NULL, IN(ANY), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE("mlx-buffer-limit", 0, NULL, IN(ANY), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE("no-executable-batch-size", 0, NULL, IN(ANY), CAUSE(TOO_LARGE), 0.9,
	 "not even a batch of one fitted: accelerate had halved it to nothing"),
	/* Kubernetes says OOMKilled where its limit was met; "Error" with the same code is a signal of whoever sent it */
	RULE("exit-137-error", 0, NULL, IN(ANY), CAUSE(UNKNOWN), 0.5,
	 "a SIGKILL that Kubernetes did not call OOMKilled: a probe, an eviction or a child of the container", .more = true),
	RULE("exit-137-error", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.4, "137 is 128 + SIGKILL, which the kernel's OOM killer sends"),
	RULE("exit-137", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.75,
	 "137 is 128 + SIGKILL, which the kernel's OOM killer sends; so may a limit, a probe or a person"),
	/* of the host, though the message is the device's or the disk's */
	RULE("errno-28", 0, "SemLock", IN(NEAR), CAUSE(SHM), 0.8, dev_shm),
	RULE("errno-28", 0, "/dev/shm", IN(NEAR), CAUSE(SHM), 0.8, dev_shm),
	RULE("errno-28", 0, "torch_", IN(NEAR), CAUSE(SHM), 0.8, dev_shm),
	RULE("errno-28", 0, "shared memory", IN(NEAR), CAUSE(SHM), 0.8, dev_shm),
	RULE("errno-28", 0, "_share_f", IN(NEAR), CAUSE(SHM), 0.8, dev_shm),
	RULE("errno-28", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.8, "a disk is full, not a memory"),
	RULE("torch-shm", 0, "Too many open files", IN(LINE), CAUSE(NOT_OOM), 0.9, "file descriptors ran out (ulimit -n), not memory"),
	RULE("torch-shm", 0, NULL, IN(ANY), CAUSE(SHM), 0.9, "a shared-memory file could not be written"),
	RULE("torch-mmap", 0, "</torch_", IN(LINE), CAUSE(SHM), 0.6, "a file of the data loader's shared memory", .more = true),
	RULE("torch-mmap", 0, "</torch_", IN(LINE), CAUSE(HOST_RAM), 0.4, "the host's kernel refused"),
	RULE(NULL, OOM_RUNTIME_GRAPH, "by allocator cpu", IN(LINE), CAUSE(HOST_RAM), 0.9, "the allocator is the host's"),
	RULE(NULL, OOM_RUNTIME_GRAPH, "by allocator mklcpu", IN(LINE), CAUSE(HOST_RAM), 0.9, "the allocator is the host's"),
	RULE(NULL, OOM_RUNTIME_GRAPH, "device:CPU:", IN(LINE), CAUSE(HOST_RAM), 0.9, "the allocator is the host's"),
	/* cudaHostAlloc answers with the code of cudaMalloc */
	RULE(NULL, 0, "pin_memory", IN(NEAR), CAUSE(HOST_RAM), 0.8, pinned, .pinned = true, .wording = OOM_FORMAT_MAY_BE_PINNED),
	RULE(NULL, 0, "cudaHostAlloc", IN(NEAR), CAUSE(HOST_RAM), 0.8, pinned, .pinned = true, .wording = OOM_FORMAT_MAY_BE_PINNED),
	RULE(NULL, 0, "pinned", IN(NEAR), CAUSE(HOST_RAM), 0.8, pinned, .pinned = true, .wording = OOM_FORMAT_MAY_BE_PINNED),
	/* one buffer's limit, a pool that was given a size, a context that could not be made */
	RULE(NULL, 0, "maximum allowed buffer size", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "NOT allocate memory block", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "maxBufferLength", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "max buffer size", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "maxMemoryAllocationSize", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "max alloc size", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "memory allocation limit", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "buffer size limit", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "buffer maximum of", IN(NEXT), CAUSE(BUFFER_LIMIT), 0.95, one_limit),
	RULE(NULL, 0, "Maximum pool size exceeded", IN(NEXT), CAUSE(FRACTION_CAP), 0.9, "the pool has a maximum of its own"),
	RULE(NULL, 0, "NvMap", IN(ROUND), CAUSE(HOST_RAM), 0.8, unified, .unified = true),
	RULE(NULL, 0, "cuDevicePrimaryCtxRetain", IN(ROUND), CAUSE(OTHER_PROCESS), 0.6, no_context),
	RULE(NULL, 0, "cuCtxCreate", IN(ROUND), CAUSE(OTHER_PROCESS), 0.6, no_context),
	RULE(NULL, 0, "in set_device", IN(NEAR), CAUSE(OTHER_PROCESS), 0.6, no_context, .wording = OOM_FORMAT_BARE),
	RULE(NULL, 0, "_cuda_setDevice", IN(NEAR), CAUSE(OTHER_PROCESS), 0.6, no_context, .wording = OOM_FORMAT_BARE),
	RULE(NULL, 0, "_cuda_init()", IN(NEAR), CAUSE(OTHER_PROCESS), 0.6, no_context, .wording = OOM_FORMAT_BARE),
	RULE("tf-bfc-allocator", 0, "this is not a failure", IN(BEHIND), CAUSE(NOT_OOM), 0.9,
	 "the allocator says itself that this is no failure"),
	/* a data loader's worker */
	RULE("datasets-map-died", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.6, "a process of map() ended without saying why: killed for memory as a rule", .more = true),
	RULE("datasets-map-died", 0, NULL, IN(ANY), CAUSE(UNKNOWN), 0.35, "or it crashed by itself"),
	RULE("dataloader-signal", 0, "Bus error", IN(BEHIND), CAUSE(SHM), 0.95, "a worker died of a bus error"),
	RULE("dataloader-signal", 0, "shared memory", IN(BEHIND), CAUSE(SHM), 0.95, "a worker died of a bus error"),
	RULE("dataloader-signal", 0, "Segmentation fault", IN(LINE), CAUSE(NOT_OOM), 0.9, "a worker crashed by itself"),
	RULE("dataloader-signal", 0, "signal: Terminated", IN(LINE), CAUSE(HOST_RAM), 0.55,
	 "a data-loader worker was told to end (SIGTERM): by a monitor that guards the host's memory, if no scheduler, launcher or person did"),
	RULE("dataloader-signal", 0, "Aborted", IN(LINE), CAUSE(NOT_OOM), 0.9, "a worker crashed by itself"),
	RULE("dataloader-signal", 0, "Floating point", IN(LINE), CAUSE(NOT_OOM), 0.9, "a worker crashed by itself"),
	RULE("dataloader-signal", 0, "exited unexpectedly", IN(LINE), CAUSE(HOST_RAM), 0.55,
	 "a data-loader worker ended without saying why: often killed for memory", .more = true),
	RULE("dataloader-signal", 0, "exited unexpectedly", IN(LINE), CAUSE(SHM), 0.35, "or /dev/shm was full, as in containers"),
	RULE("dataloader-signal", 0, NULL, IN(ANY), CAUSE(HOST_RAM), 0.8, "a data-loader worker was killed"),
	RULE(NULL, HOST, "shared memory", IN(LINE), CAUSE(SHM), 0.8, "the message names shared memory"),
	{.evidence = NULL},
};

static const char no_sizes[] = "the text does not say how much there was";
static const char unmet[] = "one request could not be met";

const struct oom_cause_rule oom_causes_open[] = {
	RULE("tf-device-driver", 0, NULL, IN(ANY), CAUSE(OTHER_PROCESS), 0.5,
	 "the pool takes what the card has when the program starts: somebody holds part of it", .more = true),
	RULE("tf-device-driver", 0, NULL, IN(ANY), CAUSE(NOT_OOM), 0.35,
	 "it asks for less and less until it gets something: by itself no failure"),
	RULE("cuda-nvml-assert", 0, NULL, IN(ANY), CAUSE(UNKNOWN), 0.5,
	 "memory ran out, and the numbers for the message could not be had from the driver (NVML)", .more = true),
	RULE("cuda-nvml-assert", 0, NULL, IN(ANY), CAUSE(TOO_LARGE), 0.45, "the allocator asks NVML only when the card has refused"),
	RULE(NULL, OOM_RUNTIME_LAYERED, "allocate CPU", IN(TEXT), CAUSE(HOST_RAM), 0.8, "the buffer lies in the host's memory"),
	RULE(NULL, OOM_RUNTIME_LAYERED, "backend_cpu_buffer_type_alloc_buffer: failed", IN(TEXT), CAUSE(HOST_RAM), 0.8,
	 "the buffer lies in the host's memory"),
	RULE(NULL, OOM_RUNTIME_SILENT, NULL, IN(ANY), CAUSE(UNKNOWN), 0.5, no_sizes, .more = true),
	RULE(NULL, OOM_RUNTIME_SILENT, NULL, IN(ANY), CAUSE(TOO_LARGE), 0.45, unmet),
	{.evidence = NULL},
};
