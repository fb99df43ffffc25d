PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' NPROC_PER_NODE=8 megatron rlhf \
    --rlhf_type dpo --model example-org/Moe-30B --tuner_type lora --lora_rank 8 \
    --tensor_model_parallel_size 2 --expert_model_parallel_size 4 --sequence_parallel true \
    --micro_batch_size 1 --global_batch_size 16 --max_length 4096 \
    --recompute_granularity full
