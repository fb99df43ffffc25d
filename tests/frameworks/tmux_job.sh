#!/bin/bash
OUT=runs/a
start() {
    tmux new-session -d -s session "
        source venv/bin/activate
        accelerate launch --num_processes 3 src/train_sft.py --model_name_or_path example-org/small-8b \
            --per_device_train_batch_size 5 --bf16 True --output_dir $OUT 2>&1 | tee log.txt
    "
}
start
