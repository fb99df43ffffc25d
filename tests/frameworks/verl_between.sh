python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=some-org/Small-7B \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 data.max_prompt_length=512 data.max_response_length=256 \
  actor_rollout_ref.actor.fsdp_config.param_offload=True trainer.n_gpus_per_node=8
