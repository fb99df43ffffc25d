/* LLaMA-Factory's YAML in the form of its examples: Trainer's keys under its own defaults
 * (src/llamafactory/hparams).  The newer form with peft_config and dist_config is llamafactory_v1.c. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define DATA "llamafactory/hparams/data_args.py"
#define TUNING "llamafactory/hparams/finetuning_args.py"
#define MODEL "llamafactory/hparams/model_args.py"
#define FP8 "llamafactory/train/fp8_utils.py"
#define ADAPTER "llamafactory/model/adapter.py"

static const struct fw_row rows[] = {
	FW_KEY("cutoff_len", "seq-len", NULL, "2048", DATA ":46"),
	FW_KEY("stage", "objective", "sft>sft;pt>pretrain;rm>reward;ppo>ppo;dpo>dpo;kto>kto;orpo>orpo",
	       "sft", TUNING ":460"),
	FW_KEY("finetuning_type", "method", "lora>lora;full>full;freeze>freeze;oft>lora peft-type=oft", "lora",
	       TUNING ":464"),
	FW_KEY("lora_rank", "lora-r", NULL, "8", TUNING ":77"),
	FW_KEY("lora_target", "lora-targets", NULL, "all-linear", TUNING ":81"),
	FW_KEY("lora_dropout", "lora-dropout", NULL, "0", TUNING),
	FW_KEY("oft_block_size", "lora-r", NULL, NULL, TUNING ":147"), {"oft_rank", .hook = true, .source = TUNING ":143"},
	FW_KEY("oft_target", NULL, NULL, NULL, TUNING ":151"), {"module_dropout", .hook = true, .source = TUNING},
	{"pref_loss", .hook = true, .source = TUNING},
	FW_KEY("flash_attn", "attn",
	       "fa2>flash;fa3>flash;flash_attention_2>flash;sdpa>sdpa;disabled>eager;auto>sdpa;true>flash",
	       "sdpa", MODEL ":117"),
	{"quantization_bit", .hook = true, .source = MODEL ":283"},
	{"quantization_method", .hook = true, .source = MODEL},
	{"quantization_type", .hook = true, .source = MODEL},
	FW_KEY("double_quantization", "double-quant", NULL, NULL, MODEL),
	FW_KEY("disable_gradient_checkpointing", "grad-ckpt", "true>none;false>full", "full",
	       "llamafactory/model/model_utils/checkpointing.py:184"),
	FW_KEY("gradient_checkpointing", NULL, NULL, NULL, NULL),       /* the key above decides */
	/* of answers that it generates (generating_args.py), not of what it trains on, as scripts around Trainer have it */
	FW_KEY("max_length", NULL, NULL, NULL, NULL),
	{"pure_bf16", .hook = true, .source = ADAPTER},
	FW_KEY("enable_liger_kernel", "loss", "true>fused;false>", NULL, MODEL),
	FW_KEY("packing", "packing", "true>true;false>false", NULL, DATA),
	FW_KEY("neat_packing", "packing", "true>true;false>", NULL, DATA),
	{"eval_strategy", .hook = true},
	{"evaluation_strategy", .hook = true, .gone = "4.46"},
	FW_KEY("val_size", NULL, NULL, NULL, NULL),
	{"eval_dataset", .hook = true},
	FW_KEY("use_galore", "optimizer", "true>galore;false>", NULL, TUNING),
	FW_KEY("use_apollo", "optimizer", "true>apollo;false>", NULL, TUNING),
	FW_KEY("use_adam_mini", "optimizer", "true>adam-mini;false>", NULL, TUNING),
	FW_KEY("use_muon", "optimizer", "true>muon;false>", NULL, TUNING),
	FW_KEY("low_cpu_mem_usage", "low-cpu-mem", NULL, NULL, MODEL),
	/* mcore_adapter */
	{"use_mca", .hook = true},
	FW_KEY("tensor_model_parallel_size", "tp", NULL, NULL, "mcore_adapter"),
	FW_KEY("pipeline_model_parallel_size", "pp", NULL, NULL, "mcore_adapter"),
	FW_KEY("virtual_pipeline_model_parallel_size", "vpp", NULL, NULL, "mcore_adapter"),
	FW_KEY("expert_model_parallel_size", "ep", NULL, NULL, "mcore_adapter"),
	FW_KEY("context_parallel_size", "cp", NULL, NULL, "mcore_adapter"),
	FW_KEY("sequence_parallel", "sp", NULL, NULL, "mcore_adapter"),
	FW_KEY("use_distributed_optimizer", "zero", "true>1;false>0", NULL, "mcore_adapter"),
	FW_KEY("recompute_granularity", "grad-ckpt", "full>full;selective>selective", NULL,
	       "mcore_adapter"),
	{"use_badam", .note = "BAdam trains one block at a time: less than is priced"},
	{"galore_layerwise", .note = "updates in backward: less than is priced"},
	{"apollo_layerwise", .note = "updates in backward: less than is priced"},
	FW_KEY("additional_target", "modules-to-save", NULL, NULL, TUNING ":81"),
	FW_KEY("use_dora", "use-dora", NULL, NULL, TUNING),
	{"use_unsloth", .note = "unsloth's kernels: less than is priced"},
	FW_KEY("use_unsloth_gc", "offload-activations", NULL, NULL, MODEL),
	{"use_llama_pro", .note = "only added blocks train: less than is priced"},
	{"mixture_of_depths", .note = "tokens skip layers: not modelled"},
	{"use_asft_loss", .note = "a whole reference model and its logits: more than is priced"},
	{"ref_model", .note = "a reference model: more than is priced"},
	{"reward_model", .note = "a reward model on the card: more than is priced"},
	FW_KEY("fp8", "fp8", "true>tensorwise;false>none", NULL, FP8),
	{"fp8_backend", .hook = true, .source = FP8}, {"fp8_enable_fsdp_float8_all_gather", .hook = true, .source = FP8},
	{"use_kt", .note = "KTransformers keeps experts in host memory: less than is priced"},
	FW_KEY("freeze_vision_tower", "freeze-vision-tower", "true>true;false>false", "true", TUNING " of models that see"),
	FW_KEY("freeze_multi_modal_projector", "freeze-projector", "true>true;false>false", "true",
	       TUNING " of models that see"),
	FW_KEY("freeze_language_model", "freeze-language-model", NULL, NULL, MODEL),
	{"upcast_layernorm", .note = "norms in fp32: slightly more than is priced"},
	{"upcast_lmhead_output", .note = "logits in fp32: more than is priced"},
	{"image_max_pixels", .note = "images: their tokens count as text does; see --images"},
	{"video_maxlen", .note = "at most so many frames of each video, of which the price has none: see --video-frames"},
	{"video_max_pixels", .note = "videos: their tokens count as text does; see --images"},
	{.key = NULL},
};

static const char idle[] =
	"_kt_adapter_artifact_path _kt_config_handle _kt_inference_config account_for_* "
	"account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split adam_beta1 "
	"adam_beta2 adapter_folder adapter_name_or_path add_special_tokens add_tokens apollo_* "
	"apply_rope_fusion asft_alpha assistant_tag audio_sampling_rate badam_* batch_size "
	"batching_strategy bf16_full_eval bias_activation_fusion block_diag_attn buffer_size "
	"cache_dir calculate_per_token_loss compute_accuracy compute_dtype content_tag cp_mode "
	"create_new_adapter crop_to_patches cross_entropy_loss_fusion data_shared_file_system "
	"dataset dataset_* dataset_dir ddp_timeout default_system device_map dft_* "
	"disable_shuffling dist_config dist_config.* do_eval do_sample do_train download_mode "
	"dpo_label_smoothing eaft_alpha early_stopping_steps enable_* enable_thinking "
	"enable_torch_profiler eval_* export_* extra_config formatting "
	"freeze_* freeze_extra_modules freeze_trainable_modules "
	"galore_* hf_hub_token hyper_parallel_args hyper_parallel_cp_size "
	"ignore_pad_token_for_loss image_do_pan_and_scan image_min_pixels "
	"include_effective_tokens_per_second infer_backend infer_dtype init_config init_config.* "
	"init_special_tokens interleave_probs kernel_config kernel_config.* kt_* "
	"kto_chosen_weight kto_rejected_weight lang ld_alpha learning_rate length_penalty "
	"logging_steps lora_alpha loraplus_* loraplus_lr_embedding loraplus_lr_ratio "
	"lr_scheduler_type mask_history masked_softmax_fusion master_addr master_port "
	"max_new_tokens max_samples max_steps mca_* media_dir megatron_bridge_args "
	"megatron_pretrained_checkpoint messages mix_strategy mixed_precision model_class "
	"model_max_length model_name_or_path model_revision moe_* "
	"moe_aux_loss_coef moe_grouped_gemm moe_token_dispatcher_type ms_hub_token n_shot "
	"new_special_tokens_config num_beams num_train_epochs offload_folder om_hub_token optim_config optim_config.* output_dir overlap_* "
	"overlap_grad_reduce overlap_param_gather overwrite_cache overwrite_output_dir "
	"pissa_convert pissa_init pissa_iter plot_loss ppo_* predict_* pref_bco_weight pref_beta "
	"pref_ftx preprocessing_batch_size preprocessing_num_workers preserve_thinking "
	"print_param_status profile_modules profiler_* quantization_device_map ray_init_kwargs "
	"ray_num_workers recompute_method recompute_num_layers ref_model_adapters "
	"ref_model_quantization_bit repetition_penalty resize_vocab resume_from_checkpoint "
	"reward_model_adapters reward_model_quantization_bit reward_model_type role_tag "
	"rope_scaling run_name sample_backend save_dir save_only_model save_steps seed sglang_* "
	"shift_attn shuffle simpo_gamma skip_special_tokens split_special_tokens streaming "
	"swanlab_* task task_dir temperature template tokenized_path tool_format top_k top_p "
	"train_dataset train_from_scratch train_on_prompt trust_remote_code use_audio_in_video "
	"use_dft_loss use_eaft_loss use_fast_tokenizer use_hyper_parallel use_kv_cache "
	"use_megatron_bridge use_packed_sequences use_reentrant_gc use_rslora use_swanlab "
	"use_v1_kernels user_tag video_fps video_min_pixels vllm_* warmup_ratio "
	"warmup_steps weight_decay";

/* Keys of today's examples that those of 0.9.1 (2024, transformers up to 4.46) did not have. */
static bool is_dated(const struct fw_part *p)
{
	static const char *const newer[] = {"report_to", "dataloader_num_workers", "save_only_model",
					    "trust_remote_code", "image_max_pixels", "fp8", NULL};

	for (size_t i = 0; newer[i]; i++)
		if (doc_find(fw_doc(p), newer[i]))
			return true;
	return false;
}

static void finish_optimizer(struct fw_part *p)
{
	const bool older = fw_older(p, "transformers", 4, 46) || fw_older(p, "torch", 2, 8);

	if (fw_fact_from_file(p, "optimizer") || (is_dated(p) && !older))
		return;
	fw_set(p, "optimizer", "adamw", NULL, "transformers up to 4.46 training_args.py adamw_torch");
	if (!older)
		fw_open(p, "optimizer",
			"nothing dates the file: adamw_torch, the larger of the defaults, is taken");
}

static void finish_base(struct fw_part *p)
{
	const char *method = fw_text(p, "quantization_method");
	char word[40] = "";
	int64_t bits;

	if (!doc_whole(fw_key(p, "quantization_bit"), &bits))
		return;
	if (!*method || !strcmp(method, "bnb") || !strcmp(method, "bitsandbytes"))
		fw_set(p, "base-bits",
		       bits == 8 ? "8" : !strcmp(fw_text(p, "quantization_type"), "fp4") ? "4-fp4" : "4-nf4",
		       "quantization_bit", MODEL ":283");
	else if (strlen(method) < 20) {
		word[0] = (char)('0' + (bits >= 0 && bits <= 9 ? bits : 4));
		word[1] = '-';
		strcpy(word + 2, method);
		fw_set(p, "base-bits", word, "quantization_bit", MODEL);
	}
}

/* Weights load in config.json's format (model/loader.py:154), 16 bit for nearly all; what trains is
 * then cast to fp32 unless pure_bf16 (adapter.py:337-349). */
static void finish_precision(struct fw_part *p)
{
	const bool pure = fw_on(p, "pure_bf16"), full = fw_fact_is(p, "method", "full");

	if (pure) {
		fw_set(p, "@dtype", "bf16", "pure_bf16", ADAPTER);
		fw_set(p, "@autocast", "no", "pure_bf16", ADAPTER);
		return;
	}
	fw_default(p, "@autocast", "no", "llamafactory/hparams/parser.py");
	fw_set(p, "@dtype", full ? "fp32" : fw_fact_is(p, "@autocast", "fp16") ? "fp16" : "bf16", NULL,
	       full ? ADAPTER ":337" : "llamafactory/model/loader.py:154");
}

/* The environment says fp8 to accelerate, which takes its own recipe: the one that is made beside it is logged alone. */
static void finish_fp8(struct fw_part *p)
{
	const char *backend = fw_text(p, "fp8_backend");

	if (!fw_on(p, "fp8"))
		return;
	fw_set(p, "@autocast", "bf16", "fp8", FP8 " configure_fp8_environment");
	if (!strcmp(backend, "te") || !strcmp(backend, "msamp")) {
		fw_unset(p, "fp8");
		fw_unmodelled(p, "fp8", "fp8 products of TransformerEngine or MS-AMP are priced as bf16");
	} else {
		fw_take_fp8(p, "tensorwise", "fp8", "fp8_enable_fsdp_float8_all_gather", FP8);
	}
}

static void finish_eval(struct fw_part *p)
{
	const char *strategy = fw_text(p, "eval_strategy");

	if (!*strategy)
		strategy = fw_text(p, "evaluation_strategy");
	if (!*strategy || !strcmp(strategy, "no"))
		fw_set(p, "eval-batch", "0", NULL, "transformers training_args.py eval_strategy");
}

/* Preferences: log_softmax of an fp32 copy of all logits (dpo/trainer.py concatenated_forward, kto/trainer.py forward). */
static bool takes_logps(const struct fw_part *p)
{
	return fw_fact_is(p, "objective", "dpo") || fw_fact_is(p, "objective", "orpo") || fw_fact_is(p, "objective", "simpo") ||
	       fw_fact_is(p, "objective", "kto");
}

/* Stages other than pt and sft need the logits: Liger's modules come without its fused loss (model/loader.py
 * require_logits, model/model_utils/liger_kernel.py). */
static void finish_liger(struct fw_part *p)
{
	hf_liger(p, (const char *const[]){"use_liger_kernel", "enable_liger_kernel", NULL});
	if (takes_logps(p)) {
		fw_set(p, "loss", "outside", NULL, "llamafactory/train/trainer_utils.py get_batch_logps, of logits.to(torch.float32)");
		/* 0.8 wants transformers 4.41, 0.9.4 takes what 0.9.3 does not; KTO's forward names what it hands on */
		if (fw_older(p, "transformers", 4, 53) && !fw_older(p, "transformers", 4, 41) && !fw_fact_is(p, "objective", "kto"))
			fw_set(p, "spare-loss", "true", NULL, "LLaMA-Factory 0.8 to 0.9.3, model(**batch) with its labels");
		return;
	}
	if (fw_on(p, "enable_liger_kernel") && !fw_fact_is(p, "objective", "sft") && !fw_fact_is(p, "objective", "pretrain"))
		fw_set(p, "loss", "plain", "enable_liger_kernel", "llamafactory/model/model_utils/liger_kernel.py");
}

/* Rotations in blocks; their layers are lora_target's as well: oft_target is read and never used (model/adapter.py).  PEFT
 * makes the blocks' size of a number of them, oft_rank, which no knob says. */
static void finish_oft(struct fw_part *p)
{
	const bool oft = fw_fact_is(p, "peft-type", "oft");
	const char *key = oft ? "oft_block_size" : "lora_rank", *size = fw_text(p, key);

	fw_set(p, "lora-r", *size ? size : oft ? "32" : "8", key, oft ? TUNING ":147" : TUNING ":77");
	if (!oft)
		return;
	fw_set(p, "lora-dropout", "0", NULL, TUNING " module_dropout");
	if (atoi(fw_text(p, "oft_rank")) > 0)
		fw_unmodelled(p, "oft_rank", "blocks by their number: blocks of oft_block_size are priced");
	if (strtod(fw_text(p, "module_dropout"), NULL) > 0)
		fw_unmodelled(p, "module_dropout", "masks of the dropped blocks: slightly more than is priced");
}

static void finish(struct fw_part *p)
{
	static const char *const of_mca[] = {"use_mca", "tensor_model_parallel_size", "pipeline_model_parallel_size",
					     "expert_model_parallel_size"};
	const char *loss = fw_text(p, "pref_loss");

	if (fw_key(p, "recompute_granularity"))
		fw_set(p, "grad-ckpt", fw_text(p, "recompute_granularity"), "recompute_granularity", NULL);
	if (!strcmp(loss, "simpo") || !strcmp(loss, "orpo"))
		fw_set(p, "objective", loss, "pref_loss", TUNING);
	fw_default(p, "packing", fw_fact_is(p, "objective", "pretrain") ? "true" : "false",
		   DATA " packing: in pre-training");
	/* 0.9.1 of November 2024, which takes transformers up to 4.46.1, was the first with 2048 (1e6f965) */
	if (!fw_key(p, "cutoff_len") && fw_older(p, "transformers", 4, 46))
		fw_set(p, "seq-len", "1024", NULL, "LLaMA-Factory before 0.9.1 hparams/data_args.py cutoff_len");
	hf_both_lengths(p);
	finish_optimizer(p);
	finish_base(p);
	fw_take_deepspeed(p, "deepspeed");
	fw_take_fsdp(p, "fsdp", "fsdp_config", "fsdp1");
	/* USE_MCA of the environment takes keys that the parser refuses without it (llamafactory/hparams/parser.py) */
	for (size_t i = 0; i < sizeof(of_mca) / sizeof(of_mca[0]); i++)
		if (fw_key(p, of_mca[i]) && !fw_off(p, of_mca[i]))
			fw_set(p, "engine", "megatron", of_mca[i], "mcore_adapter");
	finish_precision(p);
	finish_fp8(p);
	finish_eval(p);
	hf_compile(p);
	finish_liger(p);
	finish_oft(p);
	fw_default(p, "engine", "hf", "no deepspeed or fsdp key");
	if (fw_fact_is(p, "objective", "reward"))
		fw_unset(p, "loss");
	else
		fw_default(p, "loss", "plain", "transformers loss_utils.py");
}

static const struct fw_row *const lists[] = {rows, hf_training_rows, hf_model_rows, NULL};
static const char *const idles[] = {idle, hf_training_idle, hf_model_idle, NULL};

const struct framework framework_llamafactory = {
	.name = "llamafactory",
	.summary = "LLaMA-Factory's YAML",
	.version = "LLaMA-Factory 0.9.4",
	.role = FW_TRAINER,
	.loop = "trainer",
	.marks = "finetuning_type cutoff_len+stage cutoff_len+dataset stage+template",
	.never = "zero_optimization base_model dist_config micro_batch_size",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
