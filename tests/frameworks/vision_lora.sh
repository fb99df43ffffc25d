#!/bin/bash
MODEL=Qwen/Qwen2.5-VL-7B-Instruct
GLOBAL=64
EACH=2
N=8
deepspeed --num_gpus $N src/train/train_sft.py --lora_enable True --lora_rank 32 --use_liger True --deepspeed zero3_offload.json \
  --model_id $MODEL --freeze_llm True --freeze_vision_tower False --disable_flash_attn2 False --bf16 True \
  --per_device_train_batch_size $EACH --gradient_accumulation_steps $((GLOBAL / (EACH * N))) \
  --gradient_checkpointing True --lazy_preprocess True --model_max_length 4096
