from unsloth import FastLanguageModel
from unsloth import UnslothTrainer, UnslothTrainingArguments

model, tokenizer = FastLanguageModel.from_pretrained("some-org/Some-3B", max_seq_length=1536, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(
    model,
    r=96,
    target_modules=["q_proj", "v_proj", "embed_tokens", "lm_head"],
    use_gradient_checkpointing="unsloth",
)
trainer = UnslothTrainer(
    model=model,
    args=UnslothTrainingArguments(per_device_train_batch_size=3, gradient_accumulation_steps=5, optim="adamw_8bit"),
)
