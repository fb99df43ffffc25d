/* alpaca-lora's finetune.py and scripts derived from it (LLM-Adapters, CodeUp, ...): a function's arguments on the
 * command line, adapters on an 8-bit base, whatever else is said. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define SCRIPT "tloen/alpaca-lora finetune.py train()"
#define ADAPTERS "AGI-Edgerunners/LLM-Adapters finetune.py train()"

static const struct fw_row rows[] = {
	FW_KEY("base_model", "model", NULL, NULL, SCRIPT),
	FW_KEY("batch_size", "global-batch", NULL, "128", SCRIPT),
	FW_KEY("micro_batch_size", "micro-batch", NULL, "4", SCRIPT),
	FW_KEY("cutoff_len", "seq-len", NULL, "256", SCRIPT),
	FW_KEY("lora_r", "lora-r", NULL, "8", SCRIPT),
	FW_KEY("lora_dropout", "lora-dropout", NULL, "0.05", SCRIPT),
	FW_KEY("lora_target_modules", "lora-targets", "*>=", "q_proj+v_proj", SCRIPT),
	FW_KEY("target_modules", "lora-targets", "*>=", NULL, ADAPTERS),
	FW_KEY("load_8bit", "base-bits", "true>8;false>16", NULL, ADAPTERS),
	{"adapter_name", .hook = true, .source = ADAPTERS},
	{"use_gradient_checkpointing", .hook = true, .source = ADAPTERS},
	{.key = NULL},
};

static const char idle[] =
	"data_path output_dir num_epochs learning_rate val_set_size lora_alpha train_on_inputs group_by_length "
	"add_eos_token wandb_* resume_from_checkpoint prompt_template_name eval_step save_step weight_decay "
	"use_cache scaling bottleneck_size non_linearity adapter_dropout use_parallel_adapter use_adapterp seed "
	"(launcher) (program) (words) (files)";

/* Of the later script's adapters those that are not LoRA's; its base is in 16 bit unless it says 8. */
static void finish_adapters(struct fw_part *p)
{
	const char *name = fw_text(p, "adapter_name");

	if (!strcmp(name, "dora"))
		fw_set(p, "use-dora", "true", "adapter_name", ADAPTERS);
	else if (*name && strcmp(name, "lora"))
		fw_unmodelled(p, "adapter_name", "no knob for this kind of adapters: LoRA of the same rank is priced");
	fw_default(p, "base-bits", "16", ADAPTERS);
	fw_default(p, "grad-ckpt", fw_key(p, "use_gradient_checkpointing") && !fw_off(p, "use_gradient_checkpointing") ?
					   "full" : "none", ADAPTERS);
}

static void finish(struct fw_part *p)
{
	const int64_t global = atoll(fw_fact(p, "global-batch")), micro = atoll(fw_fact(p, "micro-batch"));
	const char *gpus = fw_fact(p, "gpus");
	const int64_t n = *gpus ? atoll(gpus) : 1;

	fw_set(p, "method", "lora", NULL, SCRIPT);
	fw_set(p, "objective", "sft", NULL, SCRIPT);
	if (fw_key(p, "adapter_name"))
		finish_adapters(p);
	fw_default(p, "base-bits", "8", SCRIPT " load_in_8bit=True");
	/* prepare_model_for_int8_training */
	fw_default(p, "grad-ckpt", "full", "peft prepare_model_for_kbit_training");
	fw_default(p, "use-reentrant", "true", "transformers 4.28: torch.utils.checkpoint as it is");
	if (fw_fact_is(p, "base-bits", "8"))
		fw_set(p, "kbit-prepare", "true", NULL, "peft prepare_model_for_kbit_training");
	fw_set(p, "@dtype", "fp16", NULL, SCRIPT);
	fw_set(p, "@autocast", "fp16", NULL, SCRIPT);
	fw_default(p, "optimizer", "adamw", SCRIPT " adamw_torch");
	if (global > 0 && micro > 0 && n > 0)
		fw_set_whole(p, "grad-accum", global / micro / n > 0 ? global / micro / n : 1, NULL,
			     SCRIPT ": batch_size over micro_batch_size and processes");
	fw_default(p, "eval-batch", "8", "transformers/training_args.py:1083");
	fw_default(p, "attn", "eager", "transformers 4.28");
	fw_default(p, "loss", "plain", "transformers 4.28");
	fw_default(p, "packing", "false", SCRIPT);
	fw_default(p, "engine", "hf", "Trainer itself");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_alpaca_lora = {
	.name = "alpaca-lora",
	.summary = "the command line of alpaca-lora's finetune.py and of scripts derived from it",
	.version = "tloen/alpaca-lora 0003a00",
	.role = FW_TRAINER,
	.loop = "trainer",
	.marks = "base_model+cutoff_len",
	.never = "finetuning_type sequence_len datasets stage",
	.commands = "finetune*",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
