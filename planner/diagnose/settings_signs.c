/* What a run has set, or has loaded, that shows by other signs than its options: nodes and functions by their names, the
 * code that ran, a loader's log, what people write that they do. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* What shows in other ways: nodes and functions by their names, the code that ran. */
static const struct {
	const char *sign;
	enum oom_lever lever;
} signs[] = {
	{"peft/tuners/lora", OOM_LEVER_ADAPTER},
	{"finetune/lora.py", OOM_LEVER_ADAPTER},
	{"lora.yaml", OOM_LEVER_ADAPTER},
	/* "train_lora_qwen.py", "run_lora.sh": what a script is for */
	{"_lora_", OOM_LEVER_ADAPTER},
	{"_lora.", OOM_LEVER_ADAPTER},
	{"train_network.py", OOM_LEVER_ADAPTER},
	{"peft/peft_model.py", OOM_LEVER_ADAPTER},
	{"get_peft_model(", OOM_LEVER_ADAPTER},
	/* as PEFT counts them */
	{"trainable params: ", OOM_LEVER_ADAPTER},
	{"qlora", OOM_LEVER_QUANT},
	{"QLoRA", OOM_LEVER_QUANT},
	{"QLORA", OOM_LEVER_QUANT},
	{"QLoRa", OOM_LEVER_QUANT},
	/* weights that are quantised, by their names on the Hub */
	{"-awq", OOM_LEVER_QUANT},
	{"-AWQ", OOM_LEVER_QUANT},
	{"-gptq", OOM_LEVER_QUANT},
	{"-GPTQ", OOM_LEVER_QUANT},
	{"-bnb-4bit", OOM_LEVER_QUANT},
	{"-FP8", OOM_LEVER_QUANT},
	/* the decorator's frame, and the calls */
	{"decorate_context", OOM_LEVER_NO_GRAD},
	{"no_grad()", OOM_LEVER_NO_GRAD},
	{"inference_mode()", OOM_LEVER_NO_GRAD},
	{"VAEDecodeTiled", OOM_LEVER_TILE},
	{"VAEEncodeTiled", OOM_LEVER_TILE},
	{"in decode_tiled", OOM_LEVER_TILE},
	{".decode_tiled", OOM_LEVER_TILE},
	/* what stage 3 alone has, and a list of FSDP's options (transformers) */
	{"runtime/zero/stage3.py", OOM_LEVER_SHARD},
	{"DeepSpeedZeroOptimizer_Stage3", OOM_LEVER_SHARD},
	{"runtime/zero/partition_parameters.py", OOM_LEVER_SHARD},
	{"runtime/zero/partitioned_param", OOM_LEVER_SHARD},
	{"- full_shard", OOM_LEVER_SHARD},
	/* FSDP of either kind at work, which divides parameters unless it is told otherwise; while it is made, they are whole */
	{"fsdp/_runtime_utils.py", OOM_LEVER_SHARD},
	{"_fsdp_param_group.py", OOM_LEVER_SHARD},
	{"_fsdp_state.py", OOM_LEVER_SHARD},
	{"in encode_tiled", OOM_LEVER_TILE},
	{"in tiled_decode", OOM_LEVER_TILE},
	{"in tiled_encode", OOM_LEVER_TILE},
	{"retrying with tiled VAE", OOM_LEVER_TILE},
	{"[Tiled VAE]", OOM_LEVER_TILE},
	{"bitsandbytes/nn/modules.py", OOM_LEVER_QUANT},
	/* files whose frames stand in a traceback only where the thing is on: what recomputes (PyTorch, its wrapper of FSDP,
	 * DeepSpeed, transformers, Megatron, Unsloth), kernels that keep no scores, losses that keep no logits, optimizers
	 * with small states or with states on the host, autocast and what makes its outputs 32 bits again (accelerate) */
	{"torch/utils/checkpoint.py\"", OOM_LEVER_RECOMPUTE},
	{"torch/utils/checkpoint.py:", OOM_LEVER_RECOMPUTE},
	{"torch/utils/checkpoint.py(", OOM_LEVER_RECOMPUTE},
	{"environ[\"PYTORCH_MPS_HIGH_WATERMARK_RATIO", OOM_LEVER_WATERMARK},
	{"environ['PYTORCH_MPS_HIGH_WATERMARK_RATIO", OOM_LEVER_WATERMARK},
	{"export PYTORCH_MPS_HIGH_WATERMARK_RATIO", OOM_LEVER_WATERMARK},
	{"_checkpoint/checkpoint_wrapper.py", OOM_LEVER_RECOMPUTE},
	{"deepspeed/runtime/activation_checkpointing", OOM_LEVER_RECOMPUTE},
	{"_gradient_checkpointing_func(", OOM_LEVER_RECOMPUTE},
	{"in _checkpointed_forward", OOM_LEVER_RECOMPUTE},
	{"unsloth_zoo/gradient_checkpointing.py", OOM_LEVER_RECOMPUTE},
	{"flash_attn/flash_attn_interface.py", OOM_LEVER_SCORES},
	{"xformers/ops/fmha", OOM_LEVER_SCORES},
	{"integrations/sdpa_attention.py", OOM_LEVER_SCORES},
	{"liger_kernel/ops/fused_linear", OOM_LEVER_LOGITS},
	{"cut_cross_entropy/", OOM_LEVER_LOGITS},
	{"bitsandbytes/optim/", OOM_LEVER_OPTIMIZER},
	{"deepspeed/ops/adam/cpu_adam", OOM_LEVER_OPTIMIZER},
	{"in convert_to_fp32", OOM_LEVER_PRECISION},
	{"torch/amp/autocast_mode.py", OOM_LEVER_PRECISION},
	/* DeepSpeed's engine says what it made */
	{"Creating fp16 ZeRO", OOM_LEVER_PRECISION},
	{"Creating torch.float16 ZeRO", OOM_LEVER_PRECISION},
	{"Creating torch.bfloat16 ZeRO", OOM_LEVER_PRECISION},
};

static bool any_in(const char *const *words, size_t n, const char *from, const char *to)
{
	for (size_t i = 0; i < n; i++)
		if (oom_text_find(from, to, words[i]))
			return true;
	return false;
}

/* A sign with a folder in it, as Windows spells it; "" without one. */
static const char *backslashed(const char *sign, char *buf, size_t size)
{
	size_t n = 0;

	for (; strchr(sign, '/') && sign[n] && n + 1 < size; n++)
		buf[n] = sign[n] == '/' ? '\\' : sign[n];
	buf[n] = 0;
	return buf;
}

/* A warning tells what to use instead. */
static bool shows(const char *begin, const char *end, const char *sign)
{
	for (const char *p = begin; *sign && (p = oom_text_find(p, end, sign)); p++)
		if (!oom_text_find(oom_line_begin(begin, p), p, "Warning"))
			return true;
	return false;
}

static void by_signs(struct oom_crash *c, const char *begin, const char *end)
{
	char buf[64];

	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
		if (shows(begin, end, signs[i].sign) || shows(begin, end, backslashed(signs[i].sign, buf, sizeof(buf))))
			c->set |= OOM_SET(signs[i].lever);
	/* the call that ran */
	if (oom_text_find(begin, end, "scaled_dot_product_attention("))
		oom_told_note(c, "sdpa", "sdpa", strlen("sdpa"), "");
	/* 4 or 8 bits: the option that asks for it has done its work */
	if ((c->set & OOM_SET(OOM_LEVER_QUANT)) && !oom_told(c, "load_in_4bit"))
		oom_told_note(c, "load_in_4bit", "load_in_4bit", strlen("load_in_4bit"), "");
}

/* target_modules = ["q_proj", ..., "embed_tokens", "lm_head"], in Python, YAML or on a command line. */
static bool trains_vocabulary(const char *begin, const char *end)
{
	static const char *const keys[] = {"target_modules", "modules_to_save", "lora_target"}, *const names[] = {"lm_head", "embed_tokens"};

	for (size_t i = 0; i < COUNT(keys); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, keys[i])); p++)
			if (any_in(names, COUNT(names), p, end - p > 240 ? p + 240 : end))
				return true;
	return false;
}

/* "1,361,753,856 of", "41943040 ||": digits with their separators. */
static double counted(const char *p, const char *end, const char **after)
{
	double v = 0;

	for (; p < end && (isdigit((unsigned char)*p) || *p == ',' || *p == '_'); p++)
		v = isdigit((unsigned char)*p) ? v * 10 + (*p - '0') : v;
	*after = p;
	return v;
}

/* How many parameters are trained, of how many: PEFT's print_trainable_parameters(), Unsloth's banner. */
static void count_trained(struct oom_crash *c, const char *begin, const char *end)
{
	static const struct {
		const char *trained, *all;
	} lines[] = {{"rainable params: ", "|| all params: "}, {"rainable parameters = ", " of "}, {"umber of trainable parameters = ", ""}};

	for (size_t i = 0; i < COUNT(lines) && !c->trained; i++) {
		const char *const p = oom_text_find(begin, end, lines[i].trained), *all, *after;
		double n;

		if (!p)
			continue;
		n = counted(p + strlen(lines[i].trained), end, &after);
		all = *lines[i].all ? oom_text_find(after, oom_line_end(after, end), lines[i].all) : NULL;
		if (n < 1 || n > 1e15)
			continue;
		c->trained = (uint64_t)n;
		c->of_parameters = all ? (uint64_t)counted(all + strlen(lines[i].all), end, &after) : 0;
	}
	/* who counts one of both trains all, as a rule; a part of the whole is adapters */
	if (c->of_parameters > c->trained)
		c->set |= OOM_SET(OOM_LEVER_ADAPTER);
	/* adapters are hundredths: a tenth and more are layers that are trained whole beside them */
	if (c->of_parameters > c->trained && c->trained > c->of_parameters / 10 && c->trained < c->of_parameters / 10 * 8)
		oom_told_note(c, "modules_to_save", "modules_to_save", strlen("modules_to_save"), "");
}

static bool alphabetic(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

/* "to train a LoRA." */
static bool ends_sentence(const char *p, const char *end)
{
	return *p == '.' && (p + 1 == end || isspace((unsigned char)p[1]));
}

/* "LoRA fine-tuning of a 7B model", "lora\xe5\xbe\xae\xe8\xb0\x83", "QLoRA": the word in somebody's sentence, where nothing
 * says that it is all weights that are trained. */
static bool speaks_of_lora(const char *begin, const char *end)
{
	static const char *const words[] = {"lora", "LoRA", "Lora", "LORA", "LoRa"},
				 *const against[] = {"ithout ", "nstead of ", "han ", "no ", "not ", "works", "fine with ", "try ", "use "},
				 *const own[] = {"I use ", "we use ", "We use ", "I used ", "we used "},
				 *const whole[] = {"full fine", "full-fine", "full param", "full-param", "full_", "Full ", "full tun", "fullfine", "finetuning_type: full", "finetuning_type full",
				     "train_type full", "full sft", "\xe5\x85\xa8\xe9\x87\x8f" /* all weights */, "\xe5\x85\xa8\xe5\x8f\x82"};

	if (any_in(whole, COUNT(whole), begin, end))
		return false;
	for (size_t i = 0; i < COUNT(words); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *const line = oom_line_begin(begin, p), *const after = p + strlen(words[i]);
			const bool first = p == begin || !(alphabetic(p[-1]) || strchr("_-/.", p[-1])) || (p > begin && (p[-1] == 'q' || p[-1] == 'Q'));

			/* an option or a name that holds it is read as one */
			if (first && !(after < end && (alphabetic(*after) || (strchr("_-/.=:(", *after) && !ends_sentence(after, end)))) &&
			    (any_in(own, COUNT(own), p - line > 8 ? p - 8 : line, p) ||
			     !any_in(against, COUNT(against), p - line > 14 ? p - 14 : line, oom_line_end(p, end) - p > 20 ? p + 20 : oom_line_end(p, end))) &&
			    !oom_text_find(line, p, "Warning"))
				return true;
		}
	return false;
}

/* "2 nodes, DeepSpeed: ZeRO3", "I use deepspeed ZERO-3": the stage in somebody's sentence, not as advice. */
static bool speaks_of_third_stage(const char *begin, const char *end)
{
	static const char *const words[] = {"ZeRO3", "ZeRO-3", "ZeRO 3", "Zero3", "Zero-3", "ZERO3", "ZERO-3", "zero3", "zero-3"},
				 *const engine[] = {"eepspeed", "eepSpeed", "EEPSPEED"},
				 *const against[] = {"ithout ", "nstead of ", "han ", " not ", " no ", "ecommend", "uggest", "hould ", "ould ", "can ", "ry using", "only "};

	for (size_t i = 0; i < COUNT(words); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *const line = oom_line_begin(begin, p);

			if (any_in(engine, COUNT(engine), line, p) && !any_in(against, COUNT(against), p - line > 30 ? p - 30 : line, p))
				return true;
		}
	return false;
}

/* Set by whoever started it; the message's own advice names the same words. */
static bool has_segments(const char *begin, const char *end)
{
	static const char word[] = "expandable_segments:True", advice[] = "try setting";

	for (const char *p = begin; (p = oom_text_find(p, end, word)); p++)
		if (!oom_text_find(p - begin > 60 ? p - 60 : begin, p, advice))
			return true;
	return false;
}

/* llama.cpp's loader: "offloaded 23/33 layers to GPU", "CUDA0 model buffer size = 3946.35 MiB" of each card. */
static void layers(struct oom_crash *c, const char *begin, const char *end)
{
	static const char said[] = "offloaded ";
	const char *const at = oom_text_last(begin, end, said), *line = at;
	char number[16];
	double mib = 0, n;
	size_t digits;

	c->layers = c->layer_bytes = 0;
	if (!at || (digits = strspn(at + strlen(said), "0123456789")) == 0 || digits >= sizeof(number) || at[strlen(said) + digits] != '/')
		return;
	snprintf(number, sizeof(number), "%.*s", (int)digits, at + strlen(said));
	n = strtod(number, NULL);
	for (int i = 0; i < 20 && line < end; i++) {
		const char *const stop = oom_line_end(line, end), *const size = oom_text_find(line, stop, "buffer size =");

		if (size && !oom_text_find(line, size, "CPU") && !oom_text_find(line, size, "Host") && !oom_text_find(line, size, "KV") &&
		    !oom_text_find(line, size, "compute"))
			mib += strtod(size + strlen("buffer size ="), NULL);
		line = stop + (stop < end);
	}
	if (n >= 1 && mib > 0) {
		c->layers = (uint64_t)n;
		c->layer_bytes = (uint64_t)(mib / n * 1048576);
	}
}

/* Ollama starts one runner for each model, and names its file: "--model /root/.ollama/models/blobs/sha256-6a0746a1". */
static bool starts_two(const char *begin, const char *end)
{
	static const char option[] = "--model ", blob[] = "sha256-";
	const char *first = NULL;

	for (const char *p = begin; (p = oom_text_find(p, end, option)); p++) {
		const char *const stop = oom_line_end(p, end), *const name = oom_text_find(p, stop, blob);

		if (!name || stop - name < 24)
			continue;
		if (first && memcmp(first, name, 24))
			return true;
		first = name;
	}
	return false;
}

/* One model after the other, or several at once: what the one before takes may still be there. Who tried several, each by
 * itself, says nothing of it. */
static bool loads_several(const char *begin, const char *end)
{
	static const char *const said[] = {"econd model", "witch model", "witching model", "witching between", "witch between", "model after another", "models one after", "model after the other"},
				 *const many[] = {"ultiple models", "everal models", "ifferent model", "wo models", "nother model"},
				 *const loaded[] = {"load", "concurren", "simultan", "at once", "same time", "parallel", "one after", "sequen", "loop", "unload", "hosted", "same server", "same GPU", "same gpu"};

	if (any_in(said, COUNT(said), begin, end))
		return true;
	for (size_t i = 0; i < COUNT(many); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, many[i])); p++)
			if (any_in(loaded, COUNT(loaded), oom_line_begin(begin, p), oom_line_end(p, end)))
				return true;
	for (const char *p = begin; (p = oom_text_find(p, end, " other models")); p++)
		if (any_in(loaded, COUNT(loaded), oom_line_begin(begin, p), oom_line_end(p, end)))
			return true;
	for (const char *p = begin; (p = oom_text_find(p, end, " models")); p++)
		if (p - begin > 1 && p[-1] >= '2' && p[-1] <= '9' && !isalnum((unsigned char)p[-2]) && any_in(loaded, COUNT(loaded), oom_line_begin(begin, p), oom_line_end(p, end)))
			return true;
	return starts_two(begin, end);
}

/* pipe.to("cuda") before pipe.enable_model_cpu_offload(): all of it lies on the card by then (diffusers warns of it). */
static bool moves_first(const char *begin, const char *end)
{
	static const char *const moves[] = {".to(\"cuda\")", ".to('cuda')", ".cuda()", ".to(device)"},
				 *const offloads[] = {"enable_model_cpu_offload()", "enable_sequential_cpu_offload()"};

	for (size_t i = 0; i < COUNT(offloads); i++) {
		const char *const p = oom_text_find(begin, end, offloads[i]), *const line = p ? oom_line_begin(begin, p) : NULL;

		for (const char *q = line; q && q < p; q++)
			if (*q == '#' || *q == '`')
				return false;
		if (p && any_in(moves, COUNT(moves), p - begin > 1500 ? p - 1500 : begin, line))
			return true;
	}
	return false;
}

/* "--nnodes=2": one process a node is not one process. */
bool oom_several_nodes(const char *begin, const char *end)
{
	static const char name[] = "nnodes";

	for (const char *p = begin; (p = oom_text_find(p, end, name)); p++) {
		const char *v = p + strlen(name);

		while (v < end && strchr(" =:\"'", *v))
			v++;
		if (v < end && (*v == '$' || strtol(v, NULL, 10) > 1))
			return true;
	}
	return false;
}

void oom_settings_by_signs(struct oom_crash *c, const char *begin, const char *end)
{
	by_signs(c, begin, end);
	if (has_segments(begin, end))
		c->set |= OOM_SET(OOM_LEVER_FRAGMENT);
	layers(c, begin, end);
	if (trains_vocabulary(begin, end))
		oom_told_note(c, "modules_to_save", "modules_to_save", strlen("modules_to_save"), "");
	count_trained(c, begin, end);
	c->amd = oom_text_find(begin, end, "rocm") || oom_text_find(begin, end, "ROCm") || oom_text_find(begin, end, "hipError") || oom_text_find(begin, end, "HIP_ERROR") || oom_text_find(begin, end, "hipMalloc");
	if (speaks_of_lora(begin, end))
		c->set |= OOM_SET(OOM_LEVER_ADAPTER);
	if (speaks_of_third_stage(begin, end))
		c->set |= OOM_SET(OOM_LEVER_SHARD);
	c->several = loads_several(begin, end);
	c->moved_whole = moves_first(begin, end);
	c->mapped = (oom_text_find(begin, end, "device_map=\"auto\"") || oom_text_find(begin, end, "device_map='auto'") || oom_text_find(begin, end, "device_map: auto") || oom_text_find(begin, end, "device_map=auto")) &&
		    (oom_text_find(begin, end, " GPUs") || oom_text_find(begin, end, "ther GPU") || oom_text_find(begin, end, "ulti-GPU") || oom_text_find(begin, end, "ulti GPU") || oom_text_find(begin, end, " gpus"));
}
