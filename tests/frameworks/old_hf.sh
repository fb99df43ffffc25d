python3 -m torch.distributed.launch --nproc_per_node=4 train_math.py --model_name_or_path some-org/Small-7B --bf16 True \
  --output_dir out --evaluation_strategy no --per_device_train_batch_size 2 --learning_rate 5e-6 \
  --fsdp "full_shard auto_wrap"
