torchrun --nnodes 1 --nproc_per_node 8 recipes/quickstart/finetuning/finetuning.py --enable_fsdp --model_name meta-llama/Llama-3.1-8B \
    --hsdp --sharding_group_size 2 --batch_size_training 1 --context_length 2048 --dist_checkpoint_root_folder out --fsdp_config.pure_bf16
