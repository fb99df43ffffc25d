NPROC_PER_NODE=8 megatron sft --model example-org/Moe-30B --tuner_type full --tensor_model_parallel_size 4 \
    --expert_model_parallel_size 8 --expert_tensor_parallel_size 1 --micro_batch_size 1 --global_batch_size 16 \
    --max_length 4096 --recompute_granularity full --recompute_method block --recompute_num_layers 12
