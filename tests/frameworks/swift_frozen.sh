NPROC_PER_NODE=4 swift sft --model example-org/Small-7B --train_type full --freeze_parameters_ratio 0.25 \
    --max_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 4
