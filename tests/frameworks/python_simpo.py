from trl import CPOConfig, CPOTrainer
settings = CPOConfig(output_dir="out", loss_type="simpo", cpo_alpha=0.0, per_device_train_batch_size=5, bf16=True)
CPOTrainer(model="some-org/Some-1B", args=settings).train()
