deepspeed --module openrlhf.cli.train_own_critic --pretrain some-org/Some-1B --micro_train_batch_size 2 --train_batch_size 64 \
	--prompt_max_len 256 --generate_max_len 512 --zero_stage 2 --actor_learning_rate 5e-7 --critic_learning_rate 9e-6
