from trl import DPOConfig, DPOTrainer
settings = DPOConfig(output_dir="out", loss_type="orpo", per_device_train_batch_size=3, bf16=True)
DPOTrainer(model="some-org/Some-1B", args=settings).train()
