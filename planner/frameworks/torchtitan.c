/* torchtitan's job files: TOML, three generations of key names, and what they share with the Python of today. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "parts.h"
#include "torchtitan.h"

#define JOB "torchtitan/config/job_config.py"

static const struct fw_row rows[] = {
	FW_KEY("training.local_batch_size", "micro-batch", NULL, NULL, JOB ":253"),
	FW_KEY("training.batch_size", "micro-batch", NULL, NULL, "torchtitan 0.1 config_manager.py"),
	FW_KEY("training.seq_len", "seq-len", NULL, NULL, JOB ":261"),
	{"training.global_batch_size", .hook = true, .source = JOB},
	/* forks of 0.1 */
	FW_KEY("training.gradient_accumulation_steps", "grad-accum", NULL, NULL, "torchtitan 0.1, forks"),
	FW_KEY("activation_checkpoint.mode", "grad-ckpt", "full>full;selective>selective-op;none>none;"
	       "memory_budget>selective", NULL, JOB ":652"),
	FW_KEY("parallelism.tensor_parallel_degree", "tp", NULL, NULL, JOB ":351"),
	FW_KEY("parallelism.pipeline_parallel_degree", "pp", NULL, NULL, JOB ":360"),
	FW_KEY("parallelism.context_parallel_degree", "cp", NULL, NULL, JOB ":428"),
	FW_KEY("parallelism.expert_parallel_degree", "ep", NULL, NULL, JOB ":454"),
	FW_KEY("training.tensor_parallel_degree", "tp", NULL, NULL, "torchtitan 0.1"),
	FW_KEY("experimental.pipeline_parallel_degree", "pp", NULL, NULL, "torchtitan 0.1"),
	FW_KEY("experimental.context_parallel_degree", "cp", NULL, NULL, "torchtitan 0.1"),
	{"parallelism.data_parallel_shard_degree", .hook = true, .source = JOB ":324"},
	{"parallelism.data_parallel_replicate_degree", .hook = true, .source = JOB ":313"},
	{"training.data_parallel_shard_degree", .hook = true},
	{"training.data_parallel_replicate_degree", .hook = true},
	{"training.data_parallel_degree", .hook = true, .source = "torchtitan 0.1"},
	FW_KEY("parallelism.fsdp_reshard_after_forward", "zero", "default>3;always>3;never>2", NULL,
	       JOB ":336"),
	{"optimizer.name", .hook = true, .source = JOB ":135"},
	{"optimizer.implementation", .hook = true, .source = JOB},
	{"optimizer.fused", .hook = true},
	FW_KEY("optimizer.early_step_in_backward", "optimizer-in-backward", NULL, NULL,
	       "torchtitan/components/optimizer.py OptimizersInBackwardContainer"),
	{"model.name", .hook = true}, {"model.flavor", .hook = true, .source = JOB ":104"},
	{"activation_checkpoint.selective_ac_option",
	 .hook = true, .source = JOB ":655"},
	{"training.mixed_precision_param", .hook = true, .source = JOB},
	FW_KEY("training.mixed_precision_reduce", "reduce-dtype", "float32>fp32;bfloat16>own", "fp32", JOB),
	{"training.dtype", .hook = true},
	FW_KEY("training.enable_cpu_offload", "offload-params", "true>cpu offload-optimizer=cpu;false>none",
	       NULL, JOB),
	/* each block for itself (models/llama3/infra/parallelize.py apply_compile) */
	FW_KEY("compile.enable", "compile", "true>true compile-layers=true;false>false", NULL, JOB),
	FW_KEY("training.compile", "compile", "true>true compile-layers=true;false>false", NULL, JOB),
	{"compile.components", .hook = true},
	FW_KEY("parallelism.expert_tensor_parallel_degree", "etp", NULL, NULL, JOB),
	{"parallelism.pipeline_parallel_schedule", .hook = true, .source = JOB},
	{"experimental.pipeline_parallel_schedule", .hook = true}, {"experimental.pipeline_parallel_microbatches", .hook = true},
	{"parallelism.pipeline_parallel_microbatch_size", .hook = true},
	{"float8.enable_fsdp_float8_all_gather", .note = "shards are gathered in 8 bit: less than is priced"},
	{"float8.enable_float8_linear", .hook = true}, {"float8.recipe_name", .hook = true, .source = JOB},
	{"quantize.linear.float8.recipe_name", .hook = true},
	{"model.converters", .hook = true},
	FW_KEY("validation.local_batch_size", "eval-batch", NULL, NULL, JOB), {"validation.enable", .hook = true},
	{.key = NULL},
};
static const char idle[] = "job* profiling* metrics* model* optimizer* lr_scheduler* training* parallelism* "
			   "experimental* checkpoint* activation_checkpoint* comm* float8* mx* quantize* "
			   "fault_tolerance* memory_estimation* validation* debug* compile* encoder* eval* "
			   "hf_transformers* inference* generation* (launcher) (program) (words) (files)";

/* Hub ids of the flavors that are a published model (torchtitan/models). */
static const struct {
	const char *name, *flavor, *id;
} flavors[] = {
	{"llama3", "8B", "meta-llama/Llama-3.1-8B"},
	{"llama3", "70B", "meta-llama/Llama-3.1-70B"},
	{"llama3", "405B", "meta-llama/Llama-3.1-405B"},
	{"llama2", "7B", "meta-llama/Llama-2-7b-hf"},
	{"llama2", "13B", "meta-llama/Llama-2-13b-hf"},
	{"llama2", "70B", "meta-llama/Llama-2-70b-hf"},
	{"llama4", "17bx16e", "meta-llama/Llama-4-Scout-17B-16E"},
	{"llama4", "17bx128e", "meta-llama/Llama-4-Maverick-17B-128E"},
	{"deepseek_v3", "16B", "deepseek-ai/deepseek-moe-16b-base"},
	{"deepseek_v3", "671B", "deepseek-ai/DeepSeek-V3"},
	{"qwen3", "0.6B", "Qwen/Qwen3-0.6B"},
	{"qwen3", "1.7B", "Qwen/Qwen3-1.7B"},
	{"qwen3", "4B", "Qwen/Qwen3-4B"},
	{"qwen3", "8B", "Qwen/Qwen3-8B"},
	{"qwen3", "14B", "Qwen/Qwen3-14B"},
	{"qwen3", "32B", "Qwen/Qwen3-32B"},
	{"gpt_oss", "20b", "openai/gpt-oss-20b"},
	{"gpt_oss", "120b", "openai/gpt-oss-120b"},
};

bool torchtitan_flavor(const char *hub_id, const char **name, const char **flavor)
{
	for (size_t i = 0; i < sizeof(flavors) / sizeof(flavors[0]); i++)
		if (!strcmp(flavors[i].id, hub_id)) {
			*name = flavors[i].name;
			*flavor = flavors[i].flavor;
			return true;
		}
	return false;
}

static void finish_optimizer(struct fw_part *p)
{
	const char *name = fw_text(p, "optimizer.name");
	/* before job_config.py had "implementation", "fused" said it, and meant no where it was absent */
	const bool old = fw_key(p, "training.batch_size") != NULL;
	const char *how = fw_text(p, "optimizer.implementation");
	const bool fused = *how ? !strcmp(how, "fused") : old ? fw_on(p, "optimizer.fused")
							      : !fw_off(p, "optimizer.fused");

	if (*name && strcmp(name, "AdamW") && strcmp(name, "Adam")) {
		fw_unmodelled(p, "optimizer.name", "no knob for this optimizer: AdamW is priced");
		return;
	}
	fw_set(p, "optimizer", fused ? "adamw-fused" : "adamw", *name ? "optimizer.name" : NULL,
	       JOB " optimizer.implementation");
}

/* "op", or n: every n-th layer is recomputed as a whole. */
static void finish_selective(struct fw_part *p)
{
	const char *mode = fw_text(p, "activation_checkpoint.mode"),
		   *option = fw_text(p, "activation_checkpoint.selective_ac_option");
	const char *key = *option ? "activation_checkpoint.selective_ac_option" : NULL;

	if ((*mode && strcmp(mode, "selective")) || !strcmp(option, "op"))
		return;
	fw_set(p, "grad-ckpt", "full", key, JOB " selective_ac_option: every second layer where nothing is said");
	fw_set(p, "ckpt-every", *option ? option : "2", key, JOB " selective_ac_option");
}

/* Where every degree is said, the cards are their product (torchtitan/distributed/parallel_dims.py); shards of -1 are
 * what is left of them. */
static void finish_gpus(struct fw_part *p, int64_t shard, int64_t copies)
{
	static const char *const degrees[] = {"tp", "pp", "cp"};
	int64_t cards = shard * copies;

	/* a command above the job may have other degrees, and says how many processes there are */
	if (p->command || shard < 1 || copies < 1 || shard > 100000 || copies > 100000)
		return;
	for (size_t i = 0; i < sizeof(degrees) / sizeof(degrees[0]) && cards > 0; i++) {
		const int64_t n = *fw_fact(p, degrees[i]) ? atoll(fw_fact(p, degrees[i])) : 1;

		cards = n < 1 || n > 100000 ? 0 : cards * n;
	}
	if (cards > 0)
		fw_set_whole(p, "gpus", cards, "parallelism.data_parallel_shard_degree", "the product of the degrees");
}

/* training.dtype is what parameters, gradients and states are held in, mixed_precision_param what FSDP computes in
 * (torchtitan/train.py set_default_dtype, MixedPrecisionPolicy). */
static void finish_precision(struct fw_part *p)
{
	const char *param = fw_text(p, "training.mixed_precision_param");
	const bool computes_32 = *param && strstr(param, "32");
	const bool holds_16 = !strcmp(fw_text(p, "training.dtype"), "bfloat16");

	if (holds_16 && computes_32)
		fw_unmodelled(p, "training.mixed_precision_param", "16-bit shards computed in fp32 are priced as bf16");
	if (holds_16)
		fw_set(p, "precision", "bf16", "training.dtype", JOB " dtype: parameters, gradients and states");
	else
		fw_default(p, "precision", computes_32 ? "fp32" : "amp-bf16",
			   JOB " mixed_precision_param: fp32 shards, bf16 computation");
}

/* A converter of the model, or in 0.1 a switch; torchao's recipe is tensorwise where none is named
 * (torchtitan/components/quantization/float8.py). */
static void finish_fp8(struct fw_part *p)
{
	const struct doc_node *list = fw_key(p, "model.converters");
	const char *key = fw_on(p, "float8.enable_float8_linear") ? "float8.enable_float8_linear" : NULL,
		   *recipe = fw_text(p, "float8.recipe_name");

	for (const struct doc_node *c = list && list->kind == DOC_LIST ? list->child : NULL; c; c = c->next)
		if (!strcmp(c->text, "float8") || !strcmp(c->text, "quantize.linear.float8"))
			key = "model.converters";
		else
			fw_unmodelled(p, "model.converters", "a converter that is not modelled: priced without it");
	if (!key)
		return;
	if (!*recipe)
		recipe = fw_text(p, "quantize.linear.float8.recipe_name");
	fw_take_fp8(p, recipe, key, NULL, "torchtitan/components/quantization/float8.py");
}

/* What is compiled: model and loss where nothing is said. */
static void finish_compile(struct fw_part *p)
{
	const char *key = "compile.components";
	const struct doc_node *list = fw_key(p, key);
	bool model = false, loss = false;

	const bool parts = fw_fact_is(p, "loss", "chunked");    /* stay what they are */

	if (!list || list->kind != DOC_LIST || !fw_fact_is(p, "compile", "true"))
		return;
	for (const struct doc_node *c = list->child; c; c = c->next) {
		model |= c->kind == DOC_SCALAR && !strcmp(c->text, "model");
		loss |= c->kind == DOC_SCALAR && !strcmp(c->text, "loss");
	}
	if (model && !loss && !parts)
		fw_set(p, "loss", "outside", key, "torchtitan/components/loss.py: fp32 logits, not compiled");
	if (model)
		return;
	fw_set(p, "compile", "false", key, JOB " components");
	fw_unset(p, "compile-layers");
	if (loss && !parts)
		fw_set(p, "loss", "compiled", key, "torchtitan/components/loss.py");
}

/* Steps within the backward pass are modelled of FSDP alone. */
static void finish_early_step(struct fw_part *p, bool divided)
{
	const char *key = "optimizer.early_step_in_backward";

	if (!fw_on(p, key) || !divided)
		return;
	fw_unset(p, "optimizer-in-backward");
	fw_unmodelled(p, key, "each gradient is freed as soon as it was applied: less than is priced");
}

/* A pipeline cuts the local batch into micro-batches: of one sequence where nothing is said, in 0.1 into as many as there
 * are stages. */
static void finish_pipeline(struct fw_part *p)
{
	static const char *const size = "parallelism.pipeline_parallel_microbatch_size",
				 *const number = "experimental.pipeline_parallel_microbatches";
	const int64_t pp = atoll(fw_fact(p, "pp")), local = atoll(fw_fact(p, "micro-batch"));
	const char *schedule = *fw_text(p, "parallelism.pipeline_parallel_schedule") ? "parallelism.pipeline_parallel_schedule" :
										       "experimental.pipeline_parallel_schedule";
	int64_t micro;

	if (pp < 2 || local < 1)
		return;
	micro = fw_key(p, "experimental.pipeline_parallel_degree") ? local / fw_whole_or(p, number, pp) : fw_whole_or(p, size, 1);
	if (micro < 1 || local % micro)
		return;
	fw_set_whole(p, "micro-batch", micro, fw_key(p, size) ? size : fw_key(p, number) ? number : NULL, JOB " Parallelism");
	if (!fw_fact_from_file(p, "global-batch") && !fw_fact_from_file(p, "grad-accum"))
		fw_set_whole(p, "grad-accum", local / micro, NULL, "a pipeline's micro-batches of the local batch");
	if (*fw_text(p, schedule) && strcasecmp(fw_text(p, schedule), "1f1b"))
		fw_unmodelled(p, schedule, "priced as 1F1B: other orders keep more or fewer micro-batches");
}

static void finish(struct fw_part *p)
{
	const char *name = fw_text(p, "model.name"), *flavor = fw_text(p, "model.flavor");
	const char *shard_key = fw_key(p, "parallelism.data_parallel_shard_degree")
					? "parallelism.data_parallel_shard_degree"
					: fw_key(p, "training.data_parallel_degree") ? "training.data_parallel_degree"
										      : "training.data_parallel_shard_degree";
	const char *copy_key = fw_key(p, "parallelism.data_parallel_replicate_degree")
				       ? "parallelism.data_parallel_replicate_degree"
				       : "training.data_parallel_replicate_degree";
	int64_t shard = -1, copies = 1, global;
	const bool today = torchtitan_today(p);
	bool divided;

	for (size_t i = 0; i < sizeof(flavors) / sizeof(flavors[0]); i++)
		if (!strcmp(name, flavors[i].name) && !strcmp(flavor, flavors[i].flavor))
			fw_set(p, "model", flavors[i].id, "model.flavor", "torchtitan/models");
	fw_default(p, "micro-batch", "8", JOB ":253");
	fw_default(p, "seq-len", "2048", JOB ":261");
	fw_default(p, "objective", "pretrain", "torchtitan/train.py");
	fw_default(p, "method", "full", "torchtitan/train.py");
	fw_default(p, "base-bits", "16", "torchtitan/train.py");
	finish_precision(p);
	if (!today)
		finish_selective(p);
	fw_default(p, "grad-ckpt", "selective-op", JOB ":652");
	fw_default(p, "attn", "sdpa", "torchtitan/models/attention.py");
	fw_default(p, "kv-repeat", "sdpa", "torchtitan/models/llama3/model/model.py repeat_kv");
	/* of its own size (job_config.py Validation); none unless it is asked for */
	if (fw_on(p, "validation.enable"))
		fw_default(p, "eval-batch", "8", JOB " validation.local_batch_size");
	else
		fw_default(p, "eval-batch", "0", JOB " validation.enable");
	finish_compile(p);
	finish_fp8(p);
	fw_default(p, "loss", "plain", "torchtitan/components/loss.py");
	if (!today)
		finish_optimizer(p);
	fw_default(p, "ep", "1", JOB);
	doc_whole(fw_key(p, shard_key), &shard);
	doc_whole(fw_key(p, copy_key), &copies);
	divided = atoi(fw_fact(p, "tp")) > 1 || atoi(fw_fact(p, "pp")) > 1 || atoi(fw_fact(p, "cp")) > 1;
	/* replicas alone are DDP's (models/llama3/infra/parallelize.py apply_ddp) */
	if (shard == 1 && copies > 1 && !divided)
		fw_set(p, "engine", "hf", copy_key, "torchtitan/models: replicas alone are DDP's");
	else
		fw_set(p, "engine", "fsdp2", NULL, "torchtitan/distributed: fully_shard");
	finish_gpus(p, shard, copies);
	finish_early_step(p, divided || atoi(fw_fact(p, "ep")) > 1);
	if (fw_fact_is(p, "engine", "hf"))
		fw_unset(p, "reduce-dtype");   /* FSDP's */
	if (copies > 1 && shard != 1 && !fw_fact_is(p, "engine", "hf"))
		fw_take_replicas(p, shard, copies, copy_key);
	if (shard == 1)
		fw_set(p, "zero", "0", shard_key, "nothing is sharded");
	fw_default(p, "zero", "3", JOB ":336");
	if (doc_whole(fw_key(p, "training.global_batch_size"), &global) && global > 0)
		fw_set_whole(p, "global-batch", global, "training.global_batch_size", NULL);
	if (!today)
		finish_pipeline(p);
	if (!fw_fact_from_file(p, "global-batch"))
		fw_default(p, "grad-accum", "1", JOB " global_batch_size -1: no accumulation");
}

static const struct fw_row *const lists[] = {rows, torchtitan_today_rows, NULL};
static const char *const idles[] = {idle, torchtitan_today_idle, NULL};

const struct framework framework_torchtitan = {
	.name = "torchtitan",
	.summary = "torchtitan's TOML, and its config_registry.py (FILE.py:NAME for one of several runs)",
	.version = "torchtitan 238fa99, 2026-08-21",
	.role = FW_TRAINER,
	.marks = "model.flavor training.seq_len+activation_checkpoint.mode parallelism.tensor_parallel_degree "
		 "model_spec+training model_spec+parallelism model_spec+trainer training.max_context_length",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
