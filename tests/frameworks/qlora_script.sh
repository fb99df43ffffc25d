python qlora.py --model_name_or_path some-org/Some-7B --output_dir out --lora_modules all --bf16 --source_max_len 32 --target_max_len 480 --learning_rate 1e-4 --per_device_eval_batch_size 2
