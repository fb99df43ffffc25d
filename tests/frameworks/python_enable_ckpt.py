import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("some-org/Some-4B", torch_dtype=torch.bfloat16)
model.config.use_cache = False
model.gradient_checkpointing_enable()
trainer = Trainer(
    model=model, train_dataset=rows,
    args=TrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=8, bf16=True, output_dir="out"),
)
trainer.train()
