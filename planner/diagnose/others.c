/* What other allocators, runtimes and monitors print. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* vLLM: "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory
 * utilization (0.95, 45.01 GiB)" */
static void free_of_total(struct oom_crash *c, const char *begin, const char *at,
			  const char *after, const char *end)
{
	const char *p = oom_text_find(oom_line_begin(begin, at), at, "(");
	char text[40];
	double part, whole;

	for (const char *q = p; q && (q = oom_text_find(q + 1, at, "(")); p = q)
		;
	if (p && sscanf(p, "(%lf/%lf GiB)", &part, &whole) == 2 && part >= 0 && part < 1e6 &&
	    whole >= 0 && whole < 1e6) {
		const int n = snprintf(text, sizeof(text), "%.2f GiB", part);

		oom_number_put(c, OOM_CRASH_FREE, (uint64_t)(part * 1073741824 + 0.5), text, text + n);
		oom_number_follows(c, OOM_CRASH_TOTAL, p, at, "/", false);
	}
	p = oom_text_find(after, end, "utilization (");
	p = p ? oom_text_find(p, end, ", ") : NULL;
	if (p)
		oom_number_follows(c, OOM_CRASH_TRIED, p, end, ", ", false);
}

/* The kernel's: "anon-rss:506500kB" */
static void anon_rss(struct oom_crash *c, const char *begin, const char *end)
{
	const char *after;
	uint64_t v;

	for (const char *p = begin; (p = oom_text_find(p, end, "anon-rss:")); p++)
		if (oom_number_at(p + 9, end, false, &v, &after) && v) {
			oom_number_put(c, OOM_CRASH_ALLOCATED, v, p, after);
			return;
		}
}

/* Ray's monitor: "was running was 219.41GB / 230.40GB (0.952289), which exceeds ..." */
static void ray_usage(struct oom_crash *c, const char *begin, const char *at)
{
	const char *line = oom_line_begin(begin, at), *p = NULL, *after;

	for (const char *q = line; (q = oom_text_find(q, at, "was ")); q++)
		p = q;
	if (!p)
		return;
	after = oom_number_follows(c, OOM_CRASH_ALLOCATED, p, at, "was ", false);
	if (after)
		oom_number_follows(c, OOM_CRASH_TOTAL, after, at, "/", false);
}

/* TensorFlow's own pool: "failed to allocate 7.35G (7889485824 bytes) from device:
 * CUDA_ERROR_OUT_OF_MEMORY" */
static void driver_pool(struct oom_crash *c, const char *begin, const char *at)
{
	const char *p = oom_text_find(oom_line_begin(begin, at), at, "failed to allocate");

	p = p ? oom_text_find(p, at, "(") : NULL;
	if (p)
		oom_number_follows(c, OOM_CRASH_TRIED, p, at + 5, "(", false);
}

/* Ray before 2.0: "More than 95% of the memory on node X is used (11.8 / 12.3 GB)." */
static void node_usage(struct oom_crash *c, const char *at, const char *end)
{
	const char *p = oom_text_find(at, end, "is used ("), *slash;
	double part, whole;
	char text[40];
	int n;

	if (!p || sscanf(p + 9, "%lf / %lf GB", &part, &whole) != 2 || !(part >= 0 && part < 1e6) ||
	    !(whole >= 0 && whole < 1e6))
		return;
	slash = oom_text_find(p, end, "/");
	n = snprintf(text, sizeof(text), "%.*s GB", (int)strspn(p + 9, "0123456789."), p + 9);
	oom_number_put(c, OOM_CRASH_ALLOCATED, (uint64_t)(part * 1073741824 + 0.5), text, text + n);
	if (slash)
		oom_number_follows(c, OOM_CRASH_TOTAL, slash, end, "/", false);
}

/* Of one program each. */
static void numbers_of_format(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *format, *word;
		enum oom_crash_number number;
		bool bare;
	} rows[] = {
		{"physx-memory", "allocate memory", OOM_CRASH_TRIED, true},
		{"onnxruntime-arena", "requested buffer of size", OOM_CRASH_TRIED, true},
		{"mps-buffer-size", "buffer size:", OOM_CRASH_TRIED, false},
		{"cupy", "out of memory to allocate", OOM_CRASH_TRIED, false},
		{"cupy", "allocated so far:", OOM_CRASH_ALLOCATED, false},
		{"cupy", "(total", OOM_CRASH_ALLOCATED, false},
		{"faiss-alloc", "Device free memory:", OOM_CRASH_FREE, false},
		{"cupy", "limit set to:", OOM_CRASH_ALLOWED, false},
		{"paddle", "available failed,", OOM_CRASH_TRIED, true},
		{"host-alloc", "Fail to alloc memory of", OOM_CRASH_TRIED, true},
		{"paddle", "available memory is", OOM_CRASH_FREE, false},
		{"tensorrt", "of GPU memory (", OOM_CRASH_TRIED, false},
		{"tensorrt", "on requested size of", OOM_CRASH_TRIED, true},
		{"hpu-devmem", "for size::", OOM_CRASH_TRIED, true},
		{"npu-rtmalloc", "size:", OOM_CRASH_TRIED, true},
		{"mlx-", "allocate", OOM_CRASH_TRIED, true},
		{"mlx-", "buffer size of", OOM_CRASH_ALLOWED, true},
		{"mindspore-alloc", "alloc size:", OOM_CRASH_TRIED, true},
		{"mindspore-alloc", "total:", OOM_CRASH_TOTAL, false},
		{"openvino-buffer-limit", "requested", OOM_CRASH_TRIED, true},
		{"openvino-buffer-limit", "by device is", OOM_CRASH_ALLOWED, true},
		{"ggml-vulkan", "allocation of size", OOM_CRASH_TRIED, true},
		{"ggml-cpu", "attempted to allocate", OOM_CRASH_TRIED, false},
		{"ggml-pool", "(needed", OOM_CRASH_TRIED, true},
		{"ggml-pool", "available", OOM_CRASH_FREE, true},
		{"ggml-pool", "block available", OOM_CRASH_FREE, true},
		{"ollama-system-memory", "memory (", OOM_CRASH_TRIED, false},
		{"ollama-system-memory", "available (", OOM_CRASH_FREE, false},
		{"xla-early-abort", "Requires", OOM_CRASH_TRIED, false},
		{"xla-early-abort", "has", OOM_CRASH_TOTAL, false},
		{"directml", "tensor with", OOM_CRASH_TRIED, true},
		{"rust-alloc", "memory allocation of", OOM_CRASH_TRIED, true},
		{"xgboost", "Free memory:", OOM_CRASH_FREE, true},
		{"xgboost", "Requested memory:", OOM_CRASH_TRIED, true},
		{"mps-no-buffer", "for size", OOM_CRASH_TRIED, true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strncmp(c->format, rows[i].format, strlen(rows[i].format)))
			oom_number_follows(c, rows[i].number, at, end, rows[i].word, rows[i].bare);
}

static void read_driver_pool(struct oom_crash *c, const struct oom_excerpt *p)
{
	driver_pool(c, p->begin, p->at);
	if (c->gpu_index < 0)
		oom_gpu_index(c, p->begin, p->at);
}

static void read_ray(struct oom_crash *c, const struct oom_excerpt *p)
{
	ray_usage(c, p->begin, p->at);
	node_usage(c, p->after, p->stop);
}

static void read_tf_host(struct oom_crash *c, const struct oom_excerpt *p)
{
	const char *const line = oom_line_begin(p->begin, p->at);

	oom_number_follows(c, OOM_CRASH_TRIED, line, p->at + 5, "failed to alloc", false);
	oom_number_follows(c, OOM_CRASH_TRIED, line, p->at, "Allocation of", true);
}

static void read_paddle(struct oom_crash *c, const struct oom_excerpt *p)
{
	if (oom_text_find(p->after, p->stop, "available failed,"))
		oom_number_follows(c, OOM_CRASH_FREE, p->after, p->stop, " > ", true);
}

static void read_numpy(struct oom_crash *c, const struct oom_excerpt *p)
{
	oom_number_of_numpy_shape(c, p->after, p->stop);
}

static void read_tensorflow(struct oom_crash *c, const struct oom_excerpt *p)
{
	oom_number_of_tf_shape(c, p->after, p->stop);
	oom_number_follows(c, OOM_CRASH_TOTAL, p->begin, p->at, "Limit:", true);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, p->begin, p->at, "InUse:", true);
	oom_number_follows(c, OOM_CRASH_TOTAL, p->after, p->stop, "Limit:", true);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, p->after, p->stop, "InUse:", true);
}

static void read_kernel(struct oom_crash *c, const struct oom_excerpt *p)
{
	/* the line that names the victim, then what follows, then what stood before */
	anon_rss(c, oom_line_begin(p->begin, p->at), oom_line_end(p->at, p->end));
	anon_rss(c, p->after, p->stop);
	anon_rss(c, p->begin, p->at);
}

/* Faiss: "alloc fail type FlatData dev 2 space Device stream 0 size 2764800000 bytes (cudaMalloc error", on lines
 * that a page broke; before 1.7 "failed to cudaMalloc 47064032 bytes (error 2 out of memory)". */
static void read_faiss(struct oom_crash *c, const struct oom_excerpt *p)
{
	char flat[512];
	const char *const from = p->at - p->begin > 300 ? p->at - 300 : p->begin;
	const char *const stop = flat + oom_text_flatten(from, from, p->at, flat, sizeof(flat));

	oom_number_follows(c, OOM_CRASH_TRIED, flat, stop, "cudaMalloc", false);
	oom_number_follows(c, OOM_CRASH_TRIED, flat, stop, " size ", false);
	oom_number_follows(c, OOM_CRASH_TRIED, p->after, p->stop, " size ", false);
}

/* TensorRT-LLM: "Total GPU memory (GiB): 140.06": the unit stands before the number. */
static void gib_behind(struct oom_crash *c, enum oom_crash_number k, const struct oom_excerpt *x, const char *word)
{
	const char *const p = oom_text_find(x->at, x->end, word);
	char *stop, text[32];
	double gib;

	if (!p)
		return;
	gib = strtod(p + strlen(word), &stop);
	if (stop == p + strlen(word) || !(gib >= 0 && gib < 1e6))
		return;
	snprintf(text, sizeof(text), "%.2f GiB", gib);
	oom_number_put(c, k, (uint64_t)(gib * 1073741824 + 0.5), text, text + strlen(text));
}

/* MindSpore 2.3: "TotalUsedMemStatistics : 29 plus ... plus alloc size : 30 is more than total mem size : 31" */
static void read_mindspore(struct oom_crash *c, const struct oom_excerpt *p)
{
	const char *const line = oom_line_begin(p->begin, p->at);

	oom_number_follows(c, OOM_CRASH_ALLOCATED, line, p->at, "TotalUsedMemStatistics :", true);
	oom_number_follows(c, OOM_CRASH_TRIED, line, p->at, "alloc size :", true);
	oom_number_follows(c, OOM_CRASH_TOTAL, p->after, p->stop, "total mem size :", true);
}

static void read_executor(struct oom_crash *c, const struct oom_excerpt *p)
{
	gib_behind(c, OOM_CRASH_TOTAL, p, "Total GPU memory (GiB):");
	gib_behind(c, OOM_CRASH_FREE, p, "component creation attempt (GiB):");
}

static void read_current_device(struct oom_crash *c, const struct oom_excerpt *p)
{
	const char *const device = oom_text_find(p->after, p->stop, "current device: ");

	if (device)
		c->gpu_index = strtol(device + 16, NULL, 10);
}

static void read_share(struct oom_crash *c, const struct oom_excerpt *p)
{
	if (c->gpu_index < 0)
		oom_gpu_index(c, oom_line_begin(p->begin, p->at), p->at);
	free_of_total(c, p->begin, p->at, p->after, p->stop);
}

static void read_kv_budget(struct oom_crash *c, const struct oom_excerpt *p)
{
	const char *line = oom_line_begin(p->begin, p->at);

	/* a narrow page broke the sentence */
	for (int n = 0; n < 2 && line > p->begin && !oom_text_find(line, p->at, "GiB"); n++)
		line = oom_line_begin(p->begin, line - 1);
	oom_number_precedes(c, OOM_CRASH_TRIED, line, p->at, " KV cach");
	oom_number_follows(c, OOM_CRASH_FREE, p->after, p->stop, "available KV cache memory (", false);
}

/* TensorRT-LLM: "Max tokens in paged KV cache: 1280. Allocating 671088640 bytes.", some lines before the runtime's error. */
static void read_trtllm(struct oom_crash *c, const struct oom_excerpt *p)
{
	const char *const said = oom_text_last(p->begin, p->at, ". Allocating ");

	if (said && p->at - said < 2500)
		oom_number_follows(c, OOM_CRASH_TRIED, said, oom_line_end(said, p->at), ". Allocating ", true);
}

/* TensorRT says the size in a warning of its own, between errors without one. */
static void read_tensorrt(struct oom_crash *c, const struct oom_excerpt *p)
{
	const char *const said = oom_text_last(p->begin, p->at, "amount of GPU memory (");

	if (said && p->at - said < 800)
		oom_number_follows(c, OOM_CRASH_TRIED, said, p->at, "of GPU memory (", true);
}

/* The tensor's own size, before that of a later message. */
static void read_tf_tensor(struct oom_crash *c, const struct oom_excerpt *p)
{
	oom_number_of_tf_shape(c, p->after, p->stop);
}

/* Numbers before the general words are asked for, and after them. */
struct reader {
	const char *format;     /* its beginning; NULL: any */
	unsigned runtime;       /* traits; 0: any */
	void (*read)(struct oom_crash *c, const struct oom_excerpt *p);
};
static const struct reader first[] = {
	{"tf-device-driver", 0, read_driver_pool}, {"ray-oom", 0, read_ray}, {"tf-host-", 0, read_tf_host}, {"tf-oom-tensor", 0, read_tf_tensor},
	{NULL, OOM_RUNTIME_EXECUTABLE, oom_xla_line}, {"paddle", 0, read_paddle}, {NULL, 0, NULL}};
static const struct reader then[] = {
	{"xla-tpu-hbm", 0, oom_xla_hbm}, {"numpy-memory-error", 0, read_numpy}, {NULL, OOM_RUNTIME_GRAPH, read_tensorflow},
	{NULL, OOM_RUNTIME_EXECUTABLE, oom_xla_pool}, {"tf-bfc-dump", 0, oom_xla_dump},
	{"kernel-oom-kill", 0, read_kernel}, {"oom-kill", 0, read_kernel}, {"ggml-cuda-error", 0, read_current_device},
	{"ggml-cuda", 0, oom_read_ggml}, {"ggml-buffer", 0, oom_read_ggml_buffer}, {"ggml-vulkan", 0, oom_read_ggml_buffer},
	{"cuda-memory-summary", 0, oom_summary_numbers},
	{"tensorrt", 0, read_tensorrt}, {"faiss-alloc", 0, read_faiss}, {"mindspore-alloc", 0, read_mindspore}, {"trtllm-executor", 0, read_executor}, {"trtllm-cuda", 0, read_trtllm},
	{"vllm-free-memory", 0, read_share}, {"vllm-kv-budget", 0, read_kv_budget}, {NULL, 0, NULL}};

static void read_all(struct oom_crash *c, const struct reader *r, const struct oom_excerpt *p)
{
	const unsigned runtime = oom_runtime_named(c->framework)->traits;

	for (; r->read; r++)
		if ((!r->format || !strncmp(c->format, r->format, strlen(r->format))) &&
		    (!r->runtime || (r->runtime & runtime)))
			r->read(c, p);
}

/* begin..end_of_text: the text around the trigger at "at"; after..end: what follows it, in one
 * line. */
void oom_other_numbers(struct oom_crash *c, const char *begin, const char *at,
		       const char *end_of_text, const char *after, const char *end)
{
	static const char *const asks[] = {"you tried to allocate",
					   "while trying to allocate",
					   "trying to allocate",
					   "Attempting to allocate",
					   "attempting to allocate",
					   "Attempting to reserve",
					   "Failed to allocate request for",
					   "Failed to allocate",
					   "cuMemAllocAsync failed to allocate",
					   "Unable to allocate",
					   "Out of memory allocating",
					   "Cannot allocate",
					   "(rounded to",
					   "unable to mmap",
					   "Requested size was",
					   "Failed to CUDA calloc async",
					   "Failed to CUDA calloc"};
	const struct oom_excerpt p = {begin, at, end_of_text, after, end};

	read_all(c, first, &p);
	numbers_of_format(c, after, end);
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
		oom_number_follows(c, OOM_CRASH_TRIED, after, end, asks[i], false);
	read_all(c, then, &p);
	oom_number_precedes(c, OOM_CRASH_ALLOCATED, after, end, " memory has been allocated");
	oom_number_follows(c, OOM_CRASH_FREE, after, end, "available memory is only", false);
	/* "and leaves about 30G free": another program's, as people tell it */
	if (!oom_text_find(after, end, "leave")) {
		oom_number_precedes(c, OOM_CRASH_FREE, after, end, " free.");
		oom_number_precedes(c, OOM_CRASH_FREE, after, end, " free,");
	}
	oom_gpu_index(c, after, end);
	oom_xla_program(c, &p);
}
