torchrun --nproc_per_node 8 examples/multimodal/train.py --language-model-type=mistral_7b --tensor-model-parallel-size 4 \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 576 --decoder-seq-length 2048 \
  --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer
