#!/bin/bash
#SBATCH -N 2
#SBATCH --gres=gpu:a100:4
#SBATCH -n 1
torchrun --nnode 2 --nproc-per-node 4 own_train.py \
	--model_name_or_path some-org/Some-7B \
	--per_device_train_batch_size 2 \
	# --per_device_train_batch_size 16 \
	--fp16 True \
	`# adapters of the script's own rank` \
	--lora True \
	--learning_rate 1e-5
