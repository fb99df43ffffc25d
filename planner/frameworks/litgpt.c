/* litgpt's YAML (config_hub) and its command line. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define LORA "litgpt/finetune/lora.py"
#define FULL "litgpt/finetune/full.py"
#define PRETRAIN "litgpt/pretrain.py"
#define UTILS "litgpt/utils.py"

static const struct fw_row rows[] = {
	{"checkpoint_dir", .hook = true}, {"model_name", .hook = true}, {"model_config*", .hook = true},
	FW_KEY("precision", "precision",
	       "bf16-true>bf16;16-true>fp16;32-true>fp32;32>fp32;bf16-mixed>amp-bf16;16-mixed>amp-fp16;"
	       "bf16>amp-bf16;transformer-engine>amp-bf16",
	       NULL, LORA ":131"),
	/* both codes take the same bytes */
	FW_KEY("quantize", "base-bits", "bnb.nf4>4-nf4 double-quant=false;bnb.nf4-dq>4-nf4 double-quant=true;"
	       "bnb.fp4>4-fp4 double-quant=false;bnb.fp4-dq>4-fp4 double-quant=true;"
	       "bnb.int8-training>8;bnb.int8>8", "16", LORA ":49"),
	{"devices", .hook = true, .source = LORA ":49"},
	FW_KEY("num_nodes", "nodes", NULL, "1", LORA ":49"),
	FW_KEY("lora_r", "lora-r", NULL, NULL, LORA ":49"),
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, LORA ":49"),
	{"lora_query", .hook = true}, {"lora_key", .hook = true}, {"lora_value", .hook = true},
	{"lora_projection", .hook = true}, {"lora_mlp", .hook = true}, {"lora_head", .hook = true},
	FW_KEY("train.micro_batch_size", "micro-batch", NULL, NULL, "litgpt/args.py:17"),
	FW_KEY("train.max_seq_length", "seq-len", NULL, NULL, "litgpt/args.py:32"),
	{"train.global_batch_size", .hook = true, .source = "litgpt/args.py:15"},
	{"optimizer", .hook = true}, {"optimizer.class_path", .hook = true},
	FW_KEY("data.init_args.num_workers", "dataloader-workers", NULL, NULL, NULL),
	FW_KEY("data.num_workers", "dataloader-workers", NULL, NULL, NULL),
	FW_KEY("lora_alpha", NULL, NULL, NULL, NULL),
	{.key = NULL},
};
static const char idle[] = "out_dir data_dir data* train* eval* log* logger_name seed optimizer* access_token "
			   "initial_checkpoint_dir resume tokenizer_dir lora_* generate* config "
			   "(launcher) (program) (words) (files)";

/* litgpt.lora: q, k and v are one matrix, of which the adapters cover parts. */
static void finish_targets(struct fw_part *p)
{
	static const struct {
		const char *key, *modules;
		bool on;
	} parts[] = {{"lora_query", "q_proj", true},        {"lora_key", "k_proj", false},
		     {"lora_value", "v_proj", true},        {"lora_projection", "o_proj", false},
		     {"lora_mlp", "gate_proj+up_proj+down_proj", false},
		     {"lora_head", "lm_head", false}};
	char list[120] = "";
	int joined = 0;         /* of the three that are one matrix */

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (fw_on(p, parts[i].key) || (parts[i].on && !fw_off(p, parts[i].key))) {
			strcat(list, *list ? "+" : "");
			strcat(list, parts[i].modules);
			joined += i < 3;
		}
	if (*list)
		fw_set(p, "lora-targets", list, "lora_query", LORA ":49");
	if (joined && joined < 3)
		fw_set(p, "lora-zero-pad", "true", "lora_query", "litgpt/lora.py LoRAQKVLinear.zero_pad");
}

static void finish_optimizer(struct fw_part *p, bool quantised)
{
	const struct doc_node *o = fw_key(p, "optimizer");
	const char *name = !o ? "" : o->kind == DOC_MAP ? fw_text(p, "optimizer.class_path") : o->text;
	const char *key = o && o->kind == DOC_MAP ? "optimizer.class_path" : "optimizer";

	if (quantised)
		fw_set(p, "optimizer", "paged-adamw", "quantize", "litgpt/utils.py:619 PagedAdamW");
	else if (strstr(name, "Adam") || !*name)
		fw_set(p, "optimizer", "adamw", *name ? key : NULL, "litgpt/utils.py: foreach");
	else if (strstr(name, "SGD"))
		fw_set(p, "optimizer", "sgd", key, NULL);
	else
		fw_unmodelled(p, key, "no knob for this optimizer");
}

/* "litgpt finetune_lora ORG/NAME": the model is the command's first word that is no option. */
static const char *named_by_command(const struct fw_part *p)
{
	const struct doc_node *words = fw_key(p, "(words)");

	return words && words->child && words->child->text ? words->child->text : "";
}

/* The model is a folder checkpoints/ORG/NAME, or one that is to be trained from nothing. */
static void finish_model(struct fw_part *p)
{
	const char *dir = fw_text(p, "checkpoint_dir"), *name = *dir ? dir : named_by_command(p);

	if (!strncmp(name, "checkpoints/", 12))
		name += 12;
	if (*name)
		fw_set(p, "model", name, *dir ? "checkpoint_dir" : "(words)", "checkpoints/ORG/NAME");
	else if (*fw_text(p, "model_name"))
		fw_set(p, "model", fw_text(p, "model_name"), "model_name", NULL);
}

/* Are there several cards?  Then it is FSDP with every Block checkpointed (finetune/full.py:107, lora.py, pretrain.py). */
static void finish_devices(struct fw_part *p, bool pretrain)
{
	const struct doc_node *devices = fw_key(p, "devices");
	int64_t gpus = 1, nodes = 1;
	bool many;

	if (doc_whole(devices, &gpus) && gpus > 0 && gpus < 100000) {
		doc_whole(fw_key(p, "num_nodes"), &nodes);
		fw_set_whole(p, "gpus", gpus * (nodes > 0 && nodes < 10000 ? nodes : 1), "devices", NULL);
	} else if (!devices && !pretrain) {
		fw_default(p, "gpus", "1", LORA ":49");
	}
	/* pretraining takes all cards where nobody says how many */
	many = gpus * nodes > 1 || (devices && !doc_whole(devices, &gpus)) || (pretrain && !devices);
	fw_default(p, "engine", many ? "fsdp1" : "hf", FULL ":107");
	fw_default(p, "zero", many ? "3" : "0", FULL ":107");
	if (many && pretrain)
		fw_default(p, "hybrid-shard", "true", PRETRAIN " HYBRID_SHARD");
	fw_default(p, "grad-ckpt", many && !pretrain ? "full" : "none", FULL ":108");
}

static void finish_adapters(struct fw_part *p)
{
	fw_default(p, "lora-r", "8", LORA ":49");
	fw_default(p, "lora-dropout", "0.05", LORA ":49");
	fw_default(p, "autocast-adapter-dtype", "false", "litgpt/lora.py: in the type of the model");
	finish_targets(p);
}

/* What was written into the scripts before they had options for it (lit-gpt of 2023 and early 2024, finetune/lora.py cc19015 and
 * 0010d8e, adapter.py, full.py: micro_batch_size, batch_size); NULL: the command is today's. */
static const char *const *batch_of_script(const char *command)
{
	static const char *const scripts[][3] = {
		{"finetune/lora.py", "4", "128"}, {"finetune/adapter", "4", "64"}, {"finetune/full.py", "1", "64"}};

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (strstr(command, scripts[i][0]))
			return scripts[i];
	return NULL;
}

static void finish_batch(struct fw_part *p, bool pretrain)
{
	const char *const *old = batch_of_script(fw_text(p, "(program)"));
	int64_t global, micro;

	if (old) {
		fw_default(p, "micro-batch", old[1], "lit-gpt finetune/lora.py cc19015 micro_batch_size");
		fw_default(p, "global-batch", old[2], "lit-gpt finetune/lora.py cc19015 batch_size");
	}
	fw_default(p, "micro-batch", pretrain ? "4" : "1", pretrain ? PRETRAIN " setup()" : LORA " setup()");
	if (doc_whole(fw_key(p, "train.global_batch_size"), &global) && global > 0)
		fw_set_whole(p, "global-batch", global, "train.global_batch_size", NULL);
	else
		fw_default(p, "global-batch", pretrain ? "512" : "16", pretrain ? PRETRAIN " setup()" : LORA " setup()");
	micro = atoll(fw_fact(p, "micro-batch"));
	if (micro > 0)
		fw_default(p, "eval-batch", fw_fact(p, "micro-batch"), "validation takes the micro-batch");
}

static void finish(struct fw_part *p)
{
	const char *command = fw_text(p, "(program)");
	/* finetune/lora.py is what the command was before it had a name */
	const bool lora = fw_key(p, "lora_r") || fw_key(p, "lora_query") || strstr(command, "finetune_lora") ||
			  strstr(command, "finetune/lora.py") ||
			  !strcmp(command, "litgpt finetune"),
		   pretrain = strstr(command, " pretrain") ||
			      (fw_key(p, "model_name") && !fw_key(p, "checkpoint_dir")),
		   adapted = lora || strstr(command, "adapter");
	const bool quantised = *fw_fact(p, "base-bits") && !fw_fact_is(p, "base-bits", "16");

	finish_model(p);
	finish_devices(p, pretrain);
	fw_default(p, "objective", pretrain ? "pretrain" : "sft", "the command");
	fw_default(p, "method", lora ? "lora" : "full", "the command");
	/* mixed; bitsandbytes' layers refuse that (lora.py:142), their runs have to say which */
	fw_default(p, "precision", quantised ? "bf16" : "amp-bf16", UTILS " get_default_supported_precision(training=True)");
	if (lora)
		finish_adapters(p);
	finish_optimizer(p, quantised);
	if (fw_fact_is(p, "base-bits", "4-nf4") || fw_fact_is(p, "base-bits", "4-fp4")) {
		fw_default(p, "keep-base-inputs", "true", LORA ":147: bitsandbytes 0.42");
		/* finetune/lora.py of 2023 had no StableEmbedding */
		fw_set(p, "@price.base-weights", strstr(command, "finetune/lora.py") ? "lightning" : "litgpt", "quantize", NULL);
	}
	if (pretrain && fw_fact_is(p, "optimizer", "adamw"))
		fw_set(p, "optimizer", "adamw-fused", fw_fact_from_file(p, "optimizer") ? "optimizer" : NULL, PRETRAIN ":216");
	fw_default(p, "attn", "sdpa", "litgpt/model.py");
	/* adapters: the head in chunks of 128 tokens; else whole logits.  Either in fp32, as Fabric returns them. */
	fw_default(p, "loss", adapted ? "chunked" : "outside", LORA ":355; " FULL " fit()");
	if (adapted)
		fw_set(p, "@price.loss", "parts", NULL, LORA ":355");
	fw_default(p, "packing", "false", "litgpt/data");
	/* rows of pretraining are as long as the model takes */
	if (pretrain && *fw_text(p, "model_config.block_size"))
		fw_default(p, "seq-len", fw_text(p, "model_config.block_size"), PRETRAIN " get_dataloaders");
	finish_batch(p, pretrain);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_litgpt = {
	.name = "litgpt",
	.summary = "litgpt's config_hub YAML and command line",
	.version = "litgpt 0.5",
	.role = FW_TRAINER,
	.marks = "checkpoint_dir+train checkpoint_dir+quantize checkpoint_dir+precision lora_query train.micro_batch_size train.global_batch_size",
	.never = "trainer datamodule actor.model_name_or_path ds.zero_stage",
	.programs = "litgpt",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
