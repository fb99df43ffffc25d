/* The third step of DeepSpeed-Chat, its RLHF: the options of an actor and of a critic.  Its first two steps have options of
 * their own (hf_scripts.c). */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define MAIN "DeepSpeedExamples DeepSpeed-Chat step3_rlhf_finetuning/main.py"

static const struct fw_row rows[] = {
	FW_KEY("actor_model_name_or_path", "model", NULL, NULL, MAIN),
	FW_KEY("per_device_training_batch_size", "micro-batch", NULL, "16", MAIN),
	FW_KEY("per_device_train_batch_size", "micro-batch", NULL, NULL, MAIN),
	{"per_device_generation_batch_size", .note = "sequences that are generated at once: their cache is not in the price of the "
						     "update"},
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, "1", MAIN),
	{"max_prompt_seq_len", .hook = true, .source = MAIN}, {"max_answer_seq_len", .hook = true, .source = MAIN},
	FW_KEY("actor_zero_stage", "zero", NULL, "0", MAIN),
	FW_KEY("actor_gradient_checkpointing", "grad-ckpt", "true>full;false>none", "none", MAIN),
	FW_KEY("actor_lora_dim", "lora-r", NULL, NULL, MAIN),
	{"actor_lora_module_name", .hook = true, .source = MAIN},
	FW_KEY("dtype", "precision", "fp16>fp16;bf16>bf16", "fp16", MAIN),
	{"offload", .hook = true, .source = MAIN},
	{"only_optimize_lora", .hook = true, .source = MAIN},
	{"critic_model_name_or_path", .note = "a critic with states of its own on the same cards: more than is priced"},
	{"enable_hybrid_engine", .note = "the workspace of its kernels beside the actor's weights: more than is priced"},
	{"enable_ema", .note = "an average of the actor's weights beside them: more than is priced"},
	{"compute_fp32_loss", .note = "logits in fp32: more than is priced"},
	{"enable_mixed_precision_lora", .note = "ZeRO++: frozen weights are gathered in 8 bit: less than is priced"},
	{.key = NULL},
};

static const char idle[] =
	"data_path data_split data_output_path unsupervised_dataset_* unsup_coef num_padding_at_beginning generation_batches "
	"ppo_epochs actor_learning_rate critic_learning_rate actor_weight_decay critic_weight_decay num_train_epochs "
	"lr_scheduler_type num_warmup_steps output_dir seed local_rank inference_tp_size tp_gather_partition_size "
	"unpin_actor_parameters release_inference_cache offload_reference_model offload_reward_model critic_zero_stage "
	"critic_gradient_checkpointing actor_dropout critic_dropout critic_lora_* "
	"actor_lora_learning_rate enable_tensorboard tensorboard_path add_eot_token print_* "
	"align_overflow test_stop_step enable_test_mode deepspeed deepspeed_config "
	"(launcher) (program) (words) (files)";

/* Linear layers become adapted ones where the text is in their names, wherever they stand: "decoder.layers." by default, a
 * path that holds all of them; "q_proj" is a layer's own name. */
void fw_take_chat_lora(struct fw_part *p, const char *key)
{
	const char *part = fw_text(p, key);
	const size_t n = strlen(part);

	if (atoi(fw_fact(p, "lora-r")) <= 0)
		return;
	fw_default(p, "lora-targets", "all-linear", "DeepSpeed-Chat dschat/utils/module/lora.py convert_linear_layer_to_lora");
	if (n && part[n - 1] != '.')
		fw_open(p, "lora-targets", "adapters are on the linear layers that have this option's text in their names; on all of "
			"them is priced");
}

/* The hybrid engine gathers all layers of the actor before it generates, unless their parameters are unpinned or tensors are
 * divided (deepspeed/runtime/hybrid_engine.py generate; dschat/utils/ds_utils.py pin_parameters): of GRPO's rollouts under
 * ZeRO-3 as much is there, and an update of the same rows.  Its own kernels' workspace holds the keys and values. */
static void finish_generation(struct fw_part *p)
{
	if (!fw_on(p, "enable_hybrid_engine") || !fw_fact_is(p, "zero", "3") || fw_on(p, "unpin_actor_parameters") ||
	    fw_whole_or(p, "inference_tp_size", 1) > 1)
		return;
	fw_set(p, "@price.objective", "grpo", NULL, NULL);
	fw_set(p, "rollouts", "generate", "enable_hybrid_engine", "deepspeed/runtime/hybrid_engine.py generate: all layers at once");
	fw_take_whole_logits(p, "DeepSpeed-Chat ppo_trainer.py: logits of prompt and answer");
	fw_open(p, "objective", "priced as the actor's update of GRPO and its rollouts, for which all weights are gathered");
}

static void finish(struct fw_part *p)
{
	int64_t prompt = 256, answer = 256;

	doc_whole(fw_key(p, "max_prompt_seq_len"), &prompt);
	doc_whole(fw_key(p, "max_answer_seq_len"), &answer);
	if (prompt > 0 && answer > 0 && prompt < 100000000 && answer < 100000000)
		fw_set_whole(p, "seq-len", prompt + answer, fw_key(p, "max_answer_seq_len") ? "max_answer_seq_len" : NULL,
			     "prompt and answer");
	fw_default(p, "objective", "ppo", MAIN);
	if (atoi(fw_fact(p, "lora-r")) > 0) {
		fw_set(p, "method", "lora", "actor_lora_dim", MAIN);
		fw_take_chat_lora(p, "actor_lora_module_name");
		if (!fw_on(p, "only_optimize_lora"))
			fw_unmodelled(p, "actor_lora_dim", "embeddings and norms train beside the adapters: more than is priced");
	}
	fw_default(p, "method", "full", MAIN);
	fw_default(p, "engine", "deepspeed", MAIN);
	fw_set(p, "offload-optimizer", fw_on(p, "offload") ? "cpu" : "none", "offload", MAIN);
	if (fw_on(p, "offload") && fw_fact_is(p, "zero", "3"))
		fw_set(p, "offload-params", "cpu", "offload", "DeepSpeed-Chat dschat/utils/ds_utils.py get_train_ds_config");
	fw_keep_offload_of_stage(p, "offload");
	fw_default(p, "optimizer", "adamw-fused", "DeepSpeed-Chat rlhf_engine.py: FusedAdam");
	fw_default(p, "attn", "sdpa", "transformers modeling_utils.py");
	fw_default(p, "loss", "plain", "DeepSpeed-Chat ppo_trainer.py gather_log_probs");
	fw_default(p, "packing", "false", MAIN);
	fw_default(p, "base-bits", "16", MAIN);
	fw_default(p, "eval-batch", "0", MAIN " evaluates nothing");
	finish_generation(p);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_deepspeed_chat = {
	.name = "deepspeed-chat",
	.summary = "the command line of DeepSpeed-Chat's third step",
	.version = "DeepSpeedExamples of 2026",
	.role = FW_TRAINER,
	.marks = "actor_model_name_or_path+critic_model_name_or_path actor_zero_stage actor_lora_dim",
	.commands = "main*",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
