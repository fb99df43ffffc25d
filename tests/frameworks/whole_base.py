# what quantises is made, and the call that loads the model does not take it; words that hang on the card
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from trl import SFTTrainer

device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
model = AutoModelForCausalLM.from_pretrained("example-org/Small-1B")
bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
adapters = LoraConfig(r=8, target_modules="all-linear")
args = TrainingArguments(
    "out",
    per_device_train_batch_size=4,
    optim="paged_adamw_8bit" if device == "cuda" else "adamw_torch",
    gradient_accumulation_steps=4 if device == "cpu" else 2,
)
trainer = SFTTrainer(model=model, args=args, peft_config=adapters)
