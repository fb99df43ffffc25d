/* What the memory was asked for: the innermost code before the message, or the function of the runtime that
 * reports it.
 *
 * Words: PyTorch (nn/functional.py, autograd, distributed/fsdp), transformers (modeling files, cache_utils.py),
 * vLLM, verl, Megatron-LM's cross entropy, ggml (ggml-alloc.c, llama-kv-cache.cpp). */
#include "tables.h"

static const struct oom_part parts[OOM_PARTS] = {
	[OOM_PART_UNKNOWN] = {NULL, 0, 0},
	[OOM_PART_LOGITS] = {"the logits: tokens x vocabulary, often in fp32 and more than once", OOM_LEVER_LOGITS, OOM_LEVER_REQUESTS},
	[OOM_PART_SCORES] = {"attention's scores or mask: they grow with the square of the length", OOM_LEVER_SCORES, OOM_LEVER_SCORES},
	[OOM_PART_KV] = {"the cache of keys and values", 0, OOM_LEVER_KV},
	[OOM_PART_SCRATCH] = {"the scratch buffer of the computation graph, not weights or cache", 0, OOM_LEVER_SCRATCH},
	[OOM_PART_WEIGHTS] = {"weights", 0, 0},
	[OOM_PART_STATES] = {"the optimizer's states or its temporaries", OOM_LEVER_OPTIMIZER, 0},
	[OOM_PART_GATHERED] = {"parameters or gradients gathered from the other ranks", OOM_LEVER_GATHER, 0},
	[OOM_PART_IMAGE] = {"the decoder of latents: images or video at full size", 0, OOM_LEVER_TILE},
};

/* Of the innermost frames and of a runtime's own lines. In order: a cross entropy stands in a forward pass whose
 * attention is long over. */
static const struct {
	const char *word;
	unsigned runtime;       /* traits; 0: any other */
	enum oom_crash_part part;
} words[] = {
	{"alloc_tensor_range", OOM_RUNTIME_LAYERED, OOM_PART_WEIGHTS},
	{"load_tensors", OOM_RUNTIME_LAYERED, OOM_PART_WEIGHTS},
	{"kv_cache", OOM_RUNTIME_LAYERED, OOM_PART_KV},
	{"kv cache", OOM_RUNTIME_LAYERED, OOM_PART_KV},
	{"gallocr_reserve", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH},
	{"graph_reserve", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH},
	{"failed to allocate compute", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH},
	{"cross_entropy", 0, OOM_PART_LOGITS},
	/* accelerate makes fp32 of what a model puts out */
	{"_convert_to_fp32", 0, OOM_PART_LOGITS},
	{"convert_to_fp32(", 0, OOM_PART_LOGITS},
	{"entropy_from_logits", 0, OOM_PART_LOGITS},
	{"log_softmax", 0, OOM_PART_LOGITS},
	{"logsumexp", 0, OOM_PART_LOGITS},
	{"logprob", 0, OOM_PART_LOGITS},
	{"log_prob", 0, OOM_PART_LOGITS},
	{"lm_head(", 0, OOM_PART_LOGITS},
	{"logits.float()", 0, OOM_PART_LOGITS},
	{"logits = ", 0, OOM_PART_LOGITS},
	{"_multi_tensor_", 0, OOM_PART_STATES},
	{"_single_tensor_", 0, OOM_PART_STATES},
	{"exp_avg", 0, OOM_PART_STATES},
	{"in _init_group", 0, OOM_PART_STATES},
	{"all_gather", 0, OOM_PART_GATHERED},
	{"wait_for_unshard", 0, OOM_PART_GATHERED},
	{"_alloc_padded_unsharded", 0, OOM_PART_GATHERED},
	{"reduce_scatter", 0, OOM_PART_GATHERED},
	{"fetch_sub_module", 0, OOM_PART_GATHERED},
	{"cache_utils.py", 0, OOM_PART_KV},
	{"key_cache", 0, OOM_PART_KV},
	{"past_key_value", 0, OOM_PART_KV},
	{"_canonical_mask", 0, OOM_PART_SCORES},
	{"causal_mask", 0, OOM_PART_SCORES},
	{"attn_weights", 0, OOM_PART_SCORES},
	{"attention_scores", 0, OOM_PART_SCORES},
	{"attention_probs", 0, OOM_PART_SCORES},
	{"eager_attention_forward", 0, OOM_PART_SCORES},
	{"baddbmm(", 0, OOM_PART_SCORES},
	{"attn_scores", 0, OOM_PART_SCORES},
	{"vae.decode", 0, OOM_PART_IMAGE},
	{"decode_first_stage", 0, OOM_PART_IMAGE},
	{"first_stage_model.decode", 0, OOM_PART_IMAGE},
	{"VAE decoding", 0, OOM_PART_IMAGE},
	{"autoencoder_kl", 0, OOM_PART_IMAGE},
	{"VAEDecode", 0, OOM_PART_IMAGE},
	{"in decode_latents", 0, OOM_PART_IMAGE},
};

const struct oom_part *oom_part_of(const struct oom_crash *c)
{
	return &parts[c->part];
}

static enum oom_crash_part find(const char *from, const char *to, bool layered)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (((words[i].runtime & OOM_RUNTIME_LAYERED) != 0) == layered && oom_text_find(from, to, words[i].word))
			return words[i].part;
	return OOM_PART_UNKNOWN;
}

/* The two innermost frames: four lines, and the markers of columns below them. */
static const char *innermost(const char *begin, const char *line)
{
	const char *from = line;

	for (int n = 0; n < 4 && from > begin && line - from < 1200;) {
		const char *const to = from - 1, *const at = oom_line_begin(begin, to);

		n += !oom_text_find(at, to, "^^") && !oom_text_find(at, to, "~~");
		from = at;
	}
	return from;
}

void oom_decode_part(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *const line = oom_line_begin(begin, at);
	const bool layered = oom_runtime_is(c, OOM_RUNTIME_LAYERED);

	c->part = OOM_PART_UNKNOWN;
	if (layered)
		c->part = find(line > begin ? oom_line_begin(begin, line - 1) : line, end - line > 700 ? line + 700 : end, true);
	else if (c->traceback && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		c->part = find(innermost(begin, line), line, false);
}
