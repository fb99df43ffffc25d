/* verl: Hydra's overrides of its PPO trainers (verl.trainer.main_ppo) and of its SFT trainer.
 *
 * Priced is the actor's update.  What lives on the same cards between updates (the rollout engine, the
 * critic, a reward model) is named where the command asks for it. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define CONFIG "verl/trainer/config/"
#define FSDP_ENGINE CONFIG "engine/fsdp.yaml"
#define MEGATRON_ENGINE CONFIG "engine/megatron.yaml"
#define ACTOR_YAML CONFIG "actor/actor.yaml"
#define MODEL_YAML CONFIG "model/hf_model.yaml"
#define SFT_YAML CONFIG "sft_trainer.yaml"
#define OLD_SFT "verl/trainer/fsdp_sft_trainer.py _normalize_config_bsz (2025-01)"
#define ACTOR "actor_rollout_ref.actor."
#define MODEL "actor_rollout_ref.model."
#define ROLLOUT "actor_rollout_ref.rollout."
#define MCORE ACTOR "megatron."
#define RECOMPUTE MCORE "override_transformer_config."
#define OPTIM ACTOR "optim.override_optimizer_config."
#define DTYPE "fp32>fp32;float32>fp32;bf16>bf16;bfloat16>bf16;fp16>fp16;float16>fp16"
#define ON_OFF "true>full;false>none"
/* verl/workers/fsdp_workers.py update_actor: load_fsdp_model_to_gpu before it, offload_fsdp_model_to_cpu behind */
#define BALANCED "verl/utils/seqlen_balancing.py rearrange_micro_batches: the most tokens of a card / the longest row"
#define BETWEEN "in host memory between the phases; the update has it on the card (offload-params, offload-optimizer: none)"

static const struct fw_row rows[] = {
	FW_KEY(MODEL "path", "model", NULL, NULL, MODEL_YAML),
	FW_KEY("model.partial_pretrain", "model", NULL, NULL, SFT_YAML),
	FW_KEY("model.path", "model", NULL, NULL, CONFIG "sft_trainer_engine.yaml"),
	FW_KEY("algorithm.adv_estimator", "objective",
	       "gae>ppo;grpo*>grpo;gpg>grpo;optimal_token*>grpo;otb>grpo;tir_optimal*>grpo;rloo*>rloo;remax>remax;"
	       "reinforce_plus_plus*>reinforce;opo>grpo;*>grpo", "ppo", CONFIG "ppo_trainer.yaml"),
	FW_KEY(ACTOR "ppo_micro_batch_size_per_gpu", "micro-batch", NULL, NULL, ACTOR_YAML),
	FW_KEY("data.micro_batch_size_per_gpu", "micro-batch", NULL, NULL, SFT_YAML),
	{ACTOR "ppo_mini_batch_size", .hook = true, .source = ACTOR_YAML},
	{ACTOR "ppo_micro_batch_size", .hook = true, .source = ACTOR_YAML},
	FW_KEY("data.micro_batch_size", "@all-micro-batch", NULL, NULL, OLD_SFT),
	{ACTOR "use_dynamic_bsz", .hook = true, .source = ACTOR_YAML},
	{"data.use_dynamic_bsz", .hook = true, .source = CONFIG "sft_trainer_engine.yaml"},
	{ACTOR "ppo_max_token_len_per_gpu", .hook = true, .source = ACTOR_YAML},
	{"data.max_token_len_per_gpu", .hook = true, .source = CONFIG "sft_trainer_engine.yaml"},
	{"data.train_batch_size", .hook = true, .source = SFT_YAML},
	{"data.max_prompt_length", .hook = true}, {"data.max_response_length", .hook = true},
	FW_KEY("data.max_length", "seq-len", NULL, NULL, SFT_YAML),
	{ROLLOUT "n", .hook = true, .source = CONFIG "rollout/rollout.yaml"},
	{ROLLOUT "gpu_memory_utilization",
	 .note = "the rollout engine holds that share of the same cards between updates: not in the price of the "
		 "update"},
	FW_KEY(MODEL "enable_gradient_checkpointing", "grad-ckpt", ON_OFF, NULL, MODEL_YAML),
	FW_KEY("model.enable_gradient_checkpointing", "grad-ckpt", ON_OFF, NULL, SFT_YAML),
	FW_KEY(MODEL "enable_activation_offload", "offload-activations", "true>true;false>false", NULL, MODEL_YAML),
	{MODEL "use_fused_kernels", .hook = true, .source = MODEL_YAML},
	{MODEL "use_liger", .note = "Liger's kernels: less than is priced"},
	{"model.use_liger", .note = "Liger's kernels: less than is priced"},
	FW_KEY(MODEL "lora_rank", "lora-r", NULL, NULL, MODEL_YAML),
	FW_KEY(MODEL "lora.rank", "lora-r", NULL, NULL, MODEL_YAML),
	FW_KEY("model.lora_rank", "lora-r", NULL, NULL, SFT_YAML),
	FW_KEY(MODEL "target_modules", "lora-targets", NULL, NULL, MODEL_YAML),
	FW_KEY("model.target_modules", "lora-targets", NULL, NULL, SFT_YAML),
	FW_KEY(MODEL "exclude_modules", "exclude-modules", NULL, NULL, MODEL_YAML),
	{ACTOR "entropy_coeff", .hook = true, .source = ACTOR_YAML},
	FW_KEY(ACTOR "strategy", "engine", "fsdp>fsdp1;fsdp2>fsdp2;megatron>megatron", NULL, ACTOR_YAML),
	FW_KEY(ACTOR "fsdp_config.strategy", "engine", "fsdp>fsdp1;fsdp2>fsdp2", NULL, FSDP_ENGINE),
	FW_KEY("model.strategy", "engine", "fsdp>fsdp1;fsdp2>fsdp2", NULL, SFT_YAML),
	FW_KEY(ACTOR "fsdp_config.model_dtype", "@dtype", DTYPE, NULL, FSDP_ENGINE),
	FW_KEY(ACTOR "fsdp_config.mixed_precision.reduce_dtype", "reduce-dtype",
	       "fp32>fp32;float32>fp32;bf16>own;bfloat16>own;fp16>own", NULL, FSDP_ENGINE),
	FW_KEY("model.fsdp_config.model_dtype", "@dtype", DTYPE, NULL, SFT_YAML),
	FW_KEY(ACTOR "fsdp_config.reshard_after_forward", "zero", "true>3;false>2", NULL, FSDP_ENGINE),
	FW_KEY(ACTOR "fsdp_config.offload_policy", "offload-params", "true>cpu offload-optimizer=cpu;false>none",
	       NULL, FSDP_ENGINE),
	{ACTOR "fsdp_config.param_offload", .note = BETWEEN}, {ACTOR "fsdp_config.grad_offload", .note = BETWEEN},
	{ACTOR "fsdp_config.optimizer_offload", .note = BETWEEN}, {MCORE "param_offload", .note = BETWEEN},
	{MCORE "grad_offload", .note = BETWEEN}, {MCORE "optimizer_offload", .note = BETWEEN},
	{ACTOR "fsdp_config.fsdp_size", .hook = true, .source = FSDP_ENGINE},
	{ACTOR "ulysses_sequence_parallel_size", .hook = true, .source = FSDP_ENGINE},
	{"ulysses_sequence_parallel_size", .hook = true, .source = SFT_YAML},
	FW_KEY(MCORE "tensor_model_parallel_size", "tp", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "pipeline_model_parallel_size", "pp", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "virtual_pipeline_model_parallel_size", "vpp", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "context_parallel_size", "cp", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "expert_model_parallel_size", "ep", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "sequence_parallel", "sp", "true>true;false>false", NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "use_distributed_optimizer", "zero", "true>1;false>0", NULL, MEGATRON_ENGINE),
	FW_KEY(RECOMPUTE "recompute_granularity", "grad-ckpt", "full>full;selective>selective;null>none", NULL,
	       MEGATRON_ENGINE),
	FW_KEY(RECOMPUTE "num_layers_in_first_pipeline_stage", "pp-first-layers", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(RECOMPUTE "num_layers_in_last_pipeline_stage", "pp-last-layers", NULL, NULL, MEGATRON_ENGINE),
	FW_KEY(RECOMPUTE "account_for_embedding_in_pipeline_split", "pp-embedding", "true>true;false>false", NULL, MEGATRON_ENGINE),
	FW_KEY(RECOMPUTE "account_for_loss_in_pipeline_split", "pp-loss", "true>true;false>false", NULL, MEGATRON_ENGINE),
	{RECOMPUTE "recompute_num_layers", .hook = true},
	{RECOMPUTE "recompute_method", .hook = true},
	FW_KEY(OPTIM "optimizer_cpu_offload", "offload-optimizer", "true>cpu;false>none", NULL, MEGATRON_ENGINE),
	FW_KEY(MCORE "expert_tensor_parallel_size", "etp", NULL, NULL, MEGATRON_ENGINE),
	{OPTIM "optimizer_offload_fraction", .hook = true, .source = MEGATRON_ENGINE},
	{OPTIM "use_precision_aware_optimizer", .note = "states of other widths than are priced"},
	FW_KEY("trainer.nnodes", "nodes", NULL, "1", CONFIG "ppo_trainer.yaml"),
	{"trainer.n_gpus_per_node", .hook = true, .source = CONFIG "ppo_trainer.yaml"},
	{ACTOR "freeze_vision_tower", .note = "a part is frozen: less than is priced"},
	{"reward_model.enable", .note = "a reward model on the same cards: more than is priced"},
	{"critic.model.path", .note = "a critic with states of its own on the same cards: more than is priced"},
	{ACTOR "use_kl_loss", .hook = true}, {"algorithm.use_kl_in_reward", .hook = true},
	{.key = NULL},
};
static const char idle[] =
	"algorithm* data* trainer* reward_model* critic* custom_reward_function* ray_init* ray_kwargs* "
	"global_profiler* transfer_queue* reward* rollout* async_training* optim* model* config-name config-path "
	"actor_rollout_ref.hybrid_engine actor_rollout_ref.nccl_timeout actor_rollout_ref.rollout* "
	/* what others than the actor do: neither theirs nor ours by the name alone */
	"actor_rollout_ref.rollout.tensor_model_parallel_size reward_model.rollout.tensor_model_parallel_size "
	"actor_rollout_ref.ref.megatron.tensor_model_parallel_size actor_rollout_ref.ref.megatron.pipeline_model_parallel_size "
	"actor_rollout_ref.ref.megatron.context_parallel_size actor_rollout_ref.ref.megatron.expert_model_parallel_size "
	"critic.ppo_micro_batch_size_per_gpu critic.ppo_micro_batch_size critic.model.enable_gradient_checkpointing "
	"data.val_batch_size "
	"actor_rollout_ref.ref* actor_rollout_ref.actor* actor_rollout_ref.model* hydra* config_path config_name "
	"engine* checkpoint* use_remove_padding nnodes_* total_* oc* model_engine (launcher) (program) (words) (files)";

/* Is the key there, with a value that the file does not give? */
static bool open_key(const struct fw_part *p, const char *key)
{
	int64_t n;

	return doc_below(fw_root(p), key) && !doc_whole(fw_key(p, key), &n);
}

static bool is_megatron(const struct fw_part *p)
{
	for (const struct doc_node *c = fw_root(p)->child; c; c = c->next)
		if (c->key && !strncmp(c->key, MCORE, strlen(MCORE)))
			return true;
	return doc_below(fw_root(p), ACTOR "megatron") || strstr(fw_text(p, "config-name"), "megatron") ||
	       strstr(fw_text(p, "model_engine"), "megatron") || fw_fact_is(p, "engine", "megatron");
}

static void finish_gpus(struct fw_part *p, bool sft)
{
	const int64_t nodes = fw_whole_or(p, "trainer.nnodes", 1);

	/* the SFT trainer takes the launcher's ranks */
	if (open_key(p, "trainer.n_gpus_per_node") || open_key(p, "trainer.nnodes")) {
		fw_withhold(p, "gpus");
		if (fw_whole_or(p, "trainer.n_gpus_per_node", 0))
			fw_set_whole(p, "gpus-per-node", fw_whole_or(p, "trainer.n_gpus_per_node", 8),
				     "trainer.n_gpus_per_node", "of as many machines as the cluster gives");
	}
	if (fw_is_withheld(p, "gpus"))
		return;
	if (fw_key(p, "trainer.n_gpus_per_node"))
		fw_set_whole(p, "gpus", nodes * fw_whole_or(p, "trainer.n_gpus_per_node", 8),
			     "trainer.n_gpus_per_node", "cards of a node x nodes");
	else if (!sft)
		fw_set_whole(p, "gpus", nodes * 8, NULL, CONFIG "ppo_trainer.yaml n_gpus_per_node");
}

/* The optimizer's step sees mini-batch x samples of a prompt (verl/workers: ppo_mini_batch_size times
 * rollout.n, divided by the ranks). */
static void finish_batch(struct fw_part *p)
{
	const char *mini_key = ACTOR "ppo_mini_batch_size", *n_key = ROLLOUT "n";
	const int64_t gpus = strtoll(fw_fact(p, "gpus"), NULL, 10);
	int64_t all;

	if (open_key(p, mini_key) || open_key(p, n_key))
		fw_withhold(p, "global-batch");
	else
		fw_set_whole(p, "global-batch", fw_whole_or(p, mini_key, 256) * fw_whole_or(p, n_key, 1),
			     fw_key(p, mini_key) ? mini_key : NULL, "mini-batch x samples of a prompt");
	/* An older key counts the rows of all ranks (verl/workers/fsdp_workers.py divides by them); until February 2025,
	 * when the key of today came, samples of a prompt were counted on top of it, as in agentica-project/deepscaler. */
	if (!*fw_fact(p, "micro-batch") && doc_whole(fw_key(p, ACTOR "ppo_micro_batch_size"), &all) && gpus > 0 &&
	    all > 0 && all < 1000000) {
		const int64_t n = fw_whole_or(p, n_key, 1);

		if (all * n >= gpus && all * n % gpus == 0)
			fw_set_whole(p, "micro-batch", all * n / gpus, ACTOR "ppo_micro_batch_size",
				     n > 1 ? "rows of all cards x samples of a prompt" : "rows of all cards");
		if (n > 1)
			fw_open(p, "micro-batch", "verl of January 2025 multiplies ppo_micro_batch_size by rollout.n, later "
				"ones do not: the larger batch is taken");
	}
	if (open_key(p, "data.max_prompt_length") || open_key(p, "data.max_response_length"))
		fw_withhold(p, "seq-len");
	else
		fw_set_whole(p, "seq-len", fw_whole_or(p, "data.max_prompt_length", 512) +
					   fw_whole_or(p, "data.max_response_length", 512),
			     fw_key(p, "data.max_response_length") ? "data.max_response_length" : NULL,
			     "prompt and response, " CONFIG "rollout/rollout.yaml");
	if (fw_on(p, ACTOR "use_dynamic_bsz"))
		fw_take_token_rows(p, ACTOR "ppo_max_token_len_per_gpu", ACTOR "use_dynamic_bsz", 16384, BALANCED);
}

static void finish_sft(struct fw_part *p)
{
	fw_set(p, "objective", "sft", NULL, "verl/trainer/fsdp_sft_trainer.py");
	if (!open_key(p, "data.train_batch_size"))
		fw_set_whole(p, "global-batch", fw_whole_or(p, "data.train_batch_size", 256),
			     fw_key(p, "data.train_batch_size") ? "data.train_batch_size" : NULL, SFT_YAML);
	fw_default(p, "seq-len", "1024", SFT_YAML);
	if (fw_on(p, "data.use_dynamic_bsz"))
		fw_take_token_rows(p, "data.max_token_len_per_gpu", "data.use_dynamic_bsz", 8192, BALANCED);
	else if (!*fw_fact(p, "@all-micro-batch"))
		fw_default(p, "micro-batch", "4", SFT_YAML);
	/* "strategy" came after the key that counts the rows of all cards had gone */
	fw_default(p, "engine", *fw_fact(p, "@all-micro-batch") || doc_below(fw_root(p), "data.micro_batch_size") ?
					"fsdp1" : "fsdp2", SFT_YAML);
}

static void finish_fsdp(struct fw_part *p)
{
	static const char *const keys[] = {ACTOR "ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size"};

	fw_default(p, "engine", "fsdp1", ACTOR_YAML);
	fw_default(p, "zero", "3", FSDP_ENGINE);
	fw_default(p, "@dtype", "fp32", FSDP_ENGINE " model_dtype");
	fw_set(p, "@keeps-dtype", "true", NULL, "verl/workers/fsdp_workers.py: shards stay in model_dtype");
	fw_set(p, "@autocast", "bf16", NULL, FSDP_ENGINE " dtype");
	fw_default(p, "reduce-dtype", "fp32", "verl/workers/fsdp_workers.py mixed_precision");
	fw_default(p, "optimizer", "adamw", CONFIG "optim/fsdp.yaml: torch.optim.AdamW");
	/* off when the older key was the only one (Jiayi-Pan/TinyZero, January 2025), on since */
	if (fw_key(p, ACTOR "ppo_micro_batch_size") && !*fw_fact(p, "grad-ckpt")) {
		fw_set(p, "grad-ckpt", "none", NULL, CONFIG "ppo_trainer.yaml of January 2025");
		fw_open(p, "grad-ckpt", "off by default in verl of January 2025, on in later ones: off is taken");
	}
	fw_default(p, "grad-ckpt", "full", MODEL_YAML);
	for (size_t i = 0; i < 2; i++)
		if (fw_whole_or(p, keys[i], 1) > 1) {
			fw_set_whole(p, "cp", fw_whole_or(p, keys[i], 1), keys[i], "Ulysses: sequences divided");
			fw_unmodelled(p, keys[i], "sequences divided over cards under FSDP: less than is priced");
		}
	fw_take_replicas(p, fw_whole_or(p, ACTOR "fsdp_config.fsdp_size", 0), 0, ACTOR "fsdp_config.fsdp_size");
}

static void finish_megatron(struct fw_part *p)
{
	fw_default(p, "engine", "megatron", ACTOR_YAML);
	fw_default(p, "zero", "1", MEGATRON_ENGINE " use_distributed_optimizer");
	fw_set(p, "precision", "bf16", NULL, MEGATRON_ENGINE " dtype");
	fw_default(p, "optimizer", "adamw-fused", "Megatron-core: fused Adam");
	/* model.enable_gradient_checkpointing is FSDP's: Megatron has its own words */
	if (!fw_key(p, RECOMPUTE "recompute_granularity"))
		fw_set(p, "grad-ckpt", "none", NULL, MEGATRON_ENGINE " recompute_granularity");
	fw_default(p, "sp", atoi(fw_fact(p, "tp")) > 1 ? "true" : "false", MEGATRON_ENGINE);
	fw_megatron_blocks(p, RECOMPUTE "recompute_method", RECOMPUTE "recompute_num_layers");
	fw_megatron_offload(p, OPTIM "optimizer_offload_fraction");
}

/* Log-probabilities are flash_attn's losses, in place of the logits since 25b0f22 of April 2025, when entropies with a gradient
 * went from the update that asks for none; transformers was 4.51 then.  Before that, and with them, whole logits are priced as
 * TRL has them, which is more. */
static void finish_loss(struct fw_part *p, bool sft, bool megatron)
{
	const char *fused = MODEL "use_fused_kernels";
	const bool entropy = strtod(fw_text(p, ACTOR "entropy_coeff"), NULL) > 0 || fw_on(p, ACTOR "calculate_entropy") ||
			     fw_older(p, "transformers", 4, 52) || fw_key(p, ACTOR "ppo_micro_batch_size");

	if (fw_on(p, fused))
		fw_set(p, "loss", "fused", fused, NULL);
	else if (!sft && !megatron && !entropy && fw_fact_is(p, "objective", "grpo"))
		fw_set(p, "loss", "flash", fw_key(p, fused) ? fused : NULL, "verl/utils/torch_functional.py logprobs_from_logits_flash_attn");
	else
		fw_set(p, "loss", "plain", fw_key(p, fused) ? fused : NULL, MODEL_YAML " use_fused_kernels");
}

/* FSDP's reference waits in host memory: only the actor's module is made without CPUOffload (verl/workers/fsdp_workers.py
 * _build_model_optimizer).  Megatron's stays. */
static void finish_reference(struct fw_part *p, bool megatron)
{
	static const char *const keys[] = {ACTOR "use_kl_loss", "algorithm.use_kl_in_reward"};

	for (size_t i = 0; megatron && i < 2; i++)
		if (fw_on(p, keys[i]))
			fw_unmodelled(p, keys[i], "a reference model on the same cards: more than is priced");
}

static void finish(struct fw_part *p)
{
	const bool sft = !doc_below(fw_root(p), MODEL "path") && !doc_below(fw_root(p), "algorithm.adv_estimator");
	const bool megatron = is_megatron(p), lora = atoi(fw_fact(p, "lora-r")) > 0;

	finish_gpus(p, sft);
	if (sft)
		finish_sft(p);
	else
		finish_batch(p);
	if (megatron)
		finish_megatron(p);
	else
		finish_fsdp(p);
	finish_reference(p, megatron);
	fw_default(p, "method", lora ? "lora" : "full", MODEL_YAML " lora_rank");
	if (lora) {
		fw_default(p, "lora-targets", "all-linear", MODEL_YAML);
		fw_default(p, "lora-dropout", "0", "peft LoraConfig");
	}
	if (fw_fact_is(p, "objective", "grpo"))
		fw_default(p, "rollouts", "engine", "verl/workers/rollout: vLLM or SGLang");
	fw_default(p, "attn", "flash", "verl/workers: attn_implementation flash_attention_2");
	finish_loss(p, sft, megatron);
	fw_take_whole_logits(p, "verl/workers/actor/dp_actor.py:258-269: logits of all tokens");
	fw_default(p, "packing", "false", "rows are unpadded, not joined to fixed lengths");
	/* verl/workers/actor/dp_actor.py: only then does the update compute it, with its gradient */
	if (strtod(fw_text(p, ACTOR "entropy_coeff"), NULL) > 0)
		fw_unmodelled(p, ACTOR "entropy_coeff", "the entropy of all logits is in the loss: more than is priced");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_verl = {
	.name = "verl",
	.summary = "verl's Hydra overrides and YAML: the actor's update, or its SFT trainer",
	.version = "verl b178a3c",
	.role = FW_TRAINER,
	.marks = "actor_rollout_ref.model.path actor_rollout_ref.actor algorithm.adv_estimator "
		 "model.partial_pretrain data.max_length+trainer.default_local_dir "
		 "data.train_batch_size+trainer.project_name",
	.commands = "verl.* recipe.* main_* fsdp_sft_trainer* sft_trainer*",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
