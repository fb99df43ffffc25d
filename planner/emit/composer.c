/* llm-foundry: the YAML of scripts/train/train.py, around transformers' models. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"

static void model(struct emission *e)
{
	emit_set(e, "model.name", "hf_causal_lm");
	emit_set(e, "model.pretrained", "true");
	emit_set(e, "model.pretrained_model_name_or_path", e->model);
	/* llmfoundry/models/hf/hf_base.py: eager where nothing is said */
	emit_set(e, "model.attn_implementation", emit_is(e, "attn", "flash") ? "flash_attention_2" :
						 emit_is(e, "attn", "sdpa")  ? "sdpa" : "eager");
	if (!emit_adapted(e))
		return;
	emit_set(e, "model.peft_config.peft_type", "LORA");
	emit_set(e, "model.peft_config.task_type", "CAUSAL_LM");
	emit_rows(e, "", "llm-foundry", "model.peft_config.r model.peft_config.lora_dropout model.peft_config.target_modules");
}

static void loaders(struct emission *e)
{
	char buf[160];

	emit_set(e, "tokenizer.name", e->model);
	emit_set(e, "train_loader.name", "finetuning");
	emit_set(e, "train_loader.dataset.max_seq_len", emit_fact(e, "seq-len", buf));
	if (emit_is(e, "packing", "true"))
		emit_set(e, "train_loader.dataset.packing_ratio", "auto");
}

static void sharding(struct emission *e)
{
	const bool hybrid = emit_is(e, "hybrid-shard", "true");

	if (!emit_is(e, "engine", "fsdp1"))
		return;
	emit_set(e, "fsdp_config.sharding_strategy",
		 emit_is(e, "zero", "0") ? "NO_SHARD" :
		 emit_is(e, "zero", "2") ? (hybrid ? "_HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP") :
					   (hybrid ? "HYBRID_SHARD" : "FULL_SHARD"));
	emit_set(e, "fsdp_config.backward_prefetch",
		 emit_is(e, "backward-prefetch", "none")   ? "NONE"
		 : emit_is(e, "backward-prefetch", "post") ? "BACKWARD_POST"
							   : "BACKWARD_PRE");
	emit_set(e, "fsdp_config.mixed_precision", emit_is(e, "reduce-dtype", "fp32") ? "DEFAULT" : "PURE");
	emit_set(e, "fsdp_config.activation_checkpointing", emit_is(e, "grad-ckpt", "full") ? "true" : "false");
	emit_rows(e, "", "llm-foundry", "fsdp_config.activation_checkpointing_reentrant");
	emit_set(e, "fsdp_config.activation_cpu_offload", emit_is(e, "offload-activations", "true") ? "true" : "false");
	if (!emit_is(e, "offload-params", "none"))
		emit_set(e, "fsdp_config.cpu_offload", "true");
	emit_set(e, "fsdp_config.limit_all_gathers", "true");
}

void fill_llm_foundry(struct emission *e)
{
	char buf[160];

	emit_rows(e, "", "llm-foundry", "max_seq_len");
	model(e);
	loaders(e);
	/* what it has of its own (llmfoundry/optim); torch's AdamW is not among them */
	if (!emit_is(e, "optimizer", "adamw"))
		emit_rows(e, "", "llm-foundry", "optimizer.name");
	emit_set(e, "optimizer.name", "decoupled_adamw");
	snprintf(buf, sizeof(buf), "%lld",
		 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_set(e, "global_train_batch_size", buf);
	emit_set(e, "device_train_microbatch_size", emit_fact(e, "micro-batch", buf));
	emit_set(e, "device_eval_batch_size", emit_is(e, "eval-batch", "0") ? "" : emit_fact(e, "eval-batch", buf));
	emit_set(e, "precision", emit_is(e, "precision", "amp-fp16") ? "amp_fp16" :
				 emit_is(e, "precision", "fp32")     ? "fp32" : "amp_bf16");
	sharding(e);
	/* a map, whatever is in it, asks for torch.compile (composer/trainer/trainer.py) */
	if (emit_is(e, "compile", "true"))
		emit_set(e, "compile_config.backend", "inductor");
	emit_set(e, "expandable_segments", emit_is(e, "allocator", "expandable_segments") ? "true" : "false");
}

void write_llm_foundry(struct emission *e, struct emit_text *out)
{
	emit_put(out, "# composer %sscripts/train/train.py FILE\n", emit_is(e, "engine", "fsdp1") ? "" : "-n 1 ");
	emit_yaml(e, out);
}
