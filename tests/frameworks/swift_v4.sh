# LoRA on two processes; the batch of 16 follows from nothing
NPROC_PER_NODE=2 \
CUDA_VISIBLE_DEVICES=0,1 \
swift sft \
    --model example-org/Small-7B \
    --tuner_type lora \
    --dataset 'example-org/data#1000' \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 2 \
    --lora_rank 16 \
    --target_modules all-linear \
    --max_length 2048 \
    --packing true --attn_impl flash_attn \
    --deepspeed zero2
