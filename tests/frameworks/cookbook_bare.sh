python3 finetuning.py --model_name example-org/small-7b --output_dir out
