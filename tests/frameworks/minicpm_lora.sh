torchrun --nproc_per_node 4 finetune.py \
    --model_name_or_path some-org/MiniCPM-some --llm_type qwen --data_path d.json \
    --fp16 true --use_lora true --tune_llm false --max_slice_nums 9 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 5 --gradient_checkpointing true
