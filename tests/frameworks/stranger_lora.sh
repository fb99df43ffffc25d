torchrun --nproc_per_node 4 tune_it.py \
    --model_name_or_path some-org/Some-7B --use_lora true --bf16 true --block_size 512 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 5 --learning_rate 1e-4 --output_dir out
