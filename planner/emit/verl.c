/* verl's Hydra overrides: the actor of main_ppo, or its SFT trainer. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"

#define VERL "verl"
#define ACTOR "actor_rollout_ref.actor."
#define MODEL "actor_rollout_ref.model."
#define MCORE ACTOR "megatron."
#define RECOMPUTE MCORE "override_transformer_config."

enum { ANSWERS = 8 };           /* to one prompt, where the step's sequences divide by it: the plan does not say */

static bool of_megatron(const struct emission *e)
{
	/* one card of a rank that the plan does not number is no engine's */
	return emit_is(e, "engine", "megatron") || e->plan->tp > 1 || e->plan->pp > 1 || e->plan->ep > 1;
}

/* The SFT trainer's words for Megatron are in files of its own, which are not written: there the actor's are. */
static bool tunes(const struct emission *e)
{
	return emit_is(e, "objective", "sft") && !of_megatron(e);
}

/* trainer/config/ppo_trainer.yaml algorithm.adv_estimator */
static const char *estimator(const struct emission *e)
{
	static const char *const words[][2] = {{"grpo", "grpo"}, {"rloo", "rloo"}, {"remax", "remax"},
					       {"reinforce", "reinforce_plus_plus"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (emit_is(e, "objective", words[i][0]))
			return words[i][1];
	return emit_is(e, "objective", "sft") ? "grpo" : "gae";
}

static void set_count(struct emission *e, const char *key, int64_t n)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%lld", (long long)n);
	emit_set(e, key, buf);
}

static void batches(struct emission *e)
{
	const int64_t all = e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan), seq = e->plan->seq_len,
		      answer = e->plan->completion_len > 0 && e->plan->completion_len < seq ? e->plan->completion_len : seq / 2,
		      n = !strcmp(estimator(e), "gae") || all % ANSWERS ? 1 : ANSWERS;

	if (tunes(e)) {
		set_count(e, "data.train_batch_size", all);
		emit_rows(e, "", VERL, "data.micro_batch_size_per_gpu data.max_length");
		return;
	}
	set_count(e, ACTOR "ppo_mini_batch_size", all / n);
	emit_rows(e, "", VERL, ACTOR "ppo_micro_batch_size_per_gpu");
	set_count(e, "actor_rollout_ref.rollout.n", n);
	set_count(e, "data.max_prompt_length", seq - answer);
	set_count(e, "data.max_response_length", answer);
}

static void model(struct emission *e)
{
	const bool sft = tunes(e);

	emit_set(e, sft ? "model.partial_pretrain" : MODEL "path", e->model);
	if (!of_megatron(e))
		emit_rows(e, "", VERL, sft ? "model.enable_gradient_checkpointing" : MODEL "enable_gradient_checkpointing");
	if (!sft && emit_is(e, "offload-activations", "true"))
		emit_set(e, MODEL "enable_activation_offload", "true");
	if (!sft && emit_is(e, "loss", "fused"))
		emit_set(e, MODEL "use_fused_kernels", "true");
	if (!emit_adapted(e))
		return;
	if (!sft && *e->plan->exclude_modules)
		emit_names(e, MODEL "exclude_modules", e->plan->exclude_modules);
	emit_rows(e, "", VERL, sft ? "model.lora_rank" : MODEL "lora_rank");
	if (!strcmp(e->plan->lora_targets, "all-linear"))
		emit_set(e, sft ? "model.target_modules" : MODEL "target_modules", "all-linear");
	else if (*e->plan->lora_targets)
		emit_names(e, sft ? "model.target_modules" : MODEL "target_modules", e->plan->lora_targets);
}

static void shards(struct emission *e)
{
	const bool sft = tunes(e);

	emit_rows(e, "", VERL, sft ? "model.strategy" : ACTOR "strategy");
	emit_rows(e, "", VERL, sft ? "model.fsdp_config.model_dtype" : ACTOR "fsdp_config.model_dtype");
	if (e->plan->cp > 1)
		set_count(e, sft ? "ulysses_sequence_parallel_size" : ACTOR "ulysses_sequence_parallel_size", e->plan->cp);
	if (sft)
		return;
	if (emit_is(e, "hybrid-shard", "true") && e->plan->nodes > 1)
		set_count(e, ACTOR "fsdp_config.fsdp_size", e->plan->gpus / e->plan->nodes);
	if (emit_is(e, "zero", "2"))
		emit_set(e, ACTOR "fsdp_config.reshard_after_forward", "false");
	if (emit_is(e, "offload-params", "cpu"))
		emit_set(e, ACTOR "fsdp_config.offload_policy", "true");
	if (emit_is(e, "reduce-dtype", "own"))
		emit_set(e, ACTOR "fsdp_config.mixed_precision.reduce_dtype", "bf16");
}

/* How a pipeline's stages share the layers. */
static void stages(struct emission *e)
{
	if (e->plan->pp_first > 0)
		emit_rows(e, "", VERL, RECOMPUTE "num_layers_in_first_pipeline_stage");
	if (e->plan->pp_last > 0)
		emit_rows(e, "", VERL, RECOMPUTE "num_layers_in_last_pipeline_stage");
	if (emit_is(e, "pp-embedding", "true"))
		emit_set(e, RECOMPUTE "account_for_embedding_in_pipeline_split", "true");
	if (emit_is(e, "pp-loss", "true"))
		emit_set(e, RECOMPUTE "account_for_loss_in_pipeline_split", "true");
}

static void megatron_ranks(struct emission *e)
{
	emit_set(e, ACTOR "strategy", "megatron");
	emit_rows(e, "", VERL, MCORE "tensor_model_parallel_size " MCORE "pipeline_model_parallel_size "
		  MCORE "context_parallel_size " MCORE "expert_model_parallel_size");
	if (e->plan->vpp > 1)
		emit_rows(e, "", VERL, MCORE "virtual_pipeline_model_parallel_size");
	emit_rows(e, "", VERL, MCORE "sequence_parallel " MCORE "use_distributed_optimizer");
	if (e->plan->pp > 1)
		stages(e);
	if (emit_is(e, "offload-optimizer", "cpu"))
		emit_set(e, ACTOR "optim.override_optimizer_config.optimizer_cpu_offload", "true");
	if (emit_is(e, "grad-ckpt", "none"))
		return;
	emit_rows(e, "", VERL, RECOMPUTE "recompute_granularity");
	if (emit_is(e, "grad-ckpt", "full")) {
		emit_set(e, RECOMPUTE "recompute_method", e->plan->recompute_layers ? "block" : "uniform");
		set_count(e, RECOMPUTE "recompute_num_layers", e->plan->recompute_layers ? e->plan->recompute_layers : 1);
	}
}

void fill_verl(struct emission *e)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;

	if (!tunes(e))
		emit_set(e, "algorithm.adv_estimator", estimator(e));
	model(e);
	batches(e);
	if (of_megatron(e))
		megatron_ranks(e);
	else
		shards(e);
	set_count(e, "trainer.nnodes", nodes);
	set_count(e, "trainer.n_gpus_per_node", e->plan->gpus / nodes);
}

void write_verl(struct emission *e, struct emit_text *out)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;

	if (tunes(e))
		emit_put(out, "torchrun --nnodes %lld --nproc_per_node %lld %s-m verl.trainer.fsdp_sft_trainer", (long long)nodes,
			 (long long)(e->plan->gpus / nodes), nodes > 1 ? EMIT_MEETS : "");
	else
		emit_put(out, "python3 -m verl.trainer.main_ppo");
	emit_overrides(e, out);
}
