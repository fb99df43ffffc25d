deepspeed --num_gpus=2 examples/finetune.py \
    --model_name_or_path some-org/Some-1B \
    --dataset_path data/some \
    --output_dir out/some \
    --block_size 640 \
    --per_device_train_batch_size 3 \
    --use_lora 1 \
    --save_aggregated_lora 0 \
    --validation_split_percentage 0 \
    --bf16
