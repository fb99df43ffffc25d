/* What is known of each wording beside its words.
 *
 * Limits: docs of Kubernetes (pod resources), Slurm (sbatch --mem), LSF, PBS, Docker, Ray
 * (ray-oom-prevention), Windows (page files), systemd (MemoryMax), Dask (worker memory). */
#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define DMESG "dmesg -T | grep -i 'killed process' says whether the kernel's OOM killer sent the signal"
#define POD "kubectl describe pod (Last State, Limits) says which container met which limit"
#define JOB "sacct -j JOB --format=JobID,State,MaxRSS,ReqMem says how much the job held of what it asked for"

static const struct oom_format formats[] = {
	/* PyTorch's sentence */
	{"cuda", OOM_FORMAT_SENTENCE, 0, NULL, NULL},
	{"hip", OOM_FORMAT_SENTENCE, 0, NULL, NULL},
	{"xpu", OOM_FORMAT_SENTENCE, 0, NULL, NULL},
	{"npu", OOM_FORMAT_SENTENCE, 0, NULL, NULL},
	{"mps", OOM_FORMAT_SENTENCE, 0, NULL, NULL},
	{"cuda-malloc-async", OOM_FORMAT_SENTENCE | OOM_FORMAT_ASYNC, 0, NULL, NULL},
	{"cuda-nvml-assert", 0, 0, NULL, NULL},
	{"cuda-context", 0, 0, NULL, NULL},
	{"cuda-error-other", 0, 0, NULL, NULL},
	{"mps-no-buffer", 0, 0, NULL, NULL},
	{"mps-buffer-size", 0, 0, NULL, NULL},
	{"mps-ndarray-limit", 0, 0, NULL, NULL},
	{"npu-rtmalloc", 0, 0, NULL, NULL},
	/* status codes */
	{"cuda-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL},
	{"hip-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL},
	{"xpu-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL},
	{"npu-error-no-numbers", OOM_FORMAT_BARE | OOM_FORMAT_MAY_BE_PINNED, 0, NULL, NULL},
	{"ggml-cuda-error", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"trtllm-cuda-error", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"turbomind-cuda-error", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"cublas-", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"cudnn-", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"cusolver-", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"cusparse-", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"cufft-", OOM_FORMAT_BARE, 0, NULL, NULL},
	{"bitsandbytes-error", OOM_FORMAT_BARE, 0, NULL, NULL},
	/* the device's name stands before the words */
	{"ggml-cuda", OOM_FORMAT_NAMED_ON_LINE, 0, NULL, NULL},
	{"vllm-free-memory", OOM_FORMAT_SHARE, 0, NULL, NULL},
	/* one part of a chip, or none of the memory */
	{"triton-out-of-resources", 0, OOM_LEVER_KERNEL, NULL, NULL},
	{"xla-tpu-vmem", 0, OOM_LEVER_KERNEL, NULL, NULL},
	{"errno-28", OOM_FORMAT_RAISED, OOM_LEVER_DISK, NULL, NULL},
	{"disk-full", 0, OOM_LEVER_DISK, NULL, NULL},
	{"k8s-disk", OOM_FORMAT_FOREIGN, OOM_LEVER_DISK, NULL, NULL},
	{"time-limit", OOM_FORMAT_FOREIGN, 0, NULL, NULL},
	/* raised in the program for the host's memory */
	{"numpy-memory-error", OOM_FORMAT_RAISED | OOM_FORMAT_ONE_ARRAY, 0, NULL, NULL},
	{"python-memory-error", OOM_FORMAT_RAISED, 0, NULL, NULL},
	{"torch-mmap", OOM_FORMAT_RAISED, 0, NULL, NULL},
	{"torch-shm", OOM_FORMAT_RAISED, 0, NULL, NULL},
	{"errno-12", OOM_FORMAT_RAISED, 0, NULL, NULL},
	{"bad-alloc", OOM_FORMAT_RAISED, 0, NULL, NULL},
	{"cpu-allocator", OOM_FORMAT_ONE_ARRAY, 0, NULL, NULL},
	{"paging-file", OOM_FORMAT_RAISED, 0,
	 "a larger page file (System, Advanced, Virtual memory) or more RAM, fewer worker processes: each one commits the CUDA libraries",
	 NULL},
	/* printed by who ended it */
	{"oom-kill", OOM_FORMAT_FOREIGN | OOM_FORMAT_KERNEL_OR_SLURM, 0, NULL, NULL},
	{"kernel-oom-kill", OOM_FORMAT_FOREIGN, 0, NULL,
	 "the line \"Killed process ... anon-rss\" of dmesg -T names the process and its size"},
	{"slurm-", OOM_FORMAT_FOREIGN, 0, "ask for more: sbatch --mem=... or --mem-per-cpu=... (--mem=0: all of the node)", JOB},
	{"slurm-memlimit", 0, 0, "ask for more: sbatch --mem=... or --mem-per-cpu=... (--mem=0: all of the node)", JOB},
	{"lsf-", 0, 0, "ask for more: bsub -M and -R \"rusage[mem=...]\"", NULL},
	{"pbs-", 0, 0, "ask for more: qsub -l mem=...", NULL},
	{"k8s-", OOM_FORMAT_FOREIGN, 0, NULL, POD},
	{"k8s-oomkilled", OOM_FORMAT_FOREIGN, 0,
	 "raise resources.limits.memory of that container (a memory-backed /dev/shm counts in it)", POD},
	{"k8s-evicted", OOM_FORMAT_FOREIGN, 0,
	 "set requests.memory to what it needs, so that the pod is put on a node that has it", POD},
	{"exit-137", OOM_FORMAT_FOREIGN, 0,
	 "raise the container's limit (docker run -m, the memory of Docker Desktop or WSL, resources.limits.memory)",
	 "docker inspect (OOMKilled) or kubectl describe pod says whether the memory limit or somebody's signal ended it"},
	{"exit-137-error", OOM_FORMAT_FOREIGN, 0, NULL,
	 "kubectl get events and describe pod: a failed liveness probe, an eviction or a deleted pod end it with 137 too; "
	 "dmesg -T on the node says whether the kernel's OOM killer did"},
	{"container-memory", 0, 0, "raise the container's memory limit (spark.executor.memoryOverhead on YARN)", NULL},
	{"systemd-oom", OOM_FORMAT_FOREIGN, 0, "raise MemoryMax of the unit, or give the machine more memory or swap", NULL},
	{"bare-killed", OOM_FORMAT_FOREIGN, 0, NULL, DMESG},
	{"elastic-exitcode", 0, 0, NULL, DMESG},
	{"dataloader-", 0, 0, NULL,
	 "dmesg -T | grep -i 'killed process' and df -h /dev/shm while it runs say which of the two ran out"},
	{"ray-oom", OOM_FORMAT_LISTS_WORKERS, 0,
	 "fewer tasks at once (more num_cpus or memory= a task), or a node with more memory; RAY_memory_usage_threshold moves the limit only",
	 "the \"Top 10 memory users\" of Ray's message name the worker that grew"},
	{"notebook-ram", 0, 0, "a runtime with more RAM (high-RAM), or load in pieces", NULL},
	{"java-heap", 0, 0, "a larger heap (-Xmx, spark.driver.memory, spark.executor.memory)", NULL},
	{"node-heap", 0, 0, "a larger heap (NODE_OPTIONS=--max-old-space-size=...)", NULL},
	{"gunicorn-killed", 0, 0, "fewer workers of the server: each holds its own copy of the model (--preload shares it)", NULL},
	{"loky-killed", 0, 0, "fewer jobs at once (n_jobs lower): each holds its own copy of the data", NULL},
	{"dask-memory", 0, 0, "a larger memory_limit of the workers, fewer of them, or smaller partitions", NULL},
};
static const struct oom_format plain = {"", 0, 0, NULL, NULL};

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
