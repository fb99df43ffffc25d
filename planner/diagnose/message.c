/* One message: its numbers, and the names around it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"
#include "read_parts.h"

static bool name_char(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
	       ch == '.' || ch == '_';
}

/* The class before the last colon in front of the message: "torch.OutOfMemoryError: CUDA ..." */
static void exception_of(struct oom_crash *c, const char *begin, const char *at)
{
	int lines = 0;

	/* the message may be found by the class itself */
	while (*at && name_char(*at) && at[1] && name_char(at[1]))
		at++;
	at += *at && at[1] == ':';
	for (const char *p = at; p > begin && lines < 16 && at - p < 900; p--) {
		const char *word = p;

		lines += p[-1] == '\n';
		if (*p != ':' || p - begin < 6 ||
		    (memcmp(p - 5, "Error", 5) &&
		     (p - begin < 10 || memcmp(p - 9, "Exception", 9)) &&
		     (p - begin < 14 || memcmp(p - 13, "EnforceNotMet", 13))))
			continue;
		while (word > begin && name_char(word[-1]))
			word--;
		/* "Error: ..." is no class: what stands before it may be one */
		if (p - word > 5 || !*c->exception)
			snprintf(c->exception, sizeof(c->exception), "%.*s", (int)(p - word), word);
		if (p - word > 5)
			return;
	}
}

/* "[rank1]:", "rank 3:", "Rank 0:" nearest before the message */
static void rank_of(struct oom_crash *c, const char *begin, const char *at)
{
	for (const char *p = at; p > begin && at - p < 400; p--)
		/* the bracket may have been cut off with what stood before it */
		if (*p >= '0' && *p <= '9' &&
		    ((p - begin >= 5 && !memcmp(p - 5, "[rank", 5)) || (p - begin == 4 && !memcmp(p - 4, "rank", 4)))) {
			c->rank = strtol(p, NULL, 10);
			return;
		}
}

/* Behind blanks and "|". */
static const char *next_cell(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '|'))
		p++;
	return p;
}

/* nvidia-smi's table: "| 30%   45C    P2   70W / 300W |  21034MiB / 24564MiB |" and
 * "|    0   N/A  N/A      4711      C   python            21034MiB |". */
static void smi_line(struct oom_crash *c, const char *line, const char *stop)
{
	const char *p = next_cell(line, stop), *mib = oom_text_find(p, stop, "MiB"), *after, *type;
	uint64_t bytes, total;

	if (!mib || line == stop || *line != '|')
		return;
	for (p = mib; p > line && p[-1] >= '0' && p[-1] <= '9';)
		p--;
	if (!oom_number_at(p, stop, false, &bytes, &after))
		return;
	after = next_cell(after, stop);
	if (after < stop && *after == '/' && oom_number_at(after + 1, stop, false, &total, &after)) {
		if (bytes >= c->smi.used) {
			c->smi.used = bytes;
			c->smi.total = total;
		}
		return;
	}
	type = oom_text_find(line, p, " C ");
	if (!type || bytes <= c->smi.process_bytes)
		return;
	for (p = type; p > line && p[-1] == ' ';)
		p--;
	while (p > line && p[-1] >= '0' && p[-1] <= '9')
		p--;
	c->smi.pid = strtoll(p, NULL, 10);
	c->smi.process_bytes = bytes;
	p = next_cell(type + 3, stop);
	snprintf(c->smi.name, sizeof(c->smi.name), "%.*s", (int)strcspn(p, " |\n"), p);
}

static void smi_block(struct oom_crash *c, const char *begin, const char *end)
{
	if (!oom_text_find(begin, end, "MiB |"))
		return;
	for (const char *p = begin; p < end;) {
		const char *const stop = oom_line_end(p, end);

		smi_line(c, p, stop);
		p = stop < end ? stop + 1 : end;
	}
}

/* vLLM says which length would have fitted; ZeRO how many parameters' states a rank makes: "partition
 * count [1] and sizes[(6049711186, False)]" (deepspeed/runtime/zero/stage_1_and_2.py). */
static void advice(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	static const char *const words[] = {"estimated maximum model length is ", "stored in KV cache ("};
	const char *p;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		p = oom_text_find(oom_line_begin(begin, at), end, words[i]);
		if (p && !c->advised_tokens)
			c->advised_tokens = strtoull(p + strlen(words[i]), NULL, 10);
	}
	/* a page may have broken the line before the sizes */
	p = oom_text_find(at - begin > 200 ? at - 200 : begin, end, "max seq len (");
	c->asked_tokens = p ? strtoull(p + strlen("max seq len ("), NULL, 10) : 0;
	/* SGLang: "Raise --mem-fraction-static above 0.912", on a line that a page may have broken */
	p = oom_text_find(at, end - at > 400 ? at + 400 : end, "mem-fraction-static above ");
	c->advised_share = p ? strtod(p + strlen("mem-fraction-static above "), NULL) : 0;
	p = oom_text_find(at, oom_line_end(at, end), "enough memory to handle ");
	c->prefill_tokens = p ? strtoull(p + strlen("enough memory to handle "), NULL, 10) : 0;
	p = oom_text_find(begin, at, "] and sizes[(");
	if (p)
		c->host_states = strtoull(p + 13, NULL, 10);
}

/* A wrapper that names another cause than the allocator's message it repeats. */
static void rename_wrapped(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *format, *word, *framework, *name;
	} rows[] = {
		{"python-memory-error", "Unable to allocate", "host", "numpy-memory-error"},
		{"cuda", "occurred when warming up sampler", "vllm", "vllm-sampler-warmup"},
		{"ggml-cuda", "pooled_storage_manager", "mxnet", "mxnet"},
		{"cuda-error-no-numbers", "ggml-cuda", "ggml", "ggml-cuda-error"},
		{"cuda-error-no-numbers", "mindspore", "mindspore", "cuda-error-no-numbers"},
		{"cuda-error-no-numbers", "tensorrt_llm", "tensorrt-llm", "trtllm-cuda-error"},
		{"cuda-error-no-numbers", "turbomind", "lmdeploy", "turbomind-cuda-error"},
		{"hip-error-no-numbers", "ggml-cuda", "ggml", "ggml-cuda-error"},
		{"xpu-error-no-numbers", "ggml-sycl", "ggml", "ggml-sycl-error"},
		{"xla-resource-exhausted", "/xla_run}}", "tensorflow", "xla-resource-exhausted"},
		{"xla-resource-exhausted", "XRTExecute", "torch-xla", "xla-resource-exhausted"},
		{"xla-resource-exhausted", "From /job:tpu_worker", "torch-xla", "xla-resource-exhausted"},
		{"xla-resource-exhausted", "OOM when allocating tensor", "tensorflow",
		 "tf-oom-tensor"},
	};
	const char *const stop = end - at > 240 ? at + 240 : end;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(c->format, rows[i].format) && oom_text_find(at, stop, rows[i].word)) {
			snprintf(c->framework, sizeof(c->framework), "%s", rows[i].framework);
			snprintf(c->format, sizeof(c->format), "%s", rows[i].name);
			return;
		}
}

/* Words of more than one runtime: the first row whose runtime's trait is theirs and whose word the text holds. A
 * TPU's compiler serves PyTorch and JAX; XlaRuntimeError is jaxlib's class. */
static void rename_by_text(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	static const struct {
		unsigned runtime;
		const char *word, *framework;   /* NULL: it is who its words say */
	} rows[] = {
		{OOM_RUNTIME_EXECUTABLE, "torch_xla", "torch-xla"}, {OOM_RUNTIME_EXECUTABLE, "xla_client/xla_util", "torch-xla"},
		{OOM_RUNTIME_EITHER_XLA, "torch_xla", NULL}, {OOM_RUNTIME_EITHER_XLA, "XRT", NULL},
		{OOM_RUNTIME_EITHER_XLA, "XlaRuntimeError", "jax"}, {OOM_RUNTIME_EITHER_XLA, "jaxlib", "jax"},
		{OOM_RUNTIME_EITHER_XLA, "JaxRuntimeError", "jax"}, {OOM_RUNTIME_EITHER_XLA, "import jax", "jax"},
		{OOM_RUNTIME_EITHER_XLA, "/jax/", "jax"},
		{OOM_RUNTIME_NOBODYS, "ggml_", "ggml"}, {OOM_RUNTIME_NOBODYS, "ollama", "ggml"}, {OOM_RUNTIME_NOBODYS, "llama.cpp", "ggml"}, {OOM_RUNTIME_NOBODYS, "gguf", "ggml"}, {OOM_RUNTIME_NOBODYS, "torch.", "torch"}, {OOM_RUNTIME_NOBODYS, "/torch/", "torch"},
		{OOM_RUNTIME_NOBODYS, "loss.backward()", "torch"}, {OOM_RUNTIME_NOBODYS, "import jax", "jax"}, {OOM_RUNTIME_NOBODYS, "jaxlib", "jax"},
		{OOM_RUNTIME_NOBODYS, "deepspeed", "torch"}, {OOM_RUNTIME_NOBODYS, "sglang", "torch"}, {OOM_RUNTIME_NOBODYS, "vllm", "torch"},
		{OOM_RUNTIME_NOBODYS, "diffusers", "torch"}, {OOM_RUNTIME_NOBODYS, "llmcompressor", "torch"}, {OOM_RUNTIME_NOBODYS, "AutoModel", "torch"},
		{OOM_RUNTIME_NOBODYS, "verl", "torch"}, {OOM_RUNTIME_NOBODYS, "DeepSpeed", "torch"}, {OOM_RUNTIME_NOBODYS, "bitsandbytes", "torch"},
		{OOM_RUNTIME_NOBODYS, "RayActor", "torch"}, {OOM_RUNTIME_NOBODYS, "PyTorch", "torch"}, {OOM_RUNTIME_NOBODYS, "LLM", "torch"}, {OOM_RUNTIME_NOBODYS, "Qwen", "torch"}, {OOM_RUNTIME_NOBODYS, "openrlhf", "torch"}, {OOM_RUNTIME_NOBODYS, "peft", "torch"}, {OOM_RUNTIME_NOBODYS, "lora", "torch"}, {OOM_RUNTIME_NOBODYS, "LoRA", "torch"},
		{OOM_RUNTIME_NOBODYS, "accelerate launch", "torch"}, {OOM_RUNTIME_NOBODYS, "transformers", "torch"},
		{OOM_RUNTIME_NOBODYS, "mlx", "mlx"}, {OOM_RUNTIME_NOBODYS, "MLX", "mlx"}, {OOM_RUNTIME_NOBODYS, "nsloth", "torch"}, {OOM_RUNTIME_NOBODYS, "GRPO", "torch"}, {OOM_RUNTIME_NOBODYS, "grpo", "torch"},
		{OOM_RUNTIME_NOBODYS, "Trainer", "torch"}, {OOM_RUNTIME_NOBODYS, "trainer.py", "torch"},
		/* whoever has batches or epochs learns, on a runtime that is named or on the one that most use */
		{OOM_RUNTIME_NOBODYS, "tensorflow", "tensorflow"}, {OOM_RUNTIME_NOBODYS, "mxnet", "mxnet"}, {OOM_RUNTIME_NOBODYS, "caffe", "caffe"},
		{OOM_RUNTIME_NOBODYS, "darknet", "cuda"}, {OOM_RUNTIME_NOBODYS, "batch size", "torch"}, {OOM_RUNTIME_NOBODYS, "batch_size", "torch"},
		{OOM_RUNTIME_NOBODYS, " epoch", "torch"}, {OOM_RUNTIME_NOBODYS, "train.py", "torch"},
		{OOM_RUNTIME_NOBODYS, "CUDA", "cuda"}, {OOM_RUNTIME_NOBODYS, "cuda", "cuda"},
	};

	if (oom_runtime_is(c, OOM_RUNTIME_NOBODYS) && oom_speaks_of_host(begin, at, end)) {
		strcpy(c->framework, "host");
		strcpy(c->format, "host-alloc");
		return;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (oom_runtime_is(c, rows[i].runtime) && oom_text_find(begin, end, rows[i].word)) {
			if (rows[i].framework)
				snprintf(c->framework, sizeof(c->framework), "%s", rows[i].framework);
			return;
		}
}

/* "openmm.OpenMMException: ... CUDA_ERROR_OUT_OF_MEMORY": a class of somebody else's package, in a text without PyTorch, is no
 * program of PyTorch's. */
static void rename_by_class(struct oom_crash *c, const char *begin, const char *end)
{
	if (oom_format_is(c, OOM_FORMAT_BARE) && !strcmp(c->format, "cuda-error-no-numbers") && strchr(c->exception, '.') &&
	    !strstr(c->exception, "torch") && !oom_text_find(begin, end, "torch"))
		snprintf(c->framework, sizeof(c->framework), "%s", "cuda");
}

/* TensorFlow's own kernels log words that JAX prints too; what JAX took over of TensorFlow lies under external/. */
static void rename_by_logger(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *const line = oom_line_begin(begin, at), *const kernel = oom_text_find(line, oom_line_end(at, end), "tensorflow/core/framework/");

	if (strcmp(c->format, "xla-resource-exhausted") || !kernel || (kernel > line && kernel[-1] == '/'))
		return;
	snprintf(c->framework, sizeof(c->framework), "%s", "tensorflow");
	snprintf(c->format, sizeof(c->format), "%s", "tf-oom-tensor");
}

static bool of_torch(const struct oom_crash *c)
{
	return oom_format_is(c, OOM_FORMAT_SENTENCE) && oom_runtime_is(c, OOM_RUNTIME_TORCH);
}

/* A terminal broke the sentence after so many letters, wherever they stood: "Of the alloc|ated memory". */
static void broken_words(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	char flat[2 << 10];
	struct oom_crash tight = *c;

	if (!c->known[OOM_CRASH_TRIED] ||
	    (c->known[OOM_CRASH_ALLOCATED] && c->known[OOM_CRASH_FREE] == c->known[OOM_CRASH_TOTAL]))
		return;
	tight.n_processes = 0;
	oom_torch_numbers(&tight, flat, flat + oom_text_flatten_tight(begin, at, end, flat, sizeof(flat)));
	if (tight.known[OOM_CRASH_ALLOCATED] && tight.known[OOM_CRASH_FREE] >= c->known[OOM_CRASH_FREE] &&
	    tight.known[OOM_CRASH_TOTAL] >= c->known[OOM_CRASH_TOTAL])
		*c = tight;
}

/* A request that is reported and then raised again without its numbers: those of the first report,
 * when it asked for the same. */
static void said_before(struct oom_crash *c, const char *begin, const char *at)
{
	static const char ask[] = "Tried to allocate";
	const char *first = NULL;
	struct oom_crash full;
	char flat[2 << 10];

	if (!c->known[OOM_CRASH_TRIED] || c->known[OOM_CRASH_TOTAL])
		return;
	for (const char *p = begin; (p = oom_text_find(p, at, ask)); p++)
		first = p;
	if (!first)
		return;
	full = *c;
	memset(full.known, 0, sizeof(full.known));
	oom_torch_numbers(&full, flat, flat + oom_text_flatten(begin, first, at, flat, sizeof(flat)));
	if (full.known[OOM_CRASH_TOTAL] &&
	    full.bytes[OOM_CRASH_TRIED] == c->bytes[OOM_CRASH_TRIED])
		*c = full;
}

/* Wrappers turn the sentence around: the card's line right before the request's. */
static void said_above(struct oom_crash *c, const char *begin, const char *at)
{
	const char *line = oom_line_begin(begin, at), *from = line;
	char flat[512];

	if (!c->known[OOM_CRASH_TRIED] || c->known[OOM_CRASH_TOTAL] || line == begin)
		return;
	from = oom_line_begin(begin, line - 1);
	if (!oom_text_find(from, line, "total capacity") || oom_text_find(from, line, "Tried to"))
		return;
	oom_torch_numbers(c, flat, flat + oom_text_flatten(begin, from, line, flat, sizeof(flat)));
}

/* vLLM's profile: "the current vLLM instance can use total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.70) =
 * 5.60GiB" and "model weights take 5.20GiB; ...; the rest of the memory reserved for KV Cache is -1.05GiB." */
static void budget(struct oom_crash *c, const char *begin, const char *at)
{
	static const char *const starts[] = {"can use total_gpu_memory", "model weights take"};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		const char *const p = oom_text_last(begin, at, starts[i]);
		const size_t m = p ? (size_t)(oom_line_end(p, at) - p) : 0;

		if (m && n + m + 3 < sizeof(c->budget))
			n += (size_t)snprintf(c->budget + n, sizeof(c->budget) - n, "%s%.*s", n ? "; " : "", (int)m, p);
	}
	/* the weights' line is the one that tells */
	if (!n)
		c->budget[0] = 0;
}

/* The line that says so, right behind a refusal. */
static void went_on(struct oom_crash *c, const char *at, const char *end)
{
	static const char *const words[] = {"etrying", "alling back to", "alling back on", "kipping tactic"};
	const char *const line = oom_line_end(at, end), *const stop = end - line > 500 ? line + 500 : end;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const char *const p = oom_text_find(line, stop, words[i]);
		const char *from = p;

		while (from && from > line && from[-1] != ' ' && from[-1] != '\n')
			from--;
		if (p)
			snprintf(c->went_on, sizeof(c->went_on), "%.*s", (int)(oom_line_end(p, stop) - from), from);
		if (p)
			return;
	}
}

void oom_decode_numbers(struct oom_crash *c, const struct oom_trigger *t, const char *begin,
			const char *at, const char *end)
{
	/* what follows a trigger is at most a window's end long: read.c */
	char flat[8 << 10];
	const char *const stop = flat + oom_text_flatten(begin, at, end, flat, sizeof(flat));

	memset(c, 0, sizeof(*c));
	c->gpu_index = c->rank = -1;
	c->strength = t->strength;
	snprintf(c->framework, sizeof(c->framework), "%s", t->framework);
	snprintf(c->format, sizeof(c->format), "%s", t->format);
	if (!oom_format_is(c, OOM_FORMAT_FOREIGN))
		exception_of(c, begin, at);
	rank_of(c, begin, at + 1);
	rename_wrapped(c, oom_format_is(c, OOM_FORMAT_NAMED_ON_LINE) ? oom_line_begin(begin, at) : at, end);
	rename_by_text(c, begin, at, end);
	rename_by_class(c, begin, end);
	rename_by_logger(c, begin, at, end);
	if (of_torch(c)) {
		oom_torch_numbers(c, flat, stop);
		broken_words(c, begin, at, end);
		said_before(c, begin, at);
		said_above(c, begin, at);
		oom_torch_format(c, flat, stop);
	} else {
		oom_other_numbers(c, begin, at, end, flat, stop);
	}
	if (oom_format_is(c, OOM_FORMAT_KERNEL_OR_SLURM))
		snprintf(c->format, sizeof(c->format), "%s",
			 oom_text_find(begin, end, "slurm") ? "slurm-oom-kill" : "kernel-oom-kill");
	oom_summary_counters(c, begin, end);
	advice(c, begin, at, end);
	smi_block(c, begin, end);
	budget(c, begin, at);
	if (!oom_runtime_is(c, OOM_RUNTIME_HOST))
		went_on(c, at, end);
}
