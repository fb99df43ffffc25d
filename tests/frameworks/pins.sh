#!/bin/bash
pip install "transformers==4.40.0" 'peft[extra]==0.11.*' bitsandbytes==0.43.1
pip install torch==2.4.0+cu121 --index-url https://download.example.org
pip3 install -U transformers==4.45.2
pip install "deepspeed>=0.14,<0.16" accelerate==0.34.2
accelerate launch train.py --model_name_or_path gpt2 --output_dir out --learning_rate 1e-4 \
	--per_device_train_batch_size 2
