torchrun --nproc_per_node 2 my_own_loop.py --train_type lora --model some-org/Small-7B --torch_dtype bfloat16 --max_length 512
