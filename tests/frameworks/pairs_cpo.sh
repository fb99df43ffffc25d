accelerate launch run_cpo_mt.py --model_name_or_path someone/Net-13B --beta 0.1 --use_peft --bf16 \
    --per_device_train_batch_size 2 --max_prompt_length 256 --max_length 512 --output_dir net-7b-dpo
