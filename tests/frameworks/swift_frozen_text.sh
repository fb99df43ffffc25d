NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen2.5-VL-7B-Instruct --tuner_type full --freeze_llm true --freeze_vit false \
    --micro_batch_size 1 --global_batch_size 16 --recompute_granularity full --recompute_method uniform --recompute_num_layers 4 \
    --max_length 4096 --dataset own.jsonl
