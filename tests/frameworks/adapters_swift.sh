CUDA_VISIBLE_DEVICES=0 swift sft \
    --model Qwen/Qwen2.5-3B-Instruct --tuner_type adalora --dataset ours.jsonl \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 1024 --lora_rank 32 --eval_steps 50
