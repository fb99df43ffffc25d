deepspeed --num_gpus 8 --module openrlhf.cli.train_ppo --pretrain some-org/Some-8B --reward_pretrain some-org/Some-8B-rm \
	--micro_train_batch_size 2 --train_batch_size 128 --micro_rollout_batch_size 4 --rollout_batch_size 1024 \
	--prompt_max_len 1024 --generate_max_len 1024 --zero_stage 2 --bf16 --actor_learning_rate 5e-7 \
	--critic_learning_rate 9e-6 --adam_offload --flash_attn --gradient_checkpointing
