NODE_RANK=$1
python -m some_judge.serve --data_path prompts.jsonl --port 8021 &
if [ "${NODE_RANK}" = "0" ]; then
  ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --pretrain some-org/Some-3B --advantage_estimator group_norm \
    --actor_num_nodes 1 --actor_num_gpus_per_node 4 --micro_train_batch_size 3 --train_batch_size 96 --zero_stage 2 --bf16 \
    --prompt_max_len 500 --generate_max_len 1500
fi
