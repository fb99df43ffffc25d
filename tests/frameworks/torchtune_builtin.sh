tune run --nproc_per_node 4 lora_finetune_distributed --config llama3_1/8B_lora tokenizer.max_seq_len=1024 \
	dataset.packed=True gradient_accumulation_steps=3 model.lora_rank=32
