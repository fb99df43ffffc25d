deepspeed --num_gpus 8 pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --num-layers 22 \
    --hidden-size 768 --num-attention-heads 12 --seq-length 2048 --micro-batch-size 2 --global-batch-size 256 --bf16 --optimizer-cpu-offload --optimizer-offload-fraction 0.5 \
    --deepspeed --deepspeed_config ds.json --zero-stage 0 --pp-partition-method 'type:transformer|embedding'
