/* The command line of a script that belongs to no framework: options whose names most training programs share, and
 * nothing that the script decides without an option.  Asked only where no other descriptor knows the command.
 *
 * The names are those of transformers' TrainingArguments and of its example scripts, DeepSpeed's, TRL's and PEFT's
 * fields, and the usual words of argparse beside them.  None of them has a default here that the command could mean:
 * what is taken for a silent option is the larger reading, and all of it is named in one sentence (told.c). */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define NAMES "names that most training scripts share"
#define SILENT "nothing on the command line says it"

/* Several names of one knob, of which a command has one. */
#define SWITCH(key, knob, on, off) FW_KEY(key, knob, "true>" on ";false>" off ";none>" off, NULL, NAMES)
#define COUNT(key, knob) FW_KEY(key, knob, NULL, NULL, NAMES)
#define DTYPE "fp32>fp32;float32>fp32;float>fp32;bf16>bf16;bfloat16>bf16;fp16>fp16;float16>fp16;half>fp16;auto>"

static const struct fw_row rows[] = {
	COUNT("model_name_or_path", "model"), COUNT("pretrained_model_name_or_path", "model"), COUNT("base_model", "model"),
	COUNT("model_name", "model"), COUNT("model_path", "model"), COUNT("model_id", "model"), COUNT("base_model_name", "model"),
	COUNT("pretrained_model", "model"), COUNT("base_model_name_or_path", "model"), COUNT("model", "model"),
	COUNT("per_device_train_batch_size", "micro-batch"), COUNT("per_device_batch_size", "micro-batch"),
	COUNT("per_gpu_train_batch_size", "micro-batch"), COUNT("train_micro_batch_size_per_gpu", "micro-batch"),
	COUNT("micro_train_batch_size", "micro-batch"), COUNT("micro_batch_size", "micro-batch"),
	COUNT("device_batch_size", "micro-batch"), COUNT("batch_size_per_gpu", "micro-batch"),
	COUNT("batch_size_per_device", "micro-batch"), COUNT("global_batch_size", "global-batch"),
	{"train_batch_size", .hook = true, .source = NAMES}, {"batch_size", .hook = true, .source = NAMES},
	{"bs", .hook = true, .source = NAMES}, {"bsz", .hook = true, .source = NAMES},
	COUNT("gradient_accumulation_steps", "grad-accum"), COUNT("grad_accum_steps", "grad-accum"),
	COUNT("gradient_accumulation", "grad-accum"), COUNT("grad_accum", "grad-accum"),
	COUNT("accumulation_steps", "grad-accum"), COUNT("accumulate_grad_batches", "grad-accum"),
	COUNT("max_seq_length", "seq-len"), COUNT("max_seq_len", "seq-len"), COUNT("seq_length", "seq-len"),
	COUNT("seq_len", "seq-len"), COUNT("sequence_length", "seq-len"), COUNT("max_length", "seq-len"),
	COUNT("max_len", "seq-len"), COUNT("cutoff_len", "seq-len"), COUNT("model_max_length", "seq-len"),
	COUNT("context_length", "seq-len"), COUNT("block_size", "seq-len"),
	COUNT("per_device_eval_batch_size", "eval-batch"), COUNT("eval_batch_size", "eval-batch"),
	SWITCH("gradient_checkpointing", "grad-ckpt", "full", "none"), SWITCH("grad_checkpointing", "grad-ckpt", "full", "none"),
	SWITCH("use_gradient_checkpointing", "grad-ckpt", "full", "none"),
	SWITCH("enable_gradient_checkpointing", "grad-ckpt", "full", "none"),
	SWITCH("activation_checkpointing", "grad-ckpt", "full", "none"),
	SWITCH("checkpoint_activations", "grad-ckpt", "full", "none"),
	COUNT("lora_r", "lora-r"), COUNT("lora_rank", "lora-r"), COUNT("lora_dim", "lora-r"),
	COUNT("lora_dropout", "lora-dropout"),
	FW_KEY("lora_target_modules", "lora-targets", "all>all-linear;all-linear>all-linear;*>=", NULL, NAMES),
	FW_KEY("lora_target", "lora-targets", "all>all-linear;all-linear>all-linear;*>=", NULL, NAMES),
	FW_KEY("lora_targets", "lora-targets", "all>all-linear;all-linear>all-linear;*>=", NULL, NAMES),
	{"use_lora", .hook = true, .source = NAMES}, {"use_peft", .hook = true, .source = NAMES},
	{"lora", .hook = true, .source = NAMES},
	SWITCH("use_dora", "use-dora", "true", "false"),
	SWITCH("load_in_4bit", "base-bits", "4", "16"), SWITCH("use_4bit", "base-bits", "4", "16"),
	SWITCH("qlora", "base-bits", "4", "16"), SWITCH("use_qlora", "base-bits", "4", "16"),
	SWITCH("q_lora", "base-bits", "4", "16"), SWITCH("load_in_8bit", "base-bits", "8", "16"),
	SWITCH("bf16", "@autocast", "bf16", ""), SWITCH("fp16", "@autocast", "fp16", ""),
	SWITCH("amp", "@autocast", "fp16", ""), SWITCH("use_amp", "@autocast", "fp16", ""),
	FW_KEY("mixed_precision", "@autocast", "bf16>bf16;fp16>fp16;no>no;none>no;false>no;true>fp16", NULL, NAMES),
	FW_KEY("precision", "@autocast", "bf16>bf16;bfloat16>bf16;bf16-mixed>bf16;fp16>fp16;16-mixed>fp16;16>fp16;fp32>no;32>no",
	       NULL, NAMES),
	FW_KEY("torch_dtype", "@dtype", DTYPE, NULL, NAMES), FW_KEY("dtype", "@dtype", DTYPE, NULL, NAMES),
	FW_KEY("model_dtype", "@dtype", DTYPE, NULL, NAMES),
	FW_KEY("attn_implementation", "attn", "flash_attention_2>flash;flash_attention_3>flash;flash_attn>flash;sdpa>sdpa;eager>eager",
	       NULL, NAMES),
	SWITCH("use_flash_attn", "attn", "flash", "sdpa"), SWITCH("use_flash_attention", "attn", "flash", "sdpa"),
	SWITCH("use_flash_attention_2", "attn", "flash", "sdpa"), SWITCH("flash_attn", "attn", "flash", "sdpa"),
	SWITCH("flash_attention", "attn", "flash", "sdpa"),
	FW_KEY("optim", "optimizer", HF_OPTIMIZERS "adamw>adamw;adam>adamw;lion>lion", NULL, NAMES),
	FW_KEY("optimizer", "optimizer", HF_OPTIMIZERS "adamw>adamw;adam>adamw;lion>lion", NULL, NAMES),
	SWITCH("use_8bit_adam", "optimizer", "adamw-8bit", "adamw"),
	SWITCH("torch_compile", "compile", "true", "false"), SWITCH("compile", "compile", "true", "false"),
	COUNT("zero_stage", "zero"),
	{"deepspeed", .hook = true, .source = NAMES}, {"deepspeed_config", .hook = true, .source = NAMES},
	{"ds_config", .hook = true, .source = NAMES}, {"deepspeed_config_file", .hook = true, .source = NAMES},
	{"fsdp", .hook = true, .source = NAMES}, {"use_fsdp", .hook = true, .source = NAMES},
	{.key = NULL},
};

static const char idle[] =
	"data data_* dataset* train_data* train_file eval_file validation_* val_* output output_* save* log* logging_* wandb* "
	"report_to run_name exp_name project* name seed lr learning_rate lr_* min_lr max_lr weight_decay wd warmup* "
	"num_warmup_steps epochs num_epochs num_train_epochs max_epochs max_steps num_steps steps train_steps max_train_steps "
	"adam_* beta1 beta2 betas eps clip_grad max_grad_norm grad_clip gradient_clipping lora_alpha lora_bias resume* "
	"checkpoint_dir ckpt_dir eval_steps eval_interval evaluation_strategy eval_strategy eval_freq num_workers "
	"dataloader_* preprocessing_* tokenizer* cache_dir trust_remote_code use_fast local_rank local-rank master_* "
	"do_train do_eval overwrite_* push_to_hub hub_* token use_auth_token ddp_* nproc* "
	"(launcher) (program) (words) (files)";

static const char *set_one(const struct fw_part *p, const char *const *keys)
{
	for (; *keys; keys++)
		if (fw_key(p, *keys))
			return *keys;
	return NULL;
}

/* "--batch_size 8" is what a loader on each card draws in most scripts; some divide it by the cards. */
static void finish_batch(struct fw_part *p)
{
	static const char *const names[] = {"train_batch_size", "batch_size", "bsz", "bs", NULL};
	const char *key = set_one(p, names);
	int64_t n = key ? fw_whole_or(p, key, 0) : 0;

	if (n <= 0)
		return;
	if (*fw_fact(p, "micro-batch")) {
		fw_set_whole(p, "global-batch", n, key, "beside a batch per card");
		return;
	}
	fw_set_whole(p, "micro-batch", n, key, "sequences that one card takes at once");
	fw_unmodelled(p, key, "taken as sequences on one card at once: a script that divides it by cards or by steps of "
			      "accumulation takes less");
}

static void finish_method(struct fw_part *p)
{
	static const char *const switches[] = {"use_lora", "use_peft", "lora", NULL};
	static const char *const ranks[] = {"lora_r", "lora_rank", "lora_dim", "load_in_4bit", "use_4bit", "qlora", "use_qlora",
					    "q_lora", "load_in_8bit", NULL};
	const char *key = set_one(p, switches);
	const bool bits = fw_fact_is(p, "base-bits", "4") || fw_fact_is(p, "base-bits", "8");

	if (key && fw_off(p, key)) {
		fw_unset(p, "lora-r");
		fw_set(p, "method", "full", key, NAMES);
	} else if (atoi(fw_fact(p, "lora-r")) > 0 || (key && fw_on(p, key)) || bits) {
		fw_set(p, "method", "lora", key ? key : set_one(p, ranks), NAMES);
		fw_default(p, "lora-r", "8", "peft LoraConfig's own; " SILENT);
	}
	fw_default(p, "method", "full", SILENT);
}

static void finish_engine(struct fw_part *p)
{
	static const char *const names[] = {"deepspeed_config", "ds_config", "deepspeed_config_file", "deepspeed", NULL};
	static const char *const shards[] = {"fsdp", "use_fsdp", NULL};
	const char *key = set_one(p, names), *fsdp = set_one(p, shards);

	/* "--deepspeed" alone is the switch of deepspeed.add_config_arguments() */
	if (key && !fw_on(p, key) && !fw_off(p, key))
		fw_take_deepspeed(p, key);
	else if ((key && fw_on(p, key)) || atoi(fw_fact(p, "zero")) > 0)
		fw_set(p, "engine", "deepspeed", key ? key : "zero_stage", NAMES);
	if (fsdp && !fw_off(p, fsdp)) {
		fw_set(p, "engine", "fsdp1", fsdp, NAMES);
		fw_open(p, "zero", "how FSDP shards stands in the script: all of it is taken");
	}
}

static void finish(struct fw_part *p)
{
	finish_batch(p);
	finish_method(p);
	finish_engine(p);
	fw_default(p, "objective", "sft", SILENT);
	hf_objective_by_name(p);
	fw_default(p, "@dtype", "fp32", SILENT ": PyTorch's own");
	/* DeepSpeed's section of a format stands in the script, which asks for the one that its option names */
	if (fw_fact_is(p, "engine", "deepspeed") && !*fw_fact(p, "@ds16") && fw_fact_from_file(p, "@dtype"))
		fw_set(p, "@ds16", fw_fact_is(p, "@dtype", "fp32") ? "no" : fw_fact(p, "@dtype"), NULL, NAMES);
	fw_default(p, "optimizer", "adamw", SILENT);
	fw_default(p, "grad-ckpt", "none", SILENT);
	fw_default(p, "attn", "sdpa", SILENT ": transformers' own");
	fw_default(p, "loss", "plain", SILENT);
	fw_default(p, "packing", "false", SILENT);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_own_script = {
	.name = "own-script",
	.summary = "the command line of a script of one's own, as far as its options have the usual names",
	.version = "names of 2026",
	.role = FW_TRAINER,
	.marks = "(program)+lr (program)+learning_rate (program)+epochs (program)+num_epochs (program)+num_train_epochs "
		 "(program)+max_steps (program)+max_train_steps (program)+gradient_accumulation_steps (program)+grad_accum "
		 "(program)+gradient_checkpointing (program)+train_batch_size (program)+micro_batch_size (program)+lora_r "
		 "(program)+lora_rank (program)+zero_stage (program)+deepspeed_config (program)+deepspeed",
	.rows = lists,
	.idle = idles,
	.last_resort = true,
	.finish = finish,
};
