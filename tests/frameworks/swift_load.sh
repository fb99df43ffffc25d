NPROC_PER_NODE=8 \
megatron sft --load /models/Moe-30B-mcore --tensor_model_parallel_size 2 --expert_model_parallel_size 2 \
    --micro_batch_size 2 --global_batch_size 64 --max_length 4000 --packing true --recompute_granularity full
