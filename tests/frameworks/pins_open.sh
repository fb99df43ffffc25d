#!/bin/bash
python -m pip install transformers==$1 torch==1.x "peft == 0.12"
torchrun --nproc_per_node 2 train.py --model_name_or_path gpt2 --output_dir out --learning_rate 1e-4
