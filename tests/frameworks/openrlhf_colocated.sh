ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray --pretrain some-org/Some-8B \
	--actor_num_nodes 1 --actor_num_gpus_per_node 8 --critic_num_nodes 1 --critic_num_gpus_per_node 8 --colocate_all_models \
	--micro_train_batch_size 1 --train_batch_size 128 --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16 \
	--flash_attn --gradient_checkpointing
