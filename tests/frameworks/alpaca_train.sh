torchrun --nproc_per_node=1 train.py --model_name_or_path example-org/small-7b --data_path data.json --bf16 True --output_dir out \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --fsdp "full_shard auto_wrap" \
    --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer'
