from unsloth import FastLanguageModel
from trl import DPOConfig, DPOTrainer

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="some-org/Some-7B", max_seq_length=4096, dtype=None, load_in_4bit=True,
)
model = FastLanguageModel.get_peft_model(
    model, r=32, target_modules=["q_proj", "v_proj"], lora_alpha=32, lora_dropout=0,
    use_gradient_checkpointing="unsloth",
)
trainer = DPOTrainer(
    model=model, ref_model=None,
    args=DPOConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, optim="adamw_8bit", max_length=1024),
    train_dataset=pairs, processing_class=tokenizer,
)
trainer.train()
