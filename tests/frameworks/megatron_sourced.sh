#!/bin/bash
# sourced by the script that trains
if [ -z ${CKPT} ]; then
    TOKENIZER_MODEL=some-org/Some-8B
fi
MODEL_ARGS=" \
    --micro-batch-size 3 \
    --bf16 \
    --num-layers 24 \
    --hidden-size 2048 \
    --ffn-hidden-size 5504 \
    --num-attention-heads 16 \
    --seq-length 3072 \
    --recompute-activations \
    --attention-backend flash \
    --max-position-embeddings 4096 \
"
