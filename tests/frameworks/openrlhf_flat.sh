deepspeed --module openrlhf.cli.train_dpo --pretrain some-org/Some-8B --ref_pretrain some-org/Some-8B \
   --micro_train_batch_size 1 --train_batch_size 32 --max_len 1024 --zero_stage 2 --bf16 --flash_attn \
   --gradient_checkpointing --lora_rank 16 --beta 0.1
