/* OpenRLHF's command lines: openrlhf.cli.train_sft, train_dpo, train_rm and train_ppo_ray, with the dotted
 * options of today and the flat ones before them.  Of a run of several models the actor is priced. */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "framework.h"

#define CLI "openrlhf/cli/"
#define PPO CLI "train_ppo_ray.py"
#define STRATEGY "openrlhf/utils/deepspeed/deepspeed.py"
#define ON "true>full;false>none"
#define ATTENTION "flash_attention_2>flash;flash*>flash;sdpa>sdpa;eager>eager"
#define BITS16 "bf16>bf16;fp16>fp16;bfloat16>bf16;float16>fp16"

static const struct fw_row rows[] = {
	FW_KEY("actor.model_name_or_path", "model", NULL, NULL, PPO),
	FW_KEY("model.model_name_or_path", "model", NULL, NULL, CLI "train_sft.py"),
	FW_KEY("pretrain", "model", NULL, NULL, "OpenRLHF 0.8"),
	{"train.micro_batch_size", .hook = true, .source = CLI},
	FW_KEY("micro_train_batch_size", "micro-batch", NULL, NULL, "OpenRLHF 0.8"),
	FW_KEY("train.batch_size", "global-batch", NULL, "128", CLI),
	FW_KEY("train_batch_size", "global-batch", NULL, NULL, "OpenRLHF 0.8"),
	{"data.max_len", .hook = true, .source = CLI},
	FW_KEY("max_len", "seq-len", NULL, NULL, "OpenRLHF 0.8"),
	{"prompt_max_len", .hook = true}, {"generate_max_len", .hook = true},
	FW_KEY("ds.zero_stage", "zero", NULL, "2", CLI),
	FW_KEY("zero_stage", "zero", NULL, NULL, "OpenRLHF 0.8"),
	FW_KEY("ds.param_dtype", "@ds16", BITS16, "bf16", CLI),
	FW_KEY("param_dtype", "@ds16", BITS16, NULL, "OpenRLHF 0.9"),
	FW_KEY("bf16", "@ds16", "true>bf16;false>", NULL, "OpenRLHF 0.8"),
	FW_KEY("ds.adam_offload", "offload-optimizer", "true>cpu;false>none", NULL, STRATEGY " offload"),
	FW_KEY("adam_offload", "offload-optimizer", "true>cpu;false>none", NULL, STRATEGY " offload"),
	FW_KEY("actor.gradient_checkpointing_enable", "grad-ckpt", ON, NULL, PPO),
	FW_KEY("model.gradient_checkpointing_enable", "grad-ckpt", ON, NULL, CLI "train_sft.py"),
	FW_KEY("gradient_checkpointing", "grad-ckpt", ON, NULL, "OpenRLHF 0.8"),
	FW_KEY("actor.gradient_checkpointing_reentrant", "use-reentrant", "true>true;false>false", "false", PPO),
	FW_KEY("model.gradient_checkpointing_reentrant", "use-reentrant", "true>true;false>false", NULL, CLI "train_sft.py"),
	FW_KEY("gradient_checkpointing_use_reentrant", "use-reentrant", "true>true;false>false", NULL, "OpenRLHF 0.8"),
	FW_KEY("optim", "optimizer", "adam>;muon>muon", NULL, CLI),
	FW_KEY("ds.attn_implementation", "attn", ATTENTION, NULL, CLI),
	FW_KEY("attn_implementation", "attn", ATTENTION, NULL, "OpenRLHF 0.9"),
	FW_KEY("flash_attn", "attn", "true>flash;false>eager", NULL, "OpenRLHF 0.8"),
	FW_KEY("ds.packing_samples", "packing", "true>true;false>false", NULL, CLI),
	FW_KEY("packing_samples", "packing", "true>true;false>false", NULL, "OpenRLHF 0.8"),
	{"ds.use_liger_kernel", .note = "Liger's kernels: less than is priced"},
	{"use_liger_kernel", .note = "Liger's kernels: less than is priced"},
	FW_KEY("ds.load_in_4bit", "base-bits", "true>4-nf4;false>", NULL, CLI),
	FW_KEY("load_in_4bit", "base-bits", "true>4-nf4;false>", NULL, "OpenRLHF 0.8"),
	FW_KEY("ds.lora.rank", "lora-r", NULL, NULL, CLI),
	FW_KEY("lora_rank", "lora-r", NULL, NULL, "OpenRLHF 0.8"),
	FW_KEY("ds.lora.target_modules", "lora-targets", NULL, NULL, CLI),
	FW_KEY("target_modules", "lora-targets", NULL, NULL, "OpenRLHF 0.8"),
	FW_KEY("ds.lora.dropout", "lora-dropout", NULL, NULL, CLI),
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, "OpenRLHF 0.8"),
	{"algo.advantage.estimator", .hook = true, .source = PPO},
	{"advantage_estimator", .hook = true, .source = "OpenRLHF 0.8"},
	{"actor.num_nodes", .hook = true, .source = PPO}, {"actor.num_gpus_per_node", .hook = true, .source = PPO},
	{"actor_num_nodes", .hook = true}, {"actor_num_gpus_per_node", .hook = true},
	FW_KEY("data.dataloader_num_workers", "dataloader-workers", NULL, NULL, CLI),
	FW_KEY("ds.tensor_parallel_size", "tp", NULL, NULL, CLI),
	{"ds.zpg", .hook = true, .source = CLI}, {"zpg", .hook = true},
	{"ds.ring_attn_size", .hook = true, .source = CLI}, {"ring_attn_size", .hook = true},
	{"ds.overlap_comm", "overlap-comm", "true>true;false>false", .source = CLI},
	{"ds.grad_accum_dtype", "fp32-grad-accum", "fp32>true;bf16>;fp16>", .source = CLI},
	{"overlap_comm", "overlap-comm", "true>true;false>false", .source = "OpenRLHF 0.8"},
	{"grad_accum_dtype", "fp32-grad-accum", "fp32>true;bf16>;fp16>", .source = "OpenRLHF 0.8"},
	{"train.dynamic_batch_enable", .hook = true, .source = PPO},
	FW_KEY("train.max_tokens_per_gpu", NULL, NULL, NULL, PPO),
	{"train.enable_ema", .note = "a moving mean of the weights on the host"},
	{"train.colocate_all", .hook = true, .source = PPO}, {"colocate_all_models", .hook = true, .source = "OpenRLHF 0.8"},
	{"train.colocate_actor_ref", .note = "the reference model shares the actor's cards: more than is priced"},
	{"colocate_actor_ref", .note = "the reference model shares the actor's cards: more than is priced"},
	{.key = NULL},
};
static const char idle[] =
	"ckpt* logger* eval* reward* ref* critic* vllm* vllm.tensor_parallel_size rollout* algo* actor* data* model* train* adam* muon* "
	"ds.enable_sleep ds.use_universal_ckpt ds.deepcompile ds.experts_implementation ds.lora.alpha "
	"ds.ring_attn_head_stride ds.value_head_prefix lr_scheduler lr_warmup_ratio min_lr_ratio max_norm local_rank "
	"use_ms* save_path save_steps save_hf* logging_steps eval_steps ckpt_path max_ckpt* max_epochs max_samples "
	"learning_rate actor_learning_rate critic_learning_rate dataset* prompt_data input_key output_key label_key "
	"apply_chat_template input_template chosen_key rejected_key beta use_wandb wandb* load_checkpoint seed "
	"normalize_reward init_kl_coef use_kl* kl* gamma lambd eps_clip* n_samples_per_prompt rollout_batch_size "
	"micro_rollout_batch_size remote_rm_url reward_pretrain critic_pretrain vllm_* ref_num_* reward_num_* "
	"critic_num_* colocate_critic_reward enforce_eager deepspeed_enable_sleep num_episodes temperature top_p "
	"freezing_actor_steps lora_alpha aux_loss_coef l2 adam_betas value_head_prefix ref_offload ref_reward_offload "
	"dynamic_filtering* async_train agent_func_path use_tensorboard pretrain_mode multiturn m "
	"(launcher) (program) (words) (files)";

/* Which of its trainers: the program's name, else what only one of them has. */
static const char *trainer(const struct fw_part *p)
{
	static const struct {
		const char *program, *key, *objective;
	} trainers[] = {
		{"train_ppo", "actor.model_name_or_path", "ppo"}, {"train_ppo", "advantage_estimator", "ppo"},
		{"train_ppo", "actor_num_nodes", "ppo"},	   {"train_ppo", "actor_learning_rate", "ppo"},
		{"train_kto", NULL, "kto"}, {"train_kd", NULL, "distill"}, {"train_prm", NULL, "prm"},
		{"train_dpo", "model.beta", "dpo"},
		{"train_dpo", "ref.model_name_or_path", "dpo"},   {"train_rm", "model.margin_loss_enable", "reward"},
		{"train_rm", "model.compute_fp32_loss_enable", "reward"}, {"train_sft", NULL, "sft"},
	};
	const char *program = fw_text(p, ARGS_PROGRAM);
	const size_t n = sizeof(trainers) / sizeof(trainers[0]);

	for (size_t i = 0; i < n; i++)
		if (strstr(program, trainers[i].program))
			return trainers[i].objective;
	for (size_t i = 0; i < n; i++)
		if (trainers[i].key && doc_below(fw_root(p), trainers[i].key))
			return trainers[i].objective;
	return doc_below(fw_root(p), "data.chosen_key") ? "dpo" : "sft";
}

/* All models of a run of Ray's on the actor's cards. */
static const char *colocated(const struct fw_part *p)
{
	return fw_on(p, "train.colocate_all") ? "train.colocate_all" : fw_on(p, "colocate_all_models") ? "colocate_all_models" : NULL;
}

/* With a critic: train_ppo, which 0.8 dropped, has all four models on every card and generates with the policy;
 * train_ppo_ray gives each cards of its own unless it is told to share them. */
static void finish_critic(struct fw_part *p)
{
	const char *program = fw_text(p, ARGS_PROGRAM), *shared = colocated(p);

	if (shared && !fw_on(p, "ds.enable_sleep") && !fw_on(p, "deepspeed_enable_sleep")) {
		fw_set(p, "@price.objective", "ppo-apart", NULL, PPO);
		fw_unmodelled(p, shared, "all four models are priced; the rollout engine's share of the cards is not");
		return;
	}
	if (strstr(program, "train_ppo") && !strstr(program, "train_ppo_ray")) {
		fw_set(p, "@price.objective", "ppo-apart", NULL, CLI "train_ppo.py");
		fw_unmodelled(p, fw_key(p, "micro_rollout_batch_size") ? "micro_rollout_batch_size" : ARGS_PROGRAM,
			      "the rollouts, and critic and reward models of other sizes than the policy's, are not in the price");
		return;
	}
	fw_set(p, "@price.objective", "grpo", NULL, PPO);
	fw_default(p, "rollouts", "engine", "openrlhf/trainer/ray/vllm_engine.py");
	fw_unmodelled(p, fw_key(p, "critic_num_nodes") ? "critic_num_nodes" : ARGS_PROGRAM,
		      "the policy is priced; critic, reference and reward models have cards of their own");
}

/* Estimators without a critic are priced as GRPO is: the policy alone is trained. */
static void finish_objective(struct fw_part *p, const char *objective)
{
	const char *key = fw_key(p, "advantage_estimator") ? "advantage_estimator" : "algo.advantage.estimator";
	const char *estimator = fw_text(p, key);

	if (!strcmp(objective, "ppo") && *estimator && strcmp(estimator, "gae"))
		fw_set(p, "objective", "grpo", key, "no critic");
	else
		hf_objective_by_name(p);        /* a trainer of somebody's own, "train_simpo.py" */
	fw_default(p, "objective", objective, "the program");
	if (fw_fact_is(p, "objective", "ppo"))
		finish_critic(p);
	else if (colocated(p))
		fw_unmodelled(p, colocated(p), "reference and rollout engine share the actor's cards between updates: not in the price "
			      "of the update");
	if (fw_fact_is(p, "objective", "grpo"))
		fw_default(p, "rollouts", "engine", "openrlhf/trainer/ray/vllm_engine.py");
}

static void finish_batch(struct fw_part *p, bool ray, bool pairs, bool reward)
{
	const char *nodes_key = fw_key(p, "actor.num_nodes") ? "actor.num_nodes" : "actor_num_nodes";
	const char *each_key = fw_key(p, "actor.num_gpus_per_node") ? "actor.num_gpus_per_node" :
								       "actor_num_gpus_per_node";
	const int64_t nodes = fw_whole_or(p, nodes_key, 1), micro = fw_whole_or(p, "train.micro_batch_size", 0);

	if (micro)
		fw_set_whole(p, "micro-batch", micro, "train.micro_batch_size", NULL);
	else
		fw_default(p, "micro-batch", ray || reward ? "1" : "8", CLI "train.micro_batch_size");
	if (fw_whole_or(p, "data.max_len", 0))
		fw_set_whole(p, "seq-len", fw_whole_or(p, "data.max_len", 0), "data.max_len", NULL);
	else if (fw_whole_or(p, "prompt_max_len", 0) && fw_whole_or(p, "generate_max_len", 0))
		fw_set_whole(p, "seq-len", fw_whole_or(p, "prompt_max_len", 0) + fw_whole_or(p, "generate_max_len", 0),
			     "generate_max_len", "prompt and response");
	else
		fw_default(p, "seq-len", pairs ? "512" : "2048", CLI "data.max_len");
	if (ray) {
		fw_set_whole(p, "gpus", nodes * fw_whole_or(p, each_key, 8), fw_key(p, each_key) ? each_key : NULL,
			     "the actor's cards of a node x its nodes");
		fw_set_whole(p, "nodes", nodes, fw_key(p, nodes_key) ? nodes_key : NULL, "the actor's nodes");
	}
	if (fw_on(p, "train.dynamic_batch_enable"))
		fw_take_token_rows(p, "train.max_tokens_per_gpu", "train.dynamic_batch_enable", 16192,
				   "openrlhf/utils/seqlen_balancing.py: the most tokens of a card / the longest row");
}

/* Before 0.8.11 attention was written out unless --flash_attn or packing asked for a kernel (openrlhf/models/actor.py);
 * since OpenRLHF c250c21 it is flash_attn.  Of the flat options --param_dtype alone is of later releases. */
static void finish_attention(struct fw_part *p)
{
	static const char *const flat[] = {"zero_stage", "pretrain", "micro_train_batch_size", "bf16", NULL};
	bool is_flat = false;

	for (size_t i = 0; flat[i]; i++)
		is_flat |= doc_below(fw_root(p), flat[i]) != NULL;
	if (!*fw_fact(p, "attn") && is_flat && !fw_key(p, "param_dtype") && !fw_fact_is(p, "packing", "true")) {
		fw_default(p, "attn", "eager", "OpenRLHF up to 0.8.10, without --flash_attn");
		fw_open(p, "attn", "nothing dates the command: up to 0.8.10 attention is written out without --flash_attn, which is "
			"taken; later releases take flash_attn, which needs less");
	}
	fw_default(p, "attn", "flash", CLI "ds.attn_implementation");
}

static void finish(struct fw_part *p)
{
	static const char *const rings[] = {"ds.ring_attn_size", "ring_attn_size"};
	const char *objective = trainer(p);
	const bool reward = !strcmp(objective, "reward"), lora = atoi(fw_fact(p, "lora-r")) > 0;
	const bool offload = fw_fact_is(p, "offload-optimizer", "cpu");

	finish_objective(p, objective);
	finish_batch(p, !strcmp(objective, "ppo"), reward || !strcmp(objective, "dpo"), reward);
	for (size_t i = 0; i < 2; i++)
		if (fw_whole_or(p, rings[i], 1) > 1)
			fw_set_whole(p, "cp", fw_whole_or(p, rings[i], 1), rings[i], "ring attention");
	if (fw_whole_or(p, "ds.zpg", 1) > 1 || fw_whole_or(p, "zpg", 1) > 1)
		fw_unmodelled(p, fw_key(p, "ds.zpg") ? "ds.zpg" : "zpg",
			      "a second copy of the parameters within a node: more than is priced");
	fw_default(p, "engine", "deepspeed", STRATEGY);
	fw_set(p, "@autocast", "no", NULL, STRATEGY);
	fw_default(p, "method", lora ? "lora" : "full", CLI "ds.lora.rank");
	if (lora) {
		fw_default(p, "lora-targets", "all-linear", CLI "ds.lora.target_modules");
		fw_default(p, "lora-dropout", "0", CLI "ds.lora.dropout");
	}
	/* DeepSpeedCPUAdam where states are on the host, else FusedAdam */
	fw_default(p, "optimizer", offload ? "adamw" : "adamw-fused", STRATEGY " create_optimizer");
	fw_default(p, "grad-ckpt", "none", CLI "gradient_checkpointing_enable");
	finish_attention(p);
	fw_default(p, "packing", "false", CLI "ds.packing_samples");
	fw_default(p, "loss", "plain", "openrlhf/models/loss.py");
	fw_take_whole_logits(p, "openrlhf/models/actor.py:267-294: logits of whole sequences, cut to the answer when they are "
			     "log-probabilities");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_openrlhf = {
	.name = "openrlhf",
	.summary = "OpenRLHF's command lines: SFT, DPO, reward models, and the actor of its RL runs",
	.version = "OpenRLHF 3c3be62",
	.role = FW_TRAINER,
	.marks = "actor.model_name_or_path model.model_name_or_path+ds.zero_stage pretrain+micro_train_batch_size "
		 "ds.param_dtype ds.zero_stage micro_train_batch_size",
	.commands = "openrlhf.cli.* train_sft train_dpo train_rm train_ppo train_ppo_ray train_kto train_kd train_prm",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
