torchrun --nproc_per_node 8 train.py --model_name_or_path some-org/Small-7B --per_device_train_batch_size 1 --bf16 True \
  --output_dir out --learning_rate 1e-5 --deepspeed configs/default.json
