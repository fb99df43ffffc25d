#!/bin/bash
#SBATCH -N 2
#SBATCH --gres=gpu:4
#SBATCH -n 1
srun python train_dpo.py --model_name_or_path some-org/Some-7B --per_device_train_batch_size 1 --dataset_name some/pairs \
	--max_length 512 --deepspeed ds_own_adam.json --optim adamw_torch
