python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=256 \
	data.max_response_length=512 actor_rollout_ref.model.path=some-org/Some-3B actor_rollout_ref.actor.ppo_mini_batch_size=32 \
	actor_rollout_ref.actor.ppo_micro_batch_size=16 actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=8 trainer.nnodes=1
