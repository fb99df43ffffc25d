/* torchtune's recipes: YAML with class paths, key=value overrides.
 *
 * Which recipe a file is for and on how many cards stands in the comment above it ("tune run
 * --nproc_per_node 8 full_finetune_distributed"), or in the command line. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "parts.h"
#include "torchtune.h"

#define PARTS "which parts of a model that sees train (method): all of them are priced as one"

/* A key that the recipes for one device pass over. */
#define OF_MANY(k, n, m) {.key = k, .knob = n, .map = m, .source = RECIPES "/full_finetune_distributed.py", .only = "@distributed"}

static const struct fw_row rows[] = {
	FW_KEY("batch_size", "micro-batch", NULL, NULL, RECIPES),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, "1", RECIPES),
	FW_KEY("dtype", "precision", "bf16>bf16;fp32>fp32;fp16>fp16", NULL, RECIPES),
	FW_KEY("tokenizer.max_seq_len", "seq-len", NULL, NULL, RECIPES),
	FW_KEY("dataset.max_seq_len", "seq-len", NULL, NULL, RECIPES),
	FW_KEY("dataset.packed", "packing", "true>true;false>false", NULL, RECIPES),
	FW_KEY("enable_activation_checkpointing", "grad-ckpt", "true>full;false>none", "none", RECIPES),
	FW_KEY("enable_activation_offloading", "offload-activations", NULL, NULL, RECIPES),
	{"model.decoder_trainable", .note = PARTS}, {"model.encoder_trainable", .note = PARTS},
	{"model.fusion_trainable", .note = PARTS},
	FW_KEY("model.lora_rank", "lora-r", NULL, NULL, "torchtune/models/*/_component_builders.py"),
	FW_KEY("model.lora_dropout", "lora-dropout", NULL, "0", "torchtune/modules/peft/lora.py"),
	OF_MANY("tensor_parallel_dim", "tp", NULL), OF_MANY("context_parallel_dim", "cp", NULL),
	OF_MANY("fsdp_cpu_offload", "offload-params", "true>cpu;false>none"),
	OF_MANY("fsdp_reshard_after_forward", "zero", "true>3;false>2"),
	FW_KEY("save_adapter_weights_only", NULL, NULL, NULL, NULL),
	{"optimizer._component_", .hook = true}, {"optimizer.fused", .hook = true},
	{"loss._component_", .hook = true}, {"loss.num_output_chunks", .hook = true},
	{"model._component_", .hook = true}, {"checkpointer.checkpoint_dir", .hook = true},
	{"checkpointer.model_type", .hook = true},
	{"model.lora_attn_modules", .hook = true}, {"model.apply_lora_to_mlp", .hook = true},
	{"model.apply_lora_to_output", .hook = true}, {"model.quantize_base", .hook = true},
	{"dataset._component_", .hook = true},
	FW_KEY("model.use_dora", "use-dora", NULL, NULL, "torchtune/modules/peft/dora.py"),
	FW_KEY("optimizer_in_bwd", "optimizer-in-backward", NULL, NULL, RECIPES "/full_finetune_single_device.py"),
	/* layer by layer (training/_compile.py); true, or a map of what is compiled */
	FW_KEY("compile", "compile", "true>true compile-layers=true;false>false;{...}>", NULL,
	       RECIPES "/full_finetune_distributed.py"),
	{"compile.model", .hook = true}, {"compile.loss", .hook = true},
	{"custom_sharded_layers", .note = "embeddings and head are shards of their own: less than is priced"},
	FW_KEY("data_parallel_shard_dim", NULL, NULL, NULL, NULL),    /* what is left of the replicas */
	{"data_parallel_replicate_dim", .hook = true, .source = "torchtune/training/_distributed.py ParallelDims"},
	{"teacher_model*", .note = "a teacher model on the card: more than is priced"},
	{"quantizer*", .note = "weights are quantised in training (QAT): more than is priced"},
	{"enable_fp8_training", .hook = true, .source = RECIPES "/full_finetune_distributed.py"}, {"fp8_recipe_name", .hook = true},
	{"ac_mode", .hook = true, .source = RECIPES "/full_finetune_distributed.py"}, {"ac_option", .hook = true},
	{"run_val_every_n_steps", .hook = true, .source = RECIPES "/lora_finetune_single_device.py"}, {"batch_size_val", .hook = true},
	{"ppo_batch_size", .hook = true, .source = RECIPES "/ppo_full_finetune_single_device.py"},
	{"forward_batch_size", .note = "rollouts are made in batches of this many, which are not priced by it"},
	{.key = NULL},
};
static const char idle[] =
	"output_dir tokenizer* checkpointer* resume_from_checkpoint dataset* dataset_val* seed shuffle epochs "
	"max_steps_per_epoch optimizer* lr_scheduler* loss* clip_grad_norm metric_logger* log_* device profiler* "
	"model* low_cpu_ram batch_size_val run_val_every_n_steps kd_* enable_async_checkpointing collate_fn "
	"cudnn_deterministic_mode use_dora* save_* adapter* temperature top_k prompt instruct_template "
	"chat_format max_new_tokens enable_kv_cache tasks limit include_path early_exit* load_* intermediate* "
	"reward_* value_* ref_* ppo_* gamma lmbda whiten_* kl_* num_* grpo_* orchestration* vllm* inference* "
	"training* postprocessing* async_* float8* fp8_* dpo* sampler* torchao* ray* "
	"(launcher) (program) (words) (files) config";

/* What a builder makes, where the checkpoint's folder has a name of its own (torchtune recipes/configs). */
static const char *const builders[][2] = {
	{"llama2_7b", "meta-llama/Llama-2-7b-hf"}, {"llama2_13b", "meta-llama/Llama-2-13b-hf"},
	{"llama2_70b", "meta-llama/Llama-2-70b-hf"}, {"llama3_8b", "meta-llama/Meta-Llama-3-8B"},
	{"llama3_70b", "meta-llama/Meta-Llama-3-70B"}, {"llama3_1_8b", "meta-llama/Llama-3.1-8B"},
	{"llama3_1_70b", "meta-llama/Llama-3.1-70B"}, {"llama3_1_405b", "meta-llama/Llama-3.1-405B"},
	{"llama3_2_1b", "meta-llama/Llama-3.2-1B"}, {"llama3_2_3b", "meta-llama/Llama-3.2-3B"},
	{"llama3_3_70b", "meta-llama/Llama-3.3-70B-Instruct"}, {"mistral_7b", "mistralai/Mistral-7B-v0.1"},
	{"gemma_2b", "google/gemma-2b"}, {"gemma_7b", "google/gemma-7b"}, {"gemma2_2b", "google/gemma-2-2b"},
	{"gemma2_9b", "google/gemma-2-9b"}, {"gemma2_27b", "google/gemma-2-27b"},
	{"phi3_mini", "microsoft/Phi-3-mini-4k-instruct"}, {"phi4_14b", "microsoft/phi-4"},
	{"qwen2_0_5b", "Qwen/Qwen2-0.5B"}, {"qwen2_1_5b", "Qwen/Qwen2-1.5B"}, {"qwen2_7b", "Qwen/Qwen2-7B"},
	{"qwen2_5_0_5b", "Qwen/Qwen2.5-0.5B"}, {"qwen2_5_1_5b", "Qwen/Qwen2.5-1.5B"},
	{"qwen2_5_3b", "Qwen/Qwen2.5-3B"}, {"qwen2_5_7b", "Qwen/Qwen2.5-7B"},
	{"qwen2_5_14b", "Qwen/Qwen2.5-14B"}, {"qwen2_5_32b", "Qwen/Qwen2.5-32B"},
	{"qwen2_5_72b", "Qwen/Qwen2.5-72B"},
};

/* The hub id of what "torchtune.models.llama3_2.qlora_llama3_2_1b" makes; NULL: not known here. */
static const char *built(const char *component)
{
	const char *dot = strrchr(component, '.'), *name = dot ? dot + 1 : component;

	name += !strncmp(name, "qlora_", 6) ? 6 : !strncmp(name, "lora_", 5) ? 5 : 0;
	for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++) {
		const size_t n = strlen(builders[i][0]);

		if (!strncmp(name, builders[i][0], n) && (!name[n] || name[n] == '_'))
			return builders[i][1];
	}
	return NULL;
}

/* The same letters and digits, whatever stands between them. */
static bool same_letters(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (*a && !isalnum((unsigned char)*a))
			a++;
		while (*b && !isalnum((unsigned char)*b))
			b++;
		if (!*a || !*b || tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return !*a && !*b;
	}
}

/* "7b", "0.5B": a name of a model says its size. */
static bool names_a_size(const char *name)
{
	for (const char *p = name; *p; p++)
		if (isdigit((unsigned char)p[0]) && (p[1] == 'b' || p[1] == 'B'))
			return true;
	return false;
}

/* "...llama3_1.qlora_llama3_1_8b" and the name of its weights: the hub id follows from the folder
 * that "tune download ORG/NAME --output-dir" made. */
static void finish_model(struct fw_part *p)
{
	const char *dir = fw_text(p, "checkpointer.checkpoint_dir"), *head = fw_head(p), *at, *end;
	const char *hub = built(fw_text(p, "model._component_"));
	char name[160];
	size_t n = strlen(dir);

	if (!n) {
		if (hub)
			fw_set(p, "model", hub, "model._component_", "torchtune recipes/configs");
		return;
	}
	while (n && dir[n - 1] == '/')
		n--;
	end = dir + n;
	while (n && dir[n - 1] != '/')
		n--;
	if (end - (dir + n) >= 100 || end == dir + n || dir[n] == '$')
		return;
	snprintf(name, sizeof(name), "%.*s", (int)(end - dir - (ptrdiff_t)n), dir + n);
	/* Meta's own format lies in a folder of that name within the checkpoint's */
	if (!strcmp(name, "original")) {
		if (hub)
			fw_set(p, "model", hub, "model._component_", "torchtune recipes/configs");
		return;
	}
	if (strstr(name, "fine"))
		return;
	for (at = head; (at = strstr(at, "tune download ")) != NULL; at += 14) {
		const char *id = at + 14, *slash;
		const size_t len = strcspn(id, " \t\n");

		slash = memchr(id, '/', len);
		if (slash && len < sizeof(name) && !strncasecmp(slash + 1, name, len - (size_t)(slash + 1 - id)) &&
		    strlen(name) == len - (size_t)(slash + 1 - id)) {
			snprintf(name, sizeof(name), "%.*s", (int)len, id);
			break;
		}
	}
	if (hub && (same_letters(name, strchr(hub, '/') + 1) || (!strchr(name, '/') && !names_a_size(name))))
		fw_set(p, "model", hub, "model._component_", "the builder's model: the folder has a name of its own");
	else
		fw_set(p, "model", name, "checkpointer.checkpoint_dir", "the folder of the checkpoint");
}

static void finish_adapters(struct fw_part *p)
{
	static const struct {
		const char *theirs, *ours;
	} names[] = {{"q_proj", "q_proj"}, {"k_proj", "k_proj"}, {"v_proj", "v_proj"},
		     {"output_proj", "o_proj"}};
	char targets[200] = "", list[300];

	doc_show(fw_key(p, "model.lora_attn_modules"), list, sizeof(list));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strstr(list, names[i].theirs)) {
			strcat(targets, *targets ? "+" : "");
			strcat(targets, names[i].ours);
		}
	if (fw_on(p, "model.apply_lora_to_mlp")) {
		strcat(targets, *targets ? "+" : "");
		strcat(targets, "gate_proj+up_proj+down_proj");
	}
	if (fw_on(p, "model.apply_lora_to_output"))
		strcat(targets, *targets ? "+lm_head" : "lm_head");
	if (*targets)
		fw_set(p, "lora-targets", targets, "model.lora_attn_modules", NULL);
}

static void finish_optimizer(struct fw_part *p)
{
	static const struct {
		const char *theirs, *ours;
	} rows_of[] = {{"low_bit_optim.AdamW8bit", "adamw-torchao-8bit"}, {"torchao.optim.AdamW8bit", "adamw-torchao-8bit"},
		       {"AdamWFp8", "adamw-torchao-fp8"},
		       {"PagedAdamW8bit", "paged-adamw-8bit"}, {"PagedAdamW", "paged-adamw"},
		       {"AdamW8bit", "adamw-8bit"},            {"CPUOffloadOptimizer", "adamw"},
		       {"AdamW4bit", "adamw-4bit"},            {"Adam", "adamw"},
		       {"SGD", "sgd"},                         {"Lion", "lion"}};
	const char *c = fw_text(p, "optimizer._component_");

	for (size_t i = 0; *c && i < sizeof(rows_of) / sizeof(rows_of[0]); i++)
		if (strstr(c, rows_of[i].theirs)) {
			const bool fused = !strcmp(rows_of[i].ours, "adamw") && fw_on(p, "optimizer.fused");

			fw_set(p, "optimizer", fused ? "adamw-fused" : rows_of[i].ours,
			       "optimizer._component_", NULL);
			return;
		}
	if (*c)
		fw_unmodelled(p, "optimizer._component_", "no knob for this optimizer");
}

/* The number behind a word of the comment or of the command; 0: none. */
static int64_t number_behind(const char *text, const char *word)
{
	const char *at = strstr(text, word);
	long n;

	if (!at)
		return 0;
	at += strlen(word);
	n = strtol(at + strspn(at, "= "), NULL, 10);
	return n > 0 && n < 100000 ? n : 0;
}

/* "tune run --nproc_per_node 4 full_finetune_distributed --config dev/3B_grpo_sft": the recipe is the word before
 * the settings, whose name may speak of another; "": the comment has no such command. */
static const char *recipe_in(const char *head, char *buf, size_t size)
{
	const char *run = strstr(head, "tune run "), *end = run ? strstr(run, " --config") : NULL, *from = end;

	while (from && from > run && from[-1] != ' ')
		from--;
	snprintf(buf, size, "%.*s", end ? (int)(end - from) : 0, end ? from : "");
	return buf;
}

/* The recipe of the same kind for several devices. */
static void name_other_recipe(struct fw_part *p)
{
	const char *program = fw_text(p, "(program)"), *one;
	char buf[160];
	const char *recipe = *program ? program : recipe_in(fw_head(p), buf, sizeof(buf));

	one = strstr(recipe, "_single_device");
	if (one)
		fw_set(p, "@other-program", reading_text(p->reading, "the recipe %.*s_distributed and its --nproc_per_node", (int)(one - recipe),
						 recipe), NULL, NULL);
	else
		fw_set(p, "@other-program", "a recipe for several devices", NULL, NULL);
}

static void finish_engine(struct fw_part *p)
{
	const char *head = fw_head(p), *program = fw_text(p, "(program)");
	const char *recipe = *program ? program : head;
	const int64_t gpus = number_behind(head, "nproc_per_node");
	const bool distributed = strstr(recipe, "distributed") || gpus > 1 || fw_key(p, "fsdp_reshard_after_forward") ||
				 fw_on(p, "enable_fsdp");

	fw_set(p, "engine", "torchtune", NULL, RECIPES);
	if (!distributed) {
		fw_default(p, "gpus", "1", "a recipe for a single device");
		fw_set(p, "zero", "0", NULL, "a recipe for a single device");
		name_other_recipe(p);
	} else {
		fw_set(p, "@distributed", "true", NULL, NULL);
		if (gpus)
			fw_set_whole(p, "gpus", gpus, NULL, "tune run --nproc_per_node in its comment");
		if (fw_whole_or(p, "data_parallel_replicate_dim", 1) > 1)
			fw_unmodelled(p, "data_parallel_replicate_dim", "replicas of a sharded model: shards over fewer cards, more than "
				      "is priced");
		fw_default(p, "zero", "3", RECIPES "/*_distributed.py fully_shard");
	}
	fw_default(p, "nodes", "1", "tune run");
}

/* What the recipe trains for; a comment without a command is taken as a whole. */
static void finish_objective(struct fw_part *p, const char *loss)
{
	static const char *const words[][2] = {{"ppo_", "ppo"}, {"grpo", "grpo"}, {"knowledge_distillation", "distill"}};
	const char *program = fw_text(p, "(program)");
	char buf[160];
	const char *recipe = *program ? program : *recipe_in(fw_head(p), buf, sizeof(buf)) ? buf : fw_head(p);

	if (strstr(recipe, "dpo") || strstr(loss, "DPO"))
		fw_set(p, "objective", "dpo", "loss._component_", NULL);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(recipe, words[i][0]))
			fw_default(p, "objective", words[i][1], "the recipe");
	if (fw_key(p, "teacher_model"))
		fw_default(p, "objective", "distill", "the recipe");
	fw_default(p, "objective", "sft", "the recipe");
}

/* recipes/dev/async_grpo: what the trainers do stands in a map of its own, beside what the other workers do. */
static void finish_workers(struct fw_part *p)
{
	int64_t gpus;

	if (!fw_key(p, "orchestration") || !fw_key(p, "training"))
		return;
	fw_set(p, "objective", "grpo", "orchestration", RECIPES "/dev/async_grpo_full_finetune_distributed.py");
	if (doc_whole(fw_key(p, "orchestration.num_training_workers"), &gpus) && gpus > 0 && gpus < 100000) {
		fw_set_whole(p, "gpus", gpus, "orchestration.num_training_workers", NULL);
		fw_set(p, "@distributed", "true", NULL, NULL);
		fw_set(p, "zero", "3", NULL, RECIPES "/*_distributed.py fully_shard");
	}
	fw_nested(p, "training", "torchtune");
}

static void finish(struct fw_part *p)
{
	const char *model = fw_text(p, "model._component_"), *loss = fw_text(p, "loss._component_");
	const bool lora = strstr(model, "lora") || *fw_fact(p, "lora-r") || strstr(fw_text(p, "(program)"), "lora");

	finish_model(p);
	finish_optimizer(p);
	finish_workers(p);
	finish_engine(p);
	torchtune_checkpoints(p);
	fw_default(p, "method", lora ? "lora" : "full", "the model's builder");
	fw_default(p, "base-bits", strstr(model, "qlora") || fw_on(p, "model.quantize_base") ? "4-nf4" : "16",
		   "the model's builder");
	if (lora)
		finish_adapters(p);
	finish_objective(p, loss);
	torchtune_batches(p);
	if (fw_fact_is(p, "objective", "grpo"))
		fw_default(p, "rollouts", "engine", "recipes/dev/grpo: vLLM workers");
	if (fw_on(p, "fsdp_cpu_offload"))       /* states wait beside their shards */
		fw_set(p, "offload-optimizer", "cpu", "fsdp_cpu_offload", RECIPES "/full_finetune_distributed.py");
	if (fw_key(p, "compile") && fw_key(p, "compile")->kind == DOC_MAP) {
		const char *key = fw_key(p, "compile.model") ? "compile.model" : "compile";

		fw_set(p, "compile", fw_off(p, "compile.model") ? "false" : "true", key, RECIPES);
		if (!fw_off(p, "compile.model"))
			fw_set(p, "compile-layers", "true", key, RECIPES);
	}
	if (fw_on(p, "enable_fp8_training"))
		fw_take_fp8(p, fw_text(p, "fp8_recipe_name"), "enable_fp8_training", NULL,
			    RECIPES "/full_finetune_distributed.py");
	if (fw_off(p, "compile.loss"))
		fw_unmodelled(p, "compile.loss", "priced as compiled too: more than is priced");
	if (strstr(loss, "Linear") || strstr(loss, "Chunked") || strstr(loss, "CEWithChunkedOutput"))
		fw_set(p, "loss", "chunked", "loss._component_", "8 chunks");
	else
		fw_default(p, "loss", "plain", "torchtune/modules/loss");
	fw_default(p, "attn", strstr(model, "gemma2") ? "eager" : "sdpa",
		   strstr(model, "gemma2") ? "torchtune/models/gemma2: its softcap is no SDPA"
					   : "torchtune/modules/attention_utils.py");
	fw_default(p, "packing", "false", "torchtune/datasets");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_torchtune = {
	.name = "torchtune",
	.summary = "torchtune's recipe YAML and its key=value overrides",
	.version = "torchtune 0.6",
	.role = FW_TRAINER,
	.programs = "full_finetune_single_device full_finetune_distributed lora_finetune_single_device "
		    "lora_finetune_distributed lora_dpo_single_device lora_dpo_distributed full_dpo_distributed "
		    "knowledge_distillation_single_device knowledge_distillation_distributed qat_distributed "
		    "qat_lora_finetune_distributed qat_single_device",
	.marks = "model._component_ optimizer._component_ checkpointer._component_ "
		 "enable_activation_checkpointing+batch_size",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
