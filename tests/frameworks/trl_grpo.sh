#!/bin/sh
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
accelerate launch --config_file=configs/deepspeed_zero3.yaml scripts/grpo_vlm.py \
	--model_name_or_path some-org/Some-3B \
	--dtype bfloat16 --learning_rate 1e-5 \
	--max_prompt_length 512 --max_completion_length 1024 --use_peft --lora_target_modules q_proj v_proj
