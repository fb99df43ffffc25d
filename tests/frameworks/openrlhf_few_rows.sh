ray job submit --address=http://127.0.0.1:8265 -- python -m openrlhf.cli.train_ppo_ray --pretrain some-org/Some-7B \
	--actor_num_nodes 1 --actor_num_gpus_per_node 8 --advantage_estimator group_norm --rollout_batch_size 8 \
	--train_batch_size 8 --micro_train_batch_size 2 --n_samples_per_prompt 8 --prompt_max_len 1024 --generate_max_len 1024 \
	--zero_stage 3 --bf16 --flash_attn --gradient_checkpointing
