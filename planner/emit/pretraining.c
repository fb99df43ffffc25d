/* torchtune, torchtitan, Megatron-LM. */
#include <stdio.h>
#include <string.h>

#include "allocator_variable.h"
#include "emit/fills.h"
#include "input/model_ids.h"
#include "oomplan/config.h"

/* ---- torchtune, torchtitan, Megatron-LM ---- */

/* Its other recipes are about objectives of their own; what none is about runs as a plain one. */
static bool finetunes(const struct emission *e)
{
	return !emit_is(e, "objective", "dpo") && !emit_is(e, "objective", "grpo") && !emit_is(e, "objective", "distill");
}

void fill_torchtune(struct emission *e)
{
	static const struct {
		const char *ours, *class, *fused;
	} optimizers[] = {
		{"adamw", "torch.optim.AdamW", "False"},
		{"adamw-fused", "torch.optim.AdamW", "True"},
		{"adamw-8bit", "bitsandbytes.optim.AdamW8bit", "null"},
		{"adamw-8bit-embfp32", "bitsandbytes.optim.AdamW8bit", "null"},         /* it takes less than that */
		{"paged-adamw-8bit", "bitsandbytes.optim.PagedAdamW8bit", "null"},
		{"paged-adamw", "bitsandbytes.optim.PagedAdamW", "null"},
		{"sgd", "torch.optim.SGD", "null"},
	};
	static const struct {
		const char *ours, *theirs;
	} modules[] = {{"q_proj", "q_proj"}, {"k_proj", "k_proj"}, {"v_proj", "v_proj"}, {"o_proj", "output_proj"}};
	char list[160] = "";
	const char *t = e->plan->lora_targets;
	const bool all = !strcmp(t, "all-linear");

	emit_rows(e, "", "torchtune", "batch_size gradient_accumulation_steps tokenizer.max_seq_len dataset.packed "
		  "enable_activation_checkpointing enable_activation_offloading");
	emit_rows(e, "", "torchtune", "dtype");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "compile", "True");
	for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
		if (emit_is(e, "optimizer", optimizers[i].ours)) {
			emit_set(e, "optimizer._component_", optimizers[i].class);
			emit_set(e, "optimizer.fused", optimizers[i].fused);
		}
	/* on in many of the configs for one device, where it refuses accumulation */
	if (emit_is(e, "optimizer-in-backward", "true") || (!emit_adapted(e) && finetunes(e)))
		emit_set(e, "optimizer_in_bwd", emit_is(e, "optimizer-in-backward", "true") ? "True" : "False");
	if (!emit_is(e, "offload-params", "none"))
		emit_set(e, "fsdp_cpu_offload", "True");
	if (emit_is(e, "objective", "dpo"))
		emit_set(e, "loss._component_", "torchtune.rlhf.loss.DPOLoss");
	emit_set(e, "loss._component_", emit_is(e, "loss", "plain") ? "torch.nn.CrossEntropyLoss"
								   : "torchtune.modules.loss.LinearCrossEntropyLoss");
	if (!emit_adapted(e))
		return;
	emit_rows(e, "", "torchtune", "model.lora_rank model.lora_dropout");
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (all || strstr(t, modules[i].ours))
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? "+" : "",
				 modules[i].theirs);
	if (*list)
		emit_names(e, "model.lora_attn_modules", list);
	emit_set(e, "model.apply_lora_to_mlp", all || strstr(t, "up_proj") ? "True" : "False");
	if (strstr(t, "lm_head"))
		emit_set(e, "model.apply_lora_to_output", "True");
	if (emit_is(e, "base-bits", "4-nf4"))
		emit_set(e, "model.quantize_base", "True");
	if (emit_is(e, "use-dora", "true"))
		emit_set(e, "model.use_dora", "True");
}

/* The config that comes with torchtune for this model and recipe; false: none. */
static bool torchtune_config(const struct emission *e, bool many, char *buf, size_t size)
{
	struct oom_model_id id;
	const char *stem;
	char kind[40];

	if (!oom_model_id_find(e->model, &id) || (!finetunes(e) && !emit_is(e, "objective", "dpo")))
		return false;
	snprintf(kind, sizeof(kind), "%s%s%s", emit_adapted(e) ? "lora" : "full", emit_is(e, "objective", "dpo") ? "_dpo" : "",
		 many ? "" : "_single_device");
	stem = id.torchtune;
	for (const char *w = stem + strcspn(stem, " "); *w; w += strcspn(w, " ")) {
		w += strspn(w, " ");
		if (strcspn(w, " ") == strlen(kind) && !strncmp(w, kind, strlen(kind)))
			return (size_t)snprintf(buf, size, "%.*s_%s", (int)strcspn(stem, " "), stem, kind) < size;
	}
	return false;
}

void write_torchtune(struct emission *e, struct emit_text *out)
{
	/* the recipes of one device have nobody who gathers what waits on the host; for DPO of whole models there is
	 * none (torchtune/_recipe_registry.py) */
	const bool many = e->plan->gpus > 1 || !emit_is(e, "offload-params", "none") ||
			  (emit_is(e, "objective", "dpo") && !emit_adapted(e)) || emit_is(e, "objective", "grpo");
	char config[96];

	if (!torchtune_config(e, many, config, sizeof(config)))
		snprintf(config, sizeof(config), "CONFIG.yaml");
	emit_put(out, "tune run ");
	if (many)
		emit_put(out, "--nproc_per_node %lld ", (long long)e->plan->gpus);
	if (emit_is(e, "objective", "distill"))
		emit_put(out, "knowledge_distillation_%s --config %s", many ? "distributed" : "single_device", config);
	else if (emit_is(e, "objective", "grpo"))
		emit_put(out, "dev/grpo_full_finetune_distributed --config %s", config);
	else
		emit_put(out, "%s_%s_%s --config %s", emit_adapted(e) ? "lora" : "full",
			 emit_is(e, "objective", "dpo") ? "dpo" : "finetune", many ? "distributed" : "single_device",
			 config);
	emit_overrides(e, out);
}

/* Models are flavors of torchtitan's own; scripts/download_hf_assets.py puts their tokenizers there. */
static void titan_model(struct emission *e)
{
	struct oom_model_id id;
	const char *hub = oom_model_id_find(e->model, &id) ? id.hub_id : e->model, *name, *flavor;
	char path[160];

	if (!torchtitan_flavor(hub, &name, &flavor))
		return;
	emit_set(e, "model.name", name);
	emit_set(e, "model.flavor", flavor);
	snprintf(path, sizeof(path), "./assets/hf/%s", strrchr(hub, '/') ? strrchr(hub, '/') + 1 : hub);
	emit_set(e, "model.hf_assets_path", path);
	emit_set(e, "training.dataset", "c4");
	e->described = true;
}

static void titan_checkpointing(struct emission *e)
{
	char buf[160];

	if (e->plan->ckpt_every > 1 && emit_is(e, "grad-ckpt", "full")) {
		emit_set(e, "activation_checkpoint.mode", "selective");
		emit_set(e, "activation_checkpoint.selective_ac_option", emit_fact(e, "ckpt-every", buf));
		return;
	}
	emit_rows(e, "", "torchtitan", "activation_checkpoint.mode");
	if (emit_is(e, "grad-ckpt", "selective-op"))
		emit_set(e, "activation_checkpoint.selective_ac_option", "op");
}

void fill_torchtitan(struct emission *e)
{
	char buf[160];
	const char *fused = emit_is(e, "optimizer", "adamw") ? "foreach" : "fused";

	titan_model(e);
	emit_set(e, "training.local_batch_size", emit_fact(e, "micro-batch", buf));
	emit_rows(e, "", "torchtitan", "training.seq_len");
	if (e->plan->grad_accum > 1) {
		snprintf(buf, sizeof(buf), "%lld",
			 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
		emit_set(e, "training.global_batch_size", buf);
	}
	if (!emit_is(e, "offload-params", "none"))
		emit_set(e, "training.enable_cpu_offload", "true");
	emit_set(e, "optimizer.name", "AdamW");
	emit_set(e, "optimizer.implementation", fused);
	if (emit_is(e, "hybrid-shard", "true"))
		emit_set(e, "parallelism.data_parallel_replicate_degree",
			 e->plan->nodes > 1 ? emit_fact(e, "nodes", buf) : "2");
	emit_set(e, "parallelism.data_parallel_replicate_degree", emit_is(e, "zero", "0") ? emit_fact(e, "gpus", buf) : "1");
	emit_set(e, "parallelism.data_parallel_shard_degree", emit_is(e, "zero", "0") ? "1" : "-1");
	emit_set(e, "parallelism.fsdp_reshard_after_forward", emit_is(e, "zero", "2") ? "never" : "default");
	emit_rows(e, "", "torchtitan", "parallelism.tensor_parallel_degree parallelism.pipeline_parallel_degree "
		  "parallelism.context_parallel_degree parallelism.expert_parallel_degree");
	titan_checkpointing(e);
	if (emit_is(e, "precision", "bf16"))
		emit_set(e, "training.dtype", "bfloat16");
	if (emit_is(e, "optimizer-in-backward", "true"))
		emit_set(e, "optimizer.early_step_in_backward", "true");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "compile.enable", "true");
	if (emit_is(e, "compile", "true") && emit_is(e, "loss", "outside"))
		emit_names(e, "compile.components", "model");
}

/* How layers lie on the stages of a pipeline. */
static void emit_stages(struct emission *e)
{
	const struct oom_plan *p = e->plan;

	if (p->pp_first)
		emit_rows(e, "", "megatron-lm", "decoder-first-pipeline-num-layers");
	if (p->pp_last)
		emit_rows(e, "", "megatron-lm", "decoder-last-pipeline-num-layers");
	if (p->pp_embedding)
		emit_rows(e, "", "megatron-lm", "account-for-embedding-in-pipeline-split");
	if (p->pp_loss)
		emit_rows(e, "", "megatron-lm", "account-for-loss-in-pipeline-split");
	if (*p->pp_layout)
		emit_rows(e, "", "megatron-lm", "pipeline-model-parallel-layout");
	if (p->mtp_layers)
		emit_rows(e, "", "megatron-lm", "mtp-num-layers");
	if (p->etp > 1)
		emit_rows(e, "", "megatron-lm", "expert-tensor-parallel-size");
}

/* What is kept and moved in fewer bits, and whose layers run. */
static void emit_precisions(struct emission *e)
{
	if (!emit_is(e, "fp8", "none")) {
		char recipe[160];

		emit_set(e, "fp8-format", "hybrid");
		emit_set(e, "fp8-recipe", !strcmp(emit_fact(e, "fp8", recipe), "tensorwise") ? "delayed" : recipe);
	}
	if (emit_is(e, "fp8-param-gather", "true"))
		emit_set(e, "fp8-param-gather", "true");
	if (emit_is(e, "grad-reduce-in-bf16", "true"))
		emit_set(e, "grad-reduce-in-bf16", "true");
	if (emit_is(e, "defer-embedding-wgrad", "true"))
		emit_set(e, "defer-embedding-wgrad-compute", "true");
	if (!emit_is(e, "transformer-impl", "transformer-engine"))
		emit_rows(e, "", "megatron-lm", "transformer-impl");
}

static const struct fw_megatron_kind *kind_of(const char *type)
{
	const struct fw_megatron_kind *k = fw_megatron_kinds;

	while (k->type && strcmp(k->type, type))
		k++;
	return k->type ? k : NULL;
}

bool oom_emit_megatron_builds(const char *type)
{
	return kind_of(type) != NULL;
}

static const struct {
	const char *argument, *keys;    /* the first of the keys that is there */
} dimensions[] = {
	{"num-layers", "num_hidden_layers"},
	{"hidden-size", "hidden_size"},
	{"ffn-hidden-size", "intermediate_size"},
	{"num-attention-heads", "num_attention_heads"},
	{"kv-channels", "head_dim"},
	{"norm-epsilon", "rms_norm_eps"},
	{"num-experts", "num_local_experts num_experts"},
	{"moe-router-topk", "num_experts_per_tok"},
	{"moe-ffn-hidden-size", "moe_intermediate_size"},
};

/* A number of the config; false: it has none of the keys. */
static bool number_of(const struct oom_keys *config, const char *names, double *out)
{
	for (const char *w = names; *w; w += strspn(w, " ")) {
		const size_t n = strcspn(w, " ");
		const struct oom_key *key;
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)n, w);
		key = oom_keys_find(config, name);
		if (key && key->type == OOM_KEY_NUMBER) {
			*out = key->number;
			return true;
		}
		w += n;
	}
	return false;
}

static void set_number(struct emission *e, const char *path, double value)
{
	char buf[40];

	snprintf(buf, sizeof(buf), "%.15g", value);
	emit_set(e, path, buf);
}

/* Positions that turn at another pace than Megatron's 10000, and Llama 3.1's stretch of them (core/models/common/embeddings/
 * rope_utils.py).  A config that has neither leaves both to the reader. */
static void megatron_rotary(struct emission *e, const struct oom_keys *config)
{
	const struct oom_key *kind = oom_keys_find(config, "rope_scaling.rope_type");
	double base = 0, factor = 0;

	if ((number_of(config, "rope_theta rope_parameters.rope_theta", &base)) && base > 0 && (base < 10000 || base > 10000))
		set_number(e, "rotary-base", base);
	kind = kind ? kind : oom_keys_find(config, "rope_parameters.rope_type");
	if (kind && kind->type == OOM_KEY_STRING && !strcmp(kind->string, "llama3") &&
	    number_of(config, "rope_scaling.factor rope_parameters.factor", &factor) && factor > 0) {
		emit_set(e, "use-rope-scaling", "true");
		set_number(e, "rope-scaling-factor", factor);
	}
}

/* One argument after the other of a blank-separated list. */
static void set_flags(struct emission *e, const char *flags)
{
	for (const char *w = flags; *w; w += strspn(w, " ")) {
		char flag[40];
		const size_t n = strcspn(w, " ");

		snprintf(flag, sizeof(flag), "%.*s", (int)n, w);
		emit_set(e, flag, "true");
		w += n;
	}
}

static void megatron_dimensions(struct emission *e, const struct oom_keys *config, const struct fw_megatron_kind *kind)
{
	const struct oom_key *tied = oom_keys_find(config, "tie_word_embeddings");
	double value, heads = 0;

	for (size_t i = 0; i < sizeof(dimensions) / sizeof(dimensions[0]); i++)
		if (number_of(config, dimensions[i].keys, &value))
			set_number(e, dimensions[i].argument, value);
	number_of(config, "num_attention_heads", &heads);
	if (number_of(config, "num_key_value_heads", &value) && value < heads) {
		emit_set(e, "group-query-attention", "true");
		set_number(e, "num-query-groups", value);
	}
	if (!number_of(config, "max_position_embeddings", &value) || value < (double)e->plan->seq_len)
		value = (double)e->plan->seq_len;
	set_number(e, "max-position-embeddings", value);
	set_flags(e, kind->besides);
	if (kind->mark)
		emit_set(e, kind->mark, "true");
	if (!tied || tied->type != OOM_KEY_BOOL || !tied->number)
		emit_set(e, "untie-embeddings-and-output-weights", "true");
}

/* The model, its tokenizer, and what pretrain_gpt.py asks for besides. */
static void megatron_model(struct emission *e)
{
	struct oom_error err = {{0}};
	struct oom_keys config;
	const struct fw_megatron_kind *kind;
	const struct oom_key *type;

	if (!e->config || oom_keys_read_model(&config, e->config, &err))
		return;
	type = oom_keys_find(&config, "model_type");
	kind = type && type->type == OOM_KEY_STRING ? kind_of(type->string) : NULL;
	if (kind) {
		e->described = true;
		emit_set(e, "normalization", "RMSNorm");
		emit_set(e, "position-embedding-type", "rope");
		megatron_dimensions(e, &config, kind);
		megatron_rotary(e, &config);
		emit_set(e, "tokenizer-type", "HuggingFaceTokenizer");
		emit_set(e, "tokenizer-model", e->model);
		emit_set(e, "mock-data", "true");
		emit_set(e, "lr", "1e-4");
		emit_set(e, "train-iters", "100");
	}
	oom_keys_release(&config);
}

/* A launch line where the model is described, options alone where it is not. */
void write_megatron(struct emission *e, struct emit_text *out)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;

	if (e->described)
		emit_put(out, "%sCUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes %lld --nproc_per_node %lld pretrain_gpt.py ",
			 emit_is(e, "allocator", "expandable_segments") ? OOM_ALLOCATOR_EXPANDABLE " "
									: "",
			 (long long)nodes, (long long)(e->plan->gpus / nodes));
	emit_flags(e, out);
}

void fill_megatron(struct emission *e)
{
	char buf[160];

	megatron_model(e);
	emit_rows(e, "", "megatron-lm", "micro-batch-size");
	snprintf(buf, sizeof(buf), "%lld",
		 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_set(e, "global-batch-size", buf);
	emit_rows(e, "", "megatron-lm", "seq-length tensor-model-parallel-size pipeline-model-parallel-size "
		  "context-parallel-size expert-model-parallel-size sequence-parallel bf16 fp16");
	if (e->plan->vpp > 1)
		emit_set(e, "num-virtual-stages-per-pipeline-rank", emit_fact(e, "vpp", buf));
	emit_stages(e);
	emit_precisions(e);
	if (e->plan->tgt_len > 0)
		emit_rows(e, "", "megatron-lm", "decoder-seq-length");
	if (emit_is(e, "engine", "megatron-deepspeed")) {
		emit_set(e, "deepspeed", "true");
		emit_rows(e, "", "megatron-lm", "zero-stage");
	}
	if (e->plan->zero_stage >= 1 && !emit_is(e, "engine", "megatron-deepspeed"))
		emit_set(e, "use-distributed-optimizer", "true");
	if (emit_is(e, "optimizer", "adamw-fused") || emit_is(e, "optimizer", "adamw"))
		emit_set(e, "optimizer", "adam");
	else
		emit_rows(e, "", "megatron-lm", "optimizer");
	if (!emit_is(e, "grad-ckpt", "none"))
		emit_rows(e, "", "megatron-lm", "recompute-granularity");
	if (emit_is(e, "grad-ckpt", "full")) {
		char layers[160];

		emit_set(e, "recompute-method", e->plan->recompute_layers ? "block" : "uniform");
		emit_set(e, "recompute-num-layers",
			 e->plan->recompute_layers ? emit_fact(e, "recompute-num-layers", layers) : "1");
	}
	emit_set(e, "attention-backend", emit_is(e, "attn", "eager") ? "unfused" : "flash");
	if (!emit_is(e, "offload-optimizer", "none"))
		emit_set(e, "optimizer-cpu-offload", "true");
	emit_set(e, "num-workers", emit_fact(e, "dataloader-workers", buf));
}

