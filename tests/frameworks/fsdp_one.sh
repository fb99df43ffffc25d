torchrun --nproc_per_node=1 --master_port=1234 train.py --model_name_or_path some-org/Some-7B --bf16 True --output_dir out \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --fsdp "full_shard auto_wrap" \
    --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer --tf32 True
