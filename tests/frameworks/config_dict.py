from unsloth import FastLanguageModel
from transformers import TrainingArguments
from trl import SFTTrainer

SETTINGS = {
    "model": "example-org/small-1b",
    "train": {"batch": 4, "accum": 2},
    "rank": 16,
}
model, tokenizer = FastLanguageModel.from_pretrained(SETTINGS["model"], max_seq_length=1024)
model = FastLanguageModel.get_peft_model(model, r=SETTINGS['rank'], lora_dropout=SETTINGS.get("dropout", 0.1))
args = TrainingArguments(
    per_device_train_batch_size=SETTINGS["train"]["batch"],
    gradient_accumulation_steps=SETTINGS["train"].get("accum", 1),
    per_device_eval_batch_size=SETTINGS["eval"],
    output_dir="out",
)
trainer = SFTTrainer(model=model, args=args)
