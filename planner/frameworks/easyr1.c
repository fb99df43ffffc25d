/* EasyR1: verl's trainer under keys of its own, a YAML that a command names and adds to. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define CONFIG "hiyouga/EasyR1 examples/config.yaml"
#define WORKERS "hiyouga/EasyR1 verl/workers/fsdp_workers.py"
#define ACTOR "worker.actor."
#define MODEL ACTOR "model."

static const struct fw_row rows[] = {
	FW_KEY(MODEL "model_path", "model", NULL, NULL, CONFIG),
	FW_KEY(ACTOR "micro_batch_size_per_device_for_update", "micro-batch", NULL, NULL, CONFIG),
	{ACTOR "global_batch_size", .hook = true, .source = CONFIG},
	{ACTOR "dynamic_batching", .hook = true, .source = CONFIG},
	{"worker.rollout.n", .hook = true, .source = CONFIG},
	{"data.max_prompt_length", .hook = true, .source = CONFIG}, {"data.max_response_length", .hook = true, .source = CONFIG},
	{"algorithm.adv_estimator", "objective", "grpo*>grpo;rloo>rloo;remax>remax;reinforce*>reinforce;gae>ppo;*>grpo",
	 .source = CONFIG},
	FW_KEY(MODEL "enable_gradient_checkpointing", "grad-ckpt", "true>full;false>none", NULL, CONFIG),
	FW_KEY(MODEL "freeze_vision_tower", "freeze-vision-tower", "true>true;false>false", NULL, CONFIG),
	FW_KEY(MODEL "lora.rank", "lora-r", NULL, NULL, CONFIG),
	FW_KEY(MODEL "lora.target_modules", "lora-targets", NULL, NULL, CONFIG),
	FW_KEY(MODEL "lora.exclude_modules", "exclude-modules", NULL, NULL, CONFIG),
	FW_KEY(ACTOR "fsdp.torch_dtype", "@dtype", "fp32>fp32;float32>fp32;bf16>bf16;bfloat16>bf16;fp16>fp16;*>", NULL, WORKERS),
	FW_KEY(ACTOR "fsdp.enable_full_shard", "zero", "true>3;false>2", NULL, WORKERS),
	FW_KEY(ACTOR "fsdp.enable_cpu_offload", "offload-params", "true>cpu offload-optimizer=cpu;false>none", NULL, WORKERS),
	FW_KEY(ACTOR "ulysses_size", "cp", NULL, NULL, CONFIG),
	FW_KEY(ACTOR "optim.strategy", "optimizer", "adamw>adamw;*>", NULL, WORKERS),
	{ACTOR "offload.offload_params", .source = WORKERS}, {ACTOR "offload.offload_optimizer", .source = WORKERS},
	{"worker.rollout.gpu_memory_utilization",
	 .note = "the rollout engine holds that share of the same cards between updates: not in the price of the update"},
	FW_KEY("trainer.nnodes", "nodes", NULL, "1", CONFIG),
	{"trainer.n_gpus_per_node", .hook = true, .source = CONFIG},
	{.key = NULL},
};
static const char idle[] = "config data* algorithm* worker* trainer* (launcher) (program) (words) (files)";

static void finish(struct fw_part *p)
{
	const int64_t nodes = fw_whole_or(p, "trainer.nnodes", 1);
	const bool lora = fw_whole_or(p, MODEL "lora.rank", 0) > 0;

	fw_set_whole(p, "gpus", nodes * fw_whole_or(p, "trainer.n_gpus_per_node", 8),
		     fw_key(p, "trainer.n_gpus_per_node") ? "trainer.n_gpus_per_node" : NULL, "cards of a node x nodes");
	fw_set_whole(p, "global-batch", fw_whole_or(p, ACTOR "global_batch_size", 256) * fw_whole_or(p, "worker.rollout.n", 1),
		     fw_key(p, ACTOR "global_batch_size") ? ACTOR "global_batch_size" : NULL, "prompts x samples of a prompt");
	fw_set_whole(p, "seq-len", fw_whole_or(p, "data.max_prompt_length", 512) + fw_whole_or(p, "data.max_response_length", 512),
		     fw_key(p, "data.max_response_length") ? "data.max_response_length" : NULL, "prompt and response");
	/* as many rows as fit into micro-batch x length tokens: never more than that */
	if (fw_on(p, ACTOR "dynamic_batching"))
		fw_note(p, ACTOR "dynamic_batching", "rows are joined up to the tokens of a full micro-batch");
	fw_default(p, "objective", "grpo", CONFIG);
	fw_default(p, "method", lora ? "lora" : "full", CONFIG);
	if (lora)
		fw_default(p, "lora-dropout", "0", "peft LoraConfig");
	fw_default(p, "micro-batch", "4", "hiyouga/EasyR1 verl/workers/actor/config.py");
	fw_default(p, "engine", "fsdp1", WORKERS);
	fw_default(p, "zero", "3", WORKERS);
	fw_default(p, "@dtype", "fp32", WORKERS ":199");
	fw_set(p, "@autocast", "bf16", NULL, WORKERS " mp_param_dtype");
	fw_default(p, "reduce-dtype", "fp32", WORKERS " mp_reduce_dtype");
	fw_default(p, "optimizer", "adamw", WORKERS);
	fw_default(p, "grad-ckpt", "full", CONFIG);
	fw_default(p, "attn", "flash", WORKERS);
	fw_default(p, "loss", "plain", WORKERS);
	fw_take_whole_logits(p, "verl/workers/actor/dp_actor.py:127-130 of EasyR1 b44b311: logits of all tokens");
	fw_default(p, "packing", "false", "rows are unpadded, not joined to fixed lengths");
	fw_default(p, "rollouts", "engine", "vLLM on the same cards");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_easyr1 = {
	.name = "easyr1",
	.summary = "EasyR1's YAML and its overrides: the actor's update",
	.version = "EasyR1 main of July 2026",
	.role = FW_TRAINER,
	.marks = "worker.actor.global_batch_size worker.actor.model.model_path worker.actor.model worker.rollout.n "
		 "data.rollout_batch_size",
	.commands = "verl.trainer.main",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
