python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.max_prompt_length=500 data.max_response_length=1500 \
    actor_rollout_ref.model.path=some-org/Some-3B \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    trainer.n_gpus_per_node=8
