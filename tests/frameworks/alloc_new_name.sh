export PYTORCH_ALLOC_CONF=expandable_segments:True
torchrun --nproc_per_node 2 train.py --model_name_or_path example-org/small-7b --per_device_train_batch_size 2 --bf16 True --output_dir out
