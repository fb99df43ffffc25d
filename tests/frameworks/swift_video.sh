FPS_MAX_FRAMES=16 NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --tuner_type lora --dataset own_clips \
    --torch_dtype bfloat16 --per_device_train_batch_size 1 --max_length 4096
