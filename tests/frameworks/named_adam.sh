torchrun --nproc_per_node 2 run_clm.py --model_name_or_path some/model --bf16 True --block_size 512 \
	--per_device_train_batch_size 2 --learning_rate 1e-5 --output_dir out --optim adamw_hf
