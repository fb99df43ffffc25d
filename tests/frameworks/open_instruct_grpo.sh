python open_instruct/grpo_fast.py --model_name_or_path some-org/Base-7B --dataset_mixer_list some/set 1.0 \
  --num_unique_prompts_rollout 16 --num_samples_per_prompt_rollout 4 --deepspeed_stage 3 \
  --num_learners_per_node 6 4 --pack_length 5120 --response_length 4096 --gradient_checkpointing --single_gpu_mode False
