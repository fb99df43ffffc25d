/* How many of a model's layers fit the card: what llama.cpp and Ollama print of a model, of the device and of what they were
 * told, before the weights were refused. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

static const double MIB = 1048576.0;

/* More than any card, model or context has: a text may say any number. */
static const double MOST_MIB = 1e9, MOST_LAYERS = 10000, MOST_WIDTH = 1e6, MOST_TOKENS = 1e9;

/* The number behind the word and what stands between, on its line; negative: there is none. */
static double number_behind(const char *begin, const char *end, const char *word)
{
	const char *p = oom_text_last(begin, end, word);

	if (!p)
		return -1;
	for (p += strlen(word); p < end && strchr(" =:\"'[", *p);)
		p++;
	return p < end && (isdigit((unsigned char)*p) || (*p == '-' && p + 1 < end && isdigit((unsigned char)p[1]))) ? strtod(p, NULL) : -1;
}

/* "using device CUDA0 (NVIDIA GeForce RTX 3060) - 11910 MiB free" (llama_model_load_from_file_impl in src/llama.cpp); of
 * several, which holds which layers is not said. */
static double free_of_one(const char *begin, const char *end)
{
	static const char word[] = "using device ", unit[] = " MiB free";
	double mib = 0;
	size_t n = 0;

	for (const char *p = begin; (p = oom_text_find(p, end, word)); p++) {
		const char *const stop = oom_text_find(p, oom_line_end(p, end), unit), *q = stop;

		while (q && q > p && isdigit((unsigned char)q[-1]))
			q--;
		if (!q || q == stop)
			continue;
		mib = strtod(q, NULL);
		n++;
	}
	return n == 1 && mib < MOST_MIB ? mib * MIB : 0;
}

/* Ollama: memory.available="[22.8 GiB]" beside layers.offload=41, of one card. */
static double available(const char *begin, const char *end)
{
	static const char word[] = "memory.available=\"[";
	const char *const p = oom_text_last(begin, end, word), *const to = p ? oom_line_end(p, end) : NULL;
	char *unit;
	double v;

	if (!p)
		return 0;
	v = strtod(p + strlen(word), &unit);
	return unit + 5 < to && !memcmp(unit, " GiB]", 5) && v > 0 && v * 1024 < MOST_MIB ? v * 1024 * MIB : 0;
}

/* As many as the command, the call or Ollama's log says; all that there are, where it says more or nothing. */
static double asked(const char *begin, const char *end, double all)
{
	static const char *const options[] = {"layers.offload", "-ngl ", "--n-gpu-layers ", "--gpu-layers ", "n_gpu_layers"};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		const double n = number_behind(begin, end, options[i]);

		if (n > 0)
			return n < all ? n : all;
	}
	return all;
}

void oom_decode_layers(struct oom_crash *c, const char *begin, const char *end)
{
	const double n = number_behind(begin, end, "n_layer "), k = number_behind(begin, end, "n_embd_k_gqa"), v = number_behind(begin, end, "n_embd_v_gqa"),
		     told = oom_told(c, "n_ctx") > 0 ? oom_told(c, "n_ctx") : oom_told(c, "c"), model = number_behind(begin, end, "layers.model");
	const double all = model > 0 ? model : n > 0 ? n + 1 : 0;

	c->asked_layers = 0;
	c->device_free = c->cache_layer_bytes = 0;
	if (!oom_runtime_is(c, OOM_RUNTIME_LAYERED) || !(all >= 2 && all <= MOST_LAYERS))
		return;
	c->asked_layers = (uint64_t)asked(begin, end, all);
	c->device_free = (uint64_t)(free_of_one(begin, end) > 0 ? free_of_one(begin, end) : available(begin, end));
	/* keys and values in 16 bits, unless it was told otherwise */
	if (k > 0 && v > 0 && told > 0 && k + v < MOST_WIDTH && told < MOST_TOKENS)
		c->cache_layer_bytes = (uint64_t)((k + v) * 2 * told);
}

/* A GiB for what computes, a judgement: llama.cpp prints 0.3 to 1 GiB of compute buffers at its default of 512 tokens a batch. */
static const double COMPUTES = 1024 * 1048576.0;

void oom_fixes_of_layers(const struct oom_crash *c, const char *offload, struct oom_crash_answer *a)
{
	const size_t n = offload ? strcspn(offload, " ") : 0;
	double each, fit;
	char own[260], cache[80] = "";

	if (!n || !(*offload == '-' || memchr(offload, '_', n)) || c->part == OOM_PART_SCRATCH || c->part == OOM_PART_KV || !c->known[OOM_CRASH_TRIED] || !c->asked_layers || !c->device_free ||
	    c->phase != OOM_CRASH_LOAD || c->gpu_index > 0)
		return;
	each = (double)c->bytes[OOM_CRASH_TRIED] / (double)c->asked_layers;
	fit = floor(((double)c->device_free - COMPUTES) / (each + (double)c->cache_layer_bytes));
	if (fit < 1 || fit >= (double)c->asked_layers)
		return;
	if (c->cache_layer_bytes)
		snprintf(cache, sizeof(cache), " and %.0f of cache", (double)c->cache_layer_bytes / MIB);
	snprintf(own, sizeof(own), "%.*s %.0f or lower: each of the %" PRIu64 " layers takes %.0f MiB of weights%s, and of the %.1f GiB that are free one is for what computes", (int)n, offload, fit, c->asked_layers,
		 each / MIB, cache, (double)c->device_free / MIB / 1024);
	oom_fix_add(a, "", own);
}
