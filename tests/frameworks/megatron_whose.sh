deepspeed --num_gpus=4 pretrain_gpt.py \
    --num-layers 12 --hidden-size 1024 --num-attention-heads 16 \
    --seq-length 1024 --max-position-embeddings 1024 \
    --micro-batch-size 2 --global-batch-size 32 \
    --fp16 --optimizer adam \
    --deepspeed --zero-stage 0 --deepspeed-activation-checkpointing
