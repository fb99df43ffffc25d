torchrun --nproc_per_node 2 own_branches.py --model_name_or_path some-org/Some-7B --per_device_train_batch_size 2 --learning_rate 1e-5 \
	--model_max_length 256
