nproc_per_node=2
accelerate launch --config_file "./configs/fsdp2.json" swift/cli/sft.py \
    --model some-org/Some-7B --tuner_type lora --dataset some#100 --lora_rank 8 \
    --per_device_train_batch_size 2 --gradient_checkpointing false --max_length 1024
