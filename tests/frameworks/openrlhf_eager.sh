deepspeed --num_gpus 4 --module openrlhf.cli.train_sft --pretrain some-org/Some-8B --dataset some/data \
   --micro_train_batch_size 2 --train_batch_size 64 --max_len 2048 --zero_stage 3 --bf16 --gradient_checkpointing
