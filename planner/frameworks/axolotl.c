/* axolotl's YAML: what its keys (axolotl_keys.c) come to together, after normalize_config
 * (src/axolotl/utils/config/__init__.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "axolotl.h"

/* A plugin by the end of its name. */
static bool has_plugin(const struct fw_part *p, const char *name)
{
	const struct doc_node *plugins = fw_key(p, "plugins");

	if (!plugins || plugins->kind != DOC_LIST)
		return false;
	for (const struct doc_node *c = plugins->child; c; c = c->next)
		if (strstr(c->text, name))
			return true;
	return false;
}

static void finish_loss(struct fw_part *p)
{
	if (*fw_fact(p, "loss"))
		return;
	if ((has_plugin(p, "CutCrossEntropy") && !fw_off(p, "cut_cross_entropy")) ||
	    fw_on(p, "cut_cross_entropy"))
		fw_set(p, "loss", "cce", fw_key(p, "plugins") ? "plugins" : "cut_cross_entropy",
		       "axolotl/integrations/cut_cross_entropy");
	else
		fw_default(p, "loss", "plain", "transformers loss_utils.py");
}

/* Liger's modules; the fused loss is a key of its own (axolotl/integrations/liger/plugin.py). */
static void finish_liger(struct fw_part *p)
{
	static const char *const norms[] = {"liger_rms_norm", "liger_layer_norm"},
			  *const glus[] = {"liger_glu_activation", "liger_swiglu"};
	const char *norm = NULL, *glu = NULL;

	for (size_t i = 0; i < 2; i++) {
		norm = fw_on(p, norms[i]) ? norms[i] : norm;
		glu = fw_on(p, glus[i]) ? glus[i] : glu;
	}
	if (norm || glu)
		fw_set(p, "liger-kernels", !glu ? "norm" : !norm ? "glu" : "all", norm ? norm : glu, LIGER);
}

/* Patterns of parameters that train, or layers that take turns. */
static void finish_frozen(struct fw_part *p)
{
	const struct doc_node *list = fw_key(p, "unfrozen_parameters");
	char pattern[160] = "";
	size_t used = 0;

	fw_take_lisa(p, "lisa_n_layers");
	for (const struct doc_node *c = list && list->kind == DOC_LIST ? list->child : NULL; c; c = c->next) {
		/* "embed_tokens.weight$[:32000]": rows of a tensor; the whole one is priced */
		const char *rows_from = strstr(c->text, "$[");
		const size_t n = rows_from ? (size_t)(rows_from - c->text) + 1 : strlen(c->text);

		if (used + n + 2 >= sizeof(pattern)) {
			fw_unmodelled(p, "unfrozen_parameters", "only some parameters train: less than is priced");
			return;
		}
		used += (size_t)snprintf(pattern + used, sizeof(pattern) - used, "%s%.*s", used ? "|" : "", (int)n, c->text);
	}
	if (used)
		fw_set(p, "train", pattern, "unfrozen_parameters", NULL);
}

/* bf16 is "auto" where nothing is said: on from Ampere, and weights load in it. */
static void finish_precision(struct fw_part *p)
{
	const struct doc_node *bf16 = fw_key(p, "bf16"), *fp16 = fw_key(p, "fp16");
	const bool no_bf16 = bf16 && doc_is_off(bf16), use_fp16 = doc_is_true(fp16),
		   bfloat = fw_on(p, "bfloat16");
	const bool automatic = !bf16 || !strcasecmp(bf16->text, "auto");

	if (use_fp16 && (no_bf16 || automatic)) {
		fw_set(p, "@dtype", "fp16", "fp16", NORMALIZE);
		fw_set(p, "@autocast", "fp16", "fp16", NORMALIZE);
	} else if (!no_bf16 || bfloat) {
		const bool full = bf16 && !strcasecmp(bf16->text, "full");

		fw_set(p, "@dtype", "bf16", bf16 ? "bf16" : NULL, NORMALIZE);
		fw_set(p, "@autocast", full ? "no" : "bf16", bf16 ? "bf16" : NULL, BUILDER);
	} else {
		fw_set(p, "@dtype", fw_on(p, "float16") || fw_on(p, "load_in_8bit") ? "fp16" : "fp32",
		       "bf16", NORMALIZE);
		fw_set(p, "@autocast", "no", "bf16", BUILDER);
	}
	if (automatic && fw_fact_is(p, "@autocast", "bf16"))
		fw_set(p, "@by-card", "true", NULL, NORMALIZE);
}

/* Evaluation takes place where there is a set and a rhythm; 1 / (evals x epochs) of a step of 1 is
 * none (normalize_config). */
static void finish_eval(struct fw_part *p)
{
	const double share = strtod(fw_text(p, "val_set_size"), NULL),
		     epochs = fw_key(p, "num_epochs") ? strtod(fw_text(p, "num_epochs"), NULL) : 1,
		     evals = strtod(fw_text(p, "evals_per_epoch"), NULL);
	const char *strategy = fw_text(p, "eval_strategy");
	const bool set = share > 0 || fw_key(p, "test_datasets");
	bool evaluates;

	if (!*strategy)
		strategy = fw_text(p, "evaluation_strategy");
	evaluates = set && (strtod(fw_text(p, "eval_steps"), NULL) > 0 || evals * epochs > 1 ||
			    (*strategy && strcasecmp(strategy, "no")));
	if (!evaluates)
		fw_set(p, "eval-batch", "0", NULL, BUILDER " _configure_save_and_eval_strategy");
	else
		fw_default(p, "eval-batch", fw_fact(p, "micro-batch"), NORMALIZE);
	if (set && !evaluates && !*strategy && !*fw_text(p, "eval_steps") && !*fw_text(p, "evals_per_epoch"))
		fw_open(p, "eval-batch", "no evaluation where no rhythm is said; axolotl before 0.10 did once an epoch "
			"(axolotl-ai-cloud/axolotl#2133): --eval-batch");
}

static void finish_adapter(struct fw_part *p)
{
	const struct doc_node *adapter = fw_key(p, "adapter");

	if (!adapter) {
		fw_set(p, "method", "full", NULL, PEFT ":41 adapter");
	} else if (fw_fact_is(p, "method", "lora")) {
		fw_default(p, "lora-r", "8", PEFT);
		if (fw_on(p, "lora_target_linear"))
			fw_set(p, "lora-targets", "all-linear", "lora_target_linear", PEFT ":58");
	}
	/* only qlora's config reaches bitsandbytes (loaders/model.py:712): under adapter: lora nothing is quantised */
	if (fw_fact_is(p, "base-bits", "4-nf4") && !strcmp(fw_text(p, "adapter"), "lora")) {
		fw_set(p, "base-bits", "16", "load_in_4bit", "axolotl/loaders/model.py:712");
		fw_open(p, "base-bits", "adapter: lora with load_in_4bit: today's axolotl loads the base in 16 bit, only adapter: "
			"qlora in 4; older ones may quantise it");
	}
	/* stacks of experts are quantised as they are loaded, in as many bits as the layers */
	if (fw_on(p, "quantize_moe_experts") && fw_fact_is(p, "base-bits", "4-nf4"))
		fw_set(p, "moe-experts", "quantised", "quantize_moe_experts", NULL);
	else if (fw_on(p, "quantize_moe_experts"))
		fw_unmodelled(p, "quantize_moe_experts", "experts are quantised too: less than is priced");
	/* GPTQ weights are what load_in_* then means */
	if (fw_on(p, "gptq"))
		fw_set(p, "base-bits", "4-gptq", "gptq", PEFT);
	if (fw_fact_is(p, "method", "full"))
		fw_unset(p, "base-bits");
}

/* Activations that wait in host memory switch Trainer's checkpointing off (builders/base.py:592),
 * where adapters train; "hidden_states" keeps it.  gradient_checkpointing: offload is the older spelling of it
 * (utils/schemas/validation.py check_gradient_checkpointing_w_offload). */
static void finish_checkpointing(struct fw_part *p)
{
	const struct doc_node *offload = fw_key(p, "activation_offloading"), *ckpt = fw_key(p, "gradient_checkpointing");

	if (fw_on(p, "fsdp_config.activation_checkpointing") ||
	    fw_on(p, "fsdp_config.fsdp_activation_checkpointing")) {
		const char *key = fw_key(p, "fsdp_config.activation_checkpointing") ?
					  "fsdp_config.activation_checkpointing" :
					  "fsdp_config.fsdp_activation_checkpointing";

		fw_set(p, "grad-ckpt", "full", key, NULL);
		/* accelerate's wrapper, inside of FSDP's (accelerator.py prepare_model) */
		fw_set(p, "use-reentrant", "false", key, NULL);
	}
	if (!offload && ckpt && !strncasecmp(ckpt->text, "offload", 7) && fw_fact_is(p, "method", "lora"))
		fw_set(p, "grad-ckpt", "none", "gradient_checkpointing", BUILDER ":592");
	if (!offload || doc_is_off(offload))
		return;
	fw_set(p, "offload-activations", "true", "activation_offloading", BUILDER);
	if (strcasecmp(offload->text, "hidden_states") && fw_fact_is(p, "method", "lora"))
		fw_set(p, "grad-ckpt", "none", "activation_offloading", BUILDER ":592");
}

static bool is_completion(const struct doc_node *datasets)
{
	if (!datasets || datasets->kind != DOC_LIST)
		return false;
	for (const struct doc_node *c = datasets->child; c; c = c->next) {
		const struct doc_node *type = doc_member(c, "type");

		if (type && (!strcmp(type->text, "completion") || !strcmp(type->text, "pretrain")))
			return true;
	}
	return false;
}

static void finish_engine(struct fw_part *p)
{
	int64_t n, m;

	fw_take_deepspeed(p, "deepspeed");
	fw_take_fsdp(p, "fsdp", "fsdp_config", "fsdp1");
	fw_default(p, "engine", "hf", "no fsdp or deepspeed key");
	/* a worker of Ray has a GPU of its own (axolotl/cli/train.py) */
	if (fw_on(p, "use_ray") && doc_whole(fw_key(p, "ray_num_workers"), &n) && n > 0)
		fw_set_whole(p, "gpus", n, "ray_num_workers", "axolotl/cli/train.py ScalingConfig");
	/* axolotl's own FSDP2 does not upcast: monkeypatch/accelerate/fsdp2.py:970 */
	if (fw_fact_is(p, "engine", "fsdp2"))
		fw_set(p, "@keeps-dtype", "true", NULL, NULL);
	if (doc_whole(fw_key(p, "dp_shard_size"), &n) && doc_whole(fw_key(p, "dp_replicate_size"), &m) &&
	    n > 1 && m > 1)
		fw_take_replicas(p, n, m, "dp_replicate_size");
}

static void finish(struct fw_part *p)
{
	finish_adapter(p);
	finish_checkpointing(p);
	finish_engine(p);
	finish_precision(p);
	finish_loss(p);
	finish_liger(p);
	finish_frozen(p);
	if (fw_on(p, "fp8"))
		fw_take_fp8(p, "tensorwise", "fp8", "fp8_enable_fsdp_float8_all_gather",
			    "axolotl/core/trainers/base.py additional_accelerator_args");
	finish_eval(p);
	fw_take_compile(p, "torch_compile_backend", "torch_compile_mode");
	fw_default(p, "attn", "sdpa", "transformers modeling_utils.py");
	if (fw_key(p, "pretraining_dataset"))
		fw_set(p, "objective", "pretrain", "pretraining_dataset", SCHEMA);
	fw_default(p, "objective", is_completion(fw_key(p, "datasets")) ? "pretrain" : "sft",
		   "no rl key");
	/* the key is in no schema's way: accumulation has its default before anybody divides */
	if (fw_key(p, "batch_size") && !fw_key(p, "gradient_accumulation_steps")) {
		fw_note(p, "batch_size", "not used: accumulation is 1 by default before it is looked at");
		fw_open(p, "grad-accum",
			"batch_size is not used by today's axolotl: was batch_size / micro_batch_size meant?");
	}
}

static const struct fw_row *const lists[] = {axolotl_rows, NULL};
static const char *const idles[] = {axolotl_idle, axolotl_idle_on, axolotl_idle_last, NULL};

const struct framework framework_axolotl = {
	.name = "axolotl",
	.summary = "axolotl's YAML",
	.version = "axolotl 0.16",
	.role = FW_TRAINER,
	.loop = "trainer",
	.marks = "base_model+sequence_len base_model+micro_batch_size base_model+datasets "
		 "base_model+adapter base_model+pretraining_dataset",
	.never = "zero_optimization compute_environment cutoff_len",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
