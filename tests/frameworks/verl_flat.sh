model=$1
python3 -c "
import torch
print('cards', torch.cuda.device_count(), 'of --nodes', 2)
"
if [ $NODE_RANK == 0 ]
then
ray start --head --port=6379 &
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=48 \
    data.max_prompt_length=700 \
    data.max_response_length=1300 \
    actor_rollout_ref.model.path="${model}" \
    actor_rollout_ref.actor.strategy=fsdp \
    actor_rollout_ref.actor.ppo_mini_batch_size=24 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3 \
    +actor_rollout_ref.actor.fsdp_config.model_dtype=bf16 \
    trainer.n_gpus_per_node=4 trainer.nnodes=2
else
ray start --address=$HEAD:6379
sleep infinity
fi
