/* Training scripts of Python, as far as literal arguments go: transformers, TRL, PEFT and unsloth.
 *
 * The arguments of a trainer's config class are the keys of its YAML: they are read as such. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "oomplan/option.h"
#include "arguments.h"
#include "python_calls.h"

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
const char *python_argument(const struct fw_part *p, const char *class, const char *function,
			    const char *key, char path[160])
{
	snprintf(path, 160, "%s%s%s.%s", class, *class && *function ? "." : "", function, key);
	return fw_text(p, path);
}

const char *const python_pair_trainers[] = {"DPOTrainer", "ORPOTrainer", "KTOTrainer", "CPOTrainer", NULL};

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
void python_withhold_unknown(struct fw_part *p, const char *knob, const char *path)
{
	char call[160];
	const char *dot = strrchr(path, '.');
	const struct doc_node *node = doc_below(fw_root(p), path);

	snprintf(call, sizeof(call), "%.*s", dot ? (int)(dot - path) : 0, path);
	if ((node && node_is_placeholder(node)) ||
	    (!node && *call && doc_member(doc_below(fw_root(p), call), ARGS_REST)))
		fw_withhold(p, knob);
}

void python_take(struct fw_part *p, const char *knob, const char *class, const char *function,
		 const char *key)
{
	char path[160];
	const char *text = python_argument(p, class, function, key, path);
	const struct doc_node *node = fw_key(p, path);
	char names[120];

	python_withhold_unknown(p, knob, path);
	if (node && node->kind == DOC_LIST)
		fw_set(p, knob, names_of(node, names, sizeof(names)), path, NULL);
	else if (*text && strcmp(text, "None"))
		fw_set(p, knob, as_knob_has_it(knob, text, names, sizeof(names)), path, NULL);
}

const char *python_dtype(const char *text)
{
	return strstr(text, "bfloat16") || !strcmp(text, "bf16") ? "bf16" :
	       strstr(text, "float16") || !strcmp(text, "half")  ? "fp16" :
	       strstr(text, "float32")				 ? "fp32" :
								   "";
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

/* What is asked of the model itself stands, whatever the arguments of the Trainer say: they only switch it on. */
static void finish_checkpointing(struct fw_part *p)
{
	char path[160];

	if (fw_key(p, "prepare_model_for_kbit_training") && *fw_fact(p, "base-bits") && !fw_fact_is(p, "base-bits", "16") &&
	    strcasecmp(python_argument(p, "prepare_model_for_kbit_training", "", "use_gradient_checkpointing", path), "false"))
		fw_set(p, "grad-ckpt", "full", "prepare_model_for_kbit_training",
		       "peft/utils/other.py prepare_model_for_kbit_training use_gradient_checkpointing=True");
	if (!fw_key(p, "gradient_checkpointing_enable"))
		return;
	fw_set(p, "grad-ckpt", "full", "gradient_checkpointing_enable", NULL);
	fw_open(p, "grad-ckpt", "the model's gradient_checkpointing_enable() is called, and is taken to be whatever stands before it");
}

static void finish_peft(struct fw_part *p)
{
	const char *class = called(p, models, sizeof(models) / sizeof(models[0]));
	char path[160];

	if (class) {
		const char *model = python_argument(p, class, "from_pretrained", "0", path);

		if (!*model)
			model = python_argument(p, class, "from_pretrained", "pretrained_model_name_or_path", path);
		if (*model)
			fw_set(p, "model", model, path, NULL);
		if (*python_dtype(python_argument(p, class, "from_pretrained", "dtype", path)) ||
		    *python_dtype(python_argument(p, class, "from_pretrained", "torch_dtype", path)))
			fw_set(p, "@dtype", python_dtype(fw_text(p, path)), path, NULL);
		if (strstr(python_argument(p, class, "from_pretrained", "attn_implementation", path), "flash"))
			fw_set(p, "attn", "flash", path, NULL);
		else
			python_take(p, "attn", class, "from_pretrained", "attn_implementation");
		if (!strcmp(python_argument(p, class, "from_pretrained", "device_map", path), "auto"))
			fw_note(p, path, "on several cards: --engine device-map");
	}
	finish_quantised(p, class);
	if (fw_key(p, "prepare_model_for_kbit_training"))
		fw_set(p, "kbit-prepare", "true", "prepare_model_for_kbit_training", NULL);
	finish_checkpointing(p);
	if (fw_key(p, "LoraConfig")) {
		fw_set(p, "method", "lora", "LoraConfig", NULL);
		python_take(p, "lora-r", "LoraConfig", "", "r");
		python_take(p, "lora-targets", "LoraConfig", "", "target_modules");
		python_take(p, "lora-dropout", "LoraConfig", "", "lora_dropout");
		fw_default(p, "lora-r", "8", "peft/tuners/lora/config.py");
		fw_default(p, "lora-dropout", "0", "peft/tuners/lora/config.py");
		if (fw_on(p, "LoraConfig.use_dora"))
			fw_set(p, "use-dora", "true", "LoraConfig.use_dora", NULL);
		python_take(p, "modules-to-save", "LoraConfig", "", "modules_to_save");
		python_take(p, "layers-to-transform", "LoraConfig", "", "layers_to_transform");
	}
}

/* TRL's ModelConfig, of which a script takes the model's name and the adapters. */
static void finish_model_config(struct fw_part *p)
{
	static const char class[] = "ModelConfig", source[] = "trl/trainer/model_config.py";

	if (!fw_key(p, class))
		return;
	if (!*fw_fact(p, "model"))
		python_take(p, "model", class, "", "model_name_or_path");
	if (!fw_on(p, "ModelConfig.use_peft") || fw_fact_is(p, "method", "lora"))
		return;
	fw_set(p, "method", "lora", "ModelConfig.use_peft", NULL);
	python_take(p, "lora-r", class, "", "lora_r");
	python_take(p, "lora-targets", class, "", "lora_target_modules");
	python_take(p, "lora-dropout", class, "", "lora_dropout");
	fw_default(p, "lora-r", "16", source);
	fw_default(p, "lora-dropout", "0.05", source);
}

/* transformers keeps 8-bit states of embeddings in fp32; adapters leave no embeddings to train. */
static void finish_optimizer(struct fw_part *p)
{
	char path[160];
	const char *name = "";

	for (size_t i = 0; i < N_CONFIGS && !*name; i++)
		name = fw_key(p, configs[i].name) ? python_argument(p, configs[i].name, "", "optim", path) : "";
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
				python_unsloth(p, unsloth);
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
		python_unsloth(p, unsloth);
	}
	/* whose backward pass runs within its forward pass, part by part, with neither the entropy nor the accuracy
	 * that TRL's own trainer logs. fp32 logits of a part take half of the memory that is free, at most 4 GiB, and the
	 * parts are a multiple of four (get_chunk_size() at unsloth_zoo ce232d6): on a card with 0.25 GiB left 256 rows
	 * of 128 Ki words are one part. A guess for the least that it needs; what it uses is more where memory is free */
	/* unsloth leaves the losses of pairs to TRL's trainers */
	for (size_t i = 0; python_pair_trainers[i] && unsloth; i++)
		if (fw_key(p, python_pair_trainers[i]) && fw_fact_is(p, "loss", "chunked"))
			fw_set(p, "loss", "plain", NULL, "trl/trainer/dpo_trainer.py: log-probabilities of whole logits");
	if (unsloth && fw_fact_is(p, "loss", "chunked")) {
		fw_set(p, "@price.loss", "tiled", NULL, "unsloth_zoo/fused_losses/cross_entropy_loss.py");
		fw_set(p, "loss-chunk", "256", NULL, "unsloth_zoo/fused_losses/cross_entropy_loss.py: by free memory");
		fw_open(p, "loss-chunk", "unsloth takes larger parts of the loss where memory is free: what is used then "
			"is more, what is needed is not");
	}
	if (!unsloth)
		finish_peft(p);
	finish_model_config(p);
	python_named(p);
	finish_optimizer(p);
	/* trainers of TRL before 0.9 took it themselves */
	for (size_t i = 0; python_pair_trainers[i] && !unsloth; i++)
		if (fw_key(p, python_pair_trainers[i]))
			python_take(p, "seq-len", python_pair_trainers[i], "", "max_length");
	if (doc_below(fw_root(p), "SFTTrainer"))
		python_take(p, "seq-len", "SFTTrainer", "", "max_seq_length");
	if (fw_on(p, "SFTTrainer.packing") || fw_off(p, "SFTTrainer.packing"))
		fw_set(p, "packing", fw_on(p, "SFTTrainer.packing") ? "true" : "false", "SFTTrainer.packing", NULL);
	if (unsloth)
		fw_default(p, "packing", "false", "trl/trainer/sft_config.py");
}

#define CALL(name) {name, .hook = true}, {name ".*", .hook = true}
/* A trainer's data, and what is done around the step. */
#define TRAINER(name) {.key = name ".train_dataset"}, {.key = name ".eval_dataset"}, {.key = name ".processing_class"}, \
	{.key = name ".tokenizer"}, {.key = name ".data_collator"}, {.key = name ".callbacks"}, {.key = name ".compute_metrics"}, \
	{.key = name ".formatting_func"}, {.key = name ".args"}, CALL(name)
/* the model that is adapted is the one that was loaded */
#define LOADER(name) {name, .hook = true}, CALL(name ".from_pretrained"), {.key = name ".get_peft_model.0"}, \
	{.key = name ".get_peft_model.model"}, CALL(name ".get_peft_model")

static const struct fw_row rows[] = {
	LOADER("FastLanguageModel"), LOADER("FastModel"), LOADER("FastVisionModel"),
	LOADER("FastSentenceTransformer"), LOADER("FastTextModel"),
	LOADER("AutoModelForCausalLM"), LOADER("AutoModelForImageTextToText"),
	LOADER("AutoModelForSeq2SeqLM"), LOADER("AutoModelForSequenceClassification"),
	LOADER("AutoModelForVision2Seq"), LOADER("AutoModel"),
	LOADER("AutoModelForTokenClassification"), LOADER("AutoLigerKernelForCausalLM"),
	LOADER("LlamaForCausalLM"),
	CALL("BitsAndBytesConfig"), CALL("LoraConfig"), CALL("ModelConfig"), TRAINER("SFTTrainer"), TRAINER("DPOTrainer"), TRAINER("ORPOTrainer"),
	TRAINER("KTOTrainer"), TRAINER("CPOTrainer"),
	CALL("prepare_model_for_kbit_training"), CALL("gradient_checkpointing_enable"),
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
