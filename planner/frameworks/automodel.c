/* NeMo Automodel's recipes: YAML whose maps name the class that they are arguments of. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define CONFIG "nemo_automodel/components/distributed/config.py"
#define PEFT "nemo_automodel/components/_peft/lora.py PeftConfig"
#define MODEL "nemo_automodel/_transformers/auto_model.py"
#define STEPS "nemo_automodel/components/training/step_scheduler.py"
#define LOSS "nemo_automodel/components/loss"
#define DTYPE \
	"bf16>bf16;bfloat16>bf16;torch.bfloat16>bf16;fp16>fp16;float16>fp16;torch.float16>fp16;fp32>fp32;float32>fp32;" \
	"torch.float32>fp32;auto>auto"

static const struct fw_row rows[] = {
	{"recipe", .hook = true, .source = "nemo_automodel/recipes"},
	{"recipe._target_", .hook = true, .source = "nemo_automodel/recipes"},
	FW_KEY("model.pretrained_model_name_or_path", "model", NULL, NULL, MODEL),
	FW_KEY("model.config.pretrained_model_name_or_path", "model", NULL, NULL, MODEL),
	{"model.config", .hook = true, .source = MODEL},
	{"model._target_", .hook = true, .source = MODEL},
	FW_KEY("model.torch_dtype", "@dtype", DTYPE, "auto", MODEL ":651"),
	FW_KEY("model.attn_implementation", "attn",
	       "flash_attention_2>flash;flash*>flash;sdpa>sdpa;eager>eager;te>flash", NULL,
	       "nemo_automodel/_transformers/kernel_patches.py:71"),
	FW_KEY("model.backend.attn", "attn", "te>flash;sdpa>sdpa;flex>flex;*>", NULL, "nemo_automodel BackendConfig"),
	FW_KEY("step_scheduler.local_batch_size", "micro-batch", NULL, NULL, STEPS ":64"),
	FW_KEY("step_scheduler.global_batch_size", "global-batch", NULL, NULL, STEPS ":63"),
	FW_KEY("distributed.strategy", "engine", "fsdp2>fsdp2;megatron_fsdp>fsdp2;ddp>hf;*>", NULL, CONFIG),
	FW_KEY("distributed._target_", "engine", "*FSDP2Manager>fsdp2;*MegatronFSDPManager>fsdp2;*DDPManager>hf;*>", NULL,
	       CONFIG),
	FW_KEY("distributed.tp_size", "tp", "none>;*>=", NULL, CONFIG),
	FW_KEY("distributed.cp_size", "cp", "none>;*>=", NULL, CONFIG),
	FW_KEY("distributed.pp_size", "pp", "none>;*>=", NULL, CONFIG),
	FW_KEY("distributed.ep_size", "ep", "none>;*>=", NULL, CONFIG),
	FW_KEY("distributed.sequence_parallel", "sp", "true>true;false>false", NULL, CONFIG),
	FW_KEY("distributed.activation_checkpointing", "grad-ckpt", "true>full;full>full;selective>selective;false>none",
	       "none", CONFIG),
	FW_KEY("distributed.activation_checkpointing_scope", "@ckpt-scope", "all>all;*>part", NULL, CONFIG ":270"),
	{"distributed.dp_size", .hook = true, .source = CONFIG},
	{"distributed.dp_replicate_size", .hook = true, .source = CONFIG},
	{"distributed.pipeline.pp_microbatch_size", .hook = true, .source = CONFIG},
	{"distributed.offload_policy", .note = "parameters may wait in host memory: give --offload-params"},
	{"packed_sequence.packed_sequence_size", .hook = true, .source = "nemo_automodel/recipes"},
	{"packed_sequence.pack_size", .hook = true, .source = "nemo_automodel/recipes"},
	FW_KEY("dataset.seq_len", "seq-len", NULL, NULL, "nemo_automodel/components/datasets"),
	FW_KEY("dataset.seq_length", "seq-len", NULL, NULL, "nemo_automodel/components/datasets"),
	FW_KEY("dataset.max_length", "seq-len", NULL, NULL, "nemo_automodel/components/datasets"),
	FW_KEY("dataloader.collate_fn.max_length", "seq-len", NULL, NULL, "nemo_automodel/components/datasets/vlm/collate_fns.py"),
	{"peft._target_", .hook = true, .source = PEFT},
	FW_KEY("peft.dim", "lora-r", NULL, NULL, PEFT),
	FW_KEY("peft.dropout", "lora-dropout", NULL, NULL, PEFT),
	FW_KEY("peft.use_dora", "use-dora", NULL, NULL, PEFT),
	{"peft.target_modules", .hook = true, .source = PEFT},
	{"peft.match_all_linear", .hook = true, .source = PEFT},
	FW_KEY("peft.exclude_modules", "exclude-modules", NULL, NULL, PEFT),
	FW_KEY("quantization.load_in_4bit", "base-bits", "true>4-nf4;false>", NULL, MODEL),
	FW_KEY("quantization.load_in_8bit", "base-bits", "true>8;false>", NULL, MODEL),
	FW_KEY("quantization.bnb_4bit_use_double_quant", "double-quant", "true>true;false>false", NULL, MODEL),
	{"loss_fn._target_", .hook = true, .source = LOSS},
	{"optimizer._target_", .hook = true, .source = "nemo_automodel/recipes"},
	{"optimizer.master_weights", .hook = true, .source = "transformer_engine FusedAdam"},
	FW_KEY("freeze_config.freeze_vision_tower", "freeze-vision-tower", "true>true;false>false", NULL,
	       "nemo_automodel/recipes/vlm/finetune.py"),
	FW_KEY("freeze_config.freeze_language_model", "freeze-language-model", "true>true;false>false", NULL,
	       "nemo_automodel/recipes/vlm/finetune.py"),
	{"freeze_config.freeze_embeddings", .note = "embeddings are frozen: less than is priced"},
	{"optimizer.exp_avg_dtype", .note = "states of the optimizer in other widths than are priced"},
	{"optimizer.exp_avg_sq_dtype", .note = "states of the optimizer in other widths than are priced"},
	FW_KEY("compile.enabled", "compile", "true>true;false>false", NULL, "nemo_automodel compile_utils.py"),
	{"model.use_liger_kernel", .note = "Liger's kernels: less than is priced"},
	{"fp8.enabled", .hook = true}, {"fp8.recipe_name", .hook = true}, {"fp8.enable_fsdp_float8_all_gather", .hook = true},
	FW_KEY("dataloader.num_workers", "dataloader-workers", NULL, NULL, NULL),
	{.key = NULL},
};
static const char idle[] =
	"seed step_scheduler* dist_env* rng* tokenizer* processor* model* checkpoint* peft* distributed* loss_fn* "
	"dataset* validation_dataset* dataloader* validation_dataloader* packed_sequence* optimizer* lr_scheduler* "
	"lr_schedule* wandb* mlflow* comet* logger* logging* ci* benchmark* compile* fp8* quantization* freeze_config* qat* "
	"moe* kd_* teacher* autonvtx* launcher* slurm* sky* k8s* run* multimodal* (words)";

static bool has(const char *text, const char *word)
{
	return strstr(text, word) != NULL;
}

static const char *class_of(const struct fw_part *p, const char *key)
{
	const char *path = fw_text(p, key), *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

static void finish_objective(struct fw_part *p)
{
	const char *recipe = fw_text(p, "recipe");
	const char *key = *recipe ? "recipe" : "recipe._target_";

	if (!*recipe)
		recipe = fw_text(p, key);
	if (has(recipe, "KnowledgeDistillation"))
		fw_set(p, "objective", "distill", key, NULL);
	else if (has(recipe, "Encoder"))
		fw_set(p, "objective", "embedding", key, NULL);
	else if (has(recipe, "SequenceClassification"))
		fw_set(p, "objective", "classification", key, NULL);
	else if (has(fw_text(p, "model._target_"), "from_config"))
		fw_set(p, "objective", "pretrain", "model._target_", "made anew from its config");
	else
		fw_default(p, "objective", "sft", "the recipe");
}

/* "*_proj" of fnmatch is ".*_proj" of regular expressions. */
static void finish_targets(struct fw_part *p)
{
	const struct doc_node *node = fw_key(p, "peft.target_modules");
	const struct doc_node *name = node && node->kind == DOC_LIST ? node->child : node;
	const char *text = name && name->kind == DOC_SCALAR ? name->text : "";
	char regex[160];
	size_t n = 0;

	if (fw_on(p, "peft.match_all_linear") || !strcmp(text, "*")) {
		fw_set(p, "lora-targets", "all-linear", fw_on(p, "peft.match_all_linear") ? "peft.match_all_linear" :
		       "peft.target_modules", PEFT);
	} else if (strchr(text, '*')) {
		for (; *text && n + 3 < sizeof(regex); text++) {
			if (*text == '*')
				regex[n++] = '.';
			regex[n++] = *text;
		}
		regex[n] = 0;
		fw_set(p, "lora-targets", regex, "peft.target_modules", "fnmatch");
	} else if (node) {
		char list[400] = "";

		for (; name && strlen(list) + strlen(name->text ? name->text : "") + 2 < sizeof(list);
		     name = node->kind == DOC_LIST ? name->next : NULL) {
			strcat(list, *list ? "+" : "");
			strcat(list, name->text ? name->text : "");
		}
		fw_set(p, "lora-targets", list, "peft.target_modules", PEFT);
	}
}

static void finish_loss(struct fw_part *p)
{
	const char *name = class_of(p, "loss_fn._target_");

	if (has(name, "Linear"))
		fw_set(p, "loss", "cce", "loss_fn._target_", LOSS "/linear_ce.py: cut_cross_entropy");
	else if (has(name, "Chunked"))
		fw_set(p, "loss", "chunked", "loss_fn._target_", LOSS "/chunked_ce.py");
	else if (has(name, "TEParallel"))
		fw_set(p, "loss", "in-place", "loss_fn._target_", LOSS "/te_parallel_ce.py: gradients in the logits' place");
	else
		fw_set(p, "loss", "plain", *name ? "loss_fn._target_" : NULL, LOSS "/masked_ce.py");
}

static void finish_optimizer(struct fw_part *p)
{
	const char *path = fw_text(p, "optimizer._target_"), *name = class_of(p, "optimizer._target_");

	if (has(name, "FusedAdam"))
		fw_set(p, "optimizer", "adamw-fused", "optimizer._target_", path);
	else if (has(name, "Adam"))
		fw_set(p, "optimizer", fw_on(p, "optimizer.fused") ? "adamw-fused" : "adamw", "optimizer._target_", path);
	else if (has(name, "Muon"))
		fw_set(p, "optimizer", "muon", "optimizer._target_", path);
	else if (has(name, "SGD"))
		fw_set(p, "optimizer", "sgd", "optimizer._target_", path);
	else if (*name)
		fw_unmodelled(p, "optimizer._target_", "no knob for this optimizer");
	if (fw_on(p, "optimizer.master_weights"))
		fw_unmodelled(p, "optimizer.master_weights", "fp32 masters beside the weights: more than is priced");
}

static void finish_length(struct fw_part *p)
{
	static const char *const keys[] = {"packed_sequence.packed_sequence_size", "packed_sequence.pack_size"};
	int64_t tokens = 0;

	for (size_t i = 0; i < 2; i++)
		if (doc_whole(fw_key(p, keys[i]), &tokens) && tokens > 0 && tokens < 100000000) {
			fw_set(p, "packing", "true", keys[i], NULL);
			fw_set_whole(p, "seq-len", tokens, keys[i], NULL);
		}
	fw_default(p, "packing", "false", "packed_sequence_size 0");
}

/* Weights stay as they are loaded, and are cast for computing; fp32 ones are the masters of bf16. */
static void finish_precision(struct fw_part *p)
{
	const char *dtype = fw_fact(p, "@dtype");
	char value[16];

	strncpy(value, dtype, sizeof(value) - 1);
	value[sizeof(value) - 1] = 0;
	fw_set(p, "precision", !strcmp(value, "fp32") ? "amp-bf16" : !strcmp(value, "fp16") ? "fp16" : "bf16",
	       fw_key(p, "model.torch_dtype") ? "model.torch_dtype" : NULL, CONFIG " mp_policy: bf16 computes");
	if (!strcmp(value, "auto"))
		fw_open(p, "precision", "weights load as config.json says; bf16 is taken");
}

/* All cards, where the number of data-parallel ranks is said. */
static void finish_gpus(struct fw_part *p)
{
	static const char *const keys[] = {"distributed.dp_size", "distributed.tp_size", "distributed.pp_size", "distributed.cp_size"};
	int64_t gpus = 1;

	if (fw_whole_or(p, keys[0], 0) < 1)
		return;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (__builtin_mul_overflow(gpus, fw_whole_or(p, keys[i], 1), &gpus) || gpus > 1000000)
			return;
	fw_set_whole(p, "gpus", gpus, keys[0], CONFIG);
}

static void finish(struct fw_part *p)
{
	const bool lora = fw_key(p, "peft") != NULL;
	int64_t n;

	finish_objective(p);
	fw_set(p, "method", lora ? "lora" : "full", lora ? "peft._target_" : NULL, "a peft map");
	if (lora) {
		finish_targets(p);
		fw_default(p, "lora-r", "8", PEFT);
		fw_default(p, "lora-dropout", "0", PEFT);
	}
	if (fw_key(p, "model.config") && fw_key(p, "model.config")->kind == DOC_SCALAR && !*fw_fact(p, "model"))
		fw_set(p, "model", fw_text(p, "model.config"), "model.config", NULL);
	finish_loss(p);
	finish_optimizer(p);
	finish_length(p);
	finish_precision(p);
	finish_gpus(p);
	if (fw_fact_is(p, "@ckpt-scope", "part"))
		fw_unmodelled(p, "distributed.activation_checkpointing_scope", "some groups of layers alone are recomputed: more than is priced");
	fw_default(p, "engine", "fsdp2", CONFIG " strategy");
	if (fw_fact_is(p, "engine", "fsdp2")) {
		fw_default(p, "zero", "3", CONFIG);
		fw_default(p, "reduce-dtype", "fp32", CONFIG " mp_policy");
	}
	if (doc_whole(fw_key(p, "distributed.dp_replicate_size"), &n) && n > 1)
		fw_take_replicas(p, 0, n, "distributed.dp_replicate_size");
	/* a pipeline cuts the local batch into its own micro-batches */
	if (atoi(fw_fact(p, "pp")) > 1 && doc_whole(fw_key(p, "distributed.pipeline.pp_microbatch_size"), &n) && n > 0 &&
	    n < 100000)
		fw_set_whole(p, "micro-batch", n, "distributed.pipeline.pp_microbatch_size", CONFIG);
	if (fw_on(p, "fp8.enabled"))
		fw_take_fp8(p, fw_text(p, "fp8.recipe_name"), "fp8.enabled", "fp8.enable_fsdp_float8_all_gather",
			    "nemo_automodel/components/quantization/fp8.py");
	if (!*fw_fact(p, "attn")) {
		fw_default(p, "attn", "flash", "nemo_automodel/_transformers/kernel_patches.py:71");
		fw_open(p, "attn", "flash where flash_attn is installed, else sdpa");
	}
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_automodel = {
	.name = "automodel",
	.summary = "NeMo Automodel's recipes",
	.version = "NeMo Automodel main of August 2026",
	.role = FW_TRAINER,
	.marks = "step_scheduler.local_batch_size step_scheduler+distributed step_scheduler+dist_env",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
