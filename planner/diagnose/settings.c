/* What the run has set already: options of its command line, its configuration or its script, around the message.
 *
 * Advice to set what is set is none. An option is a name with a value: "--name", "--name value", "name=value",
 * "name: value", "name()". Prose that only mentions one sets nothing, and neither does a printed configuration in
 * which it is off. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

enum { LONGEST_NAME = 48, LONGEST_VALUE = 40 };

/* In names "-" and "_" are the same. */
static const struct {
	const char *name;
	/* what its value holds, one of these words; NULL: anything but no */
	const char *const *values;
	enum oom_lever lever;
} rows[] = {
#define ANY_OF(...) (const char *const[]){__VA_ARGS__, NULL}
#define HALF ANY_OF("bf16", "fp16", "bfloat16", "float16", "16-mixed", "16-true")
#define SMALL_OPTIMIZER ANY_OF("8bit", "4bit", "paged", "dafactor", "galore", "lomo", "sgd")
#define WITHOUT_SCORES ANY_OF("flash", "sdpa", "fa2", "fa3", "on", "rue", "1", "xformers", "auto", "enabled")
#define LORA ANY_OF("lora", "dora", "adalora", "ia3")
#define SHARDED ANY_OF("zero3", "zero_3", "zero-3", "z3", "stage3", "stage_3")
	{"gradient_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"use_gradient_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"enable_gradient_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"gradient_checkpointing_enable", NULL, OOM_LEVER_RECOMPUTE},
	{"enable_activation_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"fsdp_activation_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"grad_checkpoint", NULL, OOM_LEVER_RECOMPUTE},
	{"grad_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"recompute_activations", NULL, OOM_LEVER_RECOMPUTE},
	{"recompute_granularity", NULL, OOM_LEVER_RECOMPUTE},
	{"checkpoint_activations", NULL, OOM_LEVER_RECOMPUTE},
	{"activation_checkpointing", NULL, OOM_LEVER_RECOMPUTE},
	{"use_checkpoint", NULL, OOM_LEVER_RECOMPUTE},
	{"bf16", NULL, OOM_LEVER_PRECISION},
	{"fp16", NULL, OOM_LEVER_PRECISION},
	{"pure_bf16", NULL, OOM_LEVER_PRECISION},
	{"mixed_precision", HALF, OOM_LEVER_PRECISION},
	{"precision", HALF, OOM_LEVER_PRECISION},
	{"dtype", HALF, OOM_LEVER_PRECISION},
	{"torch_dtype", HALF, OOM_LEVER_PRECISION},
	{"use_liger_kernel", NULL, OOM_LEVER_LOGITS},
	{"enable_liger_kernel", NULL, OOM_LEVER_LOGITS},
	{"cut_cross_entropy", NULL, OOM_LEVER_LOGITS},
	{"liger_fused_linear_cross_entropy", NULL, OOM_LEVER_LOGITS},
	{"optim", SMALL_OPTIMIZER, OOM_LEVER_OPTIMIZER},
	{"optimizer", SMALL_OPTIMIZER, OOM_LEVER_OPTIMIZER},
	{"optimizer_type", SMALL_OPTIMIZER, OOM_LEVER_OPTIMIZER},
	{"use_8bit_adam", NULL, OOM_LEVER_OPTIMIZER},
	{"AdamW8bit", NULL, OOM_LEVER_OPTIMIZER},
	{"offload_optimizer", NULL, OOM_LEVER_OPTIMIZER},
	{"offload_optimizer_device", ANY_OF("cpu", "nvme"), OOM_LEVER_OPTIMIZER},
	{"cpu_offload", NULL, OOM_LEVER_OFFLOAD},
	{"use_cpu_offload", NULL, OOM_LEVER_OFFLOAD},
	{"q_lora", NULL, OOM_LEVER_QUANT},
	{"fp8_base", NULL, OOM_LEVER_QUANT},
	{"use_fp8", NULL, OOM_LEVER_QUANT},
	{"transformer_dtype", ANY_OF("float8", "fp8"), OOM_LEVER_QUANT},
	{"base_model_precision", ANY_OF("int8", "int4", "nf4", "fp8", "int2"), OOM_LEVER_QUANT},
	{"bits", ANY_OF("=4"), OOM_LEVER_QUANT},
	{"optimizer_offload", NULL, OOM_LEVER_OPTIMIZER},
	{"adam_offload", NULL, OOM_LEVER_OPTIMIZER},
	{"load_in_4bit", NULL, OOM_LEVER_QUANT},
	{"quantization_bit", ANY_OF("4"), OOM_LEVER_QUANT},
	{"quantization", NULL, OOM_LEVER_QUANT},
	{"quantize", NULL, OOM_LEVER_QUANT},
	{"quant_bits", ANY_OF("4"), OOM_LEVER_QUANT},
	{"finetuning_type", LORA, OOM_LEVER_ADAPTER},
	{"tuner_type", LORA, OOM_LEVER_ADAPTER},
	{"train_type", LORA, OOM_LEVER_ADAPTER},
	{"sft_type", LORA, OOM_LEVER_ADAPTER},
	{"adapter", LORA, OOM_LEVER_ADAPTER},
	{"adapter_name", LORA, OOM_LEVER_ADAPTER},
	{"use_lora", NULL, OOM_LEVER_ADAPTER},
	{"use_peft", NULL, OOM_LEVER_ADAPTER},
	/* arguments of TRL's trainers and of transformers' from_pretrained(), made elsewhere */
	{"peft_config", NULL, OOM_LEVER_ADAPTER},
	{"quantization_config", NULL, OOM_LEVER_QUANT},
	{"lora_rank", NULL, OOM_LEVER_ADAPTER},
	{"lora_r", NULL, OOM_LEVER_ADAPTER},
	{"peft_method", LORA, OOM_LEVER_ADAPTER},
	{"lora_target", NULL, OOM_LEVER_ADAPTER},
	{"lora_target_modules", NULL, OOM_LEVER_ADAPTER},
	{"deepspeed", SHARDED, OOM_LEVER_SHARD},
	/* accelerate's file by its name */
	{"config_file", SHARDED, OOM_LEVER_SHARD},
	{"zero_stage", ANY_OF("3"), OOM_LEVER_SHARD},
	{"fsdp", ANY_OF("full_shard"), OOM_LEVER_SHARD},
	{"fsdp_sharding_strategy", ANY_OF("FULL_SHARD", "1"), OOM_LEVER_SHARD},
	/* samples are joined to one length: no batch is the longest */
	{"sample_packing", NULL, OOM_LEVER_LONGEST},
	{"packing", NULL, OOM_LEVER_LONGEST},
	{"neat_packing", NULL, OOM_LEVER_LONGEST},
	{"pad_to_sequence_len", NULL, OOM_LEVER_LONGEST},
	/* only read where it is on */
	{"gradient_checkpointing_kwargs", NULL, OOM_LEVER_RECOMPUTE},
	{"enforce_eager", NULL, OOM_LEVER_GRAPHS},
	{"disable_cuda_graph", NULL, OOM_LEVER_GRAPHS},
	{"novram", NULL, OOM_LEVER_OFFLOAD},
	{"enable_sequential_cpu_offload", NULL, OOM_LEVER_OFFLOAD},
	{"offload_model", NULL, OOM_LEVER_OFFLOAD},
	{"enable_vae_tiling", NULL, OOM_LEVER_TILE},
	{"flash_attn", WITHOUT_SCORES, OOM_LEVER_SCORES},
	{"flash_attention", WITHOUT_SCORES, OOM_LEVER_SCORES},
	{"attn_impl", WITHOUT_SCORES, OOM_LEVER_SCORES},
	{"attn_implementation", WITHOUT_SCORES, OOM_LEVER_SCORES},
	{"fa", ANY_OF("on", "1"), OOM_LEVER_SCORES},
	{"xformers", NULL, OOM_LEVER_SCORES},
	{"opt_sdp_attention", NULL, OOM_LEVER_SCORES},
	{"enable_xformers_memory_efficient_attention", NULL, OOM_LEVER_SCORES},
	{"OLLAMA_FLASH_ATTENTION", ANY_OF("1", "rue"), OOM_LEVER_SCORES},
	{"cache_type_k", ANY_OF("q8", "q4", "q5"), OOM_LEVER_KV},
	{"ctk", ANY_OF("q8", "q4", "q5"), OOM_LEVER_KV},
	/* exllamav2's scripts */
	{"cq4", NULL, OOM_LEVER_KV},
	{"cq6", NULL, OOM_LEVER_KV},
	{"cq8", NULL, OOM_LEVER_KV},
	{"OLLAMA_KV_CACHE_TYPE", ANY_OF("q8", "q4"), OOM_LEVER_KV},
	{"per_device_train_batch_size", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"train_batch_size", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"micro_batch_size", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"batch_size", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"batch_size_per_gpu", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"bs", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"bsz", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"samples_per_gpu", ANY_OF("=1"), OOM_LEVER_BATCH},
	{"train_micro_batch_size_per_gpu", ANY_OF("=1"), OOM_LEVER_BATCH},
};
static const struct {
	enum oom_lever lever;
	const char *called;
} names[] = {
	{OOM_LEVER_BATCH, "a batch of one"},
	{OOM_LEVER_RECOMPUTE, "gradient checkpointing"},
	{OOM_LEVER_PRECISION, "16-bit training"},
	{OOM_LEVER_LOGITS, "a fused loss"},
	{OOM_LEVER_OPTIMIZER, "an optimizer with small states, or states on the host"},
	{OOM_LEVER_ADAPTER, "adapters (LoRA)"},
	{OOM_LEVER_SHARD, "sharded parameters"},
	{OOM_LEVER_QUANT, "quantised weights"},
	{OOM_LEVER_GRAPHS, "no CUDA graphs"},
	{OOM_LEVER_OFFLOAD, "weights on the host"},
	{OOM_LEVER_TILE, "a tiled decoder"},
	{OOM_LEVER_NO_GRAD, "no gradients (torch.no_grad)"},
	{OOM_LEVER_SCORES, "attention without a score matrix"},
	{OOM_LEVER_KV, "a quantised KV cache"},
	{OOM_LEVER_FRAGMENT, "expandable segments"},
};

static bool of_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* The first word of a group says whether all of it is on; another group is no setting by itself. */
static const char *switched(const char *p, const char *end)
{
	static const char word[] = "enabled";

	while (p < end && strchr(" \n\t\"'", *p))
		p++;
	if (end - p < 16 || strncmp(p, word, sizeof(word) - 1))
		return NULL;
	for (p += sizeof(word) - 1; p < end && strchr(" \"':", *p);)
		p++;
	return end - p > 4 && (!strncmp(p, "true", 4) || !strncmp(p, "True", 4)) ? "true" : NULL;
}

/* What stands behind a name: "" for none, as of a flag alone; NULL: it is no option. */
static const char *value_of(const char *p, const char *end, bool dashed, char *out)
{
	size_t n = 0;
	bool told = false;

	if (p < end && *p == '(')
		return p + 1 < end && p[1] == ')' ? "" : NULL;
	/* a log's "gpu_memory_utilization (0.90)", and "micro_batch_size 1" as people write it */
	if (end - p > 2 && *p == ' ' && (isdigit((unsigned char)p[1]) || (p[1] == '(' && isdigit((unsigned char)p[2])))) {
		p += p[1] == '(' ? 2 : 1;
		while (p + n < end && n + 1 < LONGEST_VALUE && (isdigit((unsigned char)p[n]) || p[n] == '.')) {
			out[n] = p[n];
			n++;
		}
		out[n] = 0;
		return out;
	}
	while (p < end && (*p == '"' || *p == '\'' || *p == ']'))
		p++;
	while (p < end && (*p == ' ' || *p == '=' || *p == ':')) {
		told |= *p != ' ';
		p++;
	}
	if (!told && !dashed)
		return NULL;
	/* a group in quotes is one argument of a command */
	while (p + 1 < end && (*p == '"' || *p == '\'' || *p == '[') && (told || (dashed && p[1] != '{')))
		p++;
	/* the next flag, or the line's end: this one stands alone */
	if (!told && p < end && strchr("-\\\n", *p))
		return "";
	while (p + n < end && n + 1 < LONGEST_VALUE && !strchr(" ,;)}\"'\n\\", p[n])) {
		out[n] = p[n];
		n++;
	}
	out[n] = 0;
	/* DeepSpeed's way to switch a thing on: "fp16": {"enabled": true} */
	if (*out == '{')
		return switched(p + 1, end);
	return told && !n ? NULL : out;
}

static bool is_no(const char *value)
{
	static const char *const words[] = {"False", "false", "FALSE", "0", "off", "no", "No", "None", "none", "null", "never", "disabled"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(value, words[i]))
			return true;
	return false;
}

static bool holds(const char *value, const char *const *words)
{
	for (; *words; words++)
		if (**words == '=' ? !strcmp(value, *words + 1) : strstr(value, *words) != NULL)
			return true;
	return false;
}

static bool is_one_of(const char *from, const char *to, const char *const *words)
{
	for (; *words; words++)
		if ((size_t)(to - from) == strlen(*words) && !strncmp(from, *words, strlen(*words)))
			return true;
	return false;
}

/* The word that ends at p, or before the blanks there. */
static const char *word_before(const char *begin, const char **p)
{
	const char *from;

	while (*p > begin && (*p)[-1] == ' ')
		--*p;
	for (from = *p; from > begin && !isspace((unsigned char)from[-1]); from--)
		;
	return from;
}

/* A program tells its user to: "try setting X=1", "or use '--enforce-eager'"; "I use --lowvram" is a setting. */
static bool is_advice(const char *begin, const char *name, bool any_word)
{
	static const char *const tells[] = {"try", "Try", "setting", "consider", "Consider", NULL};
	static const char *const quotes[] = {"set", "Set", "use", "Use", "using", "pass", "add", "Add", "specify", "enable", NULL};
	static const char *const self[] = {"I", "i", "we", "We", "have", "I've", "I'm", "already", "was", "also", NULL};
	const char *p = name, *word, *end;
	bool quoted;

	while (p > begin && p[-1] == '-')
		p--;
	quoted = p > begin && strchr("'`\"", p[-1]);
	p -= quoted;
	word = word_before(begin, &p);
	end = word;
	if (!is_one_of(word, p, tells) && !((quoted || any_word) && is_one_of(word, p, quotes)))
		return false;
	return !is_one_of(word_before(begin, &end), end, self);
}

/* "(max_num_batched_tokens / max_num_seqs = 8192)": a part of a formula. */
static bool is_term(const char *begin, const char *name)
{
	const char *p = name;

	while (p > begin && p[-1] == ' ')
		p--;
	return p > begin && p < name && strchr("/*+", p[-1]);
}

/* With its dashes, and with the prefix that dots tie to it: "actor.rollout.gpu_memory_utilization". */
static const char *spelled(const char *begin, const char *name)
{
	const char *p = name;

	while (p > begin && p[-1] == '-')
		p--;
	while (p == name && p > begin && (of_name(p[-1]) || p[-1] == '.'))
		p = name = p - 1;
	return p;
}

/* "Precision: bfloat16" of people's lists is "precision". */
static bool is_named(const char *p, size_t n, const char *name)
{
	return (*p == *name || tolower((unsigned char)*p) == *name) && n > 0 && oom_told_same(p + 1, n - 1, name + 1);
}

/* No name of the rows: a training framework's. Its value switches the thing on, where the name does not switch it off. */
static void by_key(struct oom_crash *c, const char *name, size_t n, const char *told)
{
	const enum oom_lever l = is_no(told) || oom_text_find(name, name + n, "disable") ? OOM_LEVER_NONE : oom_lever_of_key(name, n);

	if (l != OOM_LEVER_NONE && (l != OOM_LEVER_BATCH || !strcmp(told, "1")))
		c->set |= OOM_SET(l);
}

static void option(struct oom_crash *c, const char *begin, const char *name, size_t n, bool dashed, const char *end)
{
	char text[LONGEST_VALUE];
	const char *const told = value_of(name + n, end, dashed, text);

	if (!told || is_advice(begin, name, false) || is_term(begin, name))
		return;
	/* with which it works, as people write: no option of a command */
	if (!dashed && !strcmp(told, "1") && (*name == 'b' || *name == 'B' || oom_text_find(name, name + n, "batch")) && oom_batch_helped(begin, name, end))
		return;
	if (n > 5 && !is_advice(begin, name, true))
		oom_given_note(c, name, n, told);
	if (!is_no(told) || !strcmp(told, "0") || oom_told_off(name, n))
		oom_told_note(c, spelled(begin, name), name, n, told);
	if (!is_no(told))
		oom_weight_bits_note(c, name, n, told);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!is_named(name, n, rows[i].name))
			continue;
		if (rows[i].values ? holds(told, rows[i].values) : !is_no(told))
			c->set |= OOM_SET(rows[i].lever);
		else if (!rows[i].values && rows[i].lever == OOM_LEVER_RECOMPUTE && n < sizeof(c->off))
			snprintf(c->off, sizeof(c->off), "%.*s", (int)n, name);
		return;
	}
	by_key(c, name, n, told);
}

void oom_decode_settings(struct oom_crash *c, const char *begin, const char *end)
{
	c->set = 0;
	*c->off = 0;
	c->n_told = 0;
	c->weight_bits = 0;
	memset(c->given, 0, sizeof(c->given));
	for (const char *p = begin; p < end; p++) {
		const char *name = p;

		if (!of_name(*p))
			continue;
		while (name < end && *name == '-')
			name++;
		for (p = name; p < end && of_name(*p);)
			p++;
		if (p > name && p - name < LONGEST_NAME)
			option(c, begin, name, (size_t)(p - name), name > begin && name[-1] == '-', end);
	}
	oom_settings_by_signs(c, begin, end);
	oom_settings_of_states(c, begin, end);
	oom_decode_model_name(c, begin, end);
	oom_decode_host_use(c, begin, end);
	/* one process is all ranks: what would be divided is whole */
	if (oom_told(c, "nproc_per_node") == 1 && c->cards <= 1 && c->rank <= 0 && !oom_several_nodes(begin, end))
		c->splits = c->sharded = false;
	oom_told_printed(c, begin, end);
	oom_decode_layers(c, begin, end);
	oom_decode_places(c, begin, end);
	oom_part_by_size(c);
	c->tried = oom_tried(begin, end);
	c->notebook = oom_text_find(begin, end, "Cell In[") || oom_text_find(begin, end, "<ipython-input") || oom_text_find(begin, end, "/tmp/ipykernel_") ||
		      oom_text_find(begin, end, "Input \x1b[") || oom_text_find(begin, end, "Input In [");
	/* what it makes, not what it was given */
	if (oom_dialect_is(c, OOM_DIALECT_QUANTISES))
		c->set &= ~OOM_SET(OOM_LEVER_QUANT);
	/* the trainer's own default, which the text does not switch off */
	if (!*c->off && oom_dialect_is(c, OOM_DIALECT_RECOMPUTES))
		c->set |= OOM_SET(OOM_LEVER_RECOMPUTE);
	/* TensorFlow printed a shape that begins with one image */
	if (c->first_dimension == 1 && oom_runtime_is(c, OOM_RUNTIME_GRAPH))
		c->set |= OOM_SET(OOM_LEVER_BATCH);
	/* accelerate halved it until nothing was left */
	if (oom_text_find(begin, end, "No executable batch size found"))
		c->set |= OOM_SET(OOM_LEVER_BATCH);
	/* folders of Windows: "C:\", "\Lib\site-packages" */
	c->windows = oom_text_find(begin, end, ":\\") || oom_text_find(begin, end, "Windows 10") || oom_text_find(begin, end, "Windows 11") || oom_text_find(begin, end, "\\site-packages\\") || oom_text_find(begin, end, "..\\c10\\") ||
		     /* c10/core/impl/alloc_cpu.cpp: the words of MSVC's build, and of Android's */
		     oom_text_find(begin, end, "DefaultCPUAllocator: not enough memory");
}

const char *oom_setting_called(uint64_t levers, size_t n)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((levers & OOM_SET(names[i].lever)) && !n--)
			return names[i].called;
	return NULL;
}
