torchrun --nproc_per_node=4 train_math.py --base_model some-org/Small-7B --bf16 True --output_dir out \
  --per_device_train_batch_size 2 --learning_rate 5e-6
