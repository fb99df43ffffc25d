LAST="$CHECKPOINTS/latest"
if $(ssh -q worker-0 "test -f \"$LAST\""); then
    STEP=$(ssh -q worker-0 cat $LAST)
fi
deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 2048 \
    --micro-batch-size 4 --global-batch-size 256 --fp16 --moe-expert-parallel-size 8 --num-experts 64 \
    --deepspeed --deepspeed_config ds.json --zero-stage 0 --checkpoint-activations
