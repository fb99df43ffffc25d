accelerate launch --num_processes 2 trl/scripts/sft.py \
    --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name some/chats \
    --per_device_train_batch_size 2 --max_length 2048 --packing \
    --use_liger_kernel
