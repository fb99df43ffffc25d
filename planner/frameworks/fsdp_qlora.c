/* fsdp_qlora's train.py: a function's arguments on the command line; FSDP over a base of 4 bits, adapters, or all
 * weights. */
#include <string.h>

#include "framework.h"

#define SCRIPT "AnswerDotAI/fsdp_qlora train.py"
#define MAIN SCRIPT ":1186 main()"

static const struct fw_row rows[] = {
	FW_KEY("model_name", "model", NULL, "meta-llama/Llama-2-7b-hf", MAIN),
	FW_KEY("train_type", "method",
	       "full>full base-bits=16;lora>lora base-bits=16;custom_lora>lora base-bits=16;qlora>lora base-bits=4-nf4;"
	       "custom_qlora>lora base-bits=4-nf4;bnb_dora>lora base-bits=4-nf4 use-dora=true;"
	       "hqq_lora>lora base-bits=4-hqq;hqq_dora>lora base-bits=4-hqq use-dora=true;"
	       "bnb_llama_pro>freeze base-bits=4-nf4;hqq_llama_pro>freeze base-bits=4-hqq",
	       "lora base-bits=4-nf4", MAIN),
	FW_KEY("batch_size", "micro-batch", NULL, "1", MAIN),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, "1", MAIN),
	FW_KEY("context_length", "seq-len", NULL, "512", MAIN),
	FW_KEY("world_size", "gpus", "-1>;*>=", NULL, MAIN),
	FW_KEY("precision", "precision",
	       "bf16>bf16;fp32>fp32;fp16_autocast>amp-fp16;bf16_autocast>amp-bf16;bf16_buffers_autocast>bf16-amp torch-autocast=true", "bf16",
	       SCRIPT ":538"),
	FW_KEY("sharding_strategy", "zero",
	       "full_shard>3;shard_grad_op>2;ddp>0;hybrid_full_shard>3 hybrid-shard=true;"
	       "hybrid_shard_grad_op>2 hybrid-shard=true", "3", MAIN),
	FW_KEY("use_gradient_checkpointing", "grad-ckpt", "true>full;false>none", "full", MAIN),
	FW_KEY("reentrant_checkpointing", "use-reentrant", "true>true;false>false", "false", MAIN),
	FW_KEY("use_cpu_offload", "offload-params", "true>cpu offload-optimizer=cpu;false>none offload-optimizer=none",
	       "cpu offload-optimizer=cpu", SCRIPT ":759"),
	FW_KEY("use_activation_cpu_offload", "offload-activations", "true>true;false>false", NULL, MAIN),
	FW_KEY("low_memory", "low-cpu-mem", "true>true;false>false", "true", MAIN),
	{"no_sync", .note = "gradients are whole on every card until the update: more than is priced"},
	FW_KEY("lora_rank", "lora-r", NULL, NULL, MAIN),
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, MAIN),
	FW_KEY("lora_target_modules", "lora-targets",
	       "all>q_proj+k_proj+v_proj+gate_proj+up_proj+down_proj;default>q_proj+v_proj;*>=", NULL, SCRIPT ":1158"),
	FW_KEY("optimizer", "optimizer", "adamw>adamw;adam>adamw;fused_adamw>adamw-fused;fused_adam>adamw-fused;sgd>sgd",
	       "adamw", SCRIPT ":453"),
	{"llama_pro_path", .note = "blocks that were added train, the others do not"},
	{"n_bits", .hook = true, .source = MAIN},
	{.key = NULL},
};

static const char idle[] =
	"num_epochs dataset dataset_samples save_model output_dir lora_alpha verbose lr apply_gradient_clipping grad_norm wd "
	"profile_memory lr_scheduler loading_workers log_to master_addr master_port seed project_name name group entity "
	"profile profiling_output with_stack with_shapes export_trace export_memory_timeline wait_steps warmup_steps "
	"active_steps repeat profiling_frequency max_steps (launcher) (program) (words) (files)";

static void finish(struct fw_part *p)
{
	const char *bits = fw_text(p, "n_bits");

	if (fw_fact_is(p, "method", "lora")) {
		fw_default(p, "lora-r", "64", MAIN);
		fw_default(p, "lora-dropout", "0.1", MAIN);
		fw_default(p, "lora-targets", "q_proj+k_proj+v_proj+gate_proj+up_proj+down_proj", SCRIPT ":1158");
	}
	if (*bits && strcmp(bits, "4") && fw_fact_is(p, "base-bits", "4-hqq"))
		fw_unmodelled(p, "n_bits", "HQQ of other widths is priced as of 4 bits");
	fw_set(p, "objective", "sft", NULL, SCRIPT);
	fw_set(p, "engine", "fsdp1", NULL, SCRIPT ":751");
	if (!fw_key(p, "use_cpu_offload"))
		fw_open(p, "offload-params", "on by default today, off in the script of March 2024, which holds more on the "
			"card");
	fw_default(p, "attn", "sdpa", SCRIPT ":566");
	fw_default(p, "loss", "plain", SCRIPT ":877 output.loss");
	fw_default(p, "packing", "false", SCRIPT);
	fw_default(p, "eval-batch", "0", SCRIPT ": it does not evaluate");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_fsdp_qlora = {
	.name = "fsdp_qlora",
	.summary = "the command line of fsdp_qlora's train.py",
	.version = "AnswerDotAI/fsdp_qlora 05ed9f2",
	.role = FW_TRAINER,
	.marks = "context_length+train_type context_length+reentrant_checkpointing context_length+use_cpu_offload",
	.never = "base_model model_name_or_path per_device_train_batch_size",
	.commands = "train",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
