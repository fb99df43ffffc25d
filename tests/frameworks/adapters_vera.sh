CUDA_VISIBLE_DEVICES=0 swift sft \
    --model Qwen/Qwen2.5-3B-Instruct --tuner_type vera --vera_rank 64 --dataset ours.jsonl --split_dataset_ratio 0.02 \
    --target_modules v_proj --max_length 512
