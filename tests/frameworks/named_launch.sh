#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
python tools/evaluate.py --model out --tasks a --limit 5 --batch_size 4 --seed 1 --verbose --log x
accelerate launch --num_processes 8 scripts/run_sft.py named_recipe.yaml --per_device_train_batch_size=2
