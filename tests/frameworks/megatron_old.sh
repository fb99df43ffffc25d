#!/bin/bash
options=" \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-layers 32 --hidden-size 4096 \
  --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 \
  --global-batch-size 512 --vocab-file <PATH TO vocab.json> --tensorboard-dir <LOG DIRECTORY> --fp16 \
  --activations-checkpoint-method uniform "
run="python -u pretrain_gpt.py $@ ${options}"
srun -l sh -c "${run}"
