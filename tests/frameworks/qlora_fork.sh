python qlora.py --model_name_or_path /models/ours --bf16 --bits 4 --lora_r 64 --model_max_len 3072 --per_device_train_batch_size 2
