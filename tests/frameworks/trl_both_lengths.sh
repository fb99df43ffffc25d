python3 train_preferences_dpo.py \
    --model_name_or_path example-org/Small-1B \
    --use_peft True \
    --per_device_train_batch_size 4 \
    --max_source_length 1024 \
    --max_target_length 512 \
    --lora_rank 8 \
    --torch_dtype bfloat16 \
    --bf16 True \
    --output_dir outputs/small-dpo
