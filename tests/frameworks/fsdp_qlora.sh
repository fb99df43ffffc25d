export CUDA_VISIBLE_DEVICES=0,1
python train.py \
  --model_name some-org/Small-7B \
  --train_type bnb_dora \
  --context_length 1536 \
  --batch_size 3 \
  --precision bf16_buffers_autocast \
  --sharding_strategy hybrid_full_shard \
  --optimizer fused_adamw \
  --use_cpu_offload false
