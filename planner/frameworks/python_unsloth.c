/* Scripts and notebooks of unsloth: its loaders, and what they take where nothing is said. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "input/copies.h"
#include "python_calls.h"

#define UNSLOTH "unsloth/models/loader.py"
#define PEFT_OF_UNSLOTH "unsloth/models/llama.py:3061"

/* "a+b": is the name one of them? */
static bool is_among(const char *list, const char *name)
{
	for (const char *w = list; *w; w += strspn(w, "+")) {
		const size_t n = strcspn(w, "+");

		if (n == strlen(name) && !strncmp(w, name, n))
			return true;
		w += n;
	}
	return false;
}

/* Embeddings among the modules are trained whole, whatever the script calls them. */
static void unsloth_embeddings(struct fw_part *p, const char *key)
{
	const char *targets = fw_fact(p, "lora-targets"), *whole = fw_fact(p, "modules-to-save");
	static const char embeddings[] = "embed_tokens";
	char rest[240] = "", saved[160];

	if (!is_among(targets, embeddings))
		return;
	for (const char *w = targets; *w; w += strspn(w, "+")) {
		const size_t n = strcspn(w, "+");

		if ((n != strlen(embeddings) || strncmp(w, embeddings, n)) && strlen(rest) + n + 2 < sizeof(rest))
			snprintf(rest + strlen(rest), sizeof(rest) - strlen(rest), "%s%.*s", *rest ? "+" : "", (int)n, w);
		w += n;
	}
	if (!is_among(whole, embeddings)) {
		snprintf(saved, sizeof(saved), "%.120s%s%s", whole, *whole ? "+" : "", embeddings);
		fw_set(p, "modules-to-save", saved, key, PEFT_OF_UNSLOTH);
	}
	fw_set(p, "lora-targets", rest, key, NULL);
}

static void unsloth_adapters(struct fw_part *p, const char *class)
{
	static const char *const parts[] = {"finetune_vision_layers", "finetune_language_layers",
					    "finetune_attention_modules", "finetune_mlp_modules"};
	const char *f = "get_peft_model";
	const bool whole = !strcmp(class, "FastVisionModel") || !strcmp(class, "FastModel");
	char path[160];
	const char *ckpt;

	fw_set(p, "method", "lora", class, NULL);
	python_take(p, "lora-r", class, f, "r");
	python_take(p, "lora-targets", class, f, "target_modules");
	python_take(p, "lora-dropout", class, f, "lora_dropout");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !*fw_fact(p, "lora-targets"); i++)
		if (*python_argument(p, class, f, parts[i], path))
			fw_set(p, "lora-targets", "all-linear", path, NULL);
	fw_default(p, "lora-r", "16", PEFT_OF_UNSLOTH);
	fw_default(p, "lora-dropout", "0", PEFT_OF_UNSLOTH);
	fw_default(p, "lora-targets",
		   whole ? "all-linear" : "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj",
		   PEFT_OF_UNSLOTH);
	ckpt = python_argument(p, class, f, "use_gradient_checkpointing", path);
	python_withhold_unknown(p, "grad-ckpt", path);
	if (!strcasecmp(ckpt, "false")) {
		fw_set(p, "grad-ckpt", "none", path, NULL);
	} else {
		fw_set(p, "grad-ckpt", "full", *ckpt ? path : NULL, UNSLOTH ":423");
		if (!*ckpt || !strcmp(ckpt, "unsloth"))
			fw_set(p, "offload-activations", "true", *ckpt ? path : NULL,
			       "unsloth_zoo/gradient_checkpointing.py: block inputs wait in host memory");
	}
	python_take(p, "modules-to-save", class, f, "modules_to_save");
	python_argument(p, class, f, "target_modules", path);
	unsloth_embeddings(p, path);
}

/* Asked for 16 bits, unsloth loads the model that a copy in 4 bit was made of (unsloth/models/loader_utils.py
 * get_model_name, mapper.py INT_TO_FLOAT_MAPPER). */
static void unsloth_whole(struct fw_part *p, const char *model, const char *key)
{
	const char *ending = oom_copy_ending(model);
	char whole[160];

	if (ending && strstr(ending, "bnb-4bit") && (size_t)snprintf(whole, sizeof(whole), "%.*s", (int)(ending - model), model) < sizeof(whole))
		fw_set(p, "model", whole, key, "unsloth/models/mapper.py INT_TO_FLOAT_MAPPER");
}

static void unsloth_length(struct fw_part *p, const char *class)
{
	/* a trainer of pairs cuts them shorter than the model could take them */
	for (size_t i = 0; python_pair_trainers[i]; i++) {
		char config[40];

		snprintf(config, sizeof(config), "%.*sConfig", (int)(strlen(python_pair_trainers[i]) - strlen("Trainer")),
			 python_pair_trainers[i]);
		python_take(p, "seq-len", python_pair_trainers[i], "", "max_length");
		python_take(p, "seq-len", config, "", "max_length");
	}
	if (!*fw_fact(p, "seq-len"))
		python_take(p, "seq-len", class, "from_pretrained", "max_seq_length");
	fw_default(p, "seq-len", "2048", UNSLOTH ":410");
}

void python_unsloth(struct fw_part *p, const char *class)
{
	const char *f = "from_pretrained", *model;
	char path[160], path4[160], path8[160], named[160];
	const bool sentence = !strcmp(class, "FastSentenceTransformer");
	const char *four = python_argument(p, class, f, "load_in_4bit", path4),
		   *eight = python_argument(p, class, f, "load_in_8bit", path8);
	bool full;

	python_withhold_unknown(p, "base-bits", path4);
	python_withhold_unknown(p, "base-bits", path8);
	model = python_argument(p, class, f, "model_name", named);
	if (!*model)
		model = python_argument(p, class, f, "0", named);
	if (*model)
		fw_set(p, "model", model, named, NULL);
	unsloth_length(p, class);
	full = !strcasecmp(python_argument(p, class, f, "full_finetuning", path), "true");
	if (full)
		fw_set(p, "method", "full", path, NULL);
	if (!strcasecmp(eight, "true"))
		fw_set(p, "base-bits", "8", path8, NULL);
	else if (full || !strcasecmp(four, "false") || (sentence && !*four))
		fw_set(p, "base-bits", "16", *four ? path4 : NULL, UNSLOTH ":410");
	else
		fw_set(p, "base-bits", "4-nf4", *four ? path4 : NULL, UNSLOTH ":410 load_in_4bit");
	if (fw_fact_is(p, "base-bits", "16"))
		unsloth_whole(p, model, named);
	/* stacked experts are quantised too, as layers of their own (gpt-oss) or in place */
	if (fw_fact_is(p, "base-bits", "4-nf4"))
		fw_set(p, "moe-experts", "separate", NULL,
		       "unsloth_zoo/temporary_patches/gpt_oss.py GptOssExpertsBnb4bit, moe_utils_bnb4bit.py");
	if (*python_dtype(python_argument(p, class, f, "dtype", path)))
		fw_set(p, "@dtype", python_dtype(fw_text(p, path)), path, NULL);
	if (!*fw_fact(p, "@dtype"))
		fw_set(p, "@by-card", "true", NULL, UNSLOTH);
	fw_default(p, "@dtype", "bf16", UNSLOTH " bf16 where the card has it");
	fw_default(p, "@autocast", fw_fact_is(p, "@dtype", "fp16") ? "fp16" : "bf16", UNSLOTH);
	if (!full) {
		snprintf(path, sizeof(path), "%s.get_peft_model", class);
		if (fw_key(p, path))
			unsloth_adapters(p, class);
	}
	/* xformers' kernel or flash_attn, keys and values copied to all heads before: on cards without flash_attn
	 * transformers' grouped form would keep whole scores instead */
	fw_default(p, "attn", "sdpa", "unsloth/models/llama.py");
	/* Its kernels keep what Liger's keep: a norm's input, gate and up, rotary positions turned in place.  Under
	 * checkpointing one layer at a time is kept, and what its fused backward passes take is not known. */
	if (fw_fact_is(p, "grad-ckpt", "none"))
		fw_set(p, "liger-kernels", "all", NULL,
		       "as unsloth/kernels/rms_layernorm.py, swiglu.py, rope_embedding.py");
	fw_default(p, "kv-repeat", "sdpa", "unsloth/models/llama.py K.expand(...).reshape(...)");
	fw_set(p, "loss", "chunked", NULL, "unsloth_zoo/loss_utils.py: by free memory");
	fw_default(p, "engine", "hf", "one process");
	fw_default(p, "gpus", "1", "one process");
	fw_default(p, "nodes", "1", "one process");
}
