#!/bin/bash
GPUS=$2
if [ "$1" == "1b" ]; then
  BATCH=8
elif [ "$1" == "7b" ]; then
  BATCH=1
fi
torchrun --nproc_per_node=$GPUS train.py --model_name_or_path example-org/small-1b --bf16 True \
  --per_device_train_batch_size $BATCH --gradient_accumulation_steps 2 --output_dir out
