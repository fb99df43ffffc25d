#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 run_clm.py --model_name_or_path gpt2 --dataset_name wikitext --do_train \
    --per_device_train_batch_size 4 --output_dir out
