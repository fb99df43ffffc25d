from trl import GRPOConfig, GRPOTrainer, ModelConfig, get_peft_config

model_config = ModelConfig(model_name_or_path="some-org/Some-3B", torch_dtype="bfloat16", use_peft=True, lora_r=20)
args = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=3,
    gradient_checkpointing=True,
    bf16=True,
    max_prompt_length=200,
    max_completion_length=800,
)
trainer = GRPOTrainer(
    model=model_config.model_name_or_path,
    args=args,
    reward_funcs=[len],
    peft_config=get_peft_config(model_config),
)
trainer.train()
