/* TRL's scripts and TrlParser YAML, alignment-handbook and open-r1 recipes: TrainingArguments with
 * defaults of their own.
 *
 * Files name no version.  Keys that today's TRL no longer has (torch_dtype, max_seq_length,
 * max_prompt_length, evaluation_strategy, use_liger) date a file before 1.0, whose defaults are
 * transformers'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arguments.h"
#include "framework.h"
#include "parts.h"
#include "trl.h"

#define CONFIG "trl/trainer/sft_config.py"
#define BASE "trl/trainer/base_config.py"
#define GRPO "trl/trainer/grpo_config.py"
#define MODEL "trl/trainer/model_config.py"

#define LOADED "bfloat16>bf16;torch.bfloat16>bf16;float16>fp16;torch.float16>fp16;float32>fp32;torch.float32>fp32;auto>auto;*>"

static const struct fw_row rows[] = {
	{"loss_type", .hook = true, .source = CONFIG ":283"},
	{"max_prompt_length", .hook = true, .source = GRPO},
	FW_KEY("max_completion_length", "completion-len", NULL, NULL, GRPO ":488"),
	FW_KEY("response_length", "completion-len", NULL, NULL, "trl/experimental/ppo/ppo_config.py"),
	{"beta", .hook = true},
	{"num_generations", .hook = true, .source = GRPO ":474"},
	{"response_length", .hook = true, .source = "trl PPOConfig"},
	{"reward_funcs", .hook = true},
	{"gamma_beta_ratio", .hook = true},
	{"simpo_gamma", .hook = true},
	{"cpo_alpha", .hook = true},
	{"desirable_weight", .hook = true},
	{"undesirable_weight", .hook = true},
	{"center_rewards_coefficient", .hook = true},
	FW_KEY("precompute_ref_log_probs", "reference", "true>none;false>", NULL,
	       "trl/trainer/dpo_trainer.py"),
	{"@objective", .hook = true},
	/* how a trainer loads a model that it is given by name; a script's own ModelConfig says it for the rest */
	FW_KEY("model_init_kwargs.dtype", "@dtype", LOADED, NULL, "trl/trainer/utils.py create_model_from_path"),
	FW_KEY("model_init_kwargs.torch_dtype", "@dtype", LOADED, NULL, "trl/trainer/utils.py create_model_from_path"),
	FW_KEY("model_init_kwargs.attn_implementation", "attn", "flash*>flash;kernels-community/*flash*>flash;sdpa>sdpa;eager>eager;*>", NULL,
	       "transformers from_pretrained"),
	{"accelerate_config", .hook = true, .source = "trl/scripts/utils.py"},
	FW_KEY("activation_offloading", "offload-activations", NULL, NULL, CONFIG),
	FW_KEY("use_vllm", "rollouts", "true>engine;false>", NULL, "trl/trainer/grpo_config.py"),
	{"reward_model_path", .note = "a reward model on the card: more than is priced"},
	{"reward_model_name_or_path", .note = "a reward model on the card: more than is priced"},
	{"teacher_model_name_or_path", .note = "a teacher model on the card: more than is priced"},
	{"sync_ref_model", .note = "a reference model that is kept in step: more than is priced"},
	{"precompute_ref_batch_size", .hook = true},
	{"padding_free", .hook = true},
	{"packing_strategy", .hook = true},
	{.key = NULL},
};

static const char idle[] =
	"model_init_kwargs* router_aux_loss_coef chat_template_path dataset_text_field dataset_kwargs* "
	"eos_token truncation_mode shuffle_dataset pad_to_multiple_of eval_packing completion_only_loss "
	"assistant_only_loss pad_token disable_dropout loss_weights ld_alpha f_divergence_type "
	"f_alpha_divergence_coef label_smoothing use_weighting discopop_tau ref_model_mixup_alpha "
	"ref_model_sync_steps cast_lm_head_to_fp32 num_generations_eval ds3_gather_for_generation "
	"generation_batch_size steps_per_generation temperature top_p top_k min_p generation_kwargs* "
	"chat_template_kwargs* repetition_penalty cache_implementation vllm_* num_iterations epsilon "
	"delta epsilon_high sapo_* vespo_* importance_sampling_level reward_weights "
	"multi_objective_aggregation scale_rewards mask_truncated_completions top_entropy_quantile "
	"entropy_* use_adaptive_entropy max_tool_calling_iterations off_policy_mask_threshold "
	"use_bias_correction_kl log_completions log_multimodal num_completions_to_print "
	"log_unique_prompts log_completions_hub_repo use_transformers_* "
	"transformers_continuous_batching_config* normalize_advantages reward_clip_range "
	"dataset_train_split dataset_test_split dataset_streaming dataset_splits dataset_mixer* "
	"dataset_mixture* dataset_configs dataset_id_or_path dataset_prompt_column ignore_bias_buffers "
	"datasets* streaming test_split_size system_prompt benchmarks code_* spectrum_config_path "
	"auto_insert_empty_system_msg text_column prompt_column bench* num_cots kl_coef whiten_rewards "
	"missing_eos_penalty gradient_checkpointing_use_reentrant overwrite_* decontaminate* "
	"cosine_* repetition_* max_num_seqs reward_* ranking_* parallel_code_exec_per_proc "
	"e2b_router_url morph_router_url format_* config dataset_seed test_* columns push_* use_dpo* "
	"model_adapter_name ref_adapter_name reference_free force_use_ref_model generate_during_eval "
	"is_encoder_decoder base_model_attribute_name lr trl_* ddp_* wandb_* dataset_* hub_* "
	"tokenizer_* apply_chat_template";

enum generation { OLD, NEW };

static enum generation generation(const struct fw_part *p)
{
	static const char *const old[] = {"torch_dtype", "max_seq_length", "max_prompt_length",
					  "evaluation_strategy", "use_liger", "use_flash_attention_2",
					  "preprocessing_num_workers", "warmup_ratio", "dataset_mixer",
					  NULL};

	for (size_t i = 0; old[i]; i++)
		if (doc_below(fw_root(p), old[i]))
			return OLD;
	return fw_older(p, "transformers", 4, 53) ? OLD : NEW;  /* TRL 0.20, which brought bf16, wants 4.53.2 (setup.cfg) */
}

static void finish_length(struct fw_part *p)
{
	int64_t prompt, completion;

	hf_both_lengths(p);
	if (fw_on(p, "use_vllm"))
		fw_note(p, "use_vllm", "with vllm_mode colocate the engine takes its share of the card");
	if (fw_fact_is(p, "objective", "grpo") || fw_fact_is(p, "objective", "rloo")) {
		if (!doc_whole(fw_key(p, "max_completion_length"), &completion))
			completion = 512;
		if (doc_whole(fw_key(p, "max_prompt_length"), &prompt) && prompt > 0 &&
		    prompt < 100000000 && completion < 100000000)
			fw_set_whole(p, "seq-len", prompt + completion, "max_completion_length",
				     "prompt and completion");
		return;         /* the prompts' length is the data's */
	}
	fw_default(p, "seq-len", fw_fact_is(p, "objective", "online-dpo") ? "512" : "1024",
		   CONFIG ":205, dpo_config.py:188");
	if (trl_lacks_program(p) && !fw_fact_from_file(p, "seq-len"))
		fw_open(p, "seq-len", "the trainer is not named; its length is a guess");
}

static void finish_loss(struct fw_part *p, enum generation age)
{
	const char *type = fw_text(p, "loss_type");

	/* before 0.12 a policy with a head for values; trl/experimental/ppo/ppo_trainer.py since then */
	if (fw_fact_is(p, "objective", "ppo") && age != OLD)
		fw_set(p, "@price.objective", "ppo", NULL, NULL);
	if (*fw_fact(p, "loss"))
		return;
	/* SFTTrainer computes entropy and accuracy of the logits besides (sft_trainer.py compute_loss) */
	if (fw_fact_is(p, "objective", "sft"))
		fw_set(p, "@price.loss", "sft", NULL, NULL);
	if (!fw_fact_is(p, "objective", "sft"))
		fw_default(p, "loss", "plain", "log-probabilities of whole logits");
	else if (!strcasecmp(type, "chunked_nll"))
		fw_set(p, "loss", "chunked", "loss_type", CONFIG);
	else if (*type || age == OLD)
		fw_set(p, "loss", "plain", *type ? "loss_type" : NULL, CONFIG);
	else
		fw_default(p, "loss", "chunked", CONFIG ":334 chunked_nll");
	if (trl_lacks_program(p) && !*type)
		fw_open(p, "loss", "the trainer is not named; the loss of the one above is taken");
	if (fw_fact_is(p, "loss", "chunked"))
		fw_set(p, "@price.loss", "chunked-nll", NULL, NULL);
}

/* "--accelerate_config zero2": one of TRL's own profiles, or a file. */
static void finish_profile(struct fw_part *p)
{
	const char *profile = fw_text(p, "accelerate_config");

	if (!*profile || fw_follow(p, "accelerate_config", profile))
		return;
	fw_name_accelerate(p, "accelerate_config", profile);
	if (!strchr(profile, '.'))
		fw_default(p, "gpus", strcmp(profile, "single_gpu") ? "8" : "1",
			   "trl/accelerate_configs num_processes");
}

/* A rank of adapters without use_peft, which TRL's own commands pass over: most such files are those of somebody's script,
 * which makes them. */
static void unasked_adapters(struct fw_part *p)
{
	const char *file = fw_doc(p)->file ? fw_doc(p)->file : "", *name = strrchr(file, '/');

	if (*fw_fact(p, "method") || !fw_fact_from_file(p, "lora-r") || atoi(fw_fact(p, "lora-r")) < 1 || fw_key(p, "use_peft"))
		return;
	if (trl_launched(p)) {
		fw_set(p, "method", "full", NULL, MODEL ":103 use_peft");
		fw_open(p, "method", "a rank of adapters stands there and use_peft does not: TRL trains all weights");
		return;
	}
	fw_set(p, "method", "lora", NULL, "a rank of adapters");
	fw_open(p, "method", "a rank of adapters stands there and use_peft does not: LoRA is taken, as a script of one's own makes it; "
		"TRL's would train all weights");
	if (!*fw_fact(p, "base-bits") && strstr(name ? name : file, "qlora")) {
		fw_set(p, "base-bits", "4-nf4", NULL, "the file's name");
		fw_open(p, "base-bits", "taken from the file's name");
	}
}

static void finish(struct fw_part *p)
{
	const enum generation age = generation(p);

	finish_profile(p);
	if (age == NEW) {
		/* since 0.22, which wants 4.55 (huggingface/trl#3510, setup.cfg) */
		if (!fw_key(p, "gradient_checkpointing") && !fw_older(p, "transformers", 4, 55))
			fw_set(p, "grad-ckpt", "full", NULL, BASE ":61");
		if (!fw_key(p, "bf16") && !fw_on(p, "fp16"))
			fw_set(p, "@autocast", "bf16", NULL, BASE ":67");
	} else if (!fw_key(p, "optim")) {
		fw_set(p, "optimizer", "adamw", NULL, "transformers 4 training_args.py adamw_torch");
	}
	trl_objective(p);
	part_pair_loss(p, "loss_type");
	finish_length(p);
	if (!fw_fact_is(p, "objective", "grpo") && !fw_fact_is(p, "objective", "rloo") &&
	    !fw_fact_is(p, "objective", "ppo"))
		fw_unset(p, "completion-len");  /* of rollouts alone */
	finish_loss(p, age);
	unasked_adapters(p);
	if (!*fw_fact(p, "method"))
		fw_default(p, "method", "full", MODEL ":103 use_peft");
	if (fw_fact_is(p, "method", "lora")) {
		fw_default(p, "lora-r", "16", MODEL ":107");
		fw_default(p, "lora-dropout", "0.05", MODEL ":115");
	}
	/* 0.04 until 0.18; 0.19 wants transformers 4.51 (setup.cfg) */
	fw_compare_by_beta(p, fw_older(p, "transformers", 4, 51) ? 0.04 : 0, "trl/trainer/grpo_trainer.py: ref_model where beta is not 0");
	fw_default(p, "@dtype", "fp32", MODEL ":89");
	fw_default(p, "packing", "false", CONFIG ":225");
	hf_finish(p);
}

static const struct fw_row *const lists[] = {rows, hf_training_rows, hf_model_rows, NULL};
static const char *const idles[] = {idle, hf_training_idle, hf_model_idle, NULL};

const struct framework framework_trl = {
	.name = "trl",
	.summary = "TRL: TrlParser YAML, alignment-handbook, open-r1",
	.version = "TRL 1.10",
	.role = FW_TRAINER,
	.loop = "trainer",
	.wraps_replicas = true,
	.marks = "model_name_or_path+use_peft model_name_or_path+torch_dtype model_name_or_path+dtype dataset_mixer dataset_mixture "
		 "max_prompt_length max_completion_length num_generations reward_funcs "
		 "per_device_train_batch_size+max_length per_device_train_batch_size+beta "
		 "per_device_train_batch_size+packing per_device_train_batch_size+dataset_train_split "
		 "(program)+model_name_or_path+dataset_name (launcher)+model_name_or_path+dataset_name "
		 "dataset_id_or_path model_name_or_path+dataset_name+learning_rate per_device_train_batch_size+use_peft "
		 "per_device_train_batch_size+dataset_name per_device_train_batch_size+loss_type "
		 "per_device_train_batch_size+max_seq_length @objective",
	/* the second line: keys of scripts that hf_scripts.c has */
	.never = "zero_optimization finetuning_type cutoff_len block_size micro_batch_size sequence_len "
		 "load_in_kbits dataset_config_name conv_style lazy_preprocess source_max_len margin_scale template_name train_mode task_name",
	.own_scripts = true,
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
