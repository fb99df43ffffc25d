torchrun --nproc_per_node 2 cli/train_sft.py --model_type seq2seq --model_name_or_path someone/t5-xl --adapter qlora --load_in_4bit \
    --optim paged_adamw_32bit --lora_r 16 --lora_dropout 0.05 --lora_target_all_linear_layers --model_max_length 512 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 8 --gradient_checkpointing --output_dir out
