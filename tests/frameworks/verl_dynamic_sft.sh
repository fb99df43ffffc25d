torchrun --nproc_per_node 8 -m verl.trainer.sft_trainer \
    model.path=some-org/Some-3B data.max_length=3000 data.train_batch_size=64 \
    data.use_dynamic_bsz=True trainer.project_name=tuning
