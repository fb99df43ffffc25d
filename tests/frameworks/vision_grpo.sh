#!/bin/bash
deepspeed src/train/train_grpo.py --deepspeed zero2.json --model_id org/vlm-3b --bf16 True --num_generations 4 --lazy_preprocess True \
  --per_device_train_batch_size 1 --max_completion_length 256 --max_prompt_length 768 --gradient_checkpointing True
