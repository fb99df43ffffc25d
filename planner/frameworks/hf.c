/* transformers' TrainingArguments, and the options that scripts around it give models, adapters and
 * quantisation.  What frameworks built on it have in common. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define ARGS "transformers/training_args.py"
#define MODEL "trl/trainer/model_config.py"
/* transformers integrations/liger.py apply_liger_kernel hands the whole model to it; of rope, rms_norm, swiglu or geglu
 * and fused_linear_cross_entropy all are on by default, cross_entropy is off */
#define LIGER "linkedin/Liger-Kernel transformers/monkey_patch.py _apply_liger_kernel_to_instance"
#define NF4 "true>4-nf4;false>"
#define ADAPTED "true>lora;false>full"
#define COMPILE "true>true;false>false"

const struct fw_row hf_training_rows[] = {
	FW_KEY("per_device_train_batch_size", "micro-batch", NULL, "8", ARGS ":754"),
	FW_KEY("per_gpu_train_batch_size", "micro-batch", NULL, NULL, ARGS),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, "1", ARGS ":826"),
	FW_KEY("per_device_eval_batch_size", "eval-batch", NULL, "8", ARGS ":1083"),
	FW_KEY("per_gpu_eval_batch_size", "eval-batch", NULL, NULL, ARGS),
	/* a script may evaluate at its end whatever this says of the steps between; "steps" and "epoch" leave it told */
	FW_KEY("eval_strategy", "evaluates", "no>no;false>no;*>", NULL, ARGS " eval_strategy"),
	{.key = "evaluation_strategy", .knob = "evaluates", .map = "no>no;false>no;*>", .source = ARGS " evaluation_strategy",
	 .gone = "4.46"},
	FW_KEY("gradient_checkpointing", "grad-ckpt", "true>full;false>none;unsloth>full offload-activations=true",
	 "none", ARGS ":883"),
	FW_KEY("bf16", "@autocast", "true>bf16;false>", NULL, ARGS ":851"),
	FW_KEY("fp16", "@autocast", "true>fp16;false>", NULL, ARGS ":857"),
	FW_KEY("optim", "optimizer",
	 HF_OPTIMIZERS "*>=",
	 "adamw-fused", ARGS ":789, adamw_torch_fused from torch 2.8"),
	FW_KEY("adafactor", "optimizer", "true>adafactor;false>", NULL, ARGS),
	FW_KEY("use_liger_kernel", "loss", "true>fused;false>", NULL, ARGS),
	FW_KEY("use_liger", "loss", "true>fused;false>", NULL, ARGS),
	{"liger_kernel_config", .hook = true, .source = ARGS},
	FW_KEY("dataloader_num_workers", "dataloader-workers", NULL, NULL, ARGS ":1278"),
	FW_KEY("dataloader_prefetch_factor", "prefetch-factor", NULL, NULL, ARGS),
	FW_KEY("save_total_limit", "save-total-limit", NULL, NULL, ARGS),
	{"deepspeed", .hook = true, .source = ARGS ":1395"},
	{"fsdp", .hook = true, .source = ARGS ":1379"},
	{"fsdp_config", .hook = true, .source = ARGS ":1387"},
	FW_KEY("torch_compile", "compile", COMPILE, NULL, ARGS),
	FW_KEY("tf32", "tf32", "true>true;false>", NULL, ARGS),
	{"torch_compile_backend", .hook = true, .source = ARGS},
	{"torch_compile_mode", .hook = true, .source = ARGS},
	{"auto_find_batch_size",
	 .note = "the batch is halved until it fits: oomplan solve micro-batch says to what"},
	FW_KEY("label_smoothing_factor", "label-smoothing", NULL, NULL, ARGS),
	FW_KEY("neftune_noise_alpha", "neftune-noise-alpha", NULL, NULL, ARGS),
	FW_KEY("max_grad_norm", "max-grad-norm", NULL, NULL, ARGS),
	FW_KEY("predict_with_generate", "predict-with-generate", "true>true;false>false", NULL,
	       "transformers training_args_seq2seq.py"),
	FW_KEY("generation_max_length", "eval-new-tokens", NULL, NULL, "transformers training_args_seq2seq.py"),
	FW_KEY("generation_num_beams", "eval-beams", NULL, NULL, "transformers training_args_seq2seq.py"),
	{"parallelism_config", .note = "tensor or context parallelism: give --tp or --cp"},
	{"sharded_ddp", .note = "fairscale's shards of states, gradients or parameters: less than is priced"},
	{"use_cpu", .note = "the run is on the CPU: no GPU memory is used"},
	{"no_cuda", .note = "the run is on the CPU: no GPU memory is used"},
	FW_KEY("predict_with_generate", "predict-with-generate", "true>true;false>false", NULL,
	       "transformers training_args_seq2seq.py"),
	FW_KEY("generation_max_length", "eval-new-tokens", NULL, NULL, "transformers training_args_seq2seq.py"),
	FW_KEY("generation_num_beams", "eval-beams", NULL, NULL, "transformers training_args_seq2seq.py"),
	{.key = NULL},
};

const char hf_training_idle[] =
	"output_dir overwrite_output_dir num_train_epochs max_steps learning_rate lr_scheduler_type "
	"lr_scheduler_kwargs* warmup_steps warmup_ratio optim_args weight_decay adam_beta1 adam_beta2 "
	"adam_epsilon optim_target_modules average_tokens_across_devices bf16_full_eval "
	"fp16_full_eval gradient_checkpointing_kwargs* torch_compile_* "
	"use_cache torch_empty_cache_steps "
	"logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter "
	"include_num_input_tokens_seen include_tokens_per_second log_level log_level_replica "
	"disable_tqdm report_to run_name project trackio_* wandb_* "
	"eval_steps eval_delay prediction_loss_only eval_on_start eval_do_concat_batches "
	"eval_use_gather_object eval_accumulation_steps include_for_metrics include_inputs_for_metrics "
	"batch_eval_metrics save_only_model save_strategy save_steps save_on_each_node save_safetensors "
	"enable_jit_checkpoint push_to_hub push_to_hub_* hub_* load_best_model_at_end "
	"metric_for_best_model greater_is_better ignore_data_skip "
	"restore_callback_states_from_checkpoint full_determinism seed data_seed accelerator_config* "
	"dataloader_drop_last dataloader_pin_memory dataloader_persistent_workers "
	"remove_unused_columns label_names train_sampling_strategy length_column_name group_by_length "
	"ddp_* debug skip_memory_metrics do_train do_eval do_predict do_test resume_from_checkpoint "
	"logging_dir local_rank fp16_opt_level fp16_backend half_precision_backend tpu_* past_index "
	"use_mps_device use_ipex jit_mode_eval ray_scope mp_parameters dispatch_batches split_batches "
	"fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap use_legacy_prediction_loop "
	"generation_config "
	"sortish_sampler evaluate_during_training callbacks _n_gpu n_gpu";

const struct fw_row hf_model_rows[] = {
	FW_KEY("model_name_or_path", "model", NULL, NULL, MODEL ":81"),
	FW_KEY("model_id_or_path", "model", NULL, NULL, NULL),
	FW_KEY("pretrained_model_name_or_path", "model", NULL, NULL, NULL),
	FW_KEY("model_name", "model", NULL, NULL, NULL),
	FW_KEY("model_id", "model", NULL, NULL, NULL),
	FW_KEY("model_path", "model", NULL, NULL, NULL),
	FW_KEY("base_model_name_or_path", "model", NULL, NULL, NULL),
	FW_KEY("base_model", "model", NULL, NULL, NULL),
	FW_KEY("max_seq_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("max_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("model_max_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("max_seq_len", "seq-len", NULL, NULL, NULL),
	FW_KEY("block_size", "seq-len", NULL, NULL, NULL),
	FW_KEY("max_source_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("max_target_length", "tgt-len", NULL, NULL, NULL),
	FW_KEY("dtype", "@dtype",
	 "bfloat16>bf16;bf16>bf16;torch.bfloat16>bf16;float16>fp16;fp16>fp16;half>fp16;torch.float16>fp16;"
	 "float32>fp32;fp32>fp32;float>fp32;torch.float32>fp32;auto>auto",
	 NULL, MODEL ":89"),
	FW_KEY("torch_dtype", "@dtype",
	 "bfloat16>bf16;bf16>bf16;torch.bfloat16>bf16;float16>fp16;fp16>fp16;half>fp16;torch.float16>fp16;"
	 "float32>fp32;fp32>fp32;float>fp32;torch.float32>fp32;auto>auto",
	 NULL, "transformers modeling_utils.py"),
	/* peft examples/sft/utils.py create_and_prepare_model: the model is loaded in it */
	FW_KEY("bnb_4bit_quant_storage_dtype", "@dtype", "bfloat16>bf16;float16>fp16;float32>fp32;*>", NULL,
	       "peft examples/sft/utils.py"),
	FW_KEY("attn_implementation", "attn",
	 "flash_attention_2>flash;flash_attention_3>flash;flash*>flash;kernels-community/flash*>flash;"
	 "kernels-community/vllm-flash*>flash;sdpa>sdpa;eager>eager",
	 "sdpa", "transformers modeling_utils.py: sdpa where the model has it"),
	FW_KEY("use_flash_attn", "attn", "true>flash;false>", NULL, NULL),
	FW_KEY("use_flash_attention", "attn", "true>flash;false>", NULL, NULL),
	FW_KEY("use_flash_attention_2", "attn", "true>flash;false>", NULL, NULL),
	FW_KEY("flash_attention_2", "attn", "true>flash;false>", NULL, "xfactlab/orpo src/args.py"),
	FW_KEY("flash_attn", "attn", "true>flash;false>;flash*>flash;sdpa>sdpa;eager>eager;*>", NULL, NULL),
	FW_KEY("use_gradient_checkpointing", "grad-ckpt", "true>full;false>none;unsloth>full offload-activations=true", NULL,
	       NULL),
	FW_KEY("enable_gradient_checkpointing", "grad-ckpt", "true>full;false>none", NULL, NULL),
	FW_KEY("use_peft", "method", ADAPTED, NULL, MODEL ":103"),
	FW_KEY("use_peft_lora", "method", ADAPTED, NULL, NULL),
	FW_KEY("use_lora", "method", ADAPTED, NULL, NULL),
	FW_KEY("enable_lora", "method", ADAPTED, NULL, "xfactlab/orpo src/args.py"),
	FW_KEY("lora", "method", ADAPTED, NULL, "RUCAIBox/LLMBox training/train.py"),
	FW_KEY("lora_r", "lora-r", NULL, NULL, MODEL ":107"),
	FW_KEY("lora_rank", "lora-r", NULL, NULL, NULL),
	FW_KEY("peft_lora_r", "lora-r", NULL, NULL, "llm-jp-sft train.py"),
	FW_KEY("peft_lora_dropout", "lora-dropout", NULL, NULL, "llm-jp-sft train.py"),
	FW_KEY("peft_target_modules", "lora-targets", NULL, NULL, "llm-jp-sft train.py"),
	FW_KEY("peft_method", "method", "lora>lora;none>full", NULL, "fms-hf-tuning tuning/config/peft_config.py"),
	FW_KEY("r", "lora-r", NULL, NULL, "fms-hf-tuning tuning/config/peft_config.py"),
	FW_KEY("lora_target_all_linear_layers", "lora-targets", "true>all-linear;false>", NULL, "bofenghuang/vigogne vigogne/train_sft.py"),
	FW_KEY("lora_target_modules", "lora-targets", NULL, NULL, MODEL ":119"),
	FW_KEY("target_modules", "lora-targets", NULL, NULL, NULL),
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, MODEL ":115"),
	FW_KEY("load_in_4bit", "base-bits", NF4, NULL, MODEL ":156"),
	FW_KEY("use_4bit_quantization", "base-bits", NF4, NULL, NULL),
	FW_KEY("auto_gptq", "packed-weights", "*>parameters base-bits=4-gptq", NULL, "fms-acceleration framework_plugin_autogptq.py"),
	FW_KEY("use_qlora", "base-bits", "true>4-nf4 method=lora;false>", NULL, NULL),
	FW_KEY("q_lora", "base-bits", "true>4-nf4 method=lora;false>", NULL, NULL),
	FW_KEY("qlora", "base-bits", "true>4-nf4 method=lora;false>", NULL, NULL),
	FW_KEY("load_in_8bit", "base-bits", "true>8;false>", NULL, MODEL ":152"),
	FW_KEY("use_8bit_quantization", "base-bits", "true>8;false>", NULL, NULL),
	FW_KEY("bits", "base-bits", "4>4-nf4;8>8;16>16;32>16", NULL, NULL),
	FW_KEY("load_in_kbits", "base-bits", "4>4-nf4;8>8;16>16", NULL, "Chinese-LLaMA-Alpaca"),
	FW_KEY("load_in_bits", "base-bits", "4>4-nf4;8>8;16>16", NULL, "FlagAlpha/Llama2-Chinese"),
	FW_KEY("use_bnb_nested_quant", "double-quant", NULL, NULL, MODEL),
	FW_KEY("use_nested_quant", "double-quant", NULL, NULL, NULL),
	FW_KEY("double_quant", "double-quant", NULL, NULL, NULL),
	{"bnb_4bit_quant_type", .hook = true},
	{"@kbit-prepare", .hook = true},
	FW_KEY("use_dora", "use-dora", NULL, NULL, MODEL),
	FW_KEY("gradient_checkpointing_kwargs.use_reentrant", "use-reentrant", "true>true;false>false", NULL,
	       ARGS),
	FW_KEY("lora_modules_to_save", "modules-to-save", NULL, NULL, MODEL),
	FW_KEY("modules_to_save", "modules-to-save", NULL, NULL, "peft/tuners/lora/config.py"),
	FW_KEY("lora_bias", "lora-bias", "none>;all>all;lora_only>lora-only", NULL, "peft/tuners/lora/config.py"),
	{"lora_target_parameters",
	 .note = "adapters on parameters of experts: more than is priced"},
	FW_KEY("packing", "packing", "true>true;false>false", NULL, NULL),
	FW_KEY("device_map", "@device-map", "auto>auto;balanced*>auto;*>", NULL, "transformers from_pretrained"),
	/* beside the arguments where a run was saved with its model's config, which says what ran
	 * (PretrainedConfig.to_dict; integrations/integration_utils.py WandbCallback.setup) */
	FW_KEY("transformers_version", "transformers", NULL, NULL,
	       "transformers configuration_utils.py to_dict"),
	{.key = NULL},
};

const char hf_model_idle[] =
	"lora_alpha peft_lora_alpha use_rslora lora_task_type trust_remote_code tokenizer_name "
	"tokenizer_name_or_path model_revision config_name cache_dir token use_auth_token "
	"use_fast_tokenizer low_cpu_mem_usage bnb_4bit_compute_dtype bnb_4bit_quant_storage* "
	"dataset dataset_name dataset_config dataset_config_name train_file validation_file test_file "
	"dataset_num_proc preprocessing_num_workers overwrite_cache max_train_samples max_eval_samples "
	"max_predict_samples validation_split_percentage streaming keep_linebreaks data_path "
	"eval_data_path data_dir lazy_preprocess chat_template chat_template_path";

/* Does it say LoRA anywhere? */
static void finish_method(struct fw_part *p)
{
	if (!*fw_fact(p, "method"))
		fw_set(p, "method", atoi(fw_fact(p, "lora-r")) > 0 ? "lora" : "full",
		       fw_key(p, "lora_r") ? "lora_r" : NULL, "no adapter is asked for");
	if (fw_fact_is(p, "base-bits", "4-nf4") && !strcmp(fw_text(p, "bnb_4bit_quant_type"), "fp4"))
		fw_set(p, "base-bits", "4-fp4", "bnb_4bit_quant_type", NULL);
}

void fw_take_lisa(struct fw_part *p, const char *key)
{
	char pattern[80];
	int64_t n;

	if (!doc_whole(fw_key(p, key), &n) || n < 1)
		return;
	if (n > 10) {
		fw_unmodelled(p, key, "LISA trains a few layers at a time: less than is priced");
		return;
	}
	/* all that is in no numbered layer, and layers 0 to n - 1 */
	snprintf(pattern, sizeof(pattern), "^[^0-9]*$|^[^0-9]*\\.[0-%d]\\.", (int)n - 1);
	fw_set(p, "train", pattern, key, "arXiv:2403.17919: these layers at a time");
}

/* A backend or a mode alone asks for it, whatever torch_compile says (TrainingArguments
 * __post_init__). */
void hf_compile(struct fw_part *p)
{
	const char *key = *fw_text(p, "torch_compile_backend") ? "torch_compile_backend" :
			  *fw_text(p, "torch_compile_mode")    ? "torch_compile_mode" : NULL;

	if (key && !fw_on(p, "torch_compile"))
		fw_set(p, "compile", "true", key, ARGS " __post_init__");
	fw_take_compile(p, "torch_compile_backend", "torch_compile_mode");
}

/* Is a part of Liger's on?  liger_kernel_config is handed to its function for the model as keyword arguments. */
static bool liger_part(const struct fw_part *p, const char *name, bool otherwise)
{
	char path[80];

	snprintf(path, sizeof(path), "liger_kernel_config.%s", name);
	return fw_on(p, path) || (otherwise && !fw_off(p, path));
}

void hf_liger(struct fw_part *p, const char *const *keys)
{
	const char *key = NULL;
	bool norm, glu;

	for (size_t i = 0; keys[i]; i++)
		key = fw_on(p, keys[i]) ? keys[i] : key;
	if (!key)
		return;
	norm = liger_part(p, "rms_norm", true);
	glu = liger_part(p, "swiglu", true) && liger_part(p, "geglu", true);
	if (norm || glu)
		fw_set(p, "liger-kernels", !glu ? "norm" : !norm ? "glu" : "all", key, LIGER);
	if (norm && glu && !liger_part(p, "rope", true))
		fw_note(p, "liger_kernel_config", "rotary positions stay PyTorch's, which need a little more than is priced");
	if (!liger_part(p, "fused_linear_cross_entropy", true))
		fw_set(p, "loss", liger_part(p, "cross_entropy", false) ? "in-place" : "plain", "liger_kernel_config",
		       LIGER);
}

static bool is_length(const struct fw_part *p, const char *key, int64_t *tokens)
{
	return doc_whole(fw_key(p, key), tokens) && *tokens > 0 && *tokens < 100000000;
}

/* MedicalGPT's options, also those of LLaMA-Factory's scripts of 2023: a prompt and its answer are one row, as long as
 * both (shibing624/MedicalGPT training/dpo_training.py full_max_length; LLaMA-Factory 0.1 llmtuner/dsets/preprocess.py,
 * max_source_length + max_target_length). */
void hf_both_lengths(struct fw_part *p)
{
	int64_t prompt, answer;

	if (!is_length(p, "max_source_length", &prompt) || !is_length(p, "max_target_length", &answer))
		return;
	fw_set_whole(p, "seq-len", prompt + answer, "max_target_length", "prompt and answer in one row");
	fw_unset(p, "tgt-len");
}

void hf_finish(struct fw_part *p)
{
	const struct doc_node *fsdp = fw_key(p, "fsdp");

	hf_compile(p);
	hf_liger(p, (const char *const[]){"use_liger_kernel", "use_liger", NULL});
	fw_take_deepspeed(p, "deepspeed");
	/* words are transformers 4's form, where version 1 is the default; 5.12 has a flag and
	 * FSDP2 (training_args.py:2736) */
	fw_take_fsdp(p, "fsdp", "fsdp_config",
		     fsdp && (doc_is_true(fsdp) || fsdp->kind != DOC_SCALAR) ? "fsdp2" : "fsdp1");
	finish_method(p);
	if (fw_key(p, "max_source_length") && !*fw_fact(p, "tgt-len") && !strcmp(fw_fact(p, "seq-len"), fw_text(p, "max_source_length")))
		fw_open(p, "seq-len", "the prompt's alone: what an answer adds is not said; where both are one row: --seq-len");
	if (fw_on(p, "@kbit-prepare") && *fw_fact(p, "base-bits") && !fw_fact_is(p, "base-bits", "16")) {
		fw_set(p, "kbit-prepare", "true", NULL, "the script calls prepare_model_for_kbit_training");
		fw_set(p, "grad-ckpt", "full", NULL, "peft/utils/other.py prepare_model_for_kbit_training");
	}
	fw_default(p, "@autocast", "no", ARGS " bf16, fp16");
	fw_default(p, "engine", "hf", "Trainer itself");
	fw_default(p, "loss", "plain", ARGS " use_liger_kernel");
}

/* adamw_torch until torch 2.8 made another of it.  A key that transformers 4.46 had dropped dates a file before that. */
static void finish_optimizer(struct fw_part *p)
{
	static const char *const old[] = {"evaluation_strategy", "per_gpu_train_batch_size", "sharded_ddp",
					  "use_legacy_prediction_loop", NULL};
	bool dated = fw_older(p, "transformers", 4, 46) || fw_older(p, "torch", 2, 8);

	if (fw_fact_from_file(p, "optimizer") || !fw_fact_is(p, "optimizer", "adamw-fused"))
		return;
	for (size_t i = 0; old[i]; i++)
		dated |= doc_below(fw_root(p), old[i]) != NULL;
	/* DeepSpeed's Adam is FusedAdam, where its file has an optimizer of its own */
	if (fw_fact_is(p, "engine", "deepspeed") && fw_by_name(p, "deepspeed"))
		fw_open(p, "optimizer", "a DeepSpeed file that is not at hand may have its own (FusedAdam, which is taken) or "
			"leave Trainer's");
	else if (dated)
		fw_set(p, "optimizer", "adamw", NULL, "transformers 4 training_args.py adamw_torch");
	else
		fw_open(p, "optimizer", "nothing dates the file: adamw_torch_fused, today's default; older transformers take "
			"adamw_torch, which needs more at the step");
}

/* What a script hands to LoraConfig where its command says nothing, its own options say. */
static void finish_adapters(struct fw_part *p)
{
	static const char *const knobs[][2] = {{"lora-r", "8"}, {"lora-dropout", "0"}};

	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		if (*fw_fact(p, knobs[i][0]))
			continue;
		fw_default(p, knobs[i][0], knobs[i][1], "peft LoraConfig");
		if (!fw_fact_is(p, "@known-script", "true") && !fw_script_read(p))
			fw_open(p, knobs[i][0], "the script may have a default of its own: PEFT's is taken");
	}
}

static void finish(struct fw_part *p)
{
	hf_script(p);
	hf_finish(p);
	finish_optimizer(p);
	/* no key, no name of a script says otherwise: next tokens, rows padded to the longest */
	if (fw_key(p, "(program)")) {
		fw_default(p, "objective", "sft", "no key asks for another");
		fw_default(p, "packing", "false", "transformers/data/data_collator.py pads");
	}
	if (!*fw_fact(p, "model"))
		return;
	/* transformers 4 loads fp32 where nothing is said, 5 what config.json says */
	fw_default(p, "@dtype", "fp32", "transformers 4 from_pretrained");
	if (fw_fact_is(p, "method", "lora"))
		finish_adapters(p);
}

static const struct fw_row *const lists[] = {hf_training_rows, hf_model_rows, hf_script_rows, NULL};
static const char *const idles[] = {hf_training_idle, hf_model_idle, hf_script_idle, NULL};

const struct framework framework_hf = {
	.name = "hf-trainer",
	.summary = "transformers' TrainingArguments: YAML, JSON, training_args.json",
	.version = "transformers 5.12",
	.role = FW_TRAINER,
	.loop = "trainer",
	.wraps_replicas = true,
	.marks = "per_device_train_batch_size gradient_accumulation_steps+learning_rate "
		 "output_dir+learning_rate zero_stage+lora_dim",
	.never = "zero_optimization finetuning_type cutoff_len micro_batch_size sequence_len",
	/* transformers' examples/pytorch */
	.programs = "qlora run_language_modeling run_clm run_clm_no_trainer run_fim run_mlm run_mlm_no_trainer run_plm run_glue run_glue_no_trainer "
		    "run_classification run_summarization run_summarization_no_trainer run_translation "
		    "run_translation_no_trainer run_qa run_qa_no_trainer run_seq2seq_qa run_ner run_ner_no_trainer run_swag",
	.own_scripts = true,
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
