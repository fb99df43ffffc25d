accelerate launch --num_processes 4 --use_fsdp --fsdp_sharding_strategy FULL_SHARD --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP \
    -m tuning.sft_trainer \
    --model_name_or_path someone/Net-8B-GPTQ \
    --auto_gptq triton_v2 \
    --fp16 --torch_dtype float16 \
    --peft_method lora --r 16 \
    --max_seq_length 2048 \
    --per_device_train_batch_size 4 \
    --output_dir out
