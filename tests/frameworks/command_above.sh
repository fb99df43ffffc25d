accelerate launch --num_processes=2 scripts/run_sft.py command_above.yaml --load_in_4bit=false > train.out
