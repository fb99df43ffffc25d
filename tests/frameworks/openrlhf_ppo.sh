ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{"working_dir": "/w"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes 1 --ref.num_gpus_per_node 8 --actor.num_nodes 2 --actor.num_gpus_per_node 8 \
   --vllm.num_engines 8 --train.colocate_all --algo.advantage.estimator group_norm \
   --actor.model_name_or_path some-org/Some-8B --train.micro_batch_size 4 --train.batch_size 128 \
   --data.max_len 2048 --ds.zero_stage 3 --actor.gradient_checkpointing_enable
