/* Why it ran out: rules over the decoded numbers and the words around the message, ranked by
 * confidence.  Confidences are judgements, not frequencies: they rank causes and say how sure.
 *
 * Playbook M2 (fragmentation against true shortage), M3 (host memory), M8, M15, M16, M17;
 * wordings as in message.c. */
#include <stdio.h>
#include <string.h>

#include "parts.h"

static const struct oom_cause_info infos[OOM_CAUSES] = {
	{"too_large", "what is resident and the request together exceed the memory", 1, "playbook M2, M4"},
	{"fragmentation", "enough is reserved but in pieces too small for the request", 4, "playbook M8"},
	{"other_process", "another process (or a zombie) holds the card", 0, "playbook M2"},
	{"host_ram", "the host's memory ran out, not the GPU's: do not shrink the model for the card", 0, "playbook M3"},
	{"shm", "shared memory of the data loader ran out", 0, "playbook M3"},
	{"eval_logits", "evaluation piles logits up on the GPU", 0, "playbook M15"},
	{"longest_batch", "the longest batch is larger than those before", 6, "playbook M16"},
	{"step_2", "optimizer state appears at the first step: what follows does not fit", 7, "playbook M17"},
	{"leak", "allocated memory rises from step to step", 0, "playbook M20"},
	{"kv_cache_budget", "the serving engine has no room left for its KV cache", 0, "vLLM documentation"},
	{"memory_fraction_cap", "a cap set in the program is the limit, not the card", 0, "c10/cuda/CUDACachingAllocator.cpp"},
	{"watermark_cap", "the MPS watermark is the limit", 0, "aten/src/ATen/mps/MPSAllocator.mm"},
	{"wrong_capacity_reported", "the numbers contradict one another: the driver reports a wrong capacity", 0, "playbook M2"},
	{"buffer_limit", "one buffer is larger than the device allows for one, whatever is free", 0,
	 "MTLDevice.maxBufferLength, CL_DEVICE_MAX_MEM_ALLOC_SIZE"},
	{"not_oom", "not an out-of-memory error", 0, "playbook M2"},
	{"unknown", "the text does not say", 0, "playbook M2"},
};

const struct oom_cause_info *oom_cause_info(enum oom_cause cause)
{
	return &infos[cause];
}

const char *oom_crash_number_str(enum oom_crash_number n)
{
	static const char *const words[OOM_CRASH_NUMBERS] = {
		"tried_bytes", "total_bytes", "free_bytes", "process_bytes", "allocated_bytes", "reserved_total_bytes",
		"reserved_unallocated_bytes", "private_pool_bytes", "allowed_bytes", "other_bytes"};

	return words[n];
}

static void say(struct oom_crash *c, enum oom_cause cause, double confidence, const char *evidence)
{
	size_t i = c->n_causes;

	for (size_t j = 0; j < c->n_causes; j++)
		if (c->cause[j].cause == cause)
			return;
	if (i == OOM_CRASH_CAUSES)
		return;
	c->n_causes++;
	for (; i > 0 && c->cause[i - 1].confidence < confidence; i--)
		c->cause[i] = c->cause[i - 1];
	c->cause[i] = (struct oom_verdict){.cause = cause, .confidence = confidence};
	snprintf(c->cause[i].evidence, sizeof(c->cause[i].evidence), "%s", evidence);
}

/* ---- messages that name their cause ---- */

/* One cause each. */
static const struct {
	const char *format;
	enum oom_cause cause;
	double confidence;
	const char *evidence;
} formats[] = {
	{"triton-out-of-resources", OOM_CAUSE_NOT_OOM, 0.9,
	 "a kernel wants more on-chip memory than the card's cores have: smaller blocks or "
	 "num_stages, not a smaller model"},
	{"xla-tpu-vmem", OOM_CAUSE_NOT_OOM, 0.8,
	 "a kernel wants more on-chip memory than a core has: smaller blocks, not a smaller model"},
	{"cuda-error-other", OOM_CAUSE_NOT_OOM, 0.9, "a CUDA error of another kind"},
	{"vllm-kv-budget", OOM_CAUSE_KV_CACHE, 0.95, "the KV cache does not fit what is left"},
	{"sglang-kv-budget", OOM_CAUSE_KV_CACHE, 0.9,
	 "weights leave nothing of the static share for the KV cache"},
	{"vllm-sampler-warmup", OOM_CAUSE_KV_CACHE, 0.7,
	 "weights and KV cache left no room for the sampler of that many requests"},
	{"tf-host-pinned", OOM_CAUSE_HOST_RAM, 0.9, "page-locked host memory was refused"},
	{"tf-host-warning", OOM_CAUSE_NOT_OOM, 0.8,
	 "a warning about one large tensor on the host, no failure"},
	{"disk-full", OOM_CAUSE_NOT_OOM, 0.9, "a file could not be written: the disk or a quota is full"},
	{"k8s-disk", OOM_CAUSE_NOT_OOM, 0.9, "the node's disk (ephemeral storage) is full"},
	{"time-limit", OOM_CAUSE_NOT_OOM, 0.9, "the scheduler ended the job: its time was up"},
	{"nccl-timeout", OOM_CAUSE_NOT_OOM, 0.7,
	 "a collective timed out: another rank stopped or died before, read its log"},
	{"tgi-prefill-budget", OOM_CAUSE_KV_CACHE, 0.9,
	 "the warm-up with the largest prefill did not fit beside the weights"},
	{"exllama-vram", OOM_CAUSE_KV_CACHE, 0.7, "weights and cache do not fit together"},
	{"sglang-unbalanced", OOM_CAUSE_OTHER_PROCESS, 0.9,
	 "the GPUs differ in what is free before the engine starts"},
	{"vllm-profiling", OOM_CAUSE_OTHER_PROCESS, 0.8,
	 "memory of the card changed while vLLM measured it: somebody else uses it"},
	{"cuda-context", OOM_CAUSE_OTHER_PROCESS, 0.6,
	 "not even the context could be made: the memory was taken before this process had any"},
	{"jetson-nvmap", OOM_CAUSE_HOST_RAM, 0.8,
	 "CPU and GPU share one memory here, and the system has none left"},
	{"ollama-system-memory", OOM_CAUSE_HOST_RAM, 0.95, "the message compares with the system's memory"},
	{"ggml-cpu", OOM_CAUSE_HOST_RAM, 0.9, "the buffer lies in the host's memory"},
	{"ggml-pinned", OOM_CAUSE_HOST_RAM, 0.6, "page-locked host memory was refused"},
	{"xla-early-abort", OOM_CAUSE_TOO_LARGE, 0.9, "the compiler says what the program needs and what the device has"},
	{"mps-ndarray-limit", OOM_CAUSE_BUFFER_LIMIT, 0.9, "Metal's arrays may not pass 2^32 bytes"},
	{"mps-buffer-size", OOM_CAUSE_BUFFER_LIMIT, 0.8, "PyTorch refuses what is above the device's largest buffer"},
	{"ggml-buffer-limit", OOM_CAUSE_BUFFER_LIMIT, 0.9, "the message names the limit of one buffer"},
	{"openvino-buffer-limit", OOM_CAUSE_BUFFER_LIMIT, 0.95, "the message names the limit of one buffer"},
	{"mlx-buffer-limit", OOM_CAUSE_BUFFER_LIMIT, 0.95, "the message names the limit of one buffer"},
	{"no-executable-batch-size", OOM_CAUSE_TOO_LARGE, 0.9,
	 "not even a batch of one fitted: accelerate had halved it to nothing"},
};

/* Of the host, though the message is the device's or the disk's. */
static bool on_host(struct oom_crash *c, const char *begin, const char *line, const char *at,
		    const char *stop)
{
	static const char *const shared[] = {"SemLock", "/dev/shm", "torch_", "shared memory",
					     "_share_f"};
	const char *const near = at - begin > 600 ? at - 600 : begin;

	if (!strcmp(c->format, "errno-28")) {
		for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
			if (oom_text_find(near, stop, shared[i])) {
				say(c, OOM_CAUSE_SHM, 0.8, "/dev/shm is the device that is full");
				return true;
			}
		say(c, OOM_CAUSE_NOT_OOM, 0.8, "a disk is full, not a memory");
		return true;
	}
	if (!strcmp(c->format, "torch-shm")) {
		if (oom_text_find(at, stop, "Too many open files"))
			say(c, OOM_CAUSE_NOT_OOM, 0.9,
			    "file descriptors ran out (ulimit -n), not memory");
		else
			say(c, OOM_CAUSE_SHM, 0.9, "a shared-memory file could not be written");
		return true;
	}
	if (!strcmp(c->format, "torch-mmap") && oom_text_find(line, stop, "</torch_")) {
		say(c, OOM_CAUSE_SHM, 0.6, "a file of the data loader's shared memory");
		say(c, OOM_CAUSE_HOST_RAM, 0.4, "the host's kernel refused");
		return true;
	}
	if (!strcmp(c->framework, "tensorflow") &&
	    (oom_text_find(line, stop, "by allocator cpu") ||
	     oom_text_find(line, stop, "by allocator mklcpu") ||
	     oom_text_find(line, stop, "device:CPU:"))) {
		say(c, OOM_CAUSE_HOST_RAM, 0.9, "the allocator is the host's");
		return true;
	}
	/* cudaHostAlloc answers with the code of cudaMalloc */
	if (strstr(c->format, "error-no-numbers") &&
	    (oom_text_find(near, stop, "pin_memory") || oom_text_find(near, stop, "cudaHostAlloc") ||
	     oom_text_find(near, stop, "pinned"))) {
		say(c, OOM_CAUSE_HOST_RAM, 0.8, "page-locked host memory was refused");
		return true;
	}
	return false;
}

/* A limit on one buffer, a pool that was given a size, a context that could not be made: said on the
 * message's line or next to it. */
static bool limited(struct oom_crash *c, const char *begin, const char *line, const char *at,
		    const char *end)
{
	const char *const next = oom_line_end(oom_line_end(at, end) + (oom_line_end(at, end) < end), end);
	const char *const before = line > begin ? oom_line_begin(begin, line - 1) : line;
	static const char *const buffers[] = {"maximum allowed buffer size", "NOT allocate memory block",
					      "maxBufferLength", "max buffer size", "maxMemoryAllocationSize",
					      "max alloc size", "memory allocation limit", "buffer maximum of"};
	static const char *const unified[] = {"NvMapMemAlloc", "NvMap"};

	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
		if (oom_text_find(line, next, buffers[i])) {
			say(c, OOM_CAUSE_BUFFER_LIMIT, 0.95, "the message names the limit of one buffer");
			return true;
		}
	if (oom_text_find(line, next, "Maximum pool size exceeded")) {
		say(c, OOM_CAUSE_FRACTION_CAP, 0.9, "the pool has a maximum of its own");
		return true;
	}
	for (size_t i = 0; i < sizeof(unified) / sizeof(unified[0]); i++)
		if (oom_text_find(before, next, unified[i])) {
			say(c, OOM_CAUSE_HOST_RAM, 0.8,
			    "CPU and GPU share one memory here, and the system has none left");
			return true;
		}
	if (oom_text_find(before, next, "cuDevicePrimaryCtxRetain") ||
	    oom_text_find(before, next, "cuCtxCreate")) {
		say(c, OOM_CAUSE_OTHER_PROCESS, 0.6,
		    "not even the context could be made: the memory was taken before this process "
		    "had any");
		return true;
	}
	return false;
}

static bool named(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *line = at, *stop = memchr(at, '\n', (size_t)(end - at));

	while (line > begin && line[-1] != '\n')
		line--;
	stop = stop ? stop : end;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (!strcmp(c->format, formats[i].format)) {
			say(c, formats[i].cause, formats[i].confidence, formats[i].evidence);
			return true;
		}
	if (on_host(c, begin, line, at, stop) || limited(c, begin, line, at, end))
		return true;
	if (!strcmp(c->format, "vllm-free-memory")) {
		const uint64_t total = c->bytes[OOM_CRASH_TOTAL], left = c->bytes[OOM_CRASH_FREE];

		/* a desktop and a context take their gigabyte; more belongs to somebody */
		say(c, OOM_CAUSE_KV_CACHE, 0.6,
		    "less is free than gpu_memory_utilization asks for");
		if (total > left + (uint64_t)2 * 1073741824)
			say(c, OOM_CAUSE_OTHER_PROCESS, 0.8,
			    "the card was in use before the engine started");
		return true;
	}
	if (!strcmp(c->format, "tf-bfc-allocator") &&
	    oom_text_find(at, end, "this is not a failure")) {
		say(c, OOM_CAUSE_NOT_OOM, 0.9,
		    "TensorFlow's allocator says itself that this is no failure");
		return true;
	}
	if (!strcmp(c->format, "dataloader-signal")) {
		if (oom_text_find(line, end, "Bus error") ||
		    oom_text_find(line, end, "shared memory"))
			say(c, OOM_CAUSE_SHM, 0.95, "a worker died of a bus error");
		else if (oom_text_find(line, stop, "Segmentation fault") ||
			 oom_text_find(line, stop, "Aborted") ||
			 oom_text_find(line, stop, "Floating point"))
			say(c, OOM_CAUSE_NOT_OOM, 0.9, "a worker crashed by itself");
		else if (oom_text_find(at, stop, "exited unexpectedly")) {
			say(c, OOM_CAUSE_HOST_RAM, 0.45,
			    "a data-loader worker ended without saying why: often killed for "
			    "memory");
			say(c, OOM_CAUSE_SHM, 0.35, "or /dev/shm was full, as in containers");
		} else
			say(c, OOM_CAUSE_HOST_RAM, 0.8, "a data-loader worker was killed");
		return true;
	}
	if (oom_text_find(line, stop, "shared memory") && !strcmp(c->framework, "host")) {
		say(c, OOM_CAUSE_SHM, 0.8, "the message names shared memory");
		return true;
	}
	if (!strcmp(c->framework, "host") || !strcmp(c->framework, "torch-cpu")) {
		/* a single request beyond any host is a wrong size, not a full memory */
		if (c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] > (uint64_t)2 << 40)
			say(c, OOM_CAUSE_TOO_LARGE, 0.9,
			    "the request alone is larger than any host's memory");
		else
			say(c, OOM_CAUSE_HOST_RAM, 0.9,
			    "the host's allocator or kernel refused or killed");
		return true;
	}
	return false;
}

/* ---- numbers ---- */

static uint64_t num(const struct oom_crash *c, enum oom_crash_number n)
{
	return c->known[n] ? c->bytes[n] : 0;
}

static const uint64_t GIB = 1073741824;

/* Bytes on the card that are neither free nor this process's.  A process listed by number may be
 * this one, seen from inside a container: its size is then what PyTorch holds and a context. */
static uint64_t outside(const struct oom_crash *c, bool *listed)
{
	const uint64_t held = num(c, OOM_CRASH_RESERVED_TOTAL), total = num(c, OOM_CRASH_TOTAL),
		       free_bytes = num(c, OOM_CRASH_FREE);
	uint64_t others = 0, own = held;

	if (num(c, OOM_CRASH_ALLOCATED) > own)
		own = num(c, OOM_CRASH_ALLOCATED);
	/* some containers and Windows read 0 bytes for it */
	if (num(c, OOM_CRASH_PROCESS) > own)
		own = num(c, OOM_CRASH_PROCESS);
	for (size_t i = 0; i < c->n_processes; i++) {
		const uint64_t b = c->process[i].bytes;

		/* with this process's own beside it the card would be more than full: it is the
		 * same one */
		const bool twice = total && own + b > total + total / 100 && b >= own;

		if (!c->known[OOM_CRASH_PROCESS] &&
		    (!c->known[OOM_CRASH_ALLOCATED] || twice || (b >= held && b - held < 2 * GIB)))
			own = b;
		else
			others += b;
	}
	*listed = others != 0;
	if (others)
		return others;
	if (!c->known[OOM_CRASH_TOTAL] || !c->known[OOM_CRASH_FREE] ||
	    (!own && !c->known[OOM_CRASH_ALLOCATED]))
		return 0;
	return total > free_bytes + own ? total - free_bytes - own : 0;
}

/* Whether what is reserved ends just below a twentieth of the card, and the request would cross it:
 * torch.cuda.set_per_process_memory_fraction() is called with round numbers, and PyTorch before 2.9
 * does not print the cap (pytorch/pytorch#111363).  For a request of a hundredth of the card it is
 * one chance in five that this is a coincidence, for smaller ones less. */
static bool meets_round_share(uint64_t reserved, uint64_t tried, uint64_t total)
{
	/* twice the rounding of a printed number */
	const double slack = 0.01 * (double)GIB;

	if (!reserved || tried * 100 > total)
		return false;
	for (int k = 1; k < 20; k++) {
		const double cap = k * (double)total / 20;

		if ((double)reserved <= cap + slack && (double)(reserved + tried) > cap - slack)
			return true;
	}
	return false;
}

/* An APU reports half of the host's memory, or what its firmware set aside, as its capacity; AMD's
 * cards report all but some MiB of 4, 8, 12 ... GiB. */
static bool no_card_has(const struct oom_crash *c, uint64_t total)
{
	const uint64_t step = 4 * GIB, over = total % step;

	return !strcmp(c->framework, "torch-rocm") && total > step && over && step - over > GIB / 4;
}

static bool sure(const struct oom_crash *c)
{
	return c->n_causes && c->cause[0].confidence >= 0.5;
}

static void cuda(struct oom_crash *c)
{
	const uint64_t tried = num(c, OOM_CRASH_TRIED), total = num(c, OOM_CRASH_TOTAL),
		       free_bytes = num(c, OOM_CRASH_FREE);
	const uint64_t stranded = num(c, OOM_CRASH_RESERVED_UNALLOCATED);
	bool listed;
	const uint64_t away = outside(c, &listed);
	const double share = total ? (double)stranded / (double)total : 0;
	char why[160];

	if (c->known[OOM_CRASH_ALLOWED] && num(c, OOM_CRASH_ALLOWED) < total)
		say(c, OOM_CAUSE_FRACTION_CAP, 0.95,
		    "the message names an allowed share of the card");
	/* a size beyond any card is a subtraction below zero in the driver's or the allocator's
	 * unsigned numbers */
	if (total && (free_bytes > total || total > (uint64_t)16 << 40))
		say(c, OOM_CAUSE_WRONG_CAPACITY, 0.8,
		    "more is free than the card has, or no card has as much");
	/* Windows lends the host's memory before it refuses, and reports nothing free */
	if (total && num(c, OOM_CRASH_ALLOCATED) > total + total / 20 &&
	    c->known[OOM_CRASH_FREE] && !free_bytes) {
		say(c, OOM_CAUSE_TOO_LARGE, 0.65,
		    "more is allocated than the card has: Windows lent host memory, and that ran "
		    "out too");
		say(c, OOM_CAUSE_WRONG_CAPACITY, 0.4,
		    "or the driver reports a wrong capacity");
		return;
	}
	if (total && (num(c, OOM_CRASH_ALLOCATED) > total + total / 20 || total < 64 << 20))
		say(c, OOM_CAUSE_WRONG_CAPACITY, 0.6,
		    "more is allocated than the card is said to hold");
	if (tried > total && no_card_has(c, total))
		say(c, OOM_CAUSE_WRONG_CAPACITY, 0.98,
		    "no card has that capacity: an APU's share of the host's memory");
	if (total && tried > total)
		say(c, OOM_CAUSE_TOO_LARGE, 0.97, "the request alone is larger than the card");
	/* a card with a hundredth of it left is full: that much is in pieces, or the driver's
	 * own */
	if (c->known[OOM_CRASH_FREE] && c->known[OOM_CRASH_TRIED] && free_bytes > tried &&
	    free_bytes > total / 64) {
		/* Level Zero refuses single allocations above 4 GiB unless a kernel is compiled for
		 * them */
		if (!strcmp(c->framework, "torch-xpu") && tried >= 4 * GIB)
			say(c, OOM_CAUSE_BUFFER_LIMIT, 0.55,
			    "as much is free, but one allocation above 4 GiB is refused by this "
			    "driver");
		else if (total && tried > total / 3)
			say(c, OOM_CAUSE_TOO_LARGE, 0.6,
			    "the request is a third of the card or more");
		else if (meets_round_share(num(c, OOM_CRASH_RESERVED_TOTAL), tried, total))
			say(c, OOM_CAUSE_FRACTION_CAP, 0.6,
			    "memory is free, but the request crosses a round share of the card: "
			    "a cap set in the program");
		else
			say(c, OOM_CAUSE_UNKNOWN, 0.5,
			    "more is free than was asked for: the driver refused, or a cap");
		return;
	}
	/* what is only a difference of printed numbers may be this process's own context and
	 * libraries */
	if (away > 2 * GIB && (listed || away > total / 3) && away + free_bytes >= tried) {
		snprintf(why, sizeof(why), "%.2f GiB of the card are held outside this process",
			 (double)away / (double)GIB);
		say(c, OOM_CAUSE_OTHER_PROCESS, 0.85, why);
	}
	if (stranded && stranded >= tried && share >= 0.1) {
		snprintf(why, sizeof(why),
			 "%.2f GiB reserved but unallocated, %.0f %% of the card, against a "
			 "request of %.2f GiB",
			 (double)stranded / (double)GIB, 100 * share, (double)tried / (double)GIB);
		say(c, OOM_CAUSE_FRAGMENTATION,
		    share >= 0.2  ? 0.8 :
		    share >= 0.12 ? 0.65 :
				    0.55,
		    why);
	} else if (stranded && free_bytes + stranded >= tried && share >= 0.2) {
		say(c, OOM_CAUSE_FRAGMENTATION, 0.45,
		    "the free and the stranded memory together would hold the request");
	}
	if (total && free_bytes < tried)
		say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.85,
		    "the request exceeds what is free and stranded");
	else
		say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.7, "the request could not be met");
}

static void mps(struct oom_crash *c)
{
	const double max = (double)num(c, OOM_CRASH_TOTAL), other = (double)num(c, OOM_CRASH_OTHER),
		     tried = (double)num(c, OOM_CRASH_TRIED);

	if (max > 0 && other > 0.8 * max)
		say(c, OOM_CAUSE_OTHER_PROCESS, 0.7,
		    "other allocations hold most of the allowed memory");
	else if (max > 0 && other > 0.7 * max && tried < 0.01 * max)
		say(c, OOM_CAUSE_WATERMARK_CAP, 0.6, "a small request met the watermark");
	say(c, OOM_CAUSE_TOO_LARGE, c->n_causes ? 0.5 : 0.75, "the request exceeds the allowed memory");
}

/* Outputs pile up where batches are joined; a forward pass of an evaluation is as large as its
 * batch. */
static void evaluation(struct oom_crash *c, const char *begin, const char *at)
{
	static const char *const joins[] = {"nested_concat", "preds_host", "pad_and_concatenate",
					    "nested_gather", "all_preds",  "all_logits",
					    "distributed_concat"};

	static const char *const modules[] = {", in forward", " in forward(", ".forward("};

	for (size_t i = 0; i < sizeof(joins) / sizeof(joins[0]); i++)
		if (oom_text_find(begin, at, joins[i])) {
			say(c, OOM_CAUSE_EVAL_LOGITS, 0.85, "outputs of the batches are joined");
			return;
		}
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (oom_text_find(begin, at, modules[i])) {
			say(c, OOM_CAUSE_EVAL_LOGITS, 0.45,
			    "the crash is in a forward pass of the evaluation");
			return;
		}
	say(c, OOM_CAUSE_EVAL_LOGITS, 0.65, "the crash is in the evaluation loop");
}

/* A message without numbers beside an nvidia-smi table of a full card: before this process did any
 * work, it was others' who filled it. */
static void smi_says(struct oom_crash *c)
{
	const bool early = c->phase == OOM_CRASH_INIT || c->phase == OOM_CRASH_TO_DEVICE ||
			   c->phase == OOM_CRASH_LOAD;

	if (c->known[OOM_CRASH_TOTAL] || !strcmp(c->framework, "host") || !c->smi.total ||
	    (double)c->smi.used < 0.9 * (double)c->smi.total)
		return;
	say(c, OOM_CAUSE_OTHER_PROCESS, early ? 0.7 : 0.55, "nvidia-smi shows the card full");
}

void oom_decode_causes(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	c->n_causes = 0;
	if (named(c, begin, at, end))
		return;
	smi_says(c);
	if (c->phase == OOM_CRASH_EVAL)
		evaluation(c, begin, at);
	if (oom_text_find(begin, end, "skipping update") ||
	    oom_text_find(begin, end, "skipping batch") || c->ooms > 1)
		say(c, OOM_CAUSE_LONGEST_BATCH, 0.75,
		    "training recovered from it and went on: only some batches do not fit");
	if (c->phase == OOM_CRASH_OPTIMIZER)
		say(c, OOM_CAUSE_STEP_2, 0.4, "the optimizer's state is made in the first step");
	if (!strcmp(c->framework, "torch-mps")) {
		mps(c);
	} else if (!strncmp(c->framework, "torch", 5) && c->known[OOM_CRASH_TRIED] &&
		   !strstr(c->framework, "xla")) {
		cuda(c);
	} else if (!strcmp(c->format, "tf-device-driver")) {
		say(c, OOM_CAUSE_OTHER_PROCESS, 0.5,
		    "the pool takes what the card has when the program starts: somebody holds part "
		    "of it");
		say(c, OOM_CAUSE_NOT_OOM, 0.35,
		    "it asks for less and less until it gets something: by itself no failure");
	} else if (!strcmp(c->format, "cuda-nvml-assert")) {
		say(c, OOM_CAUSE_UNKNOWN, 0.5,
		    "memory ran out, and the numbers for the message could not be had from the "
		    "driver (NVML)");
		say(c, OOM_CAUSE_TOO_LARGE, 0.45,
		    "the allocator asks NVML only when the card has refused");
	} else if (c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] > (uint64_t)16 << 40) {
		say(c, OOM_CAUSE_TOO_LARGE, 0.8,
		    "no card has as much: a size that went below zero, or a shape gone wrong");
	} else if (!strcmp(c->framework, "ggml") &&
		   (oom_text_find(at, end, "allocate CPU") || oom_text_find(begin, at, "allocate CPU") ||
		    oom_text_find(begin, end, "backend_cpu_buffer_type_alloc_buffer: failed"))) {
		say(c, OOM_CAUSE_HOST_RAM, 0.8, "the buffer lies in the host's memory");
	} else if (!strcmp(c->framework, "onnxruntime") || !strcmp(c->framework, "rmm")) {
		say(c, OOM_CAUSE_UNKNOWN, 0.5, "the text does not say how much there was");
		say(c, OOM_CAUSE_TOO_LARGE, 0.45, "one request could not be met");
	} else if (c->known[OOM_CRASH_ALLOWED]) {
		say(c, OOM_CAUSE_FRACTION_CAP, 0.7, "the message names the limit that was set");
		say(c, OOM_CAUSE_TOO_LARGE, 0.5, "the request could not be met");
	} else if (strstr(c->format, "-cuda-error") || !strncmp(c->format, "cublas-", 7) || !strncmp(c->format, "cudnn-", 6) ||
		   !strncmp(c->format, "cusolver-", 9) || !strncmp(c->format, "cusparse-", 9) ||
		   !strncmp(c->format, "cufft-", 6) || strstr(c->format, "error-no-numbers") ||
		   !strcmp(c->format, "bitsandbytes-error")) {
		say(c, OOM_CAUSE_UNKNOWN, 0.5, "the text gives no numbers");
		say(c, OOM_CAUSE_TOO_LARGE, 0.4, "a library found no memory");
	} else if (!strcmp(c->framework, "jax") && c->known[OOM_CRASH_FREE] &&
		   c->known[OOM_CRASH_TRIED] &&
		   c->bytes[OOM_CRASH_FREE] >= c->bytes[OOM_CRASH_TRIED]) {
		say(c, OOM_CAUSE_FRAGMENTATION, 0.6,
		    "as much is free as was asked for, but not in one piece");
		say(c, OOM_CAUSE_TOO_LARGE, 0.4, "one request could not be met");
	} else if (!strcmp(c->framework, "jax") && c->known[OOM_CRASH_FREE]) {
		say(c, OOM_CAUSE_TOO_LARGE, 0.7, "less is free than was asked for");
	} else if (!strcmp(c->framework, "jax") ||
		   (!strcmp(c->framework, "tensorflow") && c->phase == OOM_CRASH_INIT)) {
		say(c, OOM_CAUSE_UNKNOWN, 0.5, "the text does not say how much there was");
		say(c, OOM_CAUSE_TOO_LARGE, 0.45, "one request could not be met");
	} else {
		say(c, OOM_CAUSE_TOO_LARGE, c->known[OOM_CRASH_TRIED] ? 0.75 : 0.6,
		    "the request could not be met");
	}
}
