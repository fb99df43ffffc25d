/* LLaMA-Factory's newer form (src/llamafactory/v1): peft_config, dist_config, micro_batch_size. */
#include <string.h>

#include "framework.h"

#define TRAINING "llamafactory/v1/config/training_args.py"
#define MODEL "llamafactory/v1/config/model_args.py"
#define PEFT "llamafactory/v1/plugins/model_plugins/peft.py"

static const struct fw_row rows[] = {
	FW_KEY("model", "model", NULL, NULL, MODEL ":24"),
	FW_KEY("micro_batch_size", "micro-batch", NULL, "1", TRAINING ":33"),
	FW_KEY("global_batch_size", "global-batch", NULL, NULL, TRAINING),
	FW_KEY("cutoff_len", "seq-len", NULL, "2048", TRAINING),
	FW_KEY("bf16", "@autocast", "true>bf16;false>no", "bf16", TRAINING ":61"),
	FW_KEY("enable_activation_checkpointing", "grad-ckpt", "true>full;false>none", "full", TRAINING),
	FW_KEY("flash_attn", "attn",
	       "flash_attention_2>flash;flash_attention_3>flash;fa2>flash;sdpa>sdpa;eager>eager;auto>sdpa",
	       "sdpa", MODEL),
	FW_KEY("peft_config.name", "method", "lora>lora;freeze>freeze;full>full;oft>oft", NULL, PEFT),
	FW_KEY("peft_config.r", "lora-r", NULL, NULL, PEFT),
	FW_KEY("peft_config.target_modules", "lora-targets", NULL, NULL, PEFT),
	FW_KEY("peft_config.lora_dropout", "lora-dropout", NULL, NULL, PEFT),
	{"peft_config", .hook = true},
	{"dist_config", .hook = true},
	FW_KEY("dist_config.name", "engine",
	       "fsdp2>fsdp2 zero=3;fsdp>fsdp1 zero=3;deepspeed>deepspeed;ddp>hf", NULL, TRAINING),
	{"dist_config.config_file", .hook = true},
	FW_KEY("dist_config.offload_params", "offload-params", "true>cpu offload-optimizer=cpu;false>none",
	       NULL, TRAINING),
	FW_KEY("dist_config.ep_size", "ep", NULL, NULL, TRAINING),
	FW_KEY("cp_size", "cp", NULL, NULL, TRAINING),
	{"cp_mode", .hook = true},
	FW_KEY("batching_strategy", "packing",
	       "normal>false;padding_free>true;dynamic_batching>false;dynamic_padding_free>true", "false", TRAINING),
	FW_KEY("quant_config", NULL, NULL, NULL, NULL),
	{"quant_config.quantization_bit", .hook = true},
	FW_KEY("optim_config.name", "optimizer", "adamw>adamw;adamw_torch>adamw;muon>muon;*>=", NULL,
	       TRAINING),
	FW_KEY("quant_config.name", "@quantiser", "bnb>;auto>;*>=", NULL, MODEL),
	{"kt_config", .note = "KTransformers keeps experts in host memory: less than is priced"},
	{.key = NULL},
};

static const char idle[] =
	"batching_workers custom_chat_template dcp_path dist_config.* dist_timeout dp_size "
	"dpo_label_smoothing eval_* eval_dataset full_determinism init_config init_config.* "
	"kernel_config kernel_config.* ld_alpha learning_rate logging_steps lr_scheduler_config "
	"lr_scheduler_config.* max_grad_norm max_new_tokens max_steps model_class "
	"mp_replicate_size mp_shard_size num_train_epochs optim_config optim_config.* output_dir "
	"peft_config.* pref_beta pref_ftx pref_loss quant_config.* resume_from_checkpoint "
	"sample_backend save_* save_ckpt_as_hf save_epochs save_steps save_total_limit seed "
	"simpo_gamma temperature train_dataset trust_remote_code val_* weight_decay";

static void finish(struct fw_part *p)
{
	const bool full = !fw_key(p, "peft_config");
	int64_t bits;

	fw_default(p, "method", "full", "no peft_config");
	if (fw_fact_is(p, "method", "lora")) {
		fw_default(p, "lora-r", "8", PEFT);
		fw_default(p, "lora-targets", "all-linear", PEFT);
		fw_default(p, "lora-dropout", "0", PEFT);
	}
	if (*fw_fact(p, "@quantiser"))
		fw_unmodelled(p, "quant_config.name", "not bitsandbytes: base-bits are priced as its");
	if (doc_whole(fw_key(p, "quant_config.quantization_bit"), &bits))
		fw_set(p, "base-bits", bits == 8 ? "8" : "4-nf4", "quant_config.quantization_bit", MODEL);
	if (fw_key(p, "dist_config.config_file"))
		fw_take_deepspeed(p, "dist_config.config_file");
	fw_default(p, "engine", "hf", TRAINING " dist_config");
	if (fw_key(p, "cp_size") && !strcmp(fw_text(p, "cp_mode"), "ulysses"))
		fw_set(p, "cp-comm", "a2a", "cp_mode", TRAINING);
	/* what trains is cast to fp32 (peft.py cast_trainable_params_to_fp32), the rest stays as
	 * config.json has it */
	fw_set(p, "@dtype", full ? "fp32" : "bf16", NULL, PEFT " cast_trainable_params_to_fp32");
	fw_default(p, "optimizer", "adamw", "torch.optim.AdamW");
	fw_default(p, "loss", "plain", "llamafactory/v1/trainers");
	/* global batch = data-parallel ranks x micro-batch unless named */
	if (!fw_key(p, "global_batch_size"))
		fw_default(p, "grad-accum", "1", TRAINING " global_batch_size");
	fw_default(p, "objective", "sft", "the command decides: sft is taken");
	fw_default(p, "eval-batch", "0", "no evaluation while training");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_llamafactory_v1 = {
	.name = "llamafactory-v1",
	.summary = "LLaMA-Factory's newer form",
	.version = "LLaMA-Factory 0.9.4 v1",
	.role = FW_TRAINER,
	.marks = "model+dist_config model+peft_config model_class model+train_dataset+cutoff_len",
	.never = "zero_optimization base_model stage finetuning_type model_name_or_path",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
