python3 -m some_fork.verl.trainer.main_ppo actor_rollout_ref.model.path=some-org/Small-7B \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 data.max_prompt_length=512 data.max_response_length=256
