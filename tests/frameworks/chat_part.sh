deepspeed --num_gpus 2 main.py --model_name_or_path some-org/Some-1B --per_device_train_batch_size 3 \
   --gradient_accumulation_steps 2 --lora_dim 24 --lora_module_name q_proj --only_optimize_lora --zero_stage 2 --deepspeed --output_dir out
