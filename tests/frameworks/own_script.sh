#!/bin/bash
accelerate launch --mixed_precision bf16 --num_processes 2 tune_own.py --pretrained_model_name_or_path Qwen/Qwen2.5-7B \
   --train_batch_size 4 --max-length 1024 --lora_rank 8 --lora_alpha 16 --use_8bit_adam --gradient-checkpointing --lr 1e-4
