deepspeed --num_gpus 1 main.py --model_name_or_path example-org/opt-1b --per_device_train_batch_size 8 \
   --gradient_accumulation_steps 2 --lora_dim 128 --zero_stage 2 --only_optimize_lora --deepspeed --output_dir out
