cards=$1
torchrun --standalone --nnodes=1 --nproc_per_node=$cards -m verl.trainer.fsdp_sft_trainer \
    data.train_files=data/train.parquet \
    data.micro_batch_size=8 \
    model.partial_pretrain=example-org/Small-1B \
    trainer.project_name=small
