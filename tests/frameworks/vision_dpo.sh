#!/bin/bash
torchrun --nproc_per_node 4 llava/train/train_dpo.py --deepspeed scripts/zero3.json --model_name_or_path org/vlm-7b \
  --mm_tunable_parts="mm_vision_tower,mm_mlp_adapter" --bf16 True --per_device_train_batch_size 1 --lazy_preprocess True \
  --gradient_accumulation_steps 8 --gradient_checkpointing True --model_max_length 8192 --attn_implementation sdpa
