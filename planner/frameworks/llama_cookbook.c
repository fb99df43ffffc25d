/* Meta's llama-recipes, now llama-cookbook: the options of its finetuning.py, which overwrite the members of its
 * dataclasses of configs/training.py, fsdp.py and peft.py. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define TRAINING "llama_cookbook/configs/training.py"
#define FSDP "llama_cookbook/configs/fsdp.py"
#define REPLICAS "with HYBRID_SHARD shards lie over fewer cards: more than is priced"
#define PEFT "llama_cookbook/configs/peft.py lora_config"
#define MAIN "llama_cookbook/finetuning.py"
#define STRATEGY \
	"*FULL_SHARD>3;*SHARD_GRAD_OP>2;*NO_SHARD>0;*HYBRID_SHARD>3 hybrid-shard=true"

static const struct fw_row rows[] = {
	FW_KEY("model_name", "model", NULL, NULL, TRAINING),
	FW_KEY("batch_size_training", "micro-batch", NULL, "4", TRAINING),
	FW_KEY("micro_batch_size", NULL, NULL, NULL, NULL),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, "1", TRAINING),
	FW_KEY("val_batch_size", "eval-batch", NULL, "1", TRAINING),
	{"run_validation", .hook = true, .source = TRAINING},
	{"batching_strategy", .hook = true, .source = TRAINING},
	{"context_length", .hook = true, .source = TRAINING},
	{"enable_fsdp", .hook = true, .source = MAIN}, FW_KEY("one_gpu", "gpus", "true>1;false>", NULL, TRAINING),
	FW_KEY("use_peft", "method", "true>lora;false>full", "full", TRAINING),
	{"peft_method", .hook = true, .source = TRAINING},
	{"quantization", .hook = true, .source = MAIN},
	{"use_fp16", .hook = true, .source = MAIN}, {"mixed_precision", .hook = true, .source = TRAINING},
	{"pure_bf16", .hook = true, .source = FSDP}, {"fsdp_config.pure_bf16", .hook = true, .source = FSDP},
	{"fsdp_activation_checkpointing", .hook = true, .source = FSDP},
	{"fsdp_config.fsdp_activation_checkpointing", .hook = true, .source = FSDP},
	{"fsdp_cpu_offload", .hook = true, .source = FSDP}, {"fsdp_config.fsdp_cpu_offload", .hook = true, .source = FSDP},
	FW_KEY("sharding_strategy", "zero", STRATEGY, NULL, FSDP),
	{"hsdp", .hook = true, .source = FSDP}, {"sharding_group_size", .hook = true, .source = FSDP},
	{"replica_group_size", .note = REPLICAS, .source = FSDP},
	{"fsdp_config.hsdp", .hook = true, .source = FSDP}, {"fsdp_config.sharding_group_size", .hook = true, .source = FSDP},
	{"fsdp_config.replica_group_size", .note = REPLICAS, .source = FSDP},
	FW_KEY("fsdp_config.sharding_strategy", "zero", STRATEGY, NULL, FSDP),
	{"optimizer", .hook = true, .source = FSDP}, {"fsdp_config.optimizer", .hook = true, .source = FSDP},
	FW_KEY("lora_config.r", "lora-r", NULL, NULL, PEFT), FW_KEY("r", "lora-r", NULL, NULL, PEFT),
	FW_KEY("lora_config.lora_dropout", "lora-dropout", NULL, NULL, PEFT),
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, PEFT),
	FW_KEY("lora_config.target_modules", "lora-targets", NULL, NULL, PEFT),
	FW_KEY("target_modules", "lora-targets", NULL, NULL, PEFT),
	{"freeze_layers", .hook = true, .source = MAIN}, FW_KEY("num_freeze_layers", NULL, NULL, NULL, MAIN),
	{"freeze_LLM_only", .note = "attention of the language model is frozen: less than is priced"},
	FW_KEY("num_workers_dataloader", "dataloader-workers", NULL, NULL, TRAINING),
	{.key = NULL},
};
static const char idle[] =
	"tokenizer_name low_cpu_fsdp gradient_clipping* num_epochs max_train_step max_eval_step lr weight_decay gamma seed "
	"dataset dataset* custom_dataset* from_peft_checkpoint output_dir save_* dist_checkpoint_* use_fast_kernels "
	"use_wandb use-wandb wandb* flop_counter* use_profiler profiler_dir "
	"checkpoint_type fsdp_config* lora_config* lora_alpha samsum_dataset* grammar_dataset* alpaca_dataset* (words)";

static bool either(const struct fw_part *p, const char *a, const char *b)
{
	return fw_on(p, a) || fw_on(p, b);
}

static void finish_base(struct fw_part *p, bool fsdp)
{
	const char *bits = fw_text(p, "quantization");

	if (!fw_key(p, "quantization") || fw_off(p, "quantization"))
		return;
	/* a bare flag was the only form once, and still means 8 bit */
	fw_set(p, "base-bits", strchr(bits, '4') ? "4-nf4" : "8", "quantization", MAIN);
	fw_set(p, "kbit-prepare", fsdp ? "false" : "true", "quantization", MAIN);
	if (fsdp)
		fw_set(p, "quant-storage", "bf16", "quantization", MAIN);
	else
		fw_set(p, "grad-ckpt", "full", "quantization", "prepare_model_for_kbit_training checkpoints");
}

/* Weights load as config.json has them; FSDP's policy casts to bf16, autocast is for fp16 alone.  Before 808a3f7 of July 2024
 * from_pretrained was told no type: fp32, of which FSDP's policy computes in bf16 unless pure_bf16 cast the model. */
static void finish_precision(struct fw_part *p, bool fsdp)
{
	const bool pure = either(p, "pure_bf16", "fsdp_config.pure_bf16");

	if (fw_older(p, "transformers", 4, 43) && !pure && !fw_on(p, "use_fp16"))
		fw_set(p, "precision", fsdp ? "amp-bf16" : "fp32", NULL, "llama_recipes/finetuning.py before 808a3f7");
	else if (fw_on(p, "use_fp16"))
		fw_set(p, "precision", "fp16-amp", "use_fp16", MAIN ", train_utils.py autocast");
	else
		fw_set(p, "precision", "bf16", pure ? "fsdp_config.pure_bf16" : NULL,
		       MAIN " torch_dtype auto: bf16 of Llama's");
}

static void finish_fsdp(struct fw_part *p, bool fsdp)
{
	const bool recompute = fsdp && !fw_off(p, "fsdp_activation_checkpointing") &&
			       !fw_off(p, "fsdp_config.fsdp_activation_checkpointing");

	fw_set(p, "engine", fsdp ? "fsdp1" : "hf", fsdp ? "enable_fsdp" : NULL, MAIN);
	fw_default(p, "grad-ckpt", recompute ? "full" : "none", FSDP);
	if (!fsdp) {
		fw_set(p, "zero", "0", NULL, MAIN);
		fw_default(p, "gpus", "1", MAIN ": one process");
		return;
	}
	fw_default(p, "zero", "3", FSDP);
	/* a mesh of its own (utils/fsdp_utils.py hsdp_device_mesh); a group is as large as a replica */
	if (fw_on(p, "hsdp") || fw_on(p, "fsdp_config.hsdp"))
		fw_take_replicas(p, fw_whole_or(p, "sharding_group_size", fw_whole_or(p, "fsdp_config.sharding_group_size", 0)),
				 0, fw_on(p, "hsdp") ? "hsdp" : "fsdp_config.hsdp");
	if (either(p, "fsdp_cpu_offload", "fsdp_config.fsdp_cpu_offload")) {
		fw_set(p, "offload-params", "cpu", "fsdp_config.fsdp_cpu_offload", FSDP);
		fw_set(p, "offload-optimizer", "cpu", "fsdp_config.fsdp_cpu_offload", FSDP);
	}
}

static void finish_length(struct fw_part *p)
{
	const bool padded = !strcmp(fw_text(p, "batching_strategy"), "padding");
	/* context_length is of a647955, October 2023; before that ConcatDataset's chunk_size (ft_datasets/utils.py) */
	int64_t tokens = fw_older(p, "transformers", 4, 34) ? 2048 : 4096;

	fw_set(p, "packing", padded ? "false" : "true", fw_key(p, "batching_strategy") ? "batching_strategy" : NULL, TRAINING);
	doc_whole(fw_key(p, "context_length"), &tokens);
	if (tokens <= 0 || tokens >= 100000000)
		return;
	fw_set_whole(p, "seq-len", tokens, fw_key(p, "context_length") ? "context_length" : NULL, TRAINING);
	if (padded)
		fw_open(p, "seq-len", "padding takes whole samples, whatever context_length says: give --seq-len");
}

static void finish(struct fw_part *p)
{
	const bool fsdp = fw_on(p, "enable_fsdp");
	const char *optimizer = fw_text(p, fw_key(p, "optimizer") ? "optimizer" : "fsdp_config.optimizer");

	finish_base(p, fsdp);
	finish_precision(p, fsdp);
	finish_fsdp(p, fsdp);
	finish_length(p);
	if (fw_fact_is(p, "method", "lora")) {
		fw_default(p, "lora-r", "8", PEFT);
		fw_default(p, "lora-dropout", "0.05", PEFT);
		fw_default(p, "lora-targets", "q_proj+v_proj", PEFT);
		if (*fw_text(p, "peft_method") && strcmp(fw_text(p, "peft_method"), "lora"))
			fw_unmodelled(p, "peft_method", "priced as LoRA");
	}
	if (fw_off(p, "run_validation"))
		fw_set(p, "eval-batch", "0", "run_validation", TRAINING);
	/* anyprecision, with its buffers in bf16, is for pure bf16 under FSDP */
	if (!strcmp(optimizer, "anyprecision"))
		fw_unmodelled(p, fw_key(p, "optimizer") ? "optimizer" : "fsdp_config.optimizer",
			      "AnyPrecisionAdamW: a third state for compensation, all in bf16");
	fw_default(p, "optimizer", "adamw", MAIN " optim.AdamW");
	if (fw_on(p, "freeze_layers"))
		fw_unmodelled(p, "freeze_layers", "the first layers are frozen: less than is priced");
	fw_default(p, "objective", "sft", MAIN);
	fw_default(p, "attn", "sdpa", MAIN);
	fw_default(p, "loss", "plain", MAIN);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_llama_cookbook = {
	.name = "llama-cookbook",
	.summary = "llama-recipes and llama-cookbook: options of finetuning.py",
	.version = "llama-cookbook main of 2026",
	.role = FW_TRAINER,
	.marks = "batch_size_training enable_fsdp use_peft+peft_method dist_checkpoint_root_folder batching_strategy "
		 "custom_dataset.file",
	.never = "per_device_train_batch_size base_model model_name_or_path",
	.programs = "finetuning llama_finetuning",
	.commands = "finetuning* llama_finetuning* llama_recipes.* llama_cookbook.* finetune*",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
