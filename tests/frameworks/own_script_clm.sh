torchrun --nnodes 1 --nproc_per_node 1 run_clm_sft_with_peft.py --model_name_or_path some-org/Some-7B --max_seq_length 640 \
	--per_device_train_batch_size 1 --lora_rank 48 --trainable q_proj,o_proj --modules_to_save embed_tokens,lm_head \
	--torch_dtype bfloat16 --bf16 --load_in_kbits 4 --learning_rate 1e-4 --output_dir out
