/* What frameworks call the plan's objective: their commands, configs and recipes. */
#include <string.h>

#include "emit/fills.h"

/* TRL's key and value: what a file that names neither command nor config has alone (planner/frameworks/trl_objective.c has
 * the signs; the values are the configs' defaults, so that nothing changes).  ms-swift's: swift/arguments/rlhf_args.py
 * rlhf_type.  torchtune's: recipes/ *.py, torchtune/_recipe_registry.py. */
static const struct emit_objective objectives[] = {
	{.name = "sft", .trl_command = "sft", .trl_config = "SFTConfig"},
	{.name = "pretrain", .swift_command = "pt"},
	{.name = "dpo", .trl_command = "dpo", .trl_config = "DPOConfig", .trl_key = "beta", .trl_value = "0.1", .swift_type = "dpo",
	 .tune_recipe = "dpo"},
	{.name = "kto", .trl_command = "kto", .trl_config = "KTOConfig", .trl_key = "desirable_weight", .trl_value = "1.0",
	 .swift_type = "kto"},
	{.name = "reward", .trl_command = "reward", .trl_config = "RewardConfig", .swift_type = "rm"},
	{.name = "grpo", .trl_command = "grpo", .trl_config = "GRPOConfig", .swift_type = "grpo", .tune_whole = "dev/grpo_full_finetune_distributed"},
	/* no command of TRL's starts these (trl/experimental) */
	{.name = "simpo", .trl_config = "CPOConfig", .trl_key = "simpo_gamma", .trl_value = "0.5", .swift_type = "simpo"},
	{.name = "ppo", .trl_config = "PPOConfig", .trl_key = "kl_coef", .trl_value = "0.05", .swift_type = "ppo"},
	/* nothing is taken off a reward, as without the key */
	{.name = "online-dpo", .trl_config = "OnlineDPOConfig", .trl_key = "missing_eos_penalty", .trl_value = "0.0"},
	{.name = "orpo", .swift_type = "orpo"},
	{.name = "cpo", .trl_config = "CPOConfig", .trl_key = "cpo_alpha", .trl_value = "1.0", .swift_type = "cpo"},
	{.name = "gkd", .swift_type = "gkd"},
	{.name = "distill", .tune_whole = "knowledge_distillation"},
};

const struct emit_objective *emit_objective(const struct emission *e)
{
	for (size_t i = 0; i < sizeof(objectives) / sizeof(objectives[0]); i++)
		if (emit_is(e, "objective", objectives[i].name))
			return &objectives[i];
	return &objectives[0];
}

/* One that TRL has no config for runs as a plain one there, and is named as missing. */
const struct emit_objective *emit_trl_objective(const struct emission *e)
{
	const struct emit_objective *o = emit_objective(e);

	return o->trl_config ? o : &objectives[0];
}
