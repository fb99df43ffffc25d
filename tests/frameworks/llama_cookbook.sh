torchrun --nnodes 1 --nproc_per_node 4 finetuning.py --enable_fsdp --model_name some-org/Some-8B --use_peft \
	--peft_method lora --quantization 4bit --batch_size_training 2 --gradient_accumulation_steps 2 \
	--context_length 2048 --fsdp_config.pure_bf16 --output_dir out
