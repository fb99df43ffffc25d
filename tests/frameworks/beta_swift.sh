NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-3B-Instruct --train_type full --torch_dtype bfloat16 \
	--max_length 2048 --max_completion_length 2048 --per_device_train_batch_size 2 --num_generations 4 --dataset some-org/some
