/* The keys of axolotl's YAML, each with its default, from its schemas (src/axolotl/utils/schemas). */
#include "axolotl.h"

/* fused RMSNorm, SwiGLU and rope keep less (Liger), LoRA kernels recompute their inputs */
#define KERNEL "a fused kernel: less than is priced"

const struct fw_row axolotl_rows[] = {
	FW_KEY("base_model", "model", NULL, NULL, "axolotl/utils/schemas/model.py:17"),
	FW_KEY("micro_batch_size", "micro-batch", NULL, "1", TRAINING ":77"),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, "1", TRAINING ":71"),
	FW_KEY("sequence_len", "seq-len", NULL, "512", SCHEMA ":665"),
	FW_KEY("optimizer", "optimizer",
	       HF_OPTIMIZERS
	       /* its own: torchao's, optimi's, flash-attn's and others by name */
	       "ao_adamw_4bit>adamw-4bit;ao_adamw_8bit>adamw-torchao-8bit;ao_adamw_fp8>adamw-torchao-fp8;lion_pytorch>lion;"
	       "came_pytorch>came;muon>muon;dion>dion;flash_adamw>adamw-fused;flash_adam>adamw-fused;optimi_adamw>adamw;"
	       "adopt_adamw>adamw;flash_sgd>sgd;flash_sgdw>sgd;q_galore_adamw8bit>galore;galore_*>galore;*>=",
	       "adamw-fused", TRAINING ":122"),
	FW_KEY("gradient_checkpointing", "grad-ckpt",
	       "true>full;false>none;unsloth>full offload-activations=true;"
	       "offload>full offload-activations=true;offload_disk>full offload-activations=true",
	       "none", SCHEMA ":600"),
	{"activation_offloading", .hook = true, .source = BUILDER ":592"},
	{"bf16", .hook = true, .source = NORMALIZE},
	{"fp16", .hook = true, .source = NORMALIZE},
	{"bfloat16", .hook = true, .source = NORMALIZE},
	{"float16", .hook = true, .source = NORMALIZE},
	FW_KEY("attn_implementation", "attn",
	       "flash_attention_2>flash;flash_attention_3>flash;flash*>flash;"
	       "kernels-community/*>flash;sage>flash;s2>flash;sdpa>sdpa;eager>eager;xformers>xformers;"
	       "flex_attention>flex",
	       NULL, SCHEMA ":839"),
	FW_KEY("tf32", "tf32", "true>true;false>;auto>", NULL, SCHEMA),
	FW_KEY("flash_attention", "attn", "true>flash;false>", NULL, SCHEMA ":803"),
	FW_KEY("xformers_attention", "attn", "true>xformers;false>", NULL, SCHEMA ":784"),
	FW_KEY("sdp_attention", "attn", "true>sdpa;false>", NULL, SCHEMA),
	FW_KEY("eager_attention", "attn", "true>eager;false>", NULL, SCHEMA),
	FW_KEY("flex_attention", "attn", "true>flex;false>", NULL, SCHEMA),
	FW_KEY("sage_attention", "attn", "true>flash;false>", NULL, SCHEMA),
	FW_KEY("s2_attention", "attn", "true>flash;false>", NULL, SCHEMA),
	FW_KEY("adapter", "method", "lora>lora;qlora>lora;llama-adapter>lora", NULL, PEFT ":41"),
	FW_KEY("lora_r", "lora-r", NULL, NULL, PEFT ":53"),
	FW_KEY("lora_dropout", "lora-dropout", NULL, "0", PEFT ":80"),
	FW_KEY("max_grad_norm", "max-grad-norm", NULL, NULL, TRAINING),
	FW_KEY("neftune_noise_alpha", "neftune-noise-alpha", NULL, NULL, "transformers integrations/neftune.py"),
	FW_KEY("noisy_embedding_alpha", "neftune-noise-alpha", NULL, NULL, "axolotl utils/schemas/config.py"),
	{"lora_target_linear", .hook = true, .source = PEFT ":58"},
	FW_KEY("lora_target_modules", "lora-targets", NULL, NULL, PEFT ":56"),
	FW_KEY("load_in_4bit", "base-bits", "true>4-nf4;false>", NULL, PEFT ":37"),
	FW_KEY("load_in_8bit", "base-bits", "true>8;false>", NULL, PEFT ":31"),
	FW_KEY("gptq", "base-bits", "true>4-gptq;false>", NULL, PEFT),
	FW_KEY("bnb_config_kwargs.bnb_4bit_use_double_quant", "double-quant", NULL, NULL,
	       "axolotl/loaders/model.py"),
	{"plugins", .hook = true, .source = SCHEMA ":1423"},
	{"cut_cross_entropy", .hook = true, .source = "axolotl/integrations/cut_cross_entropy/args.py"},
	{.key = "liger_fused_linear_cross_entropy", .knob = "loss", .map = "true>fused;false>",
	 .source = "axolotl/integrations/liger/args.py", .needs = "plugins=[axolotl.integrations.liger.LigerPlugin]"},
	FW_KEY("chunked_cross_entropy", "loss", "true>chunked;false>", NULL, SCHEMA),
	FW_KEY("sample_packing", "packing", "true>true;false>false", "false", SCHEMA ":688"),
	FW_KEY("eval_batch_size", "eval-batch", NULL, NULL, TRAINING),
	{"val_set_size", .hook = true, .source = BUILDER ":515"},
	{"test_datasets", .hook = true, .source = BUILDER ":515"},
	{"evals_per_epoch", .hook = true, .source = NORMALIZE},
	{"num_epochs", .hook = true, .source = NORMALIZE},
	{"eval_steps", .hook = true, .source = BUILDER ":518"},
	{"eval_strategy", .hook = true, .source = BUILDER ":522"},
	{"evaluation_strategy", .hook = true, .source = BUILDER ":522"},
	FW_KEY("rl", "objective",
	       "gdpo>grpo;grpo>grpo;dpo>dpo;ipo>dpo;kto>kto;orpo>orpo;simpo>simpo;*>=", NULL,
	       SCHEMA " rl"),
	FW_KEY("reward_model", "objective", "true>reward;false>", NULL, SCHEMA),
	FW_KEY("process_reward_model", "objective", "true>reward;false>", NULL, SCHEMA),
	{"pretraining_dataset", .hook = true, .source = SCHEMA},
	{"deepspeed", .hook = true, .source = SCHEMA ":1032"},
	{"fsdp", .hook = true, .source = SCHEMA ":1044"},
	{"fsdp_config", .hook = true, .source = SCHEMA ":1049"},
	{"fsdp_version", .hook = true, .source = SCHEMA},
	FW_KEY("fsdp_config.fsdp_state_dict_type", "save-sharded",
	       "sharded_state_dict>true;full_state_dict>false;local_state_dict>true", NULL, SCHEMA),
	FW_KEY("fsdp_config.state_dict_type", "save-sharded",
	       "sharded_state_dict>true;full_state_dict>false;local_state_dict>true", NULL, SCHEMA),
	{"fsdp_config.activation_checkpointing", .hook = true, .source = SCHEMA},
	{"fsdp_config.fsdp_activation_checkpointing", .hook = true, .source = SCHEMA},
	FW_KEY("context_parallel_size", "cp", NULL, NULL, SCHEMA),
	FW_KEY("sequence_parallel_degree", "cp", NULL, NULL, SCHEMA),
	FW_KEY("tensor_parallel_size", "tp", NULL, NULL, SCHEMA),
	FW_KEY("expert_parallel_size", "ep", NULL, NULL, SCHEMA),
	{"dp_shard_size", .hook = true, .source = SCHEMA},
	{"dp_replicate_size", .hook = true, .source = SCHEMA},
	FW_KEY("dataloader_num_workers", "dataloader-workers", NULL, NULL, TRAINING),
	{"ray_num_workers", .hook = true, .source = "axolotl/utils/schemas/integrations.py:167"}, {"use_ray", .hook = true},
	FW_KEY("dataloader_prefetch_factor", "prefetch-factor", NULL, NULL, TRAINING),
	FW_KEY("save_total_limit", "save-total-limit", NULL, NULL, SCHEMA),
	FW_KEY("low_cpu_mem_usage", "low-cpu-mem", NULL, NULL, SCHEMA),
	FW_KEY("num_labels", "num-labels", NULL, NULL, SCHEMA),
	{"batch_size", .hook = true, .source = NORMALIZE},
	{"liger_glu_activation", .hook = true, .source = LIGER},
	{"liger_swiglu", .hook = true, .source = LIGER},
	{"liger_rms_norm", .hook = true, .source = LIGER},
	{"liger_layer_norm", .hook = true, .source = LIGER},
	{"liger_rms_norm_gated", .note = KERNEL},
	{"lora_mlp_kernel", .note = KERNEL},
	{"lora_qkv_kernel", .note = KERNEL},
	{"lora_o_kernel", .note = KERNEL},
	{"lora_embedding_kernel", .note = KERNEL},
	{"use_kernels", .note = KERNEL},
	{"use_scattermoe", .note = "another kernel for experts"},
	{"use_sonicmoe", .note = "another kernel for experts"},
	{"tiled_mlp", .note = "feed-forward layers in tiles of the sequence: less than is priced"},
	{"unfrozen_parameters", .hook = true, .source = "axolotl/utils/freeze.py"},
	FW_KEY("freeze_mm_modules", "freeze-vision-tower", NULL, NULL, PEFT),
	FW_KEY("lora_modules_to_save", "modules-to-save", NULL, NULL, PEFT),
	FW_KEY("peft_layers_to_transform", "layers-to-transform", NULL, NULL, PEFT),
	{"lora_target_parameters", .note = "adapters on parameters of experts: more than is priced"},
	{"quantize_moe_experts", .hook = true, .source = "axolotl/monkeypatch/moe_quant.py"},
	FW_KEY("peft_use_dora", "use-dora", NULL, NULL, PEFT),
	FW_KEY("gradient_checkpointing_kwargs.use_reentrant", "use-reentrant", "true>true;false>false", NULL,
	       SCHEMA),
	{"relora", .note = "ReLoRA merges adapters as it goes: more at that moment"},
	{"relora_steps", .note = "ReLoRA merges adapters as it goes: more at that moment"},
	{"lisa_n_layers", .hook = true, .source = "axolotl/utils/callbacks/lisa.py"},
	{"qat", .note = "quantisation-aware training keeps fake-quantised copies: more than is priced"},
	FW_KEY("fp8", "fp8", "true>tensorwise;false>none", NULL, "axolotl/core/trainers/base.py additional_accelerator_args"),
	{"fp8_enable_fsdp_float8_all_gather", .hook = true, .source = SCHEMA},
	/* "auto": from PyTorch 2.5.1 on (check_torch_compile_auto) */
	FW_KEY("torch_compile", "compile", "true>true;auto>true;false>false", NULL, SCHEMA),
	{"torch_compile_backend", .hook = true}, {"torch_compile_mode", .hook = true},
	{"model_quantization_config", .note = "the base is loaded as this says: priced as its own config has it"},
	{"layer_offloading", .note = "frozen layers wait in host memory: less than is priced"},
	FW_KEY("reinit_weights", NULL, NULL, NULL, NULL),
	{"auto_find_batch_size",
	 .note = "the batch is halved until it fits: oomplan solve micro-batch says to what"},
	{"trl.use_vllm", .note = "a rollout engine; in colocate mode it takes its share of the card"},
	{"image_size", .note = "images: their tokens count as text does; see --images, --image-size"},
	{"kd_trainer", .note = "distillation keeps the teacher's log-probabilities: more than is priced"},
	{.key = NULL},
};

const char axolotl_idle[] =
	"accelerator_config accelerator_config.* activation_checkpointing activation_dtype adam_* "
	"adaptive_max_tokens added_tokens_overrides additional_special_tokens advantage_estimator "
	"alignment_coef api_key async_prefetch auto_resume_from_checkpoints auto_wrap_policy "
	"axolotl_config_path backend base_model_config base_model_ignore_patterns base_url "
	"batch_flattening bench_dataset bench_split beta bnb_config_kwargs bos_token capabilities "
	"ce_coef center_rewards_coefficient chat_template chat_template_jinja "
	"chat_template_kwargs check_interval chosen_format chunked_cross_entropy_num_chunks "
	"cls_model_config comet_* completion_format compute_capability context_length "
	"conversation cosine_constant_lr_ratio cosine_min_lr_ratio cpo_alpha "
	"cpu_offload_pin_memory cpu_ram_efficient_loading curriculum_sampling data_files "
	"data_parallel_size dataloader_drop_last dataloader_pin_memory "
	"dataset_exact_deduplication dataset_keep_in_memory dataset_num_proc "
	"dataset_prepared_path dataset_processes dataset_shard_idx dataset_shard_num datasets ddp "
	"ddp_* debug deepcompile default_system_message dense_mixer device device_map diffusion "
	"diffusion.* dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of "
	"diversity_coef do_bench_eval do_causal_lm_eval dpo_beta dpo_generate_during_eval "
	"dpo_label_smoothing dpo_loss_type dpo_loss_weights dpo_norm_loss dpo_padding_free "
	"dpo_use_liger_kernel dpo_use_logits_to_keep dpo_use_weighting drop_system_message "
	"ds_type dsv4_* dtype dynamic_checkpoint eaft_alpha eaft_k early_stopping_patience ebft "
	"ebft.* embed_method embedding_lr embedding_lr_scale embeddings_skip_upcast "
	"enable_prefix_caching enable_reasoning enabled end enforce_eager env_capabilities "
	"eos_token eot_tokens eps epsilon epsilon_high eta_min eval_* excess_length_strategy "
	"experimental_skip_move_to_device expert_backend expert_parallel_backend "
	"expert_parallel_fallback_on_unsupported expert_parallel_num_nvl_bytes "
	"expert_parallel_num_rdma_bytes expert_parallel_token_capacity experts_implementation "
	"fake_quant_after_n_steps feature_layers field field_chosen field_completion field_human "
	"field_input field_instruction field_label field_messages field_model field_output "
	"field_prompt field_rejected field_system field_thinking field_tools "
	"final_state_dict_type fix_untrained_tokens flash_attn_cross_entropy flash_attn_d512 "
	"flash_attn_fuse_mlp flash_attn_fuse_qkv flash_attn_rms_norm flash_optimum "
	"flex_attn_compile_kwargs flex_attn_compile_kwargs.* float32 format fp32_norm_classes "
	"fp32_norms fsdp_config.* fsdp_final_state_dict_type "
	"fused_attn_kernel future_timeout gc_collect_steps gc_steps gemma4_fp8_nonexpert "
	"gemma4_hybrid_attn_impl gemma4_nf4_nonexpert generate_max_len generate_samples "
	"generation_batch_size generation_do_sample generation_interval generation_kwargs "
	"generation_max_length generation_max_new_tokens generation_prompt_ratio generation_steps "
	"generation_temperature generation_top_k generation_top_p gptq_* gpu_memory_limit "
	"gpu_memory_utilization gradient_checkpointing_kwargs gradient_checkpointing_kwargs.* "
	"gradio_* greater_is_better grokfast_alpha grokfast_lamb group_by_length group_size "
	"gt_length_multiplier hatchery heads_k_stride hf_mlflow_log_artifacts hf_use_auth_token ";
const char axolotl_idle_on[] =
	"host hub_* image_resize_algorithm importance_sampling_level importance_weighting "
	"include_end include_start include_tkps include_tokens_per_second input_format "
	"input_transform is_falcon_derived_model is_llama_derived_model is_mistral_derived_model "
	"is_multimodal is_preprocess is_qwen_derived_model jagged_restart_anneal_steps "
	"jagged_restart_steps jagged_restart_warmup_steps kd_* kto_desirable_weight "
	"kto_undesirable_weight large_head_attention learning_rate length liger_cross_entropy "
	"liger_rope liger_use_token_scaling lisa_layers_attribute lisa_step_interval "
	"llama4_linearized_experts llmcompressor llmcompressor.* lm_eval_batch_size lm_eval_model "
	"lm_eval_post_train lm_eval_tasks load_best_model_at_end local_rank loftq_bits "
	"loftq_config log_completions logging_steps logprobs_field lora_alpha lora_alpha_pattern "
	"lora_fan_in_fan_out lora_kernels lora_model_dir lora_on_cpu lora_rank lora_rank_pattern "
	"loraplus_lr_embedding loraplus_lr_ratio loss_fn loss_fn_config loss_type "
	"loss_watchdog_patience loss_watchdog_threshold lr lr_* mask_token_id mask_token_str "
	"mask_truncated_completions max_completion_length max_input_id "
	"max_mask_ratio max_memory max_model_len max_packed_sequence_len max_prompt_len "
	"max_sample_tokens max_steps mean_resizing_embeddings merge_lora merge_method "
	"message_field_content message_field_role message_field_training "
	"message_field_training_detail message_property_mappings metric_for_best_model "
	"min_completion_prefix min_input_id min_mask_ratio min_num_params min_p min_sample_len "
	"mixed_precision_policy mlflow_* mode model_quantization_config_kwargs model_type modules "
	"moe_bnb_fast moe_dequant_chunk_size moe_grouped_backend mora mora_type "
	"multi_objective_aggregation multipack_real_batches n_gpu n_node n_samples_per_prompt "
	"name nemo_gym_* no_input_format noise_schedule "
	"nonexpert_quantization num_completions_to_print num_dataset_shards_to_save "
	"num_diffusion_steps num_generation_samples num_generations num_iterations num_samples "
	"nvfp4_merge_aware nvfp4_merge_aware_start_step off_policy_mask_threshold offload "
	"offload_params optim_args optim_target_modules orpo_alpha otel_metrics_host "
	"otel_metrics_port output_dir overrides_of_model_config overrides_of_model_kwargs "
	"pad_to_multiple_of pad_to_sequence_len pad_token path peft peft_autocast_adapter_dtype "
	"peft_ensure_weight_tying peft_init_lora_weights peft_layer_replication "
	"peft_layers_pattern peft_trainable_token_indices "
	"peft_use_rslora pipeline port pose_max_context_len pose_num_chunks "
	"pose_split_on_token_ids precompute_ref_log_probs prefetch_depth preprocess_iterable "
	"preprocess_shards pretrain_multipack_attn pretrain_multipack_buffer_size "
	"pretraining_dataset.* pretraining_sample_concatenation processor_kwargs processor_type "
	"profiler_steps profiler_steps_start project_id prompt_format push_dataset_to_hub "
	"qgalore_* qlora_sharded_model_loading quantization quantize_embedding "
	"ray_run_name reasoning_parser recipe recompute_layer_types ref_model_mixup_alpha "
	"ref_model_sync_steps rejected_format relora_* remove_unused_columns repetition_penalty "
	"replay_buffer_size replay_recompute_logps reroll_max_groups reroll_start_fraction ";
const char axolotl_idle_last[] =
	"reshard_after_forward resize_token_embeddings_to_32x resources_per_worker "
	"resume_from_checkpoint revision revision_of_model reward_funcs reward_num_workers "
	"reward_weights ring_attn_func rl_beta rl_coef role role_boundaries roles roles_to_train "
	"rollout_func rope_scaling rpo_alpha sample_packing_* sample_temperature save "
	"save_compressed save_first_step save_name_prefix save_only_model save_safetensors "
	"save_sliding_window save_steps save_strategy saves_per_epoch scale_rewards "
	"scaling_softmax scaling_softmax_bias scaling_softmax_factor sdpa_varlen seed "
	"selective_checkpointing sequence_length serve_module shards shards_idx "
	"shared_params_checkpoint_folder shrink_embeddings shuffle_before_merging_datasets "
	"shuffle_merged_datasets simpo_gamma skip skip_prepare_dataset "
	"skip_zero_advantage_batches special_tokens special_tokens.* spectrum_model_name "
	"spectrum_top_fraction split split_thinking start state_dict_type step_separator "
	"streaming streaming_* strict stride swanlab_* sync_module_states sync_ref_model "
	"system_format system_prompt temperature template_thinking_key text_column "
	"tiled_mlp_num_shards tiled_mlp_use_original_mlp tokenizer_* tokens tokens.* top_k top_p "
	"torch_compile_options torch_empty_cache_steps "
	"torch_version torchdistx_path total_num_tokens total_supervised_tokens trackio_* "
	"train_attn train_mlp train_on_eos train_on_eot train_on_inputs train_on_last_step_only "
	"train_unembed trainer_cls transformer_layer_cls_to_wrap trigger_file_path trl trl.* "
	"trust_remote_code type type_of_model unk_token unsloth_* use_bias_correction_kl "
	"use_comet use_data_producer use_dsv4_kernels use_eaft use_glm_dsa_kernels use_liger_loss "
	"use_mlflow use_mora use_onebitllms use_orig_params use_otel_metrics use_pose "
	"use_swanlab use_tensorboard use_trackio use_vllm use_wandb use_whitening vllm vllm_* "
	"wandb_* warmup_ratio warmup_steps weight_decay weight_dtype worker_extension_cls "
	"world_size";
