/* NeMo-RL's YAML: policy, cluster and the algorithm's own map.  Recipes name the files they add to under
 * "defaults".  Priced is the policy's update. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define WORKER "nemo_rl/models/policy/workers/dtensor_policy_worker.py"
#define PARALLEL "nemo_rl/models/dtensor/parallelize.py"
#define POLICY "policy."
#define DTENSOR POLICY "dtensor_cfg."
#define MCORE POLICY "megatron_cfg."

static const struct fw_row rows[] = {
	{"defaults", .hook = true, .source = "nemo_rl/utils/config.py"},
	FW_KEY(POLICY "model_name", "model", NULL, NULL, "nemo_rl/models/policy/__init__.py"),
	FW_KEY(POLICY "train_micro_batch_size", "micro-batch", NULL, NULL, "nemo_rl/models/policy/__init__.py"),
	FW_KEY(POLICY "train_global_batch_size", "global-batch", NULL, NULL, "nemo_rl/models/policy/__init__.py"),
	FW_KEY(POLICY "max_total_sequence_length", "seq-len", NULL, NULL, "nemo_rl/models/policy/__init__.py"),
	FW_KEY(POLICY "generation.max_new_tokens", "completion-len", NULL, NULL, "nemo_rl/models/generation"),
	{POLICY "precision", .hook = true, .source = WORKER},
	{DTENSOR "enabled", .hook = true, .source = "nemo_rl/models/policy/lm_policy.py"},
	{MCORE "enabled", .hook = true, .source = "nemo_rl/models/policy/lm_policy.py"},
	{DTENSOR "tensor_parallel_size", .hook = true}, {DTENSOR "context_parallel_size", .hook = true},
	{DTENSOR "sequence_parallel", .hook = true}, {DTENSOR "activation_checkpointing", .hook = true},
	{DTENSOR "cpu_offload", .hook = true, .source = WORKER},
	{DTENSOR "dp_replicate_size", .hook = true},
	{DTENSOR "lora_cfg.enabled", .hook = true, .source = WORKER}, {DTENSOR "lora_cfg.dim", .hook = true},
	{DTENSOR "lora_cfg.dropout", .hook = true},
	FW_KEY(DTENSOR "lora_cfg.target_modules", "lora-targets", NULL, NULL, WORKER),
	{DTENSOR "lora_cfg.match_all_linear", .hook = true},
	{MCORE "tensor_model_parallel_size", .hook = true}, {MCORE "pipeline_model_parallel_size", .hook = true},
	{MCORE "context_parallel_size", .hook = true}, {MCORE "expert_model_parallel_size", .hook = true},
	{MCORE "sequence_parallel", .hook = true}, {MCORE "activation_checkpointing", .hook = true},
	{MCORE "optimizer.use_distributed_optimizer", .hook = true},
	{MCORE "optimizer.optimizer_cpu_offload", .hook = true},
	{POLICY "activation_checkpointing_enabled", .hook = true, .source = "NeMo-RL before 0.3: FSDP1"},
	{POLICY "fsdp_offload_enabled", .hook = true, .source = "NeMo-RL before 0.3: FSDP1"},
	{POLICY "optimizer.name", .hook = true, .source = WORKER},
	{POLICY "optimizer.kwargs.fused", .hook = true}, {POLICY "sequence_packing.enabled", .hook = true},
	{POLICY "dynamic_batching.enabled", .hook = true},
	{POLICY "generation.colocated.enabled", .hook = true},
	FW_KEY("cluster.num_nodes", "nodes", NULL, NULL, "nemo_rl/distributed/virtual_cluster.py"),
	{"cluster.gpus_per_node", .hook = true, .source = "nemo_rl/distributed/virtual_cluster.py"},
	FW_KEY("sft.val_micro_batch_size", "eval-batch", NULL, NULL, "nemo_rl/algorithms/sft.py"),
	FW_KEY("dpo.val_micro_batch_size", "eval-batch", NULL, NULL, "nemo_rl/algorithms/dpo.py"),
	{.key = NULL},
};
static const char idle[] =
	"sft* dpo* grpo* rm* distillation* loss_fn* checkpointing* policy* data* env* logger* cluster* teacher* (words)";

/* The knob has what the key says, where the key is there. */
static void take_whole(struct fw_part *p, const char *knob, const char *key)
{
	if (fw_whole_or(p, key, 0))
		fw_set_whole(p, knob, fw_whole_or(p, key, 0), key, NULL);
}

static void take_switch(struct fw_part *p, const char *knob, const char *key, const char *on, const char *off)
{
	if (fw_on(p, key) || fw_off(p, key))
		fw_set(p, knob, fw_on(p, key) ? on : off, key, NULL);
}

static void finish_objective(struct fw_part *p)
{
	static const char *const names[][2] = {{"sft", "sft"}, {"dpo", "dpo"}, {"grpo", "grpo"}, {"rm", "reward"},
					       {"distillation", "distill"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (fw_key(p, names[i][0]) && fw_key(p, names[i][0])->kind == DOC_MAP)
			fw_set(p, "objective", names[i][1], names[i][0], "the algorithm's own map");
	if (fw_fact_is(p, "objective", "grpo"))
		fw_default(p, "rollouts", "engine", "nemo_rl/models/generation: vLLM");
	else
		fw_unset(p, "completion-len");
}

/* Weights are loaded in fp32 and cast for computing. */
static void finish_precision(struct fw_part *p, bool megatron)
{
	const char *word = fw_text(p, POLICY "precision");
	const bool bf16 = !strcmp(word, "bfloat16"), fp16 = !strcmp(word, "float16");

	if (*word)
		fw_set(p, "precision", megatron ? (bf16 ? "bf16" : fp16 ? "fp16" : "fp32") :
					  bf16 ? "amp-bf16" : fp16 ? "amp-fp16" : "fp32",
		       POLICY "precision", megatron ? "Megatron: fp32 masters apart" : WORKER ": fp32 masters");
}

static void finish_lora(struct fw_part *p)
{
	if (!fw_on(p, DTENSOR "lora_cfg.enabled")) {
		fw_unset(p, "lora-targets");
		return;
	}
	fw_set(p, "method", "lora", DTENSOR "lora_cfg.enabled", NULL);
	take_whole(p, "lora-r", DTENSOR "lora_cfg.dim");
	if (*fw_text(p, DTENSOR "lora_cfg.dropout"))
		fw_set(p, "lora-dropout", fw_text(p, DTENSOR "lora_cfg.dropout"), DTENSOR "lora_cfg.dropout", NULL);
	if (!fw_off(p, DTENSOR "lora_cfg.match_all_linear") &&
	    (fw_on(p, DTENSOR "lora_cfg.match_all_linear") || !*fw_fact(p, "lora-targets")))
		fw_set(p, "lora-targets", "all-linear", DTENSOR "lora_cfg.match_all_linear", NULL);
}

static void finish_dtensor(struct fw_part *p)
{
	const bool one = !fw_key(p, POLICY "dtensor_cfg") || fw_off(p, DTENSOR "enabled");

	take_whole(p, "tp", DTENSOR "tensor_parallel_size");
	take_whole(p, "cp", DTENSOR "context_parallel_size");
	take_switch(p, "sp", DTENSOR "sequence_parallel", "true", "false");
	take_switch(p, "grad-ckpt", one ? POLICY "activation_checkpointing_enabled" : DTENSOR "activation_checkpointing",
		    "full", "none");
	take_switch(p, "offload-params", one ? POLICY "fsdp_offload_enabled" : DTENSOR "cpu_offload", "cpu", "none");
	take_switch(p, "offload-optimizer", one ? POLICY "fsdp_offload_enabled" : DTENSOR "cpu_offload", "cpu", "none");
	fw_take_replicas(p, 0, fw_whole_or(p, DTENSOR "dp_replicate_size", 1), DTENSOR "dp_replicate_size");
	fw_set(p, "engine", one ? "fsdp1" : "fsdp2", one ? NULL : DTENSOR "enabled", "nemo_rl/models/policy/lm_policy.py");
	fw_default(p, "zero", "3", PARALLEL);
	fw_default(p, "reduce-dtype", "fp32", PARALLEL ":509");
	finish_lora(p);
}

static void finish_megatron(struct fw_part *p)
{
	take_whole(p, "tp", MCORE "tensor_model_parallel_size");
	take_whole(p, "pp", MCORE "pipeline_model_parallel_size");
	take_whole(p, "cp", MCORE "context_parallel_size");
	take_whole(p, "ep", MCORE "expert_model_parallel_size");
	take_switch(p, "sp", MCORE "sequence_parallel", "true", "false");
	take_switch(p, "grad-ckpt", MCORE "activation_checkpointing", "full", "none");
	take_switch(p, "zero", MCORE "optimizer.use_distributed_optimizer", "1", "0");
	take_switch(p, "offload-optimizer", MCORE "optimizer.optimizer_cpu_offload", "cpu", "none");
	fw_set(p, "engine", "megatron", MCORE "enabled", "nemo_rl/models/policy/lm_policy.py");
	fw_default(p, "optimizer", "adamw-fused", "Megatron-core: fused Adam");
}

static void finish_optimizer(struct fw_part *p)
{
	const char *name = fw_text(p, POLICY "optimizer.name");

	if (strstr(name, "AdamW") || strstr(name, "Adam"))
		fw_set(p, "optimizer", fw_on(p, POLICY "optimizer.kwargs.fused") ? "adamw-fused" : "adamw",
		       POLICY "optimizer.name", NULL);
	else if (*name)
		fw_unmodelled(p, POLICY "optimizer.name", "no knob for this optimizer");
}

static void finish(struct fw_part *p)
{
	const struct doc_node *base = fw_key(p, "defaults");
	const bool megatron = fw_on(p, MCORE "enabled"), packed = fw_on(p, POLICY "sequence_packing.enabled");
	bool whole = true;

	if (base && base->kind == DOC_LIST)
		base = base->child;
	if (base && base->kind == DOC_SCALAR) {
		whole = fw_follow(p, "defaults", base->text);
		if (!whole)
			fw_unmodelled(p, "defaults", "the file that this one adds to is not found: what it says is missing");
	}
	finish_objective(p);
	finish_precision(p, megatron);
	if (megatron)
		finish_megatron(p);
	else if (!base || fw_key(p, POLICY "dtensor_cfg"))
		finish_dtensor(p);
	finish_optimizer(p);
	if (fw_whole_or(p, "cluster.gpus_per_node", 0))
		fw_set_whole(p, "gpus", fw_whole_or(p, "cluster.gpus_per_node", 0) * fw_whole_or(p, "cluster.num_nodes", 1),
			     "cluster.gpus_per_node", "cards of a node x nodes");
	if (fw_on(p, POLICY "generation.colocated.enabled"))
		fw_unmodelled(p, POLICY "generation.colocated.enabled",
			      "the rollout engine shares the cards between updates: not in the price of the update");
	if (fw_on(p, POLICY "dynamic_batching.enabled")) {
		fw_unset(p, "micro-batch");
		fw_withhold(p, "micro-batch");
		fw_unmodelled(p, POLICY "dynamic_batching.enabled", "micro-batches of as many rows as fit: give --micro-batch");
	}
	if (packed || fw_off(p, POLICY "sequence_packing.enabled"))
		fw_set(p, "packing", packed ? "true" : "false", POLICY "sequence_packing.enabled", NULL);
	/* nemo_rl/models/automodel/train.py:830-836; a file that adds to another may leave the length to that one */
	if (!base || *fw_fact(p, "seq-len"))
		fw_take_whole_logits(p, "nemo_rl/models/automodel/train.py:830: logits of whole sequences");
	else
		fw_unset(p, "completion-len");
	if (base)
		return;         /* what is absent may stand in the file that this one adds to */
	fw_default(p, "method", "full", WORKER);
	fw_default(p, "packing", "false", "nemo_rl/models/policy/__init__.py");
	fw_default(p, "attn", packed || megatron ? "flash" : "sdpa", WORKER);
	fw_default(p, "grad-ckpt", "none", PARALLEL);
	fw_default(p, "loss", "plain", "nemo_rl/algorithms/loss_functions.py: logits in fp32");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_nemo_rl = {
	.name = "nemo-rl",
	.summary = "NeMo-RL's YAML: the policy's update",
	.version = "NeMo-RL main of August 2026",
	.role = FW_TRAINER,
	.marks = "policy.train_micro_batch_size policy.train_global_batch_size policy.dtensor_cfg policy.megatron_cfg "
		 "defaults+policy defaults+cluster policy.model_name+cluster",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
