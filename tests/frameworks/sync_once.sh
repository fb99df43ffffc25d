torchrun --nproc_per_node=5 --master_port=1234 train.py --model_name_or_path some-org/llama-7b --data_path data.json --fp16 True \
	--output_dir out --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --fsdp "full_shard auto_wrap" \
	--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer
