/* axolotl and LLaMA-Factory. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"
#include "oomplan/config.h"

/* ---- axolotl, LLaMA-Factory ---- */

/* Losses and kernels are plugins' (axolotl/integrations). */
static void axolotl_kernels(struct emission *e)
{
	const bool all = emit_is(e, "liger-kernels", "all"), fused = emit_is(e, "loss", "fused"),
		   norm = all || emit_is(e, "liger-kernels", "norm"), glu = all || emit_is(e, "liger-kernels", "glu"),
		   liger = fused || norm || glu, cut = emit_is(e, "loss", "cut");

	if (liger || cut)
		emit_names(e, "plugins",
			   !cut	  ? "axolotl.integrations.liger.LigerPlugin" :
			   !liger ? "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin" :
				    "axolotl.integrations.liger.LigerPlugin+"
				    "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin");
	if (fused)
		emit_set(e, "liger_fused_linear_cross_entropy", "true");
	if (norm)
		emit_set(e, "liger_rms_norm", "true");
	if (glu)
		emit_set(e, "liger_glu_activation", "true");
	if (cut)
		emit_set(e, "cut_cross_entropy", "true");
}

static void axolotl_adapter(struct emission *e)
{
	const char *targets = e->plan->lora_targets;

	if (!emit_adapted(e))
		return;
	emit_set(e, "adapter", emit_is(e, "base-bits", "4-nf4") ? "qlora" : "lora");
	emit_rows(e, "", "axolotl", "lora_r lora_dropout");
	if (!strcmp(targets, "all-linear"))
		emit_set(e, "lora_target_linear", "true");
	else if (*targets)
		emit_names(e, "lora_target_modules", targets);
	if (*e->plan->modules_to_save)
		emit_names(e, "lora_modules_to_save", e->plan->modules_to_save);
	if (emit_is(e, "use-dora", "true"))
		emit_set(e, "peft_use_dora", "true");
}

static void axolotl_precision(struct emission *e)
{
	/* weights load in bf16 under "bf16: true", and the Trainer computes in autocast; "full", which the builders
	 * know, is no value for the schema (core/builders/base.py _configure_precision_settings, utils/schemas/config.py
	 * of 0.5 to 0.18; DeepSpeed has no autocast in any case) */
	if (emit_is(e, "precision", "bf16-amp") || emit_is(e, "precision", "amp-bf16") || emit_is(e, "precision", "bf16"))
		emit_set(e, "bf16", "true");
	else if (emit_is(e, "@autocast", "fp16"))
		emit_set(e, "fp16", "true");
	else
		emit_set(e, "bf16", "false");
	if (emit_is(e, "precision", "fp16") && !emit_deepspeed(e))
		emit_set(e, "float16", "true");
}

/* activation_offloading: true turns checkpointing off where adapters train, "hidden_states" keeps it, and either is refused
 * without gradient_checkpointing (core/builders/base.py _configure_gradient_checkpointing, utils/schemas/validation.py
 * check_activation_offloading_wo_gc of 067b021). */
static void axolotl_checkpoints(struct emission *e)
{
	const bool offload = emit_is(e, "offload-activations", "true"), full = emit_is(e, "grad-ckpt", "full");

	if (offload)
		emit_set(e, "activation_offloading", emit_adapted(e) && full ? "hidden_states" : "true");
	if (offload && emit_adapted(e) && !full)
		emit_set(e, "gradient_checkpointing", "true");
	else
		emit_rows(e, "", "axolotl", "gradient_checkpointing");
	emit_rows(e, "", "axolotl", "gradient_checkpointing_kwargs.use_reentrant");
}

/* How the ranks divide the model. */
static void axolotl_ranks(struct emission *e)
{
	if (e->plan->tp > 1)
		emit_rows(e, "", "axolotl", "tensor_parallel_size");
	if (e->plan->cp > 1)
		emit_rows(e, "", "axolotl", "context_parallel_size");
	if (e->plan->ep > 1)
		emit_rows(e, "", "axolotl", "expert_parallel_size");
	if (emit_deepspeed(e)) {
		deepspeed_config(e, "deepspeed.");
	} else if (emit_fsdp(e)) {
		emit_set(e, "fsdp_version", emit_is(e, "engine", "fsdp2") ? "2" : "1");
		emit_set(e, "fsdp_config.reshard_after_forward", emit_is(e, "zero", "2") ? "false" : "true");
		emit_set(e, "fsdp_config.offload_params", emit_is(e, "offload-params", "none") ? "false" : "true");
	}
}

void fill_axolotl(struct emission *e)
{
	char buf[160];

	emit_set(e, "base_model", e->model);
	if (emit_is(e, "base-bits", "4-nf4"))
		emit_set(e, "load_in_4bit", "true");
	else if (emit_is(e, "base-bits", "8"))
		emit_set(e, "load_in_8bit", "true");
	if (emit_is(e, "moe-experts", "quantised"))
		emit_set(e, "quantize_moe_experts", "true");
	axolotl_adapter(e);
	if (!emit_is(e, "objective", "sft"))
		emit_rows(e, "", "axolotl", "rl reward_model");
	if (emit_is(e, "objective", "kto"))     /* utils/schemas/validation.py check_kto_config */
		emit_set(e, "remove_unused_columns", "false");
	if (*e->plan->train)
		emit_names(e, "unfrozen_parameters", e->plan->train);
	emit_rows(e, "", "axolotl", "sequence_len micro_batch_size gradient_accumulation_steps");
	if (e->plan->eval_batch != e->plan->micro_batch && !emit_is(e, "eval-batch", "8"))
		emit_rows(e, "", "axolotl", "eval_batch_size");
	emit_set(e, "sample_packing", emit_fact(e, "packing", buf));
	emit_rows(e, "", "axolotl", "optimizer");
	axolotl_precision(e);
	if (e->plan->num_labels > 0)
		emit_rows(e, "", "axolotl", "num_labels");
	axolotl_checkpoints(e);
	if (emit_is(e, "compile", "true"))
		emit_set(e, "torch_compile", "true");
	if (emit_is(e, "tf32", "true"))
		emit_set(e, "tf32", "true");
	if (emit_is(e, "fp8", "tensorwise"))
		emit_set(e, "fp8", "true");
	emit_set(e, "attn_implementation", emit_is(e, "attn", "flash") ? "flash_attention_2"
								      : emit_fact(e, "attn", buf));
	axolotl_kernels(e);
	axolotl_ranks(e);
	emit_set(e, "output_dir", "./out");
}

void write_axolotl(struct emission *e, struct emit_text *out)
{
	emit_put(out, "# axolotl train FILE\n");
	emit_yaml(e, out);
}

/* Has the model a part that sees? */
static bool sees(const struct emission *e)
{
	static const char *const keys[] = {"vision_config.hidden_size", "vision_config.embed_dim", "vision_config.model_type",
					   "vision_config.depth"};
	struct oom_error err = {{0}};
	struct oom_keys config;
	bool found = false;

	if (!e->config || oom_keys_read_model(&config, e->config, &err))
		return false;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		found |= oom_keys_find(&config, keys[i]) != NULL;
	oom_keys_release(&config);
	return found;
}

static void factory_adapters(struct emission *e)
{
	const bool rotated = emit_is(e, "peft-type", "oft");
	char buf[160];

	emit_set(e, "finetuning_type", !emit_adapted(e) ? "full" : rotated ? "oft" : "lora");
	if (!emit_adapted(e))
		return;
	emit_set(e, rotated ? "oft_block_size" : "lora_rank", emit_fact(e, "lora-r", buf));
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
	if (!rotated)
		emit_rows(e, "", "llamafactory", "lora_dropout");
	if (*e->plan->modules_to_save)
		emit_names(e, "additional_target", e->plan->modules_to_save);
	if (emit_is(e, "use-dora", "true"))
		emit_set(e, "use_dora", "true");
	if (emit_is(e, "base-bits", "4-nf4")) {
		emit_set(e, "quantization_bit", "4");
		emit_set(e, "double_quantization", emit_fact(e, "double-quant", buf));
	} else if (emit_is(e, "base-bits", "8")) {
		emit_set(e, "quantization_bit", "8");
	}
}

void fill_llamafactory(struct emission *e)
{
	char buf[160];
	bool whole;

	emit_set(e, "model_name_or_path", e->model);
	emit_rows(e, "", "llamafactory", "stage use_galore use_apollo use_adam_mini use_muon");
	if (emit_is(e, "objective", "simpo") || emit_is(e, "objective", "orpo")) {
		emit_set(e, "stage", "dpo");
		emit_set(e, "pref_loss", emit_fact(e, "objective", buf));
	}
	if (sees(e))
		emit_rows(e, "", "llamafactory", "freeze_vision_tower freeze_multi_modal_projector");
	emit_set(e, "do_train", "true");
	factory_adapters(e);
	emit_set(e, "cutoff_len", emit_fact(e, "seq-len", buf));
	emit_set(e, "packing", emit_fact(e, "packing", buf));
	if (emit_is(e, "compile", "true"))
		emit_set(e, "torch_compile", "true");
	if (emit_is(e, "tf32", "true"))
		emit_set(e, "tf32", "true");
	if (emit_is(e, "fp8", "tensorwise"))
		emit_set(e, "fp8", "true");
	emit_set(e, "flash_attn", emit_is(e, "attn", "flash") ? "fa2" : emit_is(e, "attn", "eager") ? "disabled" : "sdpa");
	/* but for next tokens it means the modules alone (model/loader.py require_logits) */
	whole = !emit_is(e, "objective", "sft") && !emit_is(e, "objective", "pretrain");
	emit_set(e, "enable_liger_kernel",
		 emit_is(e, "loss", "fused") || (whole && emit_is(e, "liger-kernels", "all")) ? "true" : "false");
	if (emit_is(e, "grad-ckpt", "none") || emit_fsdp_checkpoints(e))
		emit_set(e, "disable_gradient_checkpointing", "true");
	if (emit_is(e, "precision", "bf16") && !emit_deepspeed(e) && !emit_is(e, "engine", "megatron"))
		emit_set(e, "pure_bf16", "true");
	if (emit_is(e, "engine", "megatron")) {
		emit_set(e, "use_mca", "true");
		emit_rows(e, "", "llamafactory", "tensor_model_parallel_size pipeline_model_parallel_size "
			  "context_parallel_size expert_model_parallel_size");
	}
	training_arguments(e);
}

/* One process is no reason for the launcher to take torchrun, which DeepSpeed wants (hparams/parser.py get_train_args). */
void write_llamafactory(struct emission *e, struct emit_text *out)
{
	emit_put(out, "# %sllamafactory-cli train FILE\n", emit_deepspeed(e) && e->plan->gpus < 2 ? "FORCE_TORCHRUN=1 " : "");
	emit_yaml(e, out);
}
