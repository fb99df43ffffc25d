/* The formats: which keys each is made of, in which order.
 *
 * The keys are those of the readers' rows (planner/frameworks), which name where in each framework's code a
 * key stands.  tests/README.md says which of these files the frameworks' own parsers took, and how. */
#include <stdio.h>
#include <string.h>

#include "emit/parts.h"
#include "input/model_ids.h"

#define LORA_TRL "lora_r lora_target_modules lora_dropout"

static bool adapted(const struct emission *e)
{
	return oom_plan_adapted(e->plan);
}

static bool deepspeed(const struct emission *e)
{
	return emit_is(e, "engine", "deepspeed");
}

static bool fsdp(const struct emission *e)
{
	return emit_is(e, "engine", "fsdp1") || emit_is(e, "engine", "fsdp2");
}

/* ---- DeepSpeed ---- */

#define ZERO "zero_optimization."

static void deepspeed_config(struct emission *e, const char *prefix)
{
	char path[200], buf[160];
	const bool offload = !emit_is(e, "offload-optimizer", "none"),
		   params = !emit_is(e, "offload-params", "none");

	emit_rows(e, prefix, "deepspeed",
		  "train_micro_batch_size_per_gpu gradient_accumulation_steps " ZERO "stage "
		  ZERO "reduce_bucket_size");
	if (emit_is(e, "zero", "3"))
		emit_rows(e, prefix, "deepspeed",
			  ZERO "stage3_prefetch_bucket_size " ZERO "stage3_param_persistence_threshold "
			  ZERO "stage3_max_live_parameters");
	snprintf(path, sizeof(path), "%s" ZERO "sub_group_size", prefix);
	if (emit_is(e, "zero", "3"))
		emit_set(e, path, emit_fact(e, "sub-group-size", buf));
	snprintf(path, sizeof(path), "%s" ZERO "offload_optimizer.device", prefix);
	if (offload)
		emit_set(e, path, emit_fact(e, "offload-optimizer", buf));
	snprintf(path, sizeof(path), "%s" ZERO "offload_param.device", prefix);
	if (params)
		emit_set(e, path, emit_fact(e, "offload-params", buf));
	snprintf(path, sizeof(path), "%sdata_types.grad_accum_dtype", prefix);
	if (emit_is(e, "fp32-grad-accum", "true"))
		emit_set(e, path, "fp32");
	if (!strcmp(emit_fact(e, "@autocast", buf), "bf16")) {
		snprintf(path, sizeof(path), "%sbf16.enabled", prefix);
		emit_set(e, path, "true");
	} else if (emit_is(e, "@autocast", "fp16")) {
		snprintf(path, sizeof(path), "%sfp16.enabled", prefix);
		emit_set(e, path, "true");
	}
}

static void fill_deepspeed(struct emission *e)
{
	deepspeed_config(e, "");
}

/* ---- transformers, TRL ---- */

/* Engine as TrainingArguments take it. */
static void training_engine(struct emission *e)
{
	if (deepspeed(e)) {
		deepspeed_config(e, "deepspeed.");
	} else if (fsdp(e)) {
		emit_set(e, "fsdp", emit_is(e, "zero", "2") ? "shard_grad_op auto_wrap" : "full_shard auto_wrap");
		emit_set(e, "fsdp_config.version", emit_is(e, "engine", "fsdp2") ? "2" : "1");
		if (!emit_is(e, "offload-params", "none"))
			emit_set(e, "fsdp_config.offload_params", "true");
	}
}

static void training_arguments(struct emission *e)
{
	emit_set(e, "output_dir", "out");
	emit_rows(e, "", "hf-trainer", "per_device_train_batch_size gradient_accumulation_steps");
	emit_rows(e, "", "hf-trainer", "gradient_checkpointing optim");
	emit_set(e, "bf16", emit_is(e, "@autocast", "bf16") ? "true" : "false");
	if (emit_is(e, "@autocast", "fp16"))
		emit_set(e, "fp16", "true");
	if (emit_is(e, "loss", "fused"))
		emit_set(e, "use_liger_kernel", "true");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "torch_compile", "true");
	emit_rows(e, "", "hf-trainer", "dataloader_num_workers save_total_limit");
	training_engine(e);
}

static void trl_model(struct emission *e)
{
	static const struct {
		const char *dtype, *word;
	} words[] = {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}};

	emit_set(e, "model_name_or_path", e->model);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (emit_is(e, "@dtype", words[i].dtype))
			emit_set(e, "dtype", words[i].word);
	if (emit_is(e, "attn", "flash"))
		emit_set(e, "attn_implementation", "flash_attention_2");
	else
		emit_rows(e, "", "trl", "attn_implementation");
	if (adapted(e)) {
		emit_set(e, "use_peft", "true");
		emit_rows(e, "", "trl", LORA_TRL);
		if (emit_is(e, "base-bits", "4-nf4")) {
			emit_set(e, "load_in_4bit", "true");
			emit_rows(e, "", "trl", "use_bnb_nested_quant");
		} else if (emit_is(e, "base-bits", "8")) {
			emit_set(e, "load_in_8bit", "true");
		}
		if (emit_is(e, "use-dora", "true"))
			emit_set(e, "use_dora", "true");
	}
}

static void fill_trl(struct emission *e)
{
	char buf[160];

	trl_model(e);
	if (e->plan->seq_len > 0)
		emit_set(e, "max_length", emit_fact(e, "seq-len", buf));
	emit_set(e, "packing", emit_fact(e, "packing", buf));
	if (!emit_is(e, "loss", "fused"))
		emit_set(e, "loss_type", emit_is(e, "loss", "chunked-nll") ? "chunked_nll" : "nll");
	if (emit_is(e, "offload-activations", "true"))
		emit_set(e, "activation_offloading", "true");
	training_arguments(e);
}

static void fill_python(struct emission *e)
{
	static const char *const base = "AutoModelForCausalLM.from_pretrained.";
	struct emission config = {.plan = e->plan, .model = e->model};
	struct oom_error err = {{0}};
	char path[160], buf[160];

	snprintf(path, sizeof(path), "%spretrained_model_name_or_path", base);
	emit_set(e, path, e->model);
	snprintf(path, sizeof(path), "%sdtype", base);
	emit_set(e, path, emit_is(e, "@dtype", "bf16") ? "bfloat16" : emit_is(e, "@dtype", "fp16") ? "float16"
											    : "float32");
	snprintf(path, sizeof(path), "%sattn_implementation", base);
	emit_set(e, path, emit_is(e, "attn", "flash") ? "flash_attention_2" : emit_fact(e, "attn", buf));
	if (emit_is(e, "base-bits", "4-nf4")) {
		emit_set(e, "BitsAndBytesConfig.load_in_4bit", "true");
		emit_set(e, "BitsAndBytesConfig.bnb_4bit_quant_type", "nf4");
		emit_set(e, "BitsAndBytesConfig.bnb_4bit_use_double_quant", emit_fact(e, "double-quant", buf));
	} else if (emit_is(e, "base-bits", "8")) {
		emit_set(e, "BitsAndBytesConfig.load_in_8bit", "true");
	}
	if (adapted(e)) {
		emit_set(e, "LoraConfig.r", emit_fact(e, "lora-r", buf));
		if (*e->plan->lora_targets && strchr(e->plan->lora_targets, '+'))
			emit_names(e, "LoraConfig.target_modules", e->plan->lora_targets);
		else
			emit_set(e, "LoraConfig.target_modules", e->plan->lora_targets);
		emit_set(e, "LoraConfig.lora_dropout", emit_fact(e, "lora-dropout", buf));
	}
	if (doc_begin(&config.doc, "emit", "", &err) || !doc_add(&config.doc, NULL, NULL, DOC_MAP, 0, 0)) {
		e->failed = true;
		return;
	}
	if (e->plan->seq_len > 0)
		emit_set(&config, "max_length", emit_fact(e, "seq-len", buf));
	emit_set(&config, "packing", emit_fact(e, "packing", buf));
	if (!emit_is(e, "loss", "fused"))
		emit_set(&config, "loss_type", emit_is(e, "loss", "chunked-nll") ? "chunked_nll" : "nll");
	training_arguments(&config);
	e->failed |= config.failed || !doc_add_copy(&e->doc, e->doc.root, "SFTConfig", config.doc.root);
	doc_release(&config.doc);
}

/* ---- accelerate ---- */

static void fill_accelerate(struct emission *e)
{
	char buf[160];

	emit_set(e, "compute_environment", "LOCAL_MACHINE");
	emit_set(e, "distributed_type", deepspeed(e) ? "DEEPSPEED" : fsdp(e) ? "FSDP"
					: e->plan->gpus > 1		    ? "MULTI_GPU"
									    : "NO");
	emit_set(e, "mixed_precision", emit_fact(e, "@autocast", buf));
	emit_set(e, "num_machines", emit_fact(e, "nodes", buf));
	emit_set(e, "num_processes", emit_fact(e, "gpus", buf));
	emit_set(e, "machine_rank", "0");
	if (deepspeed(e)) {
		emit_rows(e, "", "accelerate", "deepspeed_config.zero_stage deepspeed_config.gradient_accumulation_steps "
			  "deepspeed_config.offload_optimizer_device deepspeed_config.offload_param_device");
		emit_set(e, "deepspeed_config.zero3_init_flag", emit_is(e, "zero", "3") ? "true" : "false");
	} else if (fsdp(e)) {
		const bool two = emit_is(e, "engine", "fsdp2");

		emit_set(e, "fsdp_config.fsdp_version", two ? "2" : "1");
		emit_set(e, "fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
		if (two)
			emit_set(e, "fsdp_config.fsdp_reshard_after_forward",
				 emit_is(e, "zero", "2") ? "false" : "true");
		else
			emit_set(e, "fsdp_config.fsdp_sharding_strategy",
				 emit_is(e, "hybrid-shard", "true") ? "HYBRID_SHARD"
				 : emit_is(e, "zero", "2")	    ? "SHARD_GRAD_OP"
				 : emit_is(e, "zero", "0")	    ? "NO_SHARD"
								    : "FULL_SHARD");
		emit_set(e, "fsdp_config.fsdp_offload_params",
			 emit_is(e, "offload-params", "none") ? "false" : "true");
		emit_set(e, "fsdp_config.fsdp_state_dict_type",
			 emit_is(e, "save-sharded", "true") ? "SHARDED_STATE_DICT" : "FULL_STATE_DICT");
		emit_set(e, "fsdp_config.fsdp_cpu_ram_efficient_loading", emit_fact(e, "low-cpu-mem", buf));
	}
}

/* ---- axolotl, LLaMA-Factory ---- */

static void fill_axolotl(struct emission *e)
{
	char buf[160];
	const char *targets = e->plan->lora_targets;

	emit_set(e, "base_model", e->model);
	if (emit_is(e, "base-bits", "4-nf4"))
		emit_set(e, "load_in_4bit", "true");
	else if (emit_is(e, "base-bits", "8"))
		emit_set(e, "load_in_8bit", "true");
	if (adapted(e)) {
		emit_set(e, "adapter", emit_is(e, "base-bits", "4-nf4") ? "qlora" : "lora");
		emit_rows(e, "", "axolotl", "lora_r lora_dropout");
		if (!strcmp(targets, "all-linear"))
			emit_set(e, "lora_target_linear", "true");
		else if (*targets)
			emit_names(e, "lora_target_modules", targets);
	}
	emit_rows(e, "", "axolotl", "sequence_len micro_batch_size gradient_accumulation_steps");
	emit_set(e, "sample_packing", emit_fact(e, "packing", buf));
	emit_rows(e, "", "axolotl", "optimizer");
	/* weights load in bf16 under "bf16: true"; without autocast it is "full" (core/builders/base.py
	 * _configure_precision_settings; DeepSpeed has none in any case) */
	if (emit_is(e, "precision", "bf16-amp") || emit_is(e, "precision", "amp-bf16"))
		emit_set(e, "bf16", "true");
	else if (emit_is(e, "precision", "bf16"))
		emit_set(e, "bf16", deepspeed(e) ? "true" : "full");
	else if (emit_is(e, "@autocast", "fp16"))
		emit_set(e, "fp16", "true");
	else
		emit_set(e, "bf16", "false");
	emit_rows(e, "", "axolotl", "gradient_checkpointing");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "torch_compile", "true");
	emit_set(e, "attn_implementation", emit_is(e, "attn", "flash") ? "flash_attention_2"
								      : emit_fact(e, "attn", buf));
	if (emit_is(e, "loss", "fused")) {
		emit_names(e, "plugins", "axolotl.integrations.liger.LigerPlugin");
		emit_set(e, "liger_fused_linear_cross_entropy", "true");
	}
	if (deepspeed(e)) {
		deepspeed_config(e, "deepspeed.");
	} else if (fsdp(e)) {
		emit_set(e, "fsdp_version", emit_is(e, "engine", "fsdp2") ? "2" : "1");
		emit_set(e, "fsdp_config.reshard_after_forward", emit_is(e, "zero", "2") ? "false" : "true");
		emit_set(e, "fsdp_config.offload_params", emit_is(e, "offload-params", "none") ? "false" : "true");
	}
	emit_set(e, "output_dir", "./out");
}

static void fill_llamafactory(struct emission *e)
{
	char buf[160];

	emit_set(e, "model_name_or_path", e->model);
	emit_set(e, "stage", emit_is(e, "objective", "dpo") ? "dpo" : emit_is(e, "objective", "pretrain") ? "pt" : "sft");
	emit_set(e, "do_train", "true");
	emit_set(e, "finetuning_type", adapted(e) ? "lora" : "full");
	if (adapted(e)) {
		emit_set(e, "lora_rank", emit_fact(e, "lora-r", buf));
		if (!strcmp(e->plan->lora_targets, "all-linear"))
			emit_set(e, "lora_target", "all");
		else if (*e->plan->lora_targets) {
			char list[160];
			size_t n = 0;

			for (const char *p = e->plan->lora_targets; *p && n < sizeof(list) - 1; p++)
				list[n++] = *p == '+' ? ',' : *p;
			list[n] = 0;
			emit_set(e, "lora_target", list);
		}
		emit_rows(e, "", "llamafactory", "lora_dropout");
		if (emit_is(e, "base-bits", "4-nf4")) {
			emit_set(e, "quantization_bit", "4");
			emit_set(e, "double_quantization", emit_fact(e, "double-quant", buf));
		} else if (emit_is(e, "base-bits", "8")) {
			emit_set(e, "quantization_bit", "8");
		}
	}
	emit_set(e, "cutoff_len", emit_fact(e, "seq-len", buf));
	emit_set(e, "packing", emit_fact(e, "packing", buf));
	if (emit_is(e, "compile", "true"))
		emit_set(e, "torch_compile", "true");
	emit_set(e, "flash_attn", emit_is(e, "attn", "flash") ? "fa2" : emit_is(e, "attn", "eager") ? "disabled" : "sdpa");
	emit_set(e, "enable_liger_kernel", emit_is(e, "loss", "fused") ? "true" : "false");
	if (emit_is(e, "grad-ckpt", "none"))
		emit_set(e, "disable_gradient_checkpointing", "true");
	if (emit_is(e, "precision", "bf16") && !deepspeed(e))
		emit_set(e, "pure_bf16", "true");
	training_arguments(e);
}

/* ---- torchtune, torchtitan, Megatron-LM ---- */

static void fill_torchtune(struct emission *e)
{
	static const struct {
		const char *ours, *class, *fused;
	} optimizers[] = {
		{"adamw", "torch.optim.AdamW", "False"},
		{"adamw-fused", "torch.optim.AdamW", "True"},
		{"adamw-8bit", "bitsandbytes.optim.AdamW8bit", "null"},
		{"paged-adamw-8bit", "bitsandbytes.optim.PagedAdamW8bit", "null"},
		{"paged-adamw", "bitsandbytes.optim.PagedAdamW", "null"},
		{"sgd", "torch.optim.SGD", "null"},
	};
	static const struct {
		const char *ours, *theirs;
	} modules[] = {{"q_proj", "q_proj"}, {"k_proj", "k_proj"}, {"v_proj", "v_proj"}, {"o_proj", "output_proj"}};
	char buf[160], list[160] = "";
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
	emit_set(e, "loss._component_", emit_is(e, "loss", "plain") ? "torch.nn.CrossEntropyLoss"
								   : "torchtune.modules.loss.LinearCrossEntropyLoss");
	if (!adapted(e))
		return;
	emit_rows(e, "", "torchtune", "model.lora_rank model.lora_dropout");
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (all || strstr(t, modules[i].ours))
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? "+" : "",
				 modules[i].theirs);
	if (*list)
		emit_names(e, "model.lora_attn_modules", list);
	emit_set(e, "model.apply_lora_to_mlp", all || strstr(t, "up_proj") ? "True" : "False");
	if (emit_is(e, "base-bits", "4-nf4"))
		emit_set(e, "model.quantize_base", "True");
	(void)buf;
}

/* The config that comes with torchtune for this model and recipe; false: none. */
static bool torchtune_config(const struct emission *e, bool many, char *buf, size_t size)
{
	struct oom_model_id id;
	const char *stem;
	char kind[40];

	if (!oom_model_id_find(e->model, &id))
		return false;
	snprintf(kind, sizeof(kind), "%s%s", adapted(e) ? "lora" : "full", many ? "" : "_single_device");
	stem = id.torchtune;
	for (const char *w = stem + strcspn(stem, " "); *w; w += strcspn(w, " ")) {
		w += strspn(w, " ");
		if (strcspn(w, " ") == strlen(kind) && !strncmp(w, kind, strlen(kind)))
			return (size_t)snprintf(buf, size, "%.*s_%s", (int)strcspn(stem, " "), stem, kind) < size;
	}
	return false;
}

static void write_torchtune(struct emission *e, struct emit_text *out)
{
	const bool many = e->plan->gpus > 1;
	char config[96];

	if (!torchtune_config(e, many, config, sizeof(config)))
		snprintf(config, sizeof(config), "CONFIG.yaml");
	emit_put(out, "tune run ");
	if (many)
		emit_put(out, "--nproc_per_node %lld ", (long long)e->plan->gpus);
	emit_put(out, "%s_finetune_%s --config %s", adapted(e) ? "lora" : "full",
		 many ? "distributed" : "single_device", config);
	emit_overrides(e, out);
}

static void fill_torchtitan(struct emission *e)
{
	char buf[160];
	const char *fused = emit_is(e, "optimizer", "adamw") ? "foreach" : "fused";

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
	emit_set(e, "parallelism.data_parallel_replicate_degree", emit_is(e, "zero", "0") ? emit_fact(e, "gpus", buf) : "1");
	emit_set(e, "parallelism.data_parallel_shard_degree", emit_is(e, "zero", "0") ? "1" : "-1");
	emit_set(e, "parallelism.fsdp_reshard_after_forward", emit_is(e, "zero", "2") ? "never" : "default");
	emit_rows(e, "", "torchtitan", "parallelism.tensor_parallel_degree parallelism.pipeline_parallel_degree "
		  "parallelism.context_parallel_degree parallelism.expert_parallel_degree");
	emit_rows(e, "", "torchtitan", "activation_checkpoint.mode");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "compile.enable", "true");
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

static void fill_megatron(struct emission *e)
{
	char buf[160];

	emit_rows(e, "", "megatron-lm", "micro-batch-size");
	snprintf(buf, sizeof(buf), "%lld",
		 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_set(e, "global-batch-size", buf);
	emit_rows(e, "", "megatron-lm", "seq-length tensor-model-parallel-size pipeline-model-parallel-size "
		  "context-parallel-size expert-model-parallel-size sequence-parallel bf16 fp16");
	if (e->plan->vpp > 1)
		emit_set(e, "num-virtual-stages-per-pipeline-rank", emit_fact(e, "vpp", buf));
	emit_stages(e);
	if (e->plan->zero_stage >= 1)
		emit_set(e, "use-distributed-optimizer", "true");
	if (emit_is(e, "optimizer", "adamw-fused") || emit_is(e, "optimizer", "adamw"))
		emit_set(e, "optimizer", "adam");
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

/* ---- launching ---- */

static int64_t each_node(const struct emission *e)
{
	return e->plan->nodes > 0 ? e->plan->gpus / e->plan->nodes : e->plan->gpus;
}

static void launch_line(struct emission *e, struct emit_text *out, const char *nodes, const char *each)
{
	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ");
	emit_put(out, "torchrun --nnodes %s --nproc_per_node %s train.py ", nodes, each);
	emit_options(e, out);
}

static void write_torchrun(struct emission *e, struct emit_text *out)
{
	char nodes[24], each[24];

	snprintf(nodes, sizeof(nodes), "%lld", (long long)e->plan->nodes);
	snprintf(each, sizeof(each), "%lld", (long long)each_node(e));
	launch_line(e, out, nodes, each);
}

static void write_slurm(struct emission *e, struct emit_text *out)
{
	char each[24];

	snprintf(each, sizeof(each), "%lld", (long long)each_node(e));
	emit_put(out,
		 "#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=1\n"
		 "#SBATCH --gpus-per-node=%s\n#SBATCH --cpus-per-task=%lld\n\n"
		 "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n",
		 (long long)e->plan->nodes, each, (long long)(each_node(e) * (e->plan->dataloader_workers + 2)));
	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
	emit_put(out, "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node %s --rdzv_backend c10d "
		      "--rdzv_endpoint $head:29500 train.py ", each);
	emit_options(e, out);
}

/* A command inside YAML's "|": its lines indented. */
static void indented(struct emit_text *out, const char *text)
{
	for (const char *p = text; *p;) {
		const size_t n = strcspn(p, "\n");

		emit_put(out, "  %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
}

static void task(struct emission *e, struct emit_text *out, bool sky)
{
	struct emit_text line = {.text = NULL};
	char card[80];

	write_torchrun(e, &line);
	if (sky) {
		emit_put(out, "name: train\nresources:\n  accelerators: %s:%lld\nnum_nodes: %lld\n",
			 e->gpu ? oom_gpu_listed(e->gpu, true, card) : "GPU", (long long)each_node(e),
			 (long long)e->plan->nodes);
	} else {
		emit_put(out, "type: task\nname: train\n");
		if (e->plan->nodes > 1)
			emit_put(out, "nodes: %lld\n", (long long)e->plan->nodes);
		emit_put(out, "resources:\n  gpu:\n");
		if (e->gpu)
			emit_put(out, "    name: %s\n    memory: %.0fGB\n",
				 oom_gpu_listed(e->gpu, false, card), e->gpu->memory_gb);
		emit_put(out, "    count: %lld\n", (long long)each_node(e));
	}
	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, sky ? "envs:\n  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n"
				  : "env:\n  - PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
	emit_put(out, sky ? "run: |\n" : "commands:\n  - |\n");
	out->failed |= line.failed;
	if (line.text && sky)
		indented(out, line.text);
	for (const char *p = line.text; !sky && p && *p;) {
		const size_t n = strcspn(p, "\n");

		emit_put(out, "    %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	emit_text_release(&line);
}

static void write_skypilot(struct emission *e, struct emit_text *out)
{
	task(e, out, true);
}

static void write_dstack(struct emission *e, struct emit_text *out)
{
	task(e, out, false);
}


#define HOST "dataloader-workers save-total-limit save-sharded"

const struct emit_target emit_targets[] = {
	{{"trl", "TRL's YAML (trl sft --config FILE)", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.yaml", fill_trl, emit_yaml, NULL, "# ", "gpus nodes allocator " HOST,
	 "dataset_name (trl sft --config FILE)"},
	{{"trainer", "TrainingArguments and TRL's options of a command line", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.sh", fill_trl, emit_options, NULL, "# ", "gpus nodes allocator " HOST,
	 "--dataset_name"},
	{{"python", "keyword arguments: from_pretrained, LoraConfig, SFTConfig", "TRL 1.10, PEFT 0.18"},
	 "python", "plan.py", fill_python, emit_keywords, NULL, "# ", "gpus nodes allocator " HOST,
	 "the data set, and a trainer that takes these"},
	{{"accelerate", "accelerate's YAML (accelerate launch --config_file FILE)", "accelerate 1.10"},
	 "accelerate", "plan.yaml", fill_accelerate, emit_yaml, NULL, "# ",
	 "micro-batch grad-accum seq-len packing precision attn grad-ckpt optimizer loss lora-r lora-targets "
	 "lora-dropout base-weights allocator objective use-reentrant offload-optimizer kbit-prepare double-quant "
	 "reduce-bucket-size max-live-parameters prefetch-bucket-size param-persistence-threshold "
	 "sub-group-size " HOST, NULL},
	{{"deepspeed", "DeepSpeed's JSON", "DeepSpeed 0.17"},
	 "deepspeed", "plan.json", fill_deepspeed, emit_json, NULL, NULL,
	 "gpus nodes seq-len packing attn grad-ckpt optimizer loss lora-r lora-targets lora-dropout base-weights "
	 "allocator objective use-reentrant kbit-prepare double-quant " HOST, NULL},
	{{"axolotl", "axolotl's YAML", "axolotl 0.12"},
	 "axolotl", "plan.yaml", fill_axolotl, emit_yaml, NULL, "# ", "gpus nodes allocator " HOST,
	 "datasets"},
	{{"llamafactory", "LLaMA-Factory's YAML", "LLaMA-Factory 0.9.4"},
	 "llamafactory", "plan.yaml", fill_llamafactory, emit_yaml, NULL, "# ", "gpus nodes allocator " HOST,
	 "dataset, template"},
	{{"torchtune", "overrides of a torchtune recipe", "torchtune 0.6"},
	 "torchtune", "plan.sh", fill_torchtune, write_torchtune, NULL, "# ", "attn allocator engine zero " HOST,
	 "paths of the checkpoint and its tokenizer, where they are not the config's"},
	{{"torchtitan", "torchtitan's TOML", "torchtitan 238fa99"},
	 "torchtitan", "plan.toml", fill_torchtitan, emit_toml, NULL, "# ",
	 "gpus nodes allocator attn objective grad-accum " HOST,
	 "[model] name, flavor and hf_assets_path, [training] dataset"},
	{{"megatron", "Megatron-LM's arguments", "Megatron-LM core 0.14"},
	 "megatron-lm", "plan.sh", fill_megatron, emit_flags, NULL, "# ", "gpus nodes allocator objective grad-accum " HOST,
	 "the architecture (--num-layers, --hidden-size, ...), tokenizer and data"},
	{{"torchrun", "a torchrun line with its environment", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.sh", fill_trl, write_torchrun, NULL, "# ", HOST,
	 "train.py, which takes TRL's options (trl/scripts/sft.py does), and its --dataset_name"},
	{{"slurm", "a batch script for sbatch", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.sh", fill_trl, write_slurm, NULL, "# ", HOST,
	 "train.py, which takes TRL's options (trl/scripts/sft.py does), and its --dataset_name"},
	{{"skypilot", "a SkyPilot task", "SkyPilot 0.9.2, TRL 1.10"},
	 "trl", "plan.sh", fill_trl, write_skypilot, write_torchrun, "# ", HOST,
	 "train.py, which takes TRL's options (trl/scripts/sft.py does), and its --dataset_name"},
	{{"dstack", "a dstack task", "dstack 0.19, TRL 1.10"},
	 "trl", "plan.sh", fill_trl, write_dstack, write_torchrun, "# ", HOST,
	 "train.py, which takes TRL's options (trl/scripts/sft.py does), and its --dataset_name"},
	{{NULL, NULL, NULL}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};
