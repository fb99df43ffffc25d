/* transformers and what is made around its Trainer: TRL, accelerate.  DeepSpeed's part of both: deepspeed.c. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"

#define LORA_TRL "lora_r lora_target_modules lora_dropout"

/* ---- transformers, TRL ---- */

/* accelerate's words, whose own default is not torch's. */
static const char *emit_prefetch(const struct emission *e)
{
	return emit_is(e, "backward-prefetch", "none") ? "NO_PREFETCH"
	       : emit_is(e, "backward-prefetch", "post") ? "BACKWARD_POST"
							 : "BACKWARD_PRE";
}

/* Engine as TrainingArguments take it. */
static void training_engine(struct emission *e)
{
	if (emit_deepspeed(e)) {
		deepspeed_config(e, "deepspeed.");
	} else if (emit_fsdp(e)) {
		const bool two = emit_is(e, "engine", "fsdp2"), kept = emit_is(e, "zero", "2"),
			   offload = !emit_is(e, "offload-params", "none");
		char words[60];

		/* transformers reads offload here, not in the config (training_args.py _process_fsdp_args); the words
		 * leave FSDP2's parameters gathered in versions 5.0 and on, unless the config says that they are not */
		snprintf(words, sizeof(words), "%s auto_wrap%s",
			 kept ? "shard_grad_op" : !two && emit_is(e, "zero", "0") ? "no_shard" : "full_shard", offload ? " offload" : "");
		emit_set(e, "fsdp", words);
		emit_set(e, "fsdp_config.version", two ? "2" : "1");
		if (two)
			emit_set(e, "fsdp_config.reshard_after_forward", kept ? "false" : "true");
		else
			emit_set(e, "fsdp_config.backward_prefetch", emit_prefetch(e));
		if (emit_fsdp_checkpoints(e))
			emit_set(e, "fsdp_config.activation_checkpointing", "true");
	}
}

const char *trl_command(const struct emission *e)
{
	return emit_trl_objective(e)->trl_command;
}

void training_arguments(struct emission *e)
{
	emit_set(e, "output_dir", "out");
	emit_rows(e, "", "hf-trainer", "per_device_train_batch_size gradient_accumulation_steps");
	if (emit_fsdp_checkpoints(e))
		emit_set(e, "gradient_checkpointing", "false");
	else
		emit_rows(e, "", "hf-trainer", "gradient_checkpointing gradient_checkpointing_kwargs.use_reentrant");
	emit_rows(e, "", "hf-trainer", "optim");
	emit_set(e, "bf16", emit_is(e, "@autocast", "bf16") ? "true" : "false");
	if (emit_is(e, "@autocast", "fp16"))
		emit_set(e, "fp16", "true");
	/* norms, feed-forwards and rotary positions come with it: see liger_costs in targets.c */
	if (emit_is(e, "loss", "fused"))
		emit_set(e, "use_liger_kernel", "true");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "torch_compile", "true");
	if (emit_is(e, "tf32", "true"))
		emit_set(e, "tf32", "true");
	if (!emit_is(e, "label-smoothing", "0"))
		emit_rows(e, "", "hf-trainer", "label_smoothing_factor");
	if (!emit_is(e, "max-grad-norm", "1"))
		emit_rows(e, "", "hf-trainer", "max_grad_norm");
	if (!emit_is(e, "neftune-noise-alpha", "0"))
		emit_rows(e, "", "hf-trainer", "neftune_noise_alpha");
	if (emit_is(e, "evaluates", "no"))
		emit_set(e, "eval_strategy", "no");
	else if (!emit_is(e, "eval-batch", "8"))
		emit_rows(e, "", "hf-trainer", "per_device_eval_batch_size");
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
	if (emit_adapted(e)) {
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
		emit_rows(e, "", "trl", "lora_modules_to_save");
	}
}

/* A prompt's answers lie in one step, and as many prompts as go into it: with eight, the default, a step must be a
 * multiple of eight, else the next fewer that divide it (trl/trainer/grpo_config.py __post_init__: at least two). */
static void grpo_config(struct emission *e)
{
	const int64_t step = e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan);
	int64_t answers = 8;
	char buf[24];

	while (answers > 1 && step % answers)
		answers--;
	if (answers < 2)                        /* 11 or 13 sequences are the answers to one prompt */
		answers = step > 2 ? step : 2;
	snprintf(buf, sizeof(buf), "%lld", (long long)answers);
	emit_rows(e, "", "trl", "max_completion_length");
	emit_set(e, "num_generations", buf);
}

/* What SFTConfig, DPOConfig, ... have beside TrainingArguments. */
static void trl_config(struct emission *e)
{
	const struct emit_objective *o = emit_trl_objective(e);
	char buf[160];

	if (emit_is(e, "objective", "simpo")) {
		emit_set(e, "loss_type", "simpo");
		emit_set(e, "cpo_alpha", "0.0");
	}
	if (emit_is(e, "objective", "ppo"))
		emit_rows(e, "", "trl", "response_length");
	else if (emit_is(e, "objective", "grpo"))
		grpo_config(e);
	else if (e->plan->seq_len > 0)
		emit_set(e, "max_length", emit_fact(e, "seq-len", buf));
	if (!strcmp(o->name, "sft")) {
		emit_set(e, "packing", emit_fact(e, "packing", buf));
		if (!emit_is(e, "loss", "fused"))
			emit_set(e, "loss_type", emit_is(e, "loss", "chunked-nll") ? "chunked_nll" : "nll");
	}
	if (emit_is(e, "rollouts", "engine"))
		emit_set(e, "use_vllm", "true");
	/* a reference is there where beta is not 0 (grpo_trainer.py); how large it is no plan says */
	if (emit_is(e, "objective", "grpo") && (emit_is(e, "reference", "model") || emit_is(e, "reference", "adapter")))
		emit_set(e, "beta", "0.04");
	if (emit_is(e, "reference", "none"))
		emit_rows(e, "", "trl", "precompute_ref_log_probs");
	if (emit_is(e, "offload-activations", "true"))
		emit_set(e, "activation_offloading", "true");
}

void fill_trl(struct emission *e)
{
	const struct emit_objective *o = emit_trl_objective(e);

	trl_model(e);
	trl_config(e);
	if (o->trl_key)
		emit_set(e, o->trl_key, o->trl_value);
	training_arguments(e);
}

/* Liger's kernels other than all of them and the fused loss: liger_kernel_config has a switch for each part.  It is a
 * map that a file holds and a command line cannot (transformers training_args.py _VALID_DICT_FIELDS lacks it). */
static void liger_config(struct emission *e)
{
	const bool all = emit_is(e, "liger-kernels", "all"), norm = all || emit_is(e, "liger-kernels", "norm"),
		   glu = all || emit_is(e, "liger-kernels", "glu"), fused = emit_is(e, "loss", "fused");

	if (all ? fused : !norm && !glu && !fused)
		return;
	if (!fused)
		emit_set(e, "use_liger_kernel", "true");
	if (!norm)
		emit_set(e, "liger_kernel_config.rms_norm", "false");
	if (!glu) {
		emit_set(e, "liger_kernel_config.swiglu", "false");
		emit_set(e, "liger_kernel_config.geglu", "false");
	}
	if (!all)
		emit_set(e, "liger_kernel_config.rope", "false");
	if (!fused)
		emit_set(e, "liger_kernel_config.fused_linear_cross_entropy", "false");
	if (emit_is(e, "loss", "in-place"))
		emit_set(e, "liger_kernel_config.cross_entropy", "true");
}

/* "trl dpo --config FILE" stands above the file, "trl dpo" before the options. */
void write_trl(struct emission *e, struct emit_text *out)
{
	if (trl_command(e))
		emit_put(out, "# trl %s --config FILE\n", trl_command(e));
	else
		emit_put(out, "# for a script of yours around TRL's %s\n", emit_trl_objective(e)->trl_config);
	liger_config(e);
	emit_yaml(e, out);
}

void write_trl_command(struct emission *e, struct emit_text *out)
{
	emit_put(out, "%s %s ", trl_command(e) ? "trl" : "python", trl_command(e) ? trl_command(e) : "train.py");
	emit_options(e, out);
}

/* A script around Trainer itself: its loss is the model's, and no key says so. */
void fill_trainer(struct emission *e)
{
	char buf[160];

	trl_model(e);
	if (e->plan->seq_len > 0)
		emit_set(e, "model_max_length", emit_fact(e, "seq-len", buf));
	if (emit_is(e, "packing", "true"))
		emit_set(e, "packing", "true");
	if (e->plan->eval_generates) {          /* Seq2SeqTrainingArguments */
		emit_rows(e, "", "hf-trainer", "predict_with_generate generation_num_beams");
		if (e->plan->eval_new_tokens)
			emit_rows(e, "", "hf-trainer", "generation_max_length");
	}
	training_arguments(e);
}

#define MODEL_LOADED "AutoModelForCausalLM.from_pretrained."
#define QUANTISED MODEL_LOADED "quantization_config.BitsAndBytesConfig."

void fill_python(struct emission *e)
{
	static const char *const base = MODEL_LOADED;
	struct emission config = {.plan = e->plan, .model = e->model};
	bool plain;
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
		emit_set(e, QUANTISED "load_in_4bit", "true");
		emit_set(e, QUANTISED "bnb_4bit_quant_type", "nf4");
		emit_set(e, QUANTISED "bnb_4bit_use_double_quant", emit_fact(e, "double-quant", buf));
	} else if (emit_is(e, "base-bits", "8")) {
		emit_set(e, QUANTISED "load_in_8bit", "true");
	}
	if (emit_is(e, "kbit-prepare", "true"))
		emit_set(e, "prepare_model_for_kbit_training.use_gradient_checkpointing",
			 emit_is(e, "grad-ckpt", "none") ? "false" : "true");
	if (emit_adapted(e)) {
		emit_set(e, "LoraConfig.r", emit_fact(e, "lora-r", buf));
		if (*e->plan->lora_targets && strchr(e->plan->lora_targets, '+'))
			emit_names(e, "LoraConfig.target_modules", e->plan->lora_targets);
		else
			emit_set(e, "LoraConfig.target_modules", e->plan->lora_targets);
		emit_set(e, "LoraConfig.lora_dropout", emit_fact(e, "lora-dropout", buf));
		if (emit_is(e, "use-dora", "true"))
			emit_set(e, "LoraConfig.use_dora", "true");
		if (*e->plan->modules_to_save)
			emit_names(e, "LoraConfig.modules_to_save", e->plan->modules_to_save);
	}
	if (doc_begin(&config.doc, "emit", "", &err) || !doc_add(&config.doc, NULL, NULL, DOC_MAP, 0, 0)) {
		e->failed = true;
		return;
	}
	/* Trainer itself takes the model's own loss, which SFTTrainer never does */
	plain = emit_is(e, "loss", "plain") && !strcmp(emit_trl_objective(e)->name, "sft");
	if (!plain)
		trl_config(&config);
	training_arguments(&config);
	liger_config(&config);
	e->failed |= config.failed ||
		     !doc_add_copy(&e->doc, e->doc.root,
				   plain ? "TrainingArguments" : emit_trl_objective(e)->trl_config, config.doc.root);
	doc_release(&config.doc);
}

/* ---- accelerate ---- */

/* FSDP2's degrees (accelerate/parallelism_config.py): replicas are machines', or nothing is sharded. */
static void accelerate_degrees(struct emission *e)
{
	const struct oom_plan *p = e->plan;
	const bool alone = emit_is(e, "zero", "0"), hybrid = emit_is(e, "hybrid-shard", "true");
	const int64_t others = p->tp * p->cp, replicas = alone ? p->gpus : hybrid ? p->nodes : 1;
	char buf[160];

	if (p->tp > 1)
		emit_set(e, "parallelism_config.parallelism_config_tp_size", emit_fact(e, "tp", buf));
	if (replicas < 2 || others < 1 || p->gpus % (replicas * (alone ? 1 : others)))
		return;
	snprintf(buf, sizeof(buf), "%lld", (long long)replicas);
	emit_set(e, "parallelism_config.parallelism_config_dp_replicate_size", buf);
	snprintf(buf, sizeof(buf), "%lld", (long long)(alone ? 1 : p->gpus / (replicas * others)));
	emit_set(e, "parallelism_config.parallelism_config_dp_shard_size", buf);
}

void fill_accelerate(struct emission *e)
{
	char buf[160];

	emit_set(e, "compute_environment", "LOCAL_MACHINE");
	emit_set(e, "distributed_type", emit_deepspeed(e) ? "DEEPSPEED" : emit_fsdp(e) ? "FSDP"
					: e->plan->gpus > 1		    ? "MULTI_GPU"
									    : "NO");
	emit_set(e, "mixed_precision", emit_is(e, "fp8", "tensorwise") ? "fp8" : emit_fact(e, "@autocast", buf));
	if (emit_is(e, "fp8", "tensorwise"))
		emit_set(e, "fp8_config.backend", "AO");
	emit_set(e, "num_machines", emit_fact(e, "nodes", buf));
	emit_set(e, "num_processes", emit_fact(e, "gpus", buf));
	emit_set(e, "machine_rank", "0");
	if (emit_is(e, "compile", "true"))
		emit_set(e, "dynamo_config.dynamo_backend", "INDUCTOR");
	if (e->plan->cp > 1)
		emit_set(e, emit_is(e, "cp-comm", "a2a") ? "parallelism_config.parallelism_config_sp_size"
							 : "parallelism_config.parallelism_config_cp_size",
			 emit_fact(e, "cp", buf));
	if (emit_deepspeed(e)) {
		emit_rows(e, "", "accelerate", "deepspeed_config.zero_stage deepspeed_config.gradient_accumulation_steps "
			  "deepspeed_config.offload_optimizer_device deepspeed_config.offload_param_device");
		emit_set(e, "deepspeed_config.zero3_init_flag", emit_is(e, "zero", "3") ? "true" : "false");
	} else if (emit_fsdp(e)) {
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
		if (two)
			accelerate_degrees(e);
		else
			emit_set(e, "fsdp_config.fsdp_backward_prefetch", emit_prefetch(e));
		emit_set(e, "fsdp_config.fsdp_offload_params",
			 emit_is(e, "offload-params", "none") ? "false" : "true");
		emit_set(e, "fsdp_config.fsdp_state_dict_type",
			 emit_is(e, "save-sharded", "true") ? "SHARDED_STATE_DICT" : "FULL_STATE_DICT");
		emit_set(e, "fsdp_config.fsdp_cpu_ram_efficient_loading", emit_fact(e, "low-cpu-mem", buf));
	}
}

