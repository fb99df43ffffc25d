deepspeed --include localhost:0,1 cli/train_simpo.py --pretrain some-org/Small-7B --micro_train_batch_size 1 --train_batch_size 16 \
  --max_len 4096 --zero_stage 2 --bf16 --beta 10
