/* What the memory was asked for: the innermost code before the message, or the function of the runtime that
 * reports it.
 *
 * Words: PyTorch (nn/functional.py, autograd, distributed/fsdp), transformers (modeling files, cache_utils.py),
 * vLLM, verl, Megatron-LM's cross entropy, ggml (ggml-alloc.c, llama-kv-cache.cpp). */
#include <ctype.h>
#include <string.h>

#include "tables.h"

static const struct oom_part parts[OOM_PARTS] = {
	[OOM_PART_UNKNOWN] = {NULL, 0, 0},
	[OOM_PART_LOGITS] = {"the logits: tokens x vocabulary, often in fp32 and more than once", OOM_LEVER_LOGITS, OOM_LEVER_REQUESTS},
	[OOM_PART_LOSS] = {"the loss: all outputs of the model at once", 0, 0},
	[OOM_PART_SCORES] = {"attention's scores or mask: they grow with the square of the length", OOM_LEVER_SCORES, OOM_LEVER_SCORES},
	[OOM_PART_KV] = {"the cache of keys and values", 0, OOM_LEVER_KV},
	[OOM_PART_SCRATCH] = {"the scratch buffer of the computation graph, not weights or cache", 0, OOM_LEVER_SCRATCH},
	[OOM_PART_WEIGHTS] = {"weights", 0, 0},
	[OOM_PART_STATES] = {"the optimizer's states or its temporaries", OOM_LEVER_OPTIMIZER, 0},
	[OOM_PART_TEMPORARIES] = {"temporaries of the optimizer, which works on all parameters at once (foreach)", OOM_LEVER_FOREACH, 0},
	[OOM_PART_GATHERED] = {"parameters or gradients gathered from the other ranks", OOM_LEVER_GATHER, 0},
	[OOM_PART_TRACE] = {"a trace for export: the model runs once with its dummy inputs, beside all its weights", 0, 0},
	[OOM_PART_SAMPLER] = {"the sampler's model itself, not the decoder of its result", 0, 0},
	[OOM_PART_RESTORED] = {"states read from a checkpoint, beside those that the run holds already", 0, 0},
	[OOM_PART_WARMUP] = {"the server's trial of its largest batch, before it makes its cache", 0, OOM_LEVER_REQUESTS},
	/* an engine that shares the card with what asked */
	[OOM_PART_ENGINE] = {NULL, OOM_LEVER_ROOM, OOM_LEVER_ROOM},
	[OOM_PART_GRAPHS] = {"the capture of CUDA graphs, after weights and cache have taken their share", 0, OOM_LEVER_ROOM},
	[OOM_PART_SCALED] = {"maps or masks that are scaled up to the size of the image", OOM_LEVER_SCALE, OOM_LEVER_SCALE},
	[OOM_PART_PAIRS] = {"all pairs of two sets (boxes, points, pixels, nodes, samples): it grows with the product of both counts", OOM_LEVER_PAIRS, OOM_LEVER_PAIRS},
	[OOM_PART_EDGES] = {"a graph's messages: one row for every edge", OOM_LEVER_EDGES, OOM_LEVER_EDGES},
	[OOM_PART_RAYS] = {"rays of a rendered image, with all the samples on them", OOM_LEVER_RAYS, OOM_LEVER_RAYS},
	[OOM_PART_JOINED] = {"outputs of many batches or pieces, joined on the card", 0, OOM_LEVER_EVAL},
	[OOM_PART_POINTS] = {"points or voxels of a cloud, of which every sample has as many as its scene", OOM_LEVER_POINTS, OOM_LEVER_POINTS},
	[OOM_PART_INPUT] = {"an input, not weights", OOM_LEVER_BATCH, OOM_LEVER_CONTEXT},
	[OOM_PART_MAPS] = {"a convolution: its maps are as large as the image, one for every channel", 0, OOM_LEVER_MAPS},
	[OOM_PART_IMAGE] = {"the decoder of latents: images or video at full size", 0, OOM_LEVER_TILE},
};

/* Of the innermost frames and of a runtime's own lines. In order: a cross entropy stands in a forward pass whose
 * attention is long over. */
static const struct {
	const char *word;
	unsigned runtime;       /* traits; 0: any other */
	enum oom_crash_part part;
	uint64_t least;         /* smaller requests are for something else; 0: none are */
} words[] = {
	{"alloc_tensor_range", OOM_RUNTIME_LAYERED, OOM_PART_WEIGHTS, 0},
	/* functions of a cache reserve their graph too */
	{"gallocr_reserve", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH, 0},
	{"graph_reserve", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH, 0},
	{"failed to allocate compute", OOM_RUNTIME_LAYERED, OOM_PART_SCRATCH, 0},
	{"load_tensors", OOM_RUNTIME_LAYERED, OOM_PART_WEIGHTS, 0},
	{"kv_cache", OOM_RUNTIME_LAYERED, OOM_PART_KV, 0},
	{"kv cache", OOM_RUNTIME_LAYERED, OOM_PART_KV, 0},
	/* a number for every output, not a row of a vocabulary */
	{"binary_cross_entropy", 0, OOM_PART_LOSS, 0},
	{"cross_entropy", 0, OOM_PART_LOGITS, 0},
	/* accelerate makes fp32 of what a model puts out */
	{"_convert_to_fp32", 0, OOM_PART_LOGITS, 0},
	{"entropy_from_logits", 0, OOM_PART_LOGITS, 0},
	{"log_softmax", 0, OOM_PART_LOGITS, 0},
	{"logsumexp", 0, OOM_PART_LOGITS, 0},
	{"logprob", 0, OOM_PART_LOGITS, 0},
	{"log_prob", 0, OOM_PART_LOGITS, 0},
	/* of relative positions, not of a vocabulary */
	{"rel_logits", 0, OOM_PART_SCORES, 0},
	{"lm_head(", 0, OOM_PART_LOGITS, 0},
	{"logits.float()", 0, OOM_PART_LOGITS, 0},
	{"logits = ", 0, OOM_PART_LOGITS, 0},
	/* states are made by _init_group, before it works on them */
	{"in _init_group", 0, OOM_PART_STATES, 0},
	{"_foreach_", 0, OOM_PART_TEMPORARIES, 0},
	{"_multi_tensor_", 0, OOM_PART_TEMPORARIES, 0},
	{"_single_tensor_", 0, OOM_PART_STATES, 0},
	{"exp_avg", 0, OOM_PART_STATES, 0},
	{"all_gather", 0, OOM_PART_GATHERED, 0},
	{"wait_for_unshard", 0, OOM_PART_GATHERED, 0},
	{"_alloc_padded_unsharded", 0, OOM_PART_GATHERED, 0},
	{"reduce_scatter", 0, OOM_PART_GATHERED, 0},
	{"fetch_sub_module", 0, OOM_PART_GATHERED, 0},
	{"/cache_utils.py", 0, OOM_PART_KV, 0},
	{"\\cache_utils.py", 0, OOM_PART_KV, 0},
	{"key_cache", 0, OOM_PART_KV, 0},
	/* what is passed through a call is not what it asks for */
	{"past_key_value[", 0, OOM_PART_KV, 0},
	{"past_key_values[", 0, OOM_PART_KV, 0},
	{"past_key_value.update(", 0, OOM_PART_KV, 0},
	{"past_key_values.update(", 0, OOM_PART_KV, 0},
	{"layer_past[", 0, OOM_PART_KV, 0},
	{"_canonical_mask", 0, OOM_PART_SCORES, 0},
	{"causal_mask", 0, OOM_PART_SCORES, 0},
	{"attn_weights", 0, OOM_PART_SCORES, 0},
	{"attention_scores", 0, OOM_PART_SCORES, 0},
	{"attention_probs", 0, OOM_PART_SCORES, 0},
	{"eager_attention_forward", 0, OOM_PART_SCORES, 0},
	/* fused kernels ask for their output alone, which is as small as their input */
	{"scaled_dot_product_attention(", 0, OOM_PART_SCORES, (uint64_t)1 << 30},
	{"attention_basic", 0, OOM_PART_SCORES, 0},
	{"baddbmm(", 0, OOM_PART_SCORES, 0},
	{"attn_scores", 0, OOM_PART_SCORES, 0},
	{"cross_attention_forward", 0, OOM_PART_SCORES, 0},
	{"attnblock_forward", 0, OOM_PART_SCORES, 0},
	/* Transformer-XL's relative attention, which speech encoders keep */
	{"matrix_ac", 0, OOM_PART_SCORES, 0},
	{"matrix_bd", 0, OOM_PART_SCORES, 0},
	{"rel_shift", 0, OOM_PART_SCORES, 0},
	{"softmax(scores", 0, OOM_PART_SCORES, 0},
	{"softmax(attn", 0, OOM_PART_SCORES, 0},
	/* queries against keys: the indices of both remain */
	{"j d -> b i j", 0, OOM_PART_SCORES, 0},
	{"j d -> b h i j", 0, OOM_PART_SCORES, 0},
	{"->bhqk", 0, OOM_PART_SCORES, 0},
	{"->...hqk", 0, OOM_PART_SCORES, 0},
	{"-> bhqk", 0, OOM_PART_SCORES, 0},
	{"(q @ k.transpose", 0, OOM_PART_SCORES, 0},
	{"q @ k.transpose", 0, OOM_PART_SCORES, 0},
	{"matmul(q, k", 0, OOM_PART_SCORES, 0},
	{"bmm(q, k", 0, OOM_PART_SCORES, 0},
	{"matmul(query, key", 0, OOM_PART_SCORES, 0},
	{"matmul(query_layer, key_layer", 0, OOM_PART_SCORES, 0},
	{"_matmul_with_relative_keys", 0, OOM_PART_SCORES, 0},
	{"cdist(", 0, OOM_PART_PAIRS, 0},
	/* optical flow, stereo: every pixel against every other */
	{"/corr.py", 0, OOM_PART_PAIRS, 0},
	{", in corr\n", 0, OOM_PART_PAIRS, 0},
	{"corr = torch.", 0, OOM_PART_PAIRS, 0},
	{"cost_volume", 0, OOM_PART_PAIRS, 0},
	{"bbox_overlaps", 0, OOM_PART_PAIRS, 0},
	{"box_iou", 0, OOM_PART_PAIRS, 0},
	{"bbox_iou", 0, OOM_PART_PAIRS, 0},
	{"iou_calculator", 0, OOM_PART_PAIRS, 0},
	{"pairwise", 0, OOM_PART_PAIRS, 0},
	{"square_distance(", 0, OOM_PART_PAIRS, 0},
	{"chamfer", 0, OOM_PART_PAIRS, 0},
	{"in knn", 0, OOM_PART_PAIRS, 0},
	{"message_passing.py", 0, OOM_PART_EDGES, 0},
	{"in message\n", 0, OOM_PART_EDGES, 0},
	{"in message(", 0, OOM_PART_EDGES, 0},
	{"def message(", 0, OOM_PART_EDGES, 0},
	{"torch_scatter/", 0, OOM_PART_EDGES, 0},
	{"/dgl/", 0, OOM_PART_EDGES, 0},
	{"torch.cat(all_", 0, OOM_PART_JOINED, 0},
	{"torch.cat(outputs", 0, OOM_PART_JOINED, 0},
	{"stack_batches", 0, OOM_PART_JOINED, 0},
	{"torch.cat(results", 0, OOM_PART_JOINED, 0},
	{"torch.cat(preds", 0, OOM_PART_JOINED, 0},
	{"torch.stack(outputs", 0, OOM_PART_JOINED, 0},
	{"torch.stack(preds", 0, OOM_PART_JOINED, 0},
	{"F.interpolate(", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{"functional.interpolate(", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{".upsample_", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{"nn/modules/upsampling.py", 0, OOM_PART_SCALED, (uint64_t)1 << 30},
	{"combinations", 0, OOM_PART_PAIRS, 0},
	/* nodes of ONNX Runtime: a product that is scaled is one of queries and keys (its fusion MatMulScaleFusion) */
	{"FusedMatMulAndScale", 0, OOM_PART_SCORES, 0},
	{"running Softmax node", 0, OOM_PART_SCORES, (uint64_t)1 << 30},
	{"running Attention node", 0, OOM_PART_SCORES, 0},
	{"running MultiHeadAttention node", 0, OOM_PART_SCORES, 0},
	{"running Conv node", 0, OOM_PART_MAPS, 0},
	{"running FusedConv node", 0, OOM_PART_MAPS, 0},
	{"running ConvTranspose node", 0, OOM_PART_MAPS, 0},
	{"running Resize node", 0, OOM_PART_SCALED, 0},
	{"vae.decode", 0, OOM_PART_IMAGE, 0},
	{"decode_first_stage", 0, OOM_PART_IMAGE, 0},
	{"first_stage_model.decode", 0, OOM_PART_IMAGE, 0},
	{"VAE decoding", 0, OOM_PART_IMAGE, 0},
	{"autoencoder_kl", 0, OOM_PART_IMAGE, 0},
	{"VAEDecode", 0, OOM_PART_IMAGE, 0},
	{"latents_to_image", 0, OOM_PART_IMAGE, 0},
	{"in decode_latents", 0, OOM_PART_IMAGE, 0},
	{"VideoDecode", 0, OOM_PART_IMAGE, 0},
	{"tokenizers/wan", 0, OOM_PART_IMAGE, 0},
	{"_conv_forward", 0, OOM_PART_MAPS, 0},
	{"F.conv2d(", 0, OOM_PART_MAPS, 0},
	{"F.conv3d(", 0, OOM_PART_MAPS, 0},
	{"nn/modules/conv.py", 0, OOM_PART_MAPS, 0},
};

/* Anywhere in the traceback: what was under way says more than what it called. */
static const struct {
	const char *word;
	enum oom_crash_part part;
} deep[] = {
	{"determine_num_available_blocks", OOM_PART_WARMUP},
	{"determine_available_memory", OOM_PART_WARMUP},
	{"profile_run", OOM_PART_WARMUP},
	{"in warmup", OOM_PART_WARMUP},
	/* what slept beside a trainer takes its share again */
	{"inference_engine.wake_up(", OOM_PART_ENGINE},
	{"engine.wake_up(", OOM_PART_ENGINE},
	{"engine.resume_memory_occupation(", OOM_PART_ENGINE},
	{"capture_end()", OOM_PART_GRAPHS},
	{"in capture_model", OOM_PART_GRAPHS},
	{"in capture_one_batch_size", OOM_PART_GRAPHS},
	{"in capture\n", OOM_PART_GRAPHS},
	{"init_cuda_graphs", OOM_PART_GRAPHS},
	{"cuda_graph_runner", OOM_PART_GRAPHS},
	{"initialize_optimizer_states", OOM_PART_STATES},
	/* a module's parameters, one after the other */
	{", in _apply", OOM_PART_WEIGHTS},
	{"_move_model_to_device", OOM_PART_WEIGHTS},
	{"render_rays", OOM_PART_RAYS},
	{"batchify_rays", OOM_PART_RAYS},
	{"raymarching", OOM_PART_RAYS},
	{"rays_o", OOM_PART_RAYS},
	/* sparse convolutions, and layers of point clouds */
	{"MinkowskiEngine", OOM_PART_POINTS},
	{"spconv/", OOM_PART_POINTS},
	{"torchsparse", OOM_PART_POINTS},
	{"torch_points3d", OOM_PART_POINTS},
	{"pointnet2", OOM_PART_POINTS},
	{"pointops", OOM_PART_POINTS},
	{"point_cloud", OOM_PART_POINTS},
	{"geotransformer", OOM_PART_POINTS},
	{"superpoint_", OOM_PART_POINTS},
	/* whichever decoder of its own a node or pipeline calls */
	{"vae.decode(", OOM_PART_IMAGE},
	{"vae_decode(", OOM_PART_IMAGE},
	{"in decode_first_stage", OOM_PART_IMAGE},
	{"in tiled_decode", OOM_PART_IMAGE},
	{"in decode_tiled", OOM_PART_IMAGE},
	{"_load_best_model", OOM_PART_RESTORED},
	{"optimizer.load_state_dict", OOM_PART_RESTORED},
	{"_load_optimizer_and_scheduler", OOM_PART_RESTORED},
	{"in load_optimizer", OOM_PART_RESTORED},
	{"load_optimizer_states", OOM_PART_RESTORED},
	{"in _load_zero_checkpoint", OOM_PART_RESTORED},
	{"optim_state_dict_to_load", OOM_PART_RESTORED},
};

static enum oom_crash_part find_deep(const char *from, const char *to)
{
	for (size_t i = 0; i < sizeof(deep) / sizeof(deep[0]); i++)
		if (oom_text_find(from, to, deep[i].word))
			return deep[i].part;
	return OOM_PART_UNKNOWN;
}

const struct oom_part *oom_part_of(const struct oom_crash *c)
{
	return &parts[c->part];
}

static enum oom_crash_part find(const char *from, const char *to, bool layered, uint64_t tried)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (((words[i].runtime & OOM_RUNTIME_LAYERED) != 0) == layered && (!words[i].least || tried >= words[i].least) &&
		    oom_text_find(from, to, words[i].word))
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

static bool any(const char *begin, const char *end, const char *const *marks)
{
	for (; *marks; marks++)
		if (oom_text_find(begin, end, *marks))
			return true;
	return false;
}

/* Where the message stands above its frames: behind the last of those that follow it. */
static const char *below(const char *line, const char *end)
{
	const char *last = NULL;

	for (const char *p = line; (p = oom_text_find(p, end, "\n  File \"")); p++)
		last = p + 1;
	/* the frame and its line of code */
	for (int i = 0; last && last < end && i < 2; i++)
		last = oom_line_end(last, end) + (oom_line_end(last, end) < end);
	return last;
}

/* The last that a server's log says before the message: "Capturing CUDA graphs", "Capture cuda graph begin". */
static bool captures(const char *begin, const char *line)
{
	static const char *const marks[] = {"apturing", "apture cuda graph begin", NULL};
	const char *last = NULL;

	for (size_t i = 0; marks[i]; i++) {
		const char *const p = oom_text_last(line - begin > 3000 ? line - 3000 : begin, line, marks[i]);

		last = !last || (p && p > last) ? p : last;
	}
	return last && (oom_text_find(last, oom_line_end(last, line), "raph"));
}

/* A node or loop that draws, step by step; the decoder of pictures has a name of its own. */
static bool samples(const char *begin, const char *end)
{
	static const char *const marks[] = {"KSampler", "SamplerCustom", "k_diffusion", "sampling_function(", "WanVideoSampler", "in denoise", NULL};

	return any(begin, end, marks);
}

/* "self.images.to(device)", "batch.cuda()": what moves is named as what models are given. */
static bool moves_input(const char *begin, const char *end)
{
	static const char *const calls[] = {".to(", ".cuda("}, *const names[] = {"input", "inputs", "batch", "data", "image", "images", "img", "imgs", "x", "points", "frames",
	    "video", "target", "targets", "label", "labels", "sample", "samples", "audio", "waveform", "pixel_values", "features", "voxels", "coords"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, calls[i])); p++) {
			const char *q = p;

			while (q > begin && (isalnum((unsigned char)q[-1]) || q[-1] == '_'))
				q--;
			for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
				if (strlen(names[k]) == (size_t)(p - q) && !memcmp(names[k], q, (size_t)(p - q)))
					return true;
		}
	return false;
}

/* The end of a name with its dots: "x.features". */
static const char *name_end(const char *p, const char *end)
{
	while (p < end && (isalnum((unsigned char)*p) || *p == '_' || *p == '.'))
		p++;
	return p;
}

/* "matmul(x, x.transpose(-1, -2))", "x @ x.T": everything of one set against everything of the same. */
static bool multiplies_itself(const char *begin, const char *end)
{
	static const char *const turns[] = {".transpose(", ".t()", ".T", ".permute(", ".mT"}, *const products[] = {"matmul(", "mm(", " @ "};

	for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, products[i])); p++) {
			const char *left = p + strlen(products[i]), *to = name_end(left, end), *right = to + 2;

			if (*products[i] == ' ') {
				right = left;
				for (to = left = p; left > begin && (isalnum((unsigned char)left[-1]) || left[-1] == '_' || left[-1] == '.');)
					left--;
			}
			for (size_t k = 0; to > left && k < sizeof(turns) / sizeof(turns[0]); k++) {
				const size_t n = (size_t)(to - left), m = strlen(turns[k]);

				if ((size_t)(end - right) > n + m && !memcmp(right, left, n) && !memcmp(right + n, turns[k], m))
					return true;
			}
		}
	return false;
}

void oom_decode_part(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	/* who exports a model for another runtime */
	static const char *const traces[] = {"torch/onnx/", "torch\\onnx\\", "torch.onnx.export(", "TracerWarning",
					     "torch/jit/_trace.py", "optimum/exporters", NULL};
	/* models of language have a vocabulary */
	static const char *const language[] = {"vocab", "log_prob", "logprob", "ForCausalLM", "lm_head", "llama", "Llama", "gpt", "GPT",
					       "Qwen", "qwen", "megatron", "trl", "unsloth", "token", "litgpt", "torchtune", "torchtitan", "Unsloth", NULL},
				 /* as a rule, but for the models of sound and sight that they hold as well */
				 *const mostly[] = {"transformers", "trainer.py", NULL};
	/* of models that see, not of those that draw */
	static const char *const pixels[] = {"max_pixels", "_vl/", "_vl.py", "vision_tower", "pixel_values", "grid_thw", "limit_mm_per_prompt", "limit-mm-per-prompt",
					     "multi-modal", "multimodal", "vision_model", NULL};
	const char *const line = oom_line_begin(begin, at);
	const bool layered = oom_runtime_is(c, OOM_RUNTIME_LAYERED);
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED];
	struct oom_span s;

	c->part = OOM_PART_UNKNOWN;
	c->language = any(begin, end, language) || (any(begin, end, mostly) && c->task != OOM_TASK_AUDIO && c->task != OOM_TASK_IMAGES && c->task != OOM_TASK_VIDEO);
	c->sees = any(begin, end, pixels);
	if (oom_text_find(line, oom_line_end(at, end), "warmup model") || oom_text_find(line, oom_line_end(at, end), "determine_num_available_blocks") ||
	    oom_text_find(line, oom_line_end(at, end), "determine_available_memory")) {
		c->part = OOM_PART_WARMUP;
	} else if (layered) {
		c->part = find(line > begin ? oom_line_begin(begin, line - 1) : line, end - line > 700 ? line + 700 : end, true, tried);
	} else if (c->phase == OOM_CRASH_COMPILE && any(begin, end, traces)) {
		c->part = OOM_PART_TRACE;
	} else if (oom_runtime_is(c, OOM_RUNTIME_TORCH)) {
		const char *const stop = oom_text_find(begin, line, "File \"") ? NULL : below(line, end);

		if (c->traceback && oom_traceback(begin, at, end, &s))
			c->part = find_deep(s.from, s.to);
		if (c->part == OOM_PART_UNKNOWN && stop)
			c->part = find(innermost(line, stop), stop, false, tried);
		else if (c->part == OOM_PART_UNKNOWN && (c->traceback || line > begin))
			c->part = find(innermost(begin, line), line, false, tried);
		if (c->part == OOM_PART_UNKNOWN && c->phase == OOM_CRASH_TO_DEVICE && moves_input(innermost(begin, line), line))
			c->part = OOM_PART_INPUT;
		if (c->part == OOM_PART_UNKNOWN && multiplies_itself(innermost(begin, line), line))
			c->part = OOM_PART_PAIRS;
		if (c->part == OOM_PART_UNKNOWN && c->phase == OOM_CRASH_INIT && captures(begin, line))
			c->part = OOM_PART_GRAPHS;
		if (c->part == OOM_PART_UNKNOWN && c->phase == OOM_CRASH_INIT && oom_text_find(begin, line, "used for profiling"))
			c->part = OOM_PART_WARMUP;
		if (c->part == OOM_PART_UNKNOWN && samples(begin, end))
			c->part = OOM_PART_SAMPLER;
	} else if (oom_runtime_is(c, OOM_RUNTIME_GRAPH) && c->traceback && oom_text_find(begin, line, "batch_outputs, concat")) {
		/* Keras joins what predict() gives */
		c->part = OOM_PART_JOINED;
	} else if (oom_format_is(c, OOM_FORMAT_NODE)) {
		c->part = find(line, oom_line_end(at, end), false, tried);
	} else if (*c->largest) {
		c->part = find(c->largest, c->largest + strlen(c->largest), false, tried);
	}
	/* without a vocabulary it is a loss, if anything is learnt */
	if (c->part == OOM_PART_LOGITS && !c->language)
		c->part = c->phase == OOM_CRASH_INFERENCE || c->phase == OOM_CRASH_EVAL ? OOM_PART_UNKNOWN : OOM_PART_LOSS;
}
