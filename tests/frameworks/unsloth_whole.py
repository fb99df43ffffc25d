# a copy in 4 bit of which 16 are asked: unsloth loads the model that it was made of
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Llama-3.2-1B-Instruct-bnb-4bit",
    max_seq_length=1024,
    load_in_4bit=False,
)
model = FastLanguageModel.get_peft_model(model, r=16)
trainer = SFTTrainer(model=model, tokenizer=tokenizer, args=SFTConfig(per_device_train_batch_size=2, bf16=True))
trainer.train()
