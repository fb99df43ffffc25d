torchrun --standalone --nnodes=1 --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer \
    data.train_files=train.parquet data.val_files=test.parquet data.max_length=2048 \
    data.micro_batch_size_per_gpu=2 data.train_batch_size=64 \
    model.partial_pretrain=some-org/Some-7B model.lora_rank=32 model.target_modules=all-linear \
    model.strategy=fsdp trainer.default_local_dir=out trainer.project_name=p trainer.total_epochs=1
