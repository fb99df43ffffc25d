/* What the memory was asked for: the innermost code before the message, or the function of the runtime that
 * reports it. The words are part_words.c's. */
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
	[OOM_PART_EXCHANGED] = {"activations gathered from the other ranks of its group", 0, 0},
	[OOM_PART_BUCKET] = {"a bucket for gradients that are reduced over the ranks: its size is the configuration's", OOM_LEVER_COLLECTIVE, 0},
	[OOM_PART_TRACE] = {"a trace for export: the model runs once with its dummy inputs, beside all its weights", 0, 0},
	[OOM_PART_SAMPLER] = {"the sampler's model itself, not the decoder of its result", 0, 0},
	[OOM_PART_NODE] = {"a node's own model, not the decoder of latents", 0, 0},
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
	/* what goes in is scaled to one size: Segment Anything's image encoder to 1024 x 1024 */
	[OOM_PART_FIXED] = {"the image encoder, which scales whatever it is given to one size", 0, OOM_LEVER_QUANT},
	[OOM_PART_MERGED] = {"adapters that are put into the weights of their base: nothing is learnt, and no GPU is needed for it", 0, OOM_LEVER_MERGE},
	[OOM_PART_CONTEXT] = {"a context and a communicator's buffers, before any tensor of the model: the card was full by then", OOM_LEVER_OTHERS, OOM_LEVER_OTHERS},
	[OOM_PART_ENCODED] = {"the encoder, which makes latents of an image or video at full size", 0, OOM_LEVER_CONTEXT},
	[OOM_PART_IMAGE] = {"the decoder of latents: images or video at full size", 0, OOM_LEVER_TILE},
};

const struct oom_part *oom_part_of(const struct oom_crash *c)
{
	return &parts[c->part];
}

/* The two innermost frames: four lines, and the markers of columns below them; since Python 3.13 a call of many lines is shown
 * with its first and last ("...<5 lines>..."), and goes on up to the line that names its frame. */
static const char *innermost(const char *begin, const char *line)
{
	const char *from = line;
	bool folded = false;
	int frames = 0;

	for (int n = 0; (n < 4 || (folded && frames < 2 && n < 20)) && from > begin && line - from < 1500;) {
		const char *const to = from - 1, *const at = oom_line_begin(begin, to);

		n += !oom_text_find(at, to, "^^") && !oom_text_find(at, to, "~~");
		folded |= oom_text_find(at, to, " lines>...") != NULL;
		frames += oom_text_find(at, to, "File \"") != NULL;
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
static bool samples(const struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const marks[] = {"KSampler", "SamplerCustom", "k_diffusion", "sampling_function(", "WanVideoSampler", "in denoise", NULL},
				 /* blocks of the models that are sampled, by functions of ComfyUI whose names language models' have too */
				 *const blocks[] = {"in apply_rope", "in attention_pytorch", "optimized_attention(", NULL};

	return any(begin, end, marks) || (oom_lever_own(c, OOM_LEVER_TILE) && any(begin, end, blocks));
}

/* A node that decodes, by its name, or what people write of it. */
static bool decodes(const char *begin, const char *at, const char *end)
{
	static const char *const marks[] = {"VideoDecode", "VAEDecode", "VAE Decode", "VAE decode", "Vae Decode", "vae decode", "decode node", "VAE decoding", "Executing Decoder Task Queue",
					    /* InvokeAI's nodes by their types */
					    "l2i)", "latents_to_image", "vae_decode)", NULL};

	return any(at - begin > 4000 ? at - 4000 : begin, end - at > 4000 ? at + 4000 : end, marks);
}

/* "Ran out of memory when regular VAE encoding, retrying with tiled VAE encoding.": what ComfyUI says right before. */
static bool encodes(const char *begin, const char *at)
{
	static const char *const marks[] = {"VAE encoding", "VAEEncode", NULL};

	return any(at - begin > 1500 ? at - 1500 : begin, at, marks);
}

/* "Error occurred when executing GroundingDinoSAMSegment": neither a sampler nor what turns latents into pictures or back. */
static bool is_other_node(const char *begin, const char *at)
{
	static const char *const marks[] = {"VAE", "Vae", "Decode", "Encode", "Sampler", NULL};
	const char *const node = oom_text_last(at - begin > 1500 ? at - 1500 : begin, at, "occurred when executing ");

	return node && !any(node, oom_line_end(node, at), marks);
}

/* "self.images.to(device)", "batch.cuda()": a name of the table, which ends with a NULL, moves. */
static bool moves(const char *begin, const char *end, const char *const *names)
{
	static const char *const calls[] = {".to(", ".cuda("};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, calls[i])); p++) {
			const char *q = p, *end_of_name = p;

			while (q > begin && (isalnum((unsigned char)q[-1]) || q[-1] == '_'))
				q--;
			/* "weight.data": a tensor's own storage is named by what holds it */
			if (p - q == 4 && !memcmp(q, "data", 4) && q > begin && q[-1] == '.') {
				end_of_name = q - 1;
				for (q = end_of_name; q > begin && (isalnum((unsigned char)q[-1]) || q[-1] == '_');)
					q--;
			}
			for (size_t k = 0; names[k]; k++)
				if (strlen(names[k]) == (size_t)(end_of_name - q) && !memcmp(names[k], q, (size_t)(end_of_name - q)))
					return true;
		}
	return false;
}

/* What models are given, and what holds weights, as programs name them. */
static const char *const inputs[] = {"input", "inputs", "batch", "data", "image", "images", "img", "imgs", "x", "points", "frames", "video", "target", "targets", "label", "labels", "sample",
				     "samples", "audio", "waveform", "pixel_values", "features", "voxels", "coords", NULL},
			 *const models[] = {"model", "pipe", "pipeline", "net", "unet", "vae", "transformer", "encoder", "text_encoder", "network", "module", "weight", "weights", "param", "params", "parameter", NULL};

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

/* Whether the model is one of language, and whether it sees. */
static void decode_model(struct oom_crash *c, const char *begin, const char *end)
{
	/* models of language have a vocabulary */
	static const char *const language[] = {"vocab", "log_prob", "logprob", "ForCausalLM", "lm_head", "llama", "Llama", "LLAMA", "LLaMA", "icuna", "LLM", "gpt", "GPT",
					       "Qwen", "qwen", "megatron", "trl", "unsloth", "qlora", "QLoRA", "token", "litgpt", "torchtune", "torchtitan", "Unsloth", "InternVL", "internvl", "llava", "LLaVA", NULL},
				 /* as a rule, but for the models of sound and sight that they hold as well */
				 *const mostly[] = {"transformers", NULL}, *const perhaps[] = {"trainer.py", NULL};
	/* of models that see, not of those that draw */
	static const char *const pixels[] = {"max_pixels", "_vl/", "_vl.py", "vision_tower", "pixel_values", "grid_thw", "limit_mm_per_prompt", "limit-mm-per-prompt",
					     "multi-modal", "multimodal", "vision_model", "MAX_PIXELS", "web_demo_mm", "vl-7b", "vl-2B", "vl-3B", "vl-7B", "vl-72B", "vl-2b", "vl-3b", "vl-4b", "vl-8b", "vl-32b", "vl-72b", "VL-7B", "VL-3B", "VL-4B", "VL-8B", "VL-30B", "VL-32B", "VL-72B", "VL-2B", NULL};

	c->language = any(begin, end, language) || (c->task == OOM_TASK_UNKNOWN && any(begin, end, perhaps)) ||
		      (any(begin, end, mostly) && c->task != OOM_TASK_AUDIO && c->task != OOM_TASK_IMAGES && c->task != OOM_TASK_VIDEO);
	c->sees = any(begin, end, pixels);
}

/* "--> 599 attention_scores = torch.baddbmm(": the innermost cell or file of a notebook's traceback, with the lines around it. */
static enum oom_crash_part by_arrow(const char *begin, const char *line, uint64_t tried)
{
	const char *const last = oom_text_last(line - begin > 900 ? line - 900 : begin, line, "--> ");

	return last ? oom_part_near(last, oom_line_end(last, line), false, tried) : OOM_PART_UNKNOWN;
}

/* "with --no-load-optim it is ok": Megatron's option, in a sentence that says that the run goes with it. */
static bool runs_without_states(const char *begin, const char *end)
{
	static const char *const names[] = {"no-load-optim", "no_load_optim"}, *const goes[] = {" ok", " OK", " fine", "works", "worked", "no OOM", "no oom", "succeed", "normal"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, names[i])); p++)
			for (size_t k = 0; k < sizeof(goes) / sizeof(goes[0]); k++)
				if (oom_text_find(p, oom_sentence_end(p, end - p > 120 ? p + 120 : end, 1), goes[k]))
					return true;
	return false;
}

/* Of PyTorch's own refusals: what the frames show, else what the words around them do. */
static enum oom_crash_part of_torch(const struct oom_crash *c, const char *begin, const char *at, const char *line, const char *end)
{
	/* commands and calls that put adapters into their base */
	static const char *const merges[] = {"merge_and_unload", "llamafactory-cli export", "export_model.py", "--merge_lora true", "merge_lora=True", "merge-lora",
					     "merge_lora.py", "merge_adapter", NULL};
	/* who goes on from a checkpoint, by what people write and by the option; not where steps were counted since */
	static const char *const resumes[] = {"oading optimizer state", "oad optimizer state", "oad the optimizer state", "hen I resume", "hen resum", "resumed the model", "resuming the training",
					      "resuming training", "resume the training", "resume training from", "init_from=resume", "init_from resume", "estoring checkpoint", "estoring the checkpoint", "estoring optimizer", NULL},
				 *const steps[] = {"it/s", "s/it", "loss", "Epoch", NULL};
	/* notebooks mark the line that ran by an arrow */
	const char *const stop = oom_text_find(begin, line, "File \"") || oom_text_find(begin, line, "--> ") ? NULL : below(line, end);
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED];
	enum oom_crash_part part = OOM_PART_UNKNOWN;
	struct oom_span s;

	if (c->traceback && oom_traceback(begin, at, end, &s))
		part = oom_part_deep(s.from, s.to);
	if (part == OOM_PART_UNKNOWN && stop)
		part = oom_part_near(innermost(line, stop), stop, false, tried);
	else if (part == OOM_PART_UNKNOWN && (c->traceback || line > begin))
		part = oom_part_near(innermost(begin, line), line, false, tried);
	if (part == OOM_PART_UNKNOWN)
		part = by_arrow(begin, line, tried);
	if (part != OOM_PART_UNKNOWN)
		return part;
	if (c->phase == OOM_CRASH_LOAD && !c->trains && any(begin, end, merges))
		return OOM_PART_MERGED;
	if ((c->phase == OOM_CRASH_LOAD || c->phase == OOM_CRASH_UNKNOWN || !c->traceback) && (any(begin, end, resumes) || runs_without_states(begin, end)) && !any(begin, end, steps))
		return OOM_PART_RESTORED;
	if (c->phase == OOM_CRASH_TO_DEVICE && moves(innermost(begin, line), line, inputs))
		return OOM_PART_INPUT;
	if (c->phase == OOM_CRASH_TO_DEVICE && moves(innermost(begin, line), line, models))
		return OOM_PART_WEIGHTS;
	if (multiplies_itself(innermost(begin, line), line))
		return OOM_PART_PAIRS;
	if (c->phase == OOM_CRASH_INIT && captures(begin, line))
		return OOM_PART_GRAPHS;
	if (c->phase == OOM_CRASH_INIT && oom_text_find(begin, line, "used for profiling"))
		return OOM_PART_WARMUP;
	if (!c->traceback && encodes(begin, at))
		return OOM_PART_ENCODED;
	if (samples(c, begin, end))
		return OOM_PART_SAMPLER;
	if (c->phase == OOM_CRASH_INFERENCE && decodes(begin, line, end))
		return OOM_PART_IMAGE;
	if (is_other_node(begin, line))
		return OOM_PART_NODE;
	return OOM_PART_UNKNOWN;
}

void oom_decode_part(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	/* who exports a model for another runtime */
	static const char *const traces[] = {"torch/onnx/", "torch\\onnx\\", "torch.onnx.export(", "TracerWarning",
					     "torch/jit/_trace.py", "optimum/exporters", NULL};
	const char *const line = oom_line_begin(begin, at);
	const bool layered = oom_runtime_is(c, OOM_RUNTIME_LAYERED);
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED];

	c->part = OOM_PART_UNKNOWN;
	decode_model(c, begin, end);
	if (oom_text_find(line, oom_line_end(at, end), "warmup model") || oom_text_find(line, oom_line_end(at, end), "determine_num_available_blocks") ||
	    oom_text_find(line, oom_line_end(at, end), "determine_available_memory")) {
		c->part = OOM_PART_WARMUP;
	} else if (layered) {
		c->part = oom_part_near(line > begin ? oom_line_begin(begin, line - 1) : line, end - line > 700 ? line + 700 : end, true, tried);
	} else if (c->phase == OOM_CRASH_COMPILE && any(begin, end, traces)) {
		c->part = OOM_PART_TRACE;
	} else if (oom_runtime_is(c, OOM_RUNTIME_TORCH)) {
		c->part = of_torch(c, begin, at, line, end);
	} else if (oom_runtime_is(c, OOM_RUNTIME_GRAPH) && c->traceback && oom_text_find(begin, line, "batch_outputs, concat")) {
		/* Keras joins what predict() gives */
		c->part = OOM_PART_JOINED;
	} else if (oom_format_is(c, OOM_FORMAT_NODE)) {
		c->part = oom_part_near(line, oom_line_end(at, end), false, tried);
	} else if (*c->largest) {
		c->part = oom_part_near(c->largest, c->largest + strlen(c->largest), false, tried);
	}
	/* convolutions over time: of what draws, its decoder of video has them */
	if (c->part == OOM_PART_MAPS && oom_lever_own(c, OOM_LEVER_TILE) && c->phase != OOM_CRASH_UNKNOWN && !c->trains && oom_text_find(begin, line, "F.conv3d("))
		c->part = OOM_PART_IMAGE;
	/* whose warm-up is one of training or of a script tries no largest batch */
	if (c->part == OOM_PART_WARMUP && oom_program_of(c)->activity != OOM_ACTIVITY_SERVES)
		c->part = OOM_PART_UNKNOWN;
	/* a server's parameters stay where they are, each rank its own */
	if (c->part == OOM_PART_GATHERED && oom_program_of(c)->activity == OOM_ACTIVITY_SERVES)
		c->part = OOM_PART_EXCHANGED;
	/* without a vocabulary it is a loss, if anything is learnt */
	if (c->part == OOM_PART_LOGITS && !c->language)
		c->part = c->phase == OOM_CRASH_INFERENCE || c->phase == OOM_CRASH_EVAL ? OOM_PART_UNKNOWN : OOM_PART_LOSS;
}
