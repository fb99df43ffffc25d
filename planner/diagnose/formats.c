/* What is known of each wording beside its words.
 *
 * Limits: docs of Kubernetes (pod resources), Slurm (sbatch --mem), LSF, PBS, Docker, Ray
 * (ray-oom-prevention), Windows (page files), systemd (MemoryMax), Dask (worker memory). */
#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define DMESG "dmesg -T | grep -i 'killed process' says whether the kernel's OOM killer sent the signal"
#define POD "kubectl describe pod (Last State, Limits) says which container met which limit"
#define JOB "sacct -j JOB --format=JobID,State,MaxRSS,ReqMem says how much the job held of what it asked for"

/* What would settle it, then further columns by their names. */
#define ROW(name_, traits_, read_, limit_, ...) \
	{.name = name_, .traits = traits_, .read = read_, .limit = limit_, __VA_ARGS__}
static const struct oom_format formats[] = {
	/* PyTorch's sentence */
	ROW("cuda", OOM_FORMAT_SENTENCE, 0, NULL, NULL),
	ROW("cuda-1.", OOM_FORMAT_SENTENCE | OOM_FORMAT_OLD, 0, NULL, NULL),
	ROW("cuda-1.0", OOM_FORMAT_SENTENCE | OOM_FORMAT_OLD | OOM_FORMAT_NO_AMP, 0, NULL, NULL),
	ROW("thc-runtime-error-2", OOM_FORMAT_OLD | OOM_FORMAT_NO_AMP, 0, NULL, NULL),
	ROW("hip-1.", OOM_FORMAT_SENTENCE | OOM_FORMAT_OLD, 0, NULL, NULL),
	ROW("hip", OOM_FORMAT_SENTENCE, 0, NULL, NULL),
	ROW("xpu", OOM_FORMAT_SENTENCE, 0, NULL, NULL),
	ROW("npu", OOM_FORMAT_SENTENCE, 0, NULL, NULL),
	ROW("mps", OOM_FORMAT_SENTENCE, 0, NULL, NULL),
	ROW("cuda-malloc-async", OOM_FORMAT_SENTENCE | OOM_FORMAT_ASYNC, 0, NULL, NULL),
	ROW("cuda-nvml-assert", 0, 0, NULL, NULL),
	ROW("cuda-memory-summary", OOM_FORMAT_TABLE, 0, NULL,
	 "the message above the table, \"CUDA out of memory. Tried to allocate ...\", says what was asked for and what the card has"),
	ROW("cuda-context", 0, 0, NULL, NULL),
	ROW("cuda-error-other", 0, 0, NULL, NULL),
	ROW("mps-no-buffer", 0, 0, NULL, NULL),
	ROW("mps-buffer-size", 0, 0, NULL, NULL),
	ROW("mps-ndarray-limit", 0, 0, NULL, NULL),
	ROW("npu-rtmalloc", 0, 0, NULL, NULL),
	/* status codes */
	ROW("physx-memory", 0, 0, NULL, NULL),
	ROW("cuda-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL),
	ROW("hip-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL),
	ROW("xpu-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL),
	ROW("npu-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL),
	ROW("dlib", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL),
	ROW("out-of-memory", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL),
	/* the allocator behind vLLM's sleep mode: an engine beside a trainer */
	ROW("ollama-runner-exited", OOM_FORMAT_BARE, 0, NULL,
	    .ran_out_of = "lost its runner, and only supposes that memory was short",
	    .settle = "Ollama's log (journalctl -u ollama, server.log) says what the runner printed last: a refused allocation with its size, or another "
	        "error"),
	ROW("ggml-opencl-guess", OOM_FORMAT_BARE, 0, NULL,
	    .ran_out_of = "met an error of OpenCL, and only supposes that memory was short",
	    .settle = "the number in the line above it: -4 (no memory for an object), -5 and -6 (no resources, no host memory) are refusals, -61 is one buffer above what "
		"the device allows, any other is an error of its own"),
	/* cudaHostAlloc failed, and ggml takes ordinary memory instead */
	ROW("ggml-pinned", 0, 0, NULL, .first = {OOM_LEVER_PINNED},
	    .ran_out_of = "could not have host memory page-locked and goes on with ordinary memory: that alone ends nothing, copies are only slower",
	    .settle = "the lines below it, if the program ended: another refusal ended it"),
	ROW("vllm-cumem", OOM_FORMAT_BARE, 0, NULL,
	    .first = {OOM_LEVER_ROOM, OOM_LEVER_CONTEXT, OOM_LEVER_SHARD, OOM_LEVER_OTHERS},
	    .settle = "the line before it: whether the engine was being woken or its cache made says who held the card, trainer or engine"),
	ROW("ggml-cuda-error", OOM_FORMAT_BARE, 0, NULL, NULL),
	/* llama.cpp docs/backend/SYCL.md at 01d98b4f74: its table of variables at run time, and its answer to "can't allocate
	 * 5000000000 Bytes of memory on device" */
	ROW("ggml-sycl-error", OOM_FORMAT_BARE, 0, NULL,
	    .settle = "the lines above it: a size above 4 GiB is one buffer that Intel's driver refuses however much is free (UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 "
		"lets it pass; releases that know GGML_SYCL_ENABLE_LEVEL_ZERO ask for that themselves); ZES_ENABLE_SYSMAN=1 lets llama.cpp see how much is free"),
	ROW("trtllm-cuda-error", OOM_FORMAT_BARE, 0, NULL, NULL),
	ROW("turbomind-cuda-error", OOM_FORMAT_BARE, 0, NULL, NULL),
	/* kernels run behind the calls: what an index did out of range is told by whoever asks next (CUDA_LAUNCH_BLOCKING in PyTorch's notes on CUDA) */
	ROW("cublas-", OOM_FORMAT_BARE, 0, NULL,
	    .settle = "the same step with CUDA_LAUNCH_BLOCKING=1, or on the CPU: an index out of range (labels beyond the number of classes, tokens beyond the embedding) ends "
		"in this error, too; if it passes there, nvidia-smi while it runs says whether the card was full"),
	ROW("cudnn-", OOM_FORMAT_BARE, 0, NULL, NULL),
	ROW("cusolver-", OOM_FORMAT_BARE, 0, NULL, NULL),
	ROW("cusparse-", OOM_FORMAT_BARE, 0, NULL, NULL),
	ROW("cufft-", OOM_FORMAT_BARE, 0, NULL, NULL),
	ROW("bitsandbytes-error", OOM_FORMAT_BARE, 0, NULL, NULL),
	/* the device's name stands before the words */
	ROW("ggml-cuda", OOM_FORMAT_NAMED_ON_LINE, 0, NULL, NULL),
	ROW("vllm-free-memory", OOM_FORMAT_SHARE, 0, NULL, NULL, .share = "gpu_memory_utilization",
	    .first = {OOM_LEVER_OTHERS}),
	/* the engine tries its largest batch beside weights and cache: what it takes must be less, not more */
	ROW("vllm-kv-budget", OOM_FORMAT_BUDGET, 0, NULL, NULL),
	ROW("sglang-kv-budget", OOM_FORMAT_BUDGET, 0, NULL, NULL),
	ROW("vllm-sampler-warmup", 0, 0, NULL, NULL, .ran_out_of = "had no room for its largest batch beside weights and KV cache", .first = {OOM_LEVER_REQUESTS, OOM_LEVER_ROOM, OOM_LEVER_CONTEXT}),
	ROW("tgi-prefill-budget", 0, 0, NULL, NULL, .ran_out_of = "had no room for the largest prefill it was told to allow, which it tries when it starts",
	    .first = {OOM_LEVER_REQUESTS, OOM_LEVER_CONTEXT, OOM_LEVER_QUANT, OOM_LEVER_SPREAD, OOM_LEVER_OTHERS}),
	ROW("paddle", OOM_FORMAT_ADVISES, 0, NULL, NULL),
	ROW("onnxruntime", OOM_FORMAT_NODE, 0, NULL, NULL),
	ROW("lmcache-pool", 0, 0, "a larger pool: max_local_cpu_size (LMCACHE_MAX_LOCAL_CPU_SIZE) in GB of the host, or pd_buffer_size in bytes",
	    .first = {OOM_LEVER_CONTEXT, OOM_LEVER_REQUESTS},
	    .ran_out_of = "found no room in LMCache's pool for another part of the KV cache: that part is not kept, which alone ends nothing",
	    .settle = "the lines below it, if the program ended: another error ended it"),
	ROW("sglang-slots", 0, 0, NULL, .ran_out_of = "has no slot left for another request: a count, not bytes", .first = {OOM_LEVER_REQUESTS},
	    .settle = "the requests that run when it dies against --max-running-requests: where fewer run than that, it is a defect of that version"),
	ROW("trtllm-executor", 0, 0, NULL, NULL),
	ROW("xla-tpu-hbm", OOM_FORMAT_PROGRAM, 0, NULL, NULL),
	ROW("xla-early-abort", OOM_FORMAT_PROGRAM, 0, NULL, NULL),
	ROW("xla-buffers", OOM_FORMAT_LIST, 0, NULL,
	 "the line above the list, \"RESOURCE_EXHAUSTED: Out of memory while trying to allocate ...\", says how much was asked for"),
	ROW("tf-bfc-dump", OOM_FORMAT_LIST, 0, NULL,
	 "the line above the table, \"ran out of memory trying to allocate ...\", says how much was asked for"),
	ROW("mlx-resource-limit", 0, 0, NULL,
	 .ran_out_of = "holds more buffers than Metal keeps, of whatever size",
	 .settle = "mx.get_active_memory() and mx.get_cache_memory() from step to step: bytes that stay while it dies mean many small arrays"),
	/* one part of a chip, or none of the memory */
	ROW("triton-out-of-resources", 0, OOM_LEVER_KERNEL, NULL, NULL),
	ROW("xla-tpu-vmem", 0, OOM_LEVER_KERNEL, NULL, NULL),
	ROW("errno-28", OOM_FORMAT_RAISED, OOM_LEVER_DISK, NULL, NULL),
	ROW("disk-full", 0, OOM_LEVER_DISK, NULL, NULL),
	ROW("k8s-disk", OOM_FORMAT_FOREIGN, OOM_LEVER_DISK, NULL, NULL),
	ROW("time-limit", OOM_FORMAT_FOREIGN, 0, NULL, NULL),
	/* raised in the program for the host's memory */
	ROW("numpy-memory-error", OOM_FORMAT_RAISED | OOM_FORMAT_ONE_ARRAY, 0, NULL, NULL),
	ROW("python-memory-error", OOM_FORMAT_RAISED, 0, NULL, NULL),
	ROW("torch-mmap", OOM_FORMAT_RAISED, 0, NULL, NULL),
	ROW("torch-shm", OOM_FORMAT_RAISED, 0, NULL, NULL),
	ROW("errno-12", OOM_FORMAT_RAISED, 0, NULL, NULL),
	ROW("bad-alloc", OOM_FORMAT_RAISED, 0, NULL, NULL),
	ROW("host-alloc", OOM_FORMAT_RAISED, 0, NULL, NULL),
	ROW("cpu-allocator", OOM_FORMAT_ONE_ARRAY, 0, NULL, NULL),
	ROW("paging-file", OOM_FORMAT_RAISED, 0,
	 "a larger page file (System, Advanced, Virtual memory) or more RAM, fewer worker processes: each one commits the CUDA libraries",
	 NULL),
	/* printed by who ended it */
	ROW("oom-kill", OOM_FORMAT_FOREIGN | OOM_FORMAT_KERNEL_OR_SLURM, 0, NULL, NULL),
	ROW("kernel-oom-kill", OOM_FORMAT_FOREIGN, 0, NULL,
	 "the line \"Killed process ... anon-rss\" of dmesg -T names the process and its size"),
	ROW("slurm-", OOM_FORMAT_FOREIGN, 0, "ask for more: sbatch --mem=... or --mem-per-cpu=... (--mem=0: all of the node)", JOB),
	ROW("slurm-memlimit", 0, 0, "ask for more: sbatch --mem=... or --mem-per-cpu=... (--mem=0: all of the node)", JOB),
	ROW("lsf-", 0, 0, "ask for more: bsub -M and -R \"rusage[mem=...]\"", NULL),
	ROW("pbs-", 0, 0, "ask for more: qsub -l mem=...", NULL),
	ROW("k8s-", OOM_FORMAT_FOREIGN, 0, NULL, POD),
	ROW("k8s-oomkilled", OOM_FORMAT_FOREIGN, 0,
	 "raise resources.limits.memory of that container (a memory-backed /dev/shm counts in it)", POD),
	ROW("k8s-evicted", OOM_FORMAT_FOREIGN, 0,
	 "set requests.memory to what it needs, so that the pod is put on a node that has it", POD),
	ROW("exit-137", OOM_FORMAT_FOREIGN, 0,
	 "raise the container's limit (docker run -m, the memory of Docker Desktop or WSL, resources.limits.memory)",
	 "docker inspect (OOMKilled) or kubectl describe pod says whether the memory limit or somebody's signal ended it"),
	ROW("exit-137-error", OOM_FORMAT_FOREIGN, 0, NULL,
	 "kubectl get events and describe pod: a failed liveness probe, an eviction or a deleted pod end it with 137 too; "
	 "dmesg -T on the node says whether the kernel's OOM killer did"),
	ROW("container-memory", 0, 0, "raise the container's memory limit (spark.executor.memoryOverhead on YARN)", NULL),
	ROW("systemd-oom", OOM_FORMAT_FOREIGN, 0, "raise MemoryMax of the unit, or give the machine more memory or swap", NULL),
	ROW("earlyoom", OOM_FORMAT_FOREIGN, 0, "more RAM or swap: earlyoom ends the largest process at its thresholds (-m, -s), before the kernel would",
	    NULL),
	ROW("bare-killed", OOM_FORMAT_FOREIGN, 0, NULL, DMESG),
	ROW("elastic-exitcode", 0, 0, NULL, DMESG),
	ROW("launcher-killing", 0, 0, NULL, .ran_out_of = "lost one of its processes, and its launcher ended the others",
	    .first = {OOM_LEVER_HOST},
	    .settle = "the line \"exits with return code\" below it: -9 is a kill, for memory as a rule (dmesg -T); any other is an error of its own further up"),
	ROW("ray-pod-guess", OOM_FORMAT_FOREIGN, 0, NULL, POD "; the worker's own log (session_latest/logs/worker-*.err) says whether it exited by an error of its own",
	    .ran_out_of = "lost a worker, and only supposes that the pod's memory limit was met", .first = {OOM_LEVER_HOST}),
	ROW("ray-worker-died", OOM_FORMAT_FOREIGN, 0, NULL,
	    "dmesg -T | grep -i 'killed process' on that node, and the worker's own log (ray logs): Ray only lists what it may have been"),
	ROW("datasets-map-died", OOM_FORMAT_RAISED, 0,
	 "map() with a lower num_proc, and a lower batch_size and writer_batch_size where its rows are large",
	 "dmesg -T | grep -i 'killed process' says whether the kernel's OOM killer ended the child; num_proc=1 shows its own error otherwise"),
	ROW("dataloader-", OOM_FORMAT_ANYWHERE, 0, NULL,
	 "dmesg -T | grep -i 'killed process' and df -h /dev/shm while it runs say which of the two ran out"),
	ROW("ray-oom", OOM_FORMAT_LISTS_WORKERS, 0,
	 "fewer tasks at once (more num_cpus or memory= a task), or a node with more memory; RAY_memory_usage_threshold moves the limit only",
	 "the \"Top 10 memory users\" of Ray's message name the worker that grew"),
	ROW("notebook-ram", 0, 0, "a runtime with more RAM (high-RAM), or load in pieces", NULL),
	ROW("java-heap", 0, 0, "a larger heap (-Xmx, spark.driver.memory, spark.executor.memory)", NULL),
	ROW("node-heap", 0, 0, "a larger heap (NODE_OPTIONS=--max-old-space-size=...)", NULL),
	ROW("gunicorn-killed", 0, 0, "fewer workers of the server: each holds its own copy of the model (--preload shares it)", NULL),
	ROW("loky-killed", 0, 0, "fewer jobs at once (n_jobs lower): each holds its own copy of the data", NULL),
	ROW("dask-memory", 0, 0, "a larger memory_limit of the workers, fewer of them, or smaller partitions", NULL),
};
static const struct oom_format plain = {.name = ""};

const struct oom_format *oom_format_of(const struct oom_crash *c)
{
	const struct oom_format *best = &plain;

	for (size_t i = 0; i < COUNT(formats); i++) {
		const size_t n = strlen(formats[i].name);

		if (n > strlen(best->name) && !strncmp(c->format, formats[i].name, n))
			best = &formats[i];
	}
	return best;
}
