#!/bin/bash
deepspeed --num_gpus 4 align_own_dpo.py --model-path meta-llama/Llama-3.1-8B --micro_batch_size 1 --batch-size 64 \
   --seq-len 4096 --dtype bf16 --zero_stage 2 --use_lora false --lora_r 8 --epochs 2 --depth_of_thought 3
