/* The options of ms-swift's commands, versions 2, 3 and 4, and of its Megatron mode. */
#include "ms_swift.h"

#define FROZEN "a part is frozen: less than is priced"
#define THAWED "parts train that others of their kind do not: more than is priced"
#define METHOD "lora>lora;full>full;longlora>lora;qlora>lora base-bits=4-nf4;adalora>lora peft-type=adalora;" \
	"vera>lora peft-type=vera;boft>lora peft-type=boft;fourierft>lora peft-type=fourierft;bone>lora peft-type=miss"

const struct fw_row ms_swift_rows[] = {
	FW_KEY("model", "model", NULL, NULL, BASE "/model_args.py:68"),
	FW_KEY("model_id_or_path", "model", NULL, NULL, "swift 2 utils/argument.py"),
	FW_KEY("ckpt_dir", NULL, NULL, NULL, NULL),
	{"load", .hook = true, .source = MEGATRON}, {"mcore_model", .hook = true, .source = MEGATRON},
	{"model_type", .hook = true},
	FW_KEY("tuner_type", "method", METHOD, NULL, TUNER),
	FW_KEY("train_type", "method", METHOD, NULL, TUNER),
	FW_KEY("sft_type", "method", METHOD, NULL, "swift 2 utils/argument.py"),
	FW_KEY("per_device_train_batch_size", "micro-batch", NULL, NULL, ARGS ":129"),
	FW_KEY("micro_batch_size", "micro-batch", NULL, NULL, MEGATRON),
	FW_KEY("batch_size", "micro-batch", NULL, NULL, "swift 2 utils/argument.py"),
	FW_KEY("per_device_eval_batch_size", "eval-batch", NULL, NULL, ARGS ":130"),
	FW_KEY("eval_batch_size", "eval-batch", NULL, NULL, "swift 2 utils/argument.py"),
	FW_KEY("global_batch_size", "global-batch", NULL, NULL, MEGATRON),
	{"gradient_accumulation_steps", .hook = true, .source = ARGS ":283"},
	{"max_length", .hook = true, .source = BASE "/base_args.py:196"},
	{"max_completion_length", .hook = true},
	FW_KEY("gradient_checkpointing", "grad-ckpt", "true>full;false>none", NULL, ARGS ":134"),
	FW_KEY("recompute_granularity", "grad-ckpt", "full>full;selective>selective;none>none", NULL,
	       MEGATRON ":449"),
	FW_KEY("torch_dtype", "@dtype", "bfloat16>bf16;float16>fp16;float32>fp32;auto>", NULL,
	       BASE "/model_args.py:74"),
	FW_KEY("dtype", "@dtype", "bf16>bf16;fp16>fp16;fp32>fp32;bfloat16>bf16;float16>fp16;auto>;AUTO>", NULL,
	       "swift 2 utils/argument.py"),
	FW_KEY("attn_impl", "attn", "flash_attn>flash;flash_attention_2>flash;flash_attention_3>flash;flash*>flash;"
	       "sdpa>sdpa;eager>eager", NULL, BASE "/model_args.py"),
	FW_KEY("use_flash_attn", "attn", "true>flash;false>eager;auto>sdpa;none>sdpa", NULL, "swift 2 llm/utils/model.py _attn_implementation"),
	FW_KEY("attention_backend", "attn", "flash>flash;fused>flash;auto>flash;unfused>eager;local>eager", NULL,
	       MEGATRON),
	FW_KEY("lora_rank", "lora-r", NULL, NULL, TUNER ":133"),
	/* which of them counts the kind of adapters decides */
	FW_KEY("adalora_init_r", "lora-r", NULL, NULL, TUNER), FW_KEY("vera_rank", "lora-r", NULL, NULL, TUNER),
	FW_KEY("boft_block_size", "lora-r", NULL, NULL, TUNER), FW_KEY("fourier_n_frequency", "lora-r", NULL, NULL, TUNER),
	FW_KEY("reft_rank", "lora-r", NULL, NULL, TUNER),
	{"split_dataset_ratio", .hook = true}, {"val_dataset", .hook = true},
	FW_KEY("lora_dropout", "lora-dropout", NULL, NULL, TUNER),
	FW_KEY("max_grad_norm", "max-grad-norm", NULL, NULL, ARGS),
	FW_KEY("neftune_noise_alpha", "neftune-noise-alpha", NULL, NULL, "transformers integrations/neftune.py"),
	FW_KEY("lora_dropout_p", "lora-dropout", NULL, NULL, "swift 2 utils/argument.py"),
	FW_KEY("target_modules", "lora-targets", NULL, NULL, TUNER ":126"),
	{"lora_target_modules", .hook = true, .source = "swift 2 utils/argument.py"},
	{"quant_bits", .hook = true}, {"quantization_bit", .hook = true}, {"quant_method", .hook = true},
	{"rlhf_type", .hook = true}, {"task_type", .hook = true},
	FW_KEY("packing", "packing", "true>true;false>false", NULL, BASE),
	FW_KEY("padding_free", NULL, NULL, NULL, NULL), /* the cap of a row stays */
	FW_KEY("freeze_llm", "freeze-language-model", "true>true;false>false", NULL, "swift/arguments/tuner_args.py"),
	FW_KEY("freeze_vit", "freeze-vision-tower", "true>true;false>false", NULL, "swift/arguments/tuner_args.py"),
	FW_KEY("freeze_aligner", "freeze-projector", "true>true;false>false", NULL, "swift/arguments/tuner_args.py"),
	FW_KEY("deepspeed_config_path", NULL, NULL, NULL, NULL),
	{"sequence_parallel_size", .hook = true, .source = "swift/sequence_parallel"},
	FW_KEY("use_dora", "use-dora", NULL, NULL, TUNER),
	FW_KEY("modules_to_save", "modules-to-save", NULL, NULL, TUNER),
	FW_KEY("lora_bias", "lora-bias", "none>;all>all", NULL, TUNER),
	FW_KEY("num_labels", "num-labels", NULL, NULL, BASE "/model_args.py"),
	FW_KEY("use_vllm", "rollouts", "true>engine;false>", NULL, "swift/arguments/rlhf_args.py"),
	{"vllm_mode", .hook = true}, {"vllm_gpu_memory_utilization", .hook = true}, {"sleep_level", .hook = true},
	FW_KEY("max_pixels", NULL, NULL, NULL, NULL),         /* images are told of as such */
	{"use_precision_aware_optimizer", .note = "states of the optimizer in other widths than are priced"},
	FW_KEY("use_galore", "optimizer", "true>galore;false>", NULL, GALORE),
	{"galore_rank", .hook = true, .source = GALORE},
	{"galore_quantization", .hook = true, .source = GALORE},
	{"lisa_activated_layers", .hook = true, .source = LISA},
	{"reward_model", .note = "a reward model on the card: more than is priced"},
	{"teacher_model", .note = "a teacher model on the card: more than is priced"},
	{"ref_model", .note = "a reference of its own on the card: with adapters more than is priced"},
	{"fsdp_num", .hook = true},
	/* while completions are generated, not in the step */
	FW_KEY("offload_model", NULL, NULL, NULL, NULL), FW_KEY("offload_optimizer", NULL, NULL, NULL, NULL),
	FW_KEY("optimizer_cpu_offload", "offload-optimizer", "true>cpu;false>none", NULL, MEGATRON),
	FW_KEY("tensor_model_parallel_size", "tp", NULL, NULL, MEGATRON),
	FW_KEY("pipeline_model_parallel_size", "pp", NULL, NULL, MEGATRON),
	FW_KEY("context_parallel_size", "cp", NULL, NULL, MEGATRON),
	FW_KEY("expert_model_parallel_size", "ep", NULL, NULL, MEGATRON),
	FW_KEY("sequence_parallel", "sp", NULL, NULL, MEGATRON),
	FW_KEY("virtual_pipeline_model_parallel_size", "vpp", NULL, NULL, MEGATRON),
	FW_KEY("decoder_first_pipeline_num_layers", "pp-first-layers", NULL, NULL, MEGATRON),
	FW_KEY("decoder_last_pipeline_num_layers", "pp-last-layers", NULL, NULL, MEGATRON),
	FW_KEY("account_for_embedding_in_pipeline_split", "pp-embedding", NULL, NULL, MEGATRON),
	FW_KEY("account_for_loss_in_pipeline_split", "pp-loss", NULL, NULL, MEGATRON),
	FW_KEY("pipeline_model_parallel_layout", "pp-layout", NULL, NULL, MEGATRON),
	FW_KEY("mtp_num_layers", "mtp-num-layers", NULL, NULL, MEGATRON),
	FW_KEY("expert_tensor_parallel_size", "etp", NULL, NULL, MEGATRON),
	{"optimizer", .hook = true, .source = MEGATRON},
	FW_KEY("tuner_backend", "@backend", "unsloth>unsloth;*>", NULL, TUNER),
	{"freeze_parameters_ratio", .note = FROZEN}, {"freeze_parameters", .note = FROZEN},
	{"freeze_parameters_regex", .note = FROZEN}, {"trainable_parameters", .note = THAWED},
	{"trainable_parameters_regex", .note = THAWED},
	{"loss_type", .hook = true}, {"loss_scale", .hook = true}, {"enable_dft_loss", .hook = true},
	{"enable_channel_loss", .hook = true},
	{"recompute_method", .hook = true}, {"recompute_num_layers", .hook = true},
	{"optimizer_offload_fraction", .hook = true},
	{"fp8_format", .note = "fp8: copies of weights and inputs in 8 bit beside the 16-bit ones"},
	{"fp8_param_gather", .note = "weights are kept in fp8: less than is priced"},
	{.key = NULL},
};
const char ms_swift_idle[] =
	"dataset dataset_* cached_dataset template* system model_name model_author adalora_* vera_* boft_* fourier_* reft_* "
	"lora_alpha lora_dtype init_weights init_lora_weights use_rslora lorap_* "
	"train_dataset_* val_dataset_* custom_* max_length_* truncation_strategy loss_scale preprocess_num_proc "
	"lazy_tokenize streaming shuffle* strict check_* eval_* save_* logging_* logprobs predict_* generation_* "
	"output_dir learning_rate lr* min_lr weight_decay warmup_* num_train_epochs train_iters max_epochs "
	"add_version use_hf hub_* push_* create_checkpoint_* ignore_args_error seed load_* merge_lora "
	"use_chat_template agent_* acc_* metric* report_to swanlab_* wandb_* max_new_tokens temperature top_* "
	"repetition_penalty do_sample num_beams stop_words response_prefix resume_* no_* only_save_model finetune "
	"cross_entropy_loss_fusion moe_* distributed_* overlap_* "
	"beta epsilon* num_generations reward_* steps_per_generation generation_batch_size "
	"vllm_* sglang_* lmdeploy_* infer_backend log_* async_generate num_infer_workers num_iterations kl_* "
	"importance_sampling_level advantage_* scale_rewards dynamic_sample overlong_filter soft_* cosine_* "
	"loss_type* rpo_alpha cpo_alpha simpo_gamma desirable_weight undesirable_weight center_rewards_* "
	"label_smoothing problem_type additional_saved_files padding_side use_logits_to_keep "
	"device_map max_memory local_repo_path model_kwargs rope_scaling zero_hpz_partition_size "
	"bnb_4bit_* quant_* gptq_* hqq_* galore_* lisa_* use_loss_scale ddp_* self_cognition_sample "
	"disable_tqdm dataloader_* enable_cache test_oom_error prompt lmbda seq_kd sft_alpha temp* tokens* "
	"attention_* normalization bias_* group_* apply_* gradient_accumulation_fusion te_* "
	"add_* adam_* clip_grad external_plugins multi_turn_scheduler max_turns completion_length_limit_scope "
	"offload_bridge num_workers context_* decoder_* mlp_* router_* use_* vit_* aligner_* "
	"train_* channels safe_serialization save bridge_* convert_* mcore_* masked_* val_* config "
	"(launcher) (program) (words) (files)";
