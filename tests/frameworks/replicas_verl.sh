python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.actor.fsdp_config.fsdp_size=4 \
    data.max_prompt_length=512 data.max_response_length=512 trainer.n_gpus_per_node=8 trainer.nnodes=2
