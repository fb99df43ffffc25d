/* open-instruct's scripts (finetune.py, dpo_tune_cache.py, reward_modeling.py, grpo_fast.py): their command lines, and the
 * YAML of the first ones; mason.py, which starts them on a cluster, in front.
 *
 * They load weights in bf16, attend by flash-attn where it is installed and step with a fused AdamW; DeepSpeed's stage
 * is accelerate's to say, grpo_fast.py's own. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "framework.h"

#define SFT "open_instruct/finetune.py"
#define DPO "open_instruct/dpo_utils.py"
#define GRPO "open_instruct/grpo_utils.py"
#define DATA "open_instruct/data_loader.py:408"
#define REWARD "open_instruct/reward_modeling.py"
#define MASON "mason.py:533"

static const struct fw_row rows[] = {
	FW_KEY("model_name_or_path", "model", NULL, NULL, SFT ":93"),
	FW_KEY("per_device_train_batch_size", "micro-batch", NULL, NULL, SFT ":201"),
	FW_KEY("per_device_eval_batch_size", "eval-batch", NULL, NULL, REWARD),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, NULL, SFT ":179"),
	FW_KEY("max_seq_length", "seq-len", NULL, NULL, SFT ":163"),
	FW_KEY("max_token_length", "seq-len", NULL, NULL, REWARD ":82"),
	FW_KEY("pack_length", "seq-len", NULL, NULL, DATA),
	FW_KEY("response_length", "completion-len", NULL, NULL, DATA),
	FW_KEY("gradient_checkpointing", "grad-ckpt", "true>full;false>none", NULL, SFT ":248"),
	{"activation_memory_budget", .hook = true, .source = "open_instruct/dpo_tune_cache.py:378"},
	FW_KEY("use_lora", "method", "true>lora;false>", NULL, SFT ":204"),
	FW_KEY("use_qlora", "base-bits", "true>4-nf4 method=lora;false>", NULL, SFT ":208"),
	FW_KEY("lora_rank", "lora-r", NULL, NULL, SFT ":186"),
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, SFT ":188"),
	FW_KEY("use_flash_attn", "attn", "true>flash;false>sdpa", NULL, "open_instruct/model_utils.py"),
	{"use_liger_kernel", .hook = true, .source = SFT ":571"},
	{"use_8bit_optimizer", .hook = true, .source = SFT ":671"},
	{"fused_optimizer", .hook = true, .source = SFT ":680"},
	FW_KEY("packing", "packing", "true>true;false>false", NULL, SFT ":313"),
	FW_KEY("deepspeed_stage", "zero", NULL, NULL, GRPO ":168"),
	FW_KEY("zero_stage", "zero", "0>0;1>1;2>2;3>3;*>", NULL, DPO ":289"),
	FW_KEY("deepspeed_offload_optimizer", "offload-optimizer", "true>cpu;false>none", NULL, GRPO ":174"),
	FW_KEY("deepspeed_offload_param", "offload-params", "true>cpu;false>none", NULL, GRPO ":172"),
	FW_KEY("offload_optimizer", "offload-optimizer", "true>cpu;false>none", NULL, DPO ":297"),
	FW_KEY("offload_param", "offload-params", "true>cpu;false>none", NULL, DPO ":300"),
	FW_KEY("sequence_parallel_size", "cp", NULL, NULL, SFT ":320"),
	{"num_learners_per_node", .hook = true, .source = GRPO ":160"},
	{"single_gpu_mode", .hook = true, .source = GRPO ":158"},
	{"load_ref_policy", .hook = true, .source = GRPO ":148"},
	{"num_nodes", .hook = true, .source = MASON}, {"gpus", .hook = true, .source = MASON},
	{"load_balancing_loss", .note = "router logits of all layers are kept: more than is priced"},
	FW_KEY("low_cpu_mem_usage", "low-cpu-mem", "true>true;false>false", NULL, SFT ":111"),
	FW_KEY("deepspeed_zpg", "@zpg", "1>;*>=", NULL, GRPO ":170"),
	{"fsdp_shard_degree", .note = "shards over fewer cards: more on each than is priced"},
	{"compile_model", .note = "torch.compile: --compile prices it"},
	{"teacher_model_name_or_path", .note = "a teacher on the same cards: more than is priced"},
	{.key = NULL},
};

static const char idle[] =
	"exp_name run_name seed output_dir dataset_* mixer_* chat_template_name add_bos tokenizer_* use_slow_tokenizer "
	"trust_remote_code model_revision config_name max_train_samples preprocessing_num_workers overwrite_cache "
	"clip_grad_norm learning_rate logging_steps lora_alpha lr_scheduler_type num_train_epochs num_epochs warmup_ratio "
	"warm_up_steps final_lr_ratio weight_decay timeout resume_from_checkpoint report_to save_* max_train_steps "
	"checkpointing_steps checkpoint_* keep_last_n_checkpoints load_balancing_weight clean_checkpoints_at_end "
	"with_tracking wandb_* push_to_hub hf_* try_* cache_dataset_only gs_* oe_* sync_each_batch verbose beta "
	"loss_type dpo_* concatenated_forward average_log_prob label_smoothing max_prompt_token_length total_episodes "
	"apply_* temperature stop_strings non_stop_penalty* kl_estimator local_eval_* vllm_* num_mini_batches "
	"num_unique_prompts_rollout num_samples_per_prompt_rollout num_evals eval_* ground_truths_key sft_messages_key "
	"async_* inflight_updates code_* verification_reward eps adam_* advantage_* clip_* mask_* allow_world_padding "
	"record_entropy use_vllm_* truncated_importance_* backend_timeout llm_judge_* judge_* tools tool_* max_tool_calls "
	"system_prompt* shuffle_eval_dataset active_sampling filter_zero_std_samples no_resampling_pass_rate "
	"gather_whole_model collect_* send_slack_alerts env* cluster workspace priority image pure_docker_mode preemptible "
	"budget description artifact_ttl no_auto_dataset_cache max_retries non_resumable secret resumable "
	"auto_* shared_memory timeout_minutes hostname only_docker_mode active max_* min_* train_file reduce_loss "
	"additional_model_arguments ddp_* do_not_randomize_output_dir per_device_* remote_* rollouts_* rubric_* use_slow_* "
	"(launcher) (program) (words) (files)";

static bool has(const struct fw_part *p, const char *key)
{
	return doc_below(fw_root(p), key) != NULL;
}

static const char *objective(const struct fw_part *p)
{
	static const struct {
		const char *program, *key, *objective;
	} scripts[] = {{"grpo", "num_unique_prompts_rollout", "grpo"}, {"grpo", "num_samples_per_prompt_rollout", "grpo"},
		       {"grpo", "num_learners_per_node", "grpo"}, {"dpo", "beta", "dpo"}, {"dpo", "dpo_loss_type", "dpo"}, {"dpo", "mixer_list", "dpo"},
		       {"reward", "max_token_length", "reward"}};
	const char *program = fw_text(p, ARGS_PROGRAM);

	for (size_t i = 0; *program && i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (strstr(program, scripts[i].program))
			return scripts[i].objective;
	if (*program && strstr(program, "finetune"))
		return "sft";
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (has(p, scripts[i].key))
			return scripts[i].objective;
	return "sft";
}

static int64_t count(const struct fw_part *p, const char *key)
{
	int64_t n;

	return doc_whole(fw_key(p, key), &n) && n > 0 && n < 100000 ? n : 0;
}

/* "8 8 4": learners of each machine. */
static int64_t sum(const struct doc_node *node, int64_t *machines)
{
	char text[200];
	int64_t all = 0;

	*machines = 0;
	if (!node)
		return 0;
	for (const char *w = doc_show(node, text, sizeof(text)); *w; w++)
		if (isdigit((unsigned char)*w)) {
			char *end;
			const long n = strtol(w, &end, 10);

			all += n > 0 && n < 10000 ? n : 0;
			++*machines;
			w = end - 1;
		}
	return all;
}

/* mason.py multiplies accelerate's processes by its machines; as options of its own, or among the command's where a
 * list of them is all there is. */
static void finish_cards(struct fw_part *p)
{
	const char *node_key = has(p, "num_nodes") ? "num_nodes" : "(launcher).num_nodes";
	const char *card_key = has(p, "gpus") ? "gpus" : "(launcher).gpus";
	const int64_t nodes = count(p, node_key) ? count(p, node_key) : 1;
	const int64_t processes = count(p, "(launcher).num_processes"), cards = processes ? processes : count(p, card_key);

	if (!cards || (processes && nodes == 1) || count(p, "(launcher).num_machines") > 1)
		return;
	fw_set_whole(p, "gpus", cards * nodes, processes ? "(launcher).num_processes" : card_key, MASON);
	fw_set_whole(p, "nodes", nodes, node_key, MASON);
}

static void finish_grpo(struct fw_part *p)
{
	int64_t machines;
	const int64_t learners = sum(fw_key(p, "num_learners_per_node"), &machines);

	fw_default(p, "micro-batch", "1", GRPO);
	fw_default(p, "grad-accum", "1", GRPO);
	fw_default(p, "seq-len", "512", DATA " pack_length");
	fw_set(p, "objective", "grpo", NULL, GRPO);
	fw_take_whole_logits(p, "open_instruct/grpo_utils.py:558-566: logits of the whole pack");
	fw_set(p, "packing", "true", NULL, DATA ": answers fill rows of pack_length");
	fw_default(p, "rollouts", "engine", "open_instruct/vllm_utils.py");
	fw_set(p, "engine", "deepspeed", NULL, "open_instruct/utils.py:1419");
	fw_set(p, "fp32-grad-accum", "true", NULL, "open_instruct/utils.py:1458");
	fw_default(p, "zero", "0", GRPO ":168");
	fw_default(p, "offload-optimizer", "none", GRPO ":174");
	fw_default(p, "offload-params", "none", GRPO ":172");
	fw_set_whole(p, "gpus", learners ? learners : 1, learners ? "num_learners_per_node" : NULL,
		     "learners; the engines of rollouts have cards of their own");
	fw_set_whole(p, "nodes", machines ? machines : 1, machines ? "num_learners_per_node" : NULL, GRPO ":160");
	if (fw_on(p, "single_gpu_mode"))
		fw_unmodelled(p, "single_gpu_mode", "the engine of rollouts takes its share of the same card: not in the price "
			      "of the update");
	if (fw_off(p, "load_ref_policy"))
		fw_set(p, "reference", "none", "load_ref_policy", GRPO ":148");
}

static void finish_pairs(struct fw_part *p)
{
	const double budget = strtod(fw_text(p, "activation_memory_budget"), NULL);

	if (fw_key(p, "activation_memory_budget") && budget < 1)
		fw_set(p, "grad-ckpt", "full", "activation_memory_budget", "open_instruct/dpo_tune_cache.py:378");
	/* log-probabilities of the reference are computed before the first step, by the model itself */
	if (!strstr(fw_text(p, ARGS_PROGRAM), "dpo_tune.py"))
		fw_set(p, "reference", "none", NULL, "open_instruct/dpo_tune_cache.py:515");
}

static void finish_optimizer(struct fw_part *p, bool reward)
{
	if (fw_on(p, "use_8bit_optimizer"))
		fw_set(p, "optimizer", "adamw-8bit", "use_8bit_optimizer", SFT ":671");
	else if (fw_off(p, "fused_optimizer") || reward)
		fw_set(p, "optimizer", "adamw", fw_key(p, "fused_optimizer") ? "fused_optimizer" : NULL,
		       reward ? REWARD ":309" : SFT ":680");
	else
		fw_default(p, "optimizer", "adamw-fused", SFT ":266");
}

static void finish(struct fw_part *p)
{
	const char *what = objective(p), *config = fw_text(p, ARGS_PROGRAM);
	const bool grpo = !strcmp(what, "grpo"), reward = !strcmp(what, "reward");

	fw_set(p, "objective", what, *config ? ARGS_PROGRAM : NULL, "open_instruct/");
	fw_set(p, "@dtype", "bf16", NULL, SFT ":590");
	if (grpo)
		finish_grpo(p);
	else
		finish_cards(p);
	if (!strcmp(what, "dpo"))
		finish_pairs(p);
	if (reward) {
		fw_default(p, "seq-len", "512", REWARD ":82");
		fw_default(p, "eval-batch", "1", REWARD ":116");
	} else {
		fw_set(p, "eval-batch", "0", NULL, SFT ": it does not evaluate");
	}
	fw_default(p, "micro-batch", reward ? "1" : "8", reward ? REWARD ":114" : SFT ":201");
	fw_default(p, "grad-accum", reward ? "8" : "1", reward ? REWARD ":112" : SFT ":179");
	fw_default(p, "method", "full", SFT ":204");
	if (fw_fact_is(p, "method", "lora")) {
		fw_default(p, "lora-r", "64", SFT ":186");
		fw_default(p, "lora-dropout", "0.1", SFT ":188");
		fw_default(p, "lora-targets", "q_proj+o_proj+v_proj+k_proj+gate_proj+up_proj+down_proj", SFT ":632");
	}
	if (fw_on(p, "use_liger_kernel"))
		fw_set(p, "loss", !strcmp(what, "sft") ? "fused" : "plain", "use_liger_kernel", SFT ":586");
	finish_optimizer(p, reward);
	fw_default(p, "grad-ckpt", "none", SFT ":248");
	/* --use_flash_attn was off by default until ca9a57f of August 2024, with transformers 4.43 */
	if (fw_older(p, "transformers", 4, 44))
		fw_default(p, "attn", "sdpa", "open_instruct/finetune.py before ca9a57f, without --use_flash_attn");
	fw_default(p, "attn", "flash", "open_instruct/model_utils.py detect_attn_implementation: where flash-attn is installed");
	fw_default(p, "loss", "plain", SFT);
	if (*fw_fact(p, "@zpg"))
		fw_unmodelled(p, "deepspeed_zpg", "a second copy of the weights within a node: more than is priced");
	fw_default(p, "packing", "false", SFT ":313");
	fw_default(p, "@autocast", "no", "accelerate mixed_precision");
	if (strstr(config, "olmo_core") || strstr(config, "dpo.py"))
		fw_open(p, "optimizer", "OLMo-core's trainer: engine, zero, precision and grad-ckpt are its own");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_open_instruct = {
	.name = "open-instruct",
	.summary = "open-instruct's SFT, DPO, reward model and GRPO scripts, mason.py in front",
	.version = "open-instruct e6c3044",
	.role = FW_TRAINER,
	.marks = "with_tracking+model_name_or_path num_unique_prompts_rollout num_samples_per_prompt_rollout "
		 "num_learners_per_node use_slow_tokenizer+per_device_train_batch_size dataset_mixer_list mixer_list "
		 "pure_docker_mode",
	.never = "num_train_epochs+output_dir+do_train bf16 finetuning_type base_model zero_optimization block_size",
	.programs = "grpo_fast dpo_tune_cache dpo_tune olmo_core_finetune",
	.commands = "finetune dpo_tune* dpo grpo* reward_modeling olmo_core*",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
