/* torchtune and torchtitan. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"
#include "input/model_ids.h"
#include "oomplan/config.h"

/* Its other recipes are about objectives of their own; what none is about runs as a plain one. */
static bool finetunes(const struct emission *e)
{
	return !emit_objective(e)->tune_recipe && !emit_objective(e)->tune_whole;
}

static void tune_optimizer(struct emission *e)
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
		{"adamw-torchao-8bit", "torchao.optim.AdamW8bit", "null"},
		{"adamw-torchao-fp8", "torchao.optim.AdamWFp8", "null"},
	};

	for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
		if (emit_is(e, "optimizer", optimizers[i].ours)) {
			emit_set(e, "optimizer._component_", optimizers[i].class);
			emit_set(e, "optimizer.fused", optimizers[i].fused);
		}
	/* on in many of the configs for one device, where it refuses accumulation */
	if (emit_is(e, "optimizer-in-backward", "true") || (!emit_adapted(e) && finetunes(e)))
		emit_set(e, "optimizer_in_bwd", emit_is(e, "optimizer-in-backward", "true") ? "True" : "False");
}

static void tune_adapters(struct emission *e)
{
	static const struct {
		const char *ours, *theirs;
	} modules[] = {{"q_proj", "q_proj"}, {"k_proj", "k_proj"}, {"v_proj", "v_proj"}, {"o_proj", "output_proj"}};
	const char *t = e->plan->lora_targets;
	const bool all = !strcmp(t, "all-linear");
	char list[160] = "";

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

void fill_torchtune(struct emission *e)
{
	char buf[160];

	if (emit_is(e, "grad-ckpt", "selective-op") || (emit_is(e, "grad-ckpt", "full") && e->plan->ckpt_every > 1)) {
		/* in place of checkpointing, beside which the recipe does neither */
		emit_set(e, "enable_activation_checkpointing", "False");
		emit_set(e, "ac_mode", "selective");
		emit_set(e, "ac_option", emit_is(e, "grad-ckpt", "full") ? emit_fact(e, "ckpt-every", buf) : "op");
	}
	emit_rows(e, "", "torchtune", "batch_size gradient_accumulation_steps tokenizer.max_seq_len dataset.packed "
		  "enable_activation_checkpointing enable_activation_offloading");
	emit_rows(e, "", "torchtune", "dtype");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "compile", "True");
	if (emit_is(e, "fp8", "tensorwise") || emit_is(e, "fp8", "rowwise")) {
		emit_set(e, "enable_fp8_training", "True");
		emit_set(e, "fp8_recipe_name", emit_fact(e, "fp8", buf));
	}
	tune_optimizer(e);
	if (!emit_is(e, "offload-params", "none"))
		emit_set(e, "fsdp_cpu_offload", "True");
	if (emit_objective(e)->tune_recipe)
		emit_set(e, "loss._component_", "torchtune.rlhf.loss.DPOLoss");
	emit_set(e, "loss._component_", emit_is(e, "loss", "plain") ? "torch.nn.CrossEntropyLoss"
								   : "torchtune.modules.loss.LinearCrossEntropyLoss");
	if (emit_adapted(e))
		tune_adapters(e);
}

/* The config that comes with torchtune for this model and recipe; false: none. */
static bool torchtune_config(const struct emission *e, bool many, char *buf, size_t size)
{
	struct oom_model_id id;
	const char *stem;
	char kind[40];
	const struct emit_objective *o = emit_objective(e);

	if (!oom_model_id_find(e->model, &id) || o->tune_whole)
		return false;
	snprintf(kind, sizeof(kind), "%s%s%s%s", emit_adapted(e) ? "lora" : "full", o->tune_recipe ? "_" : "",
		 o->tune_recipe ? o->tune_recipe : "", many ? "" : "_single_device");
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
	const struct emit_objective *o = emit_objective(e);
	/* the recipes of one device have nobody who gathers what waits on the host; for DPO of whole models there is
	 * none (torchtune/_recipe_registry.py) */
	const bool many = e->plan->gpus > 1 || !emit_is(e, "offload-params", "none") ||
			  (o->tune_recipe && !emit_adapted(e)) || (o->tune_whole && strstr(o->tune_whole, "_distributed"));
	char config[96];

	if (!torchtune_config(e, many, config, sizeof(config)))
		snprintf(config, sizeof(config), "CONFIG.yaml");
	emit_put(out, "tune run ");
	if (many)
		emit_put(out, "--nproc_per_node %lld ", (long long)e->plan->gpus);
	if (o->tune_whole)
		emit_put(out, "%s%s --config %s", o->tune_whole, strstr(o->tune_whole, "_distributed") ? "" :
			 many ? "_distributed" : "_single_device", config);
	else
		emit_put(out, "%s_%s_%s --config %s", emit_adapted(e) ? "lora" : "full",
			 o->tune_recipe ? o->tune_recipe : "finetune", many ? "distributed" : "single_device", config);
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
	/* a pipeline cuts the local batch into its micro-batches */
	snprintf(buf, sizeof(buf), "%lld", (long long)(e->plan->micro_batch * (e->plan->pp > 1 ? e->plan->grad_accum : 1)));
	emit_set(e, "training.local_batch_size", buf);
	emit_rows(e, "", "torchtitan", "training.seq_len");
	if (e->plan->pp > 1)
		emit_set(e, "parallelism.pipeline_parallel_microbatch_size", emit_fact(e, "micro-batch", buf));
	if (e->plan->grad_accum > 1 && e->plan->pp < 2) {
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
	if (e->plan->etp > 1)
		emit_rows(e, "", "torchtitan", "parallelism.expert_tensor_parallel_degree");
	titan_checkpointing(e);
	if (emit_is(e, "precision", "bf16"))
		emit_set(e, "training.dtype", "bfloat16");
	if (emit_is(e, "optimizer-in-backward", "true"))
		emit_set(e, "optimizer.early_step_in_backward", "true");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "compile.enable", "true");
	if (emit_is(e, "fp8", "tensorwise") || emit_is(e, "fp8", "rowwise")) {
		emit_names(e, "model.converters", "float8");
		emit_names(e, "float8.filter_fqns", "output");
		if (emit_is(e, "fp8", "rowwise"))
			emit_set(e, "float8.recipe_name", "rowwise");
	}
	if (emit_is(e, "compile", "true") && emit_is(e, "loss", "outside"))
		emit_names(e, "compile.components", "model");
}
