/* Training scripts of Python, as far as literal arguments go: transformers, TRL, PEFT and unsloth.
 *
 * The arguments of a trainer's config class are the keys of its YAML: they are read as such. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "oomplan/option.h"
#include "arguments.h"
#include "parts.h"

#define UNSLOTH "unsloth/models/loader.py"
#define PEFT_OF_UNSLOTH "unsloth/models/llama.py:3061"

/* Config classes and the objective that their trainer has. */
static const struct {
	const char *name, *framework, *objective;
} configs[] = {
	{"GRPOConfig", "trl", "grpo"},
	{"DPOConfig", "trl", "dpo"},
	{"ORPOConfig", "trl", "orpo"},
	{"KTOConfig", "trl", "kto"},
	{"CPOConfig", "trl", "cpo"},
	{"RewardConfig", "trl", "reward"},
	{"PPOConfig", "trl", "ppo"},
	{"GKDConfig", "trl", "gkd"},
	{"RLOOConfig", "trl", "rloo"},
	{"OnlineDPOConfig", "trl", "online-dpo"},
	{"XPOConfig", "trl", "xpo"},
	{"NashMDConfig", "trl", "nash-md"},
	{"SentenceTransformerTrainingArguments", "hf-trainer", "embedding"},
	{"SFTConfig", "trl", "sft"},
	{"UnslothTrainingArguments", "hf-trainer", "sft"},
	{"Seq2SeqTrainingArguments", "hf-trainer", NULL},
	{"TrainingArguments", "hf-trainer", NULL},
};
enum { N_CONFIGS = sizeof(configs) / sizeof(configs[0]) };

static const char *const loaders[] = {"FastLanguageModel", "FastModel", "FastVisionModel",
				      "FastSentenceTransformer", "FastTextModel"};
static const char *const models[] = {"AutoModelForCausalLM",    "AutoModelForImageTextToText",
				     "AutoModelForSeq2SeqLM",   "AutoModelForSequenceClassification",
				     "AutoModelForVision2Seq",  "AutoModel", "LlamaForCausalLM",
				     "AutoModelForTokenClassification", "AutoLigerKernelForCausalLM"};

/* CLASS.function.key; "" where it is not said */
static const char *argument(const struct fw_part *p, const char *class, const char *function,
			    const char *key, char path[160])
{
	snprintf(path, 160, "%s%s%s.%s", class, *class && *function ? "." : "", function, key);
	return fw_text(p, path);
}

/* The first of the classes that is called. */
static const char *called(const struct fw_part *p, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fw_key(p, names[i]))
			return names[i];
	return NULL;
}

/* .05 is 0.05 */
static const char *as_knob_has_it(const char *knob, const char *text, char *buf, size_t size)
{
	const struct oom_option *k = oom_knob_find(knob);
	struct oom_plan plan = oom_plan_default();
	struct oom_error err = {{0}};

	return k && !oom_plan_set(&plan, k, text, &err) ? oom_plan_get(&plan, k, buf, size) : text;
}

/* What is there and known only when the script runs, or made elsewhere ("**kwargs"), has no default. */
static void withhold_unknown(struct fw_part *p, const char *knob, const char *path)
{
	char call[160];
	const char *dot = strrchr(path, '.');
	const struct doc_node *node = doc_below(fw_root(p), path);

	snprintf(call, sizeof(call), "%.*s", dot ? (int)(dot - path) : 0, path);
	if ((node && node_is_placeholder(node)) ||
	    (!node && *call && doc_member(doc_below(fw_root(p), call), ARGS_REST)))
		fw_withhold(p, knob);
}

static void take(struct fw_part *p, const char *knob, const char *class, const char *function,
		 const char *key)
{
	char path[160];
	const char *text = argument(p, class, function, key, path);
	const struct doc_node *node = fw_key(p, path);
	char names[120];

	withhold_unknown(p, knob, path);
	if (node && node->kind == DOC_LIST)
		fw_set(p, knob, names_of(node, names, sizeof(names)), path, NULL);
	else if (*text && strcmp(text, "None"))
		fw_set(p, knob, as_knob_has_it(knob, text, names, sizeof(names)), path, NULL);
}

static const char *dtype_of(const char *text)
{
	return strstr(text, "bfloat16") || !strcmp(text, "bf16") ? "bf16" :
	       strstr(text, "float16") || !strcmp(text, "half")  ? "fp16" :
	       strstr(text, "float32")				 ? "fp32" :
								   "";
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
	take(p, "lora-r", class, f, "r");
	take(p, "lora-targets", class, f, "target_modules");
	take(p, "lora-dropout", class, f, "lora_dropout");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !*fw_fact(p, "lora-targets"); i++)
		if (*argument(p, class, f, parts[i], path))
			fw_set(p, "lora-targets", "all-linear", path, NULL);
	fw_default(p, "lora-r", "16", PEFT_OF_UNSLOTH);
	fw_default(p, "lora-dropout", "0", PEFT_OF_UNSLOTH);
	fw_default(p, "lora-targets",
		   whole ? "all-linear" : "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj",
		   PEFT_OF_UNSLOTH);
	ckpt = argument(p, class, f, "use_gradient_checkpointing", path);
	withhold_unknown(p, "grad-ckpt", path);
	if (!strcasecmp(ckpt, "false")) {
		fw_set(p, "grad-ckpt", "none", path, NULL);
	} else {
		fw_set(p, "grad-ckpt", "full", *ckpt ? path : NULL, UNSLOTH ":423");
		if (!*ckpt || !strcmp(ckpt, "unsloth"))
			fw_set(p, "offload-activations", "true", *ckpt ? path : NULL,
			       "unsloth_zoo/gradient_checkpointing.py: block inputs wait in host memory");
	}
	take(p, "modules-to-save", class, f, "modules_to_save");
}

static const char *const trainers[] = {"DPOTrainer", "ORPOTrainer", "KTOTrainer", "CPOTrainer"};

static void finish_unsloth(struct fw_part *p, const char *class)
{
	const char *f = "from_pretrained", *model;
	char path[160], path4[160], path8[160];
	const bool sentence = !strcmp(class, "FastSentenceTransformer");
	const char *four = argument(p, class, f, "load_in_4bit", path4),
		   *eight = argument(p, class, f, "load_in_8bit", path8);
	bool full;

	withhold_unknown(p, "base-bits", path4);
	withhold_unknown(p, "base-bits", path8);
	model = argument(p, class, f, "model_name", path);
	if (!*model)
		model = argument(p, class, f, "0", path);
	if (*model)
		fw_set(p, "model", model, path, NULL);
	/* a trainer of pairs cuts them shorter than the model could take them */
	for (size_t i = 0; i < sizeof(trainers) / sizeof(trainers[0]); i++)
		take(p, "seq-len", trainers[i], "", "max_length");
	if (!*fw_fact(p, "seq-len"))
		take(p, "seq-len", class, f, "max_seq_length");
	fw_default(p, "seq-len", "2048", UNSLOTH ":410");
	full = !strcasecmp(argument(p, class, f, "full_finetuning", path), "true");
	if (full)
		fw_set(p, "method", "full", path, NULL);
	if (!strcasecmp(eight, "true"))
		fw_set(p, "base-bits", "8", path8, NULL);
	else if (full || !strcasecmp(four, "false") || (sentence && !*four))
		fw_set(p, "base-bits", "16", *four ? path4 : NULL, UNSLOTH ":410");
	else
		fw_set(p, "base-bits", "4-nf4", *four ? path4 : NULL, UNSLOTH ":410 load_in_4bit");
	/* stacked experts are quantised too, as layers of their own (gpt-oss) or in place */
	if (fw_fact_is(p, "base-bits", "4-nf4"))
		fw_set(p, "moe-experts", "separate", NULL,
		       "unsloth_zoo/temporary_patches/gpt_oss.py GptOssExpertsBnb4bit, moe_utils_bnb4bit.py");
	if (*dtype_of(argument(p, class, f, "dtype", path)))
		fw_set(p, "@dtype", dtype_of(fw_text(p, path)), path, NULL);
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

/* The call that loads the model has literal arguments, and what quantises is none of them: it is made for nothing, or
 * reaches a trainer by a way that is not followed. */
static bool loads_whole(const struct fw_part *p, const char *class)
{
	const struct doc_node *call;
	char path[160];

	snprintf(path, sizeof(path), "%s.from_pretrained", class ? class : "");
	call = class ? doc_below(fw_root(p), path) : NULL;
	return call && !doc_member(call, "quantization_config") && !doc_member(call, ARGS_REST);
}

static void finish_quantised(struct fw_part *p, const char *class)
{
	const char *key = !strcasecmp(fw_text(p, "BitsAndBytesConfig.load_in_4bit"), "true") ? "BitsAndBytesConfig.load_in_4bit" :
			  !strcasecmp(fw_text(p, "BitsAndBytesConfig.load_in_8bit"), "true") ? "BitsAndBytesConfig.load_in_8bit" :
											       NULL;

	if (key && loads_whole(p, class)) {
		fw_set(p, "base-bits", "16", key, "no quantization_config in from_pretrained");
		fw_open(p, "base-bits", "a BitsAndBytesConfig is made, but the call that loads the model does not take it: 16 bits, "
			"unless the trainer does");
		return;
	}
	if (key && strstr(key, "8bit"))
		fw_set(p, "base-bits", "8", key, NULL);
	else if (key)
		fw_set(p, "base-bits", !strcmp(fw_text(p, "BitsAndBytesConfig.bnb_4bit_quant_type"), "nf4") ? "4-nf4" : "4-fp4", key,
		       NULL);
	if (fw_key(p, "BitsAndBytesConfig"))
		fw_set(p, "double-quant",
		       fw_on(p, "BitsAndBytesConfig.bnb_4bit_use_double_quant") ? "true" : "false",
		       "BitsAndBytesConfig.bnb_4bit_use_double_quant", NULL);
}

static void finish_peft(struct fw_part *p)
{
	const char *class = called(p, models, sizeof(models) / sizeof(models[0]));
	char path[160];

	if (class) {
		const char *model = argument(p, class, "from_pretrained", "0", path);

		if (!*model)
			model = argument(p, class, "from_pretrained", "pretrained_model_name_or_path", path);
		if (*model)
			fw_set(p, "model", model, path, NULL);
		if (*dtype_of(argument(p, class, "from_pretrained", "dtype", path)) ||
		    *dtype_of(argument(p, class, "from_pretrained", "torch_dtype", path)))
			fw_set(p, "@dtype", dtype_of(fw_text(p, path)), path, NULL);
		if (strstr(argument(p, class, "from_pretrained", "attn_implementation", path), "flash"))
			fw_set(p, "attn", "flash", path, NULL);
		else
			take(p, "attn", class, "from_pretrained", "attn_implementation");
		if (!strcmp(argument(p, class, "from_pretrained", "device_map", path), "auto"))
			fw_note(p, path, "on several cards: --engine device-map");
	}
	finish_quantised(p, class);
	if (fw_key(p, "prepare_model_for_kbit_training"))
		fw_set(p, "kbit-prepare", "true", "prepare_model_for_kbit_training", NULL);
	if (fw_key(p, "LoraConfig")) {
		fw_set(p, "method", "lora", "LoraConfig", NULL);
		take(p, "lora-r", "LoraConfig", "", "r");
		take(p, "lora-targets", "LoraConfig", "", "target_modules");
		take(p, "lora-dropout", "LoraConfig", "", "lora_dropout");
		fw_default(p, "lora-r", "8", "peft/tuners/lora/config.py");
		fw_default(p, "lora-dropout", "0", "peft/tuners/lora/config.py");
		if (fw_on(p, "LoraConfig.use_dora"))
			fw_set(p, "use-dora", "true", "LoraConfig.use_dora", NULL);
		take(p, "modules-to-save", "LoraConfig", "", "modules_to_save");
		take(p, "layers-to-transform", "LoraConfig", "", "layers_to_transform");
	}
}

/* transformers keeps 8-bit states of embeddings in fp32; adapters leave no embeddings to train. */
static void finish_optimizer(struct fw_part *p)
{
	char path[160];
	const char *name = "";

	for (size_t i = 0; i < N_CONFIGS && !*name; i++)
		name = fw_key(p, configs[i].name) ? argument(p, configs[i].name, "", "optim", path) : "";
	if (fw_fact_is(p, "method", "lora") && (!strcmp(name, "adamw_8bit") || !strcmp(name, "adamw_bnb_8bit")))
		fw_set(p, "optimizer", "adamw-8bit", path, "transformers/trainer.py get_optimizer");
}

/* What the nested arguments took to be SFTTrainer's. */
static void finish_objective(struct fw_part *p)
{
	if (fw_fact_is(p, "objective", "sft"))
		return;
	fw_set(p, "@price.loss", "plain", NULL, NULL);
	fw_set(p, "loss", "plain", NULL, "log-probabilities of whole logits");
	if (fw_fact_is(p, "objective", "ppo"))
		fw_set(p, "@price.objective", "ppo", NULL, NULL);
}

static void finish(struct fw_part *p)
{
	const char *unsloth = called(p, loaders, sizeof(loaders) / sizeof(loaders[0]));
	bool trains = false;

	for (size_t i = 0; i < N_CONFIGS && !trains; i++)
		if (fw_key(p, configs[i].name)) {
			if (configs[i].objective)
				fw_set(p, "objective", configs[i].objective, configs[i].name, NULL);
			python_objective_by_trainer(p, configs[i].name);
			if (unsloth)
				finish_unsloth(p, unsloth);
			trains = true;
			fw_nested(p, configs[i].name, configs[i].framework);
			if (configs[i].objective && !strcmp(configs[i].framework, "trl")) {
				char loss[80];

				snprintf(loss, sizeof(loss), "%s.loss_type", configs[i].name);
				part_pair_loss(p, loss);
				finish_objective(p);
			}
		}
	/* a loader stands alone where another file trains, or a trainer takes no literal arguments */
	if (unsloth && !trains) {
		python_objective_by_trainer(p, unsloth);
		finish_unsloth(p, unsloth);
	}
	/* whose backward pass runs within its forward pass, part by part, with neither the entropy nor the accuracy
	 * that TRL's own trainer logs. fp32 logits of a part take half of the memory that is free, at most 4 GiB, and the
	 * parts are a multiple of four (get_chunk_size() at unsloth_zoo ce232d6): on a card with 0.25 GiB left 256 rows
	 * of 128 Ki words are one part. A guess for the least that it needs; what it uses is more where memory is free */
	if (unsloth && fw_fact_is(p, "loss", "chunked")) {
		fw_set(p, "@price.loss", "tiled", NULL, "unsloth_zoo/fused_losses/cross_entropy_loss.py");
		fw_set(p, "loss-chunk", "256", NULL, "unsloth_zoo/fused_losses/cross_entropy_loss.py: by free memory");
		fw_open(p, "loss-chunk", "unsloth takes larger parts of the loss where memory is free: what is used then "
			"is more, what is needed is not");
	}
	if (!unsloth)
		finish_peft(p);
	python_named(p);
	finish_optimizer(p);
	/* trainers of TRL before 0.9 took it themselves */
	for (size_t i = 0; i < sizeof(trainers) / sizeof(trainers[0]) && !unsloth; i++)
		if (fw_key(p, trainers[i]))
			take(p, "seq-len", trainers[i], "", "max_length");
	if (doc_below(fw_root(p), "SFTTrainer"))
		take(p, "seq-len", "SFTTrainer", "", "max_seq_length");
	if (fw_on(p, "SFTTrainer.packing") || fw_off(p, "SFTTrainer.packing"))
		fw_set(p, "packing", fw_on(p, "SFTTrainer.packing") ? "true" : "false", "SFTTrainer.packing", NULL);
	if (unsloth)
		fw_default(p, "packing", "false", "trl/trainer/sft_config.py");
}

#define CALL(name) {name, .hook = true}, {name ".*", .hook = true}
/* A trainer's data, and what is done around the step. */
#define TRAINER(name) {.key = name ".train_dataset"}, {.key = name ".eval_dataset"}, {.key = name ".processing_class"}, \
	{.key = name ".tokenizer"}, {.key = name ".data_collator"}, {.key = name ".callbacks"}, {.key = name ".compute_metrics"}, \
	{.key = name ".formatting_func"}, CALL(name)
#define LOADER(name) {name, .hook = true}, CALL(name ".from_pretrained"), CALL(name ".get_peft_model")

static const struct fw_row rows[] = {
	LOADER("FastLanguageModel"), LOADER("FastModel"), LOADER("FastVisionModel"),
	LOADER("FastSentenceTransformer"), LOADER("FastTextModel"),
	LOADER("AutoModelForCausalLM"), LOADER("AutoModelForImageTextToText"),
	LOADER("AutoModelForSeq2SeqLM"), LOADER("AutoModelForSequenceClassification"),
	LOADER("AutoModelForVision2Seq"), LOADER("AutoModel"),
	LOADER("AutoModelForTokenClassification"), LOADER("AutoLigerKernelForCausalLM"),
	LOADER("LlamaForCausalLM"),
	CALL("BitsAndBytesConfig"), CALL("LoraConfig"), TRAINER("SFTTrainer"), TRAINER("DPOTrainer"), TRAINER("ORPOTrainer"),
	TRAINER("KTOTrainer"), TRAINER("CPOTrainer"),
	CALL("prepare_model_for_kbit_training"),
	{.key = NULL},
};
static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {"*", NULL};

const struct framework framework_python = {
	.name = "python",
	.summary = "Python scripts and notebooks (unsloth, TRL, PEFT), literal arguments of known calls only",
	.version = "unsloth 2025.10, TRL 1.10, PEFT 0.18",
	.role = FW_TRAINER,
	.marks = "SFTConfig TrainingArguments Seq2SeqTrainingArguments GRPOConfig DPOConfig ORPOConfig KTOConfig "
		 "RewardConfig PPOConfig CPOConfig UnslothTrainingArguments SentenceTransformerTrainingArguments "
		 "FastLanguageModel FastModel FastVisionModel FastSentenceTransformer LoraConfig SFTTrainer",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
