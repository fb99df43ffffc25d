from trl import SFTConfig, SFTTrainer
args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=8,
    max_length=4096,
    bf16=True,
    gradient_checkpointing=True,
)
trainer = SFTTrainer(model="example-org/Small-7B", args=args)
trainer.train()
