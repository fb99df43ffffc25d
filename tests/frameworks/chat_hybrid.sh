#!/bin/bash
deepspeed --num_gpus 8 main.py --data_path ours --actor_model_name_or_path facebook/opt-1.3b \
   --critic_model_name_or_path facebook/opt-350m --actor_zero_stage 3 --critic_zero_stage 3 --enable_hybrid_engine \
   --per_device_training_batch_size 4 --max_prompt_seq_len 128 --max_answer_seq_len 128 --output_dir out
