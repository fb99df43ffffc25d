from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

base = AutoModelForCausalLM.from_pretrained(
    "some-org/Some-7B",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
)
base = prepare_model_for_kbit_training(base)
model = get_peft_model(base, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.05))
trainer = Trainer(
    model=model, train_dataset=rows,
    args=TrainingArguments(per_device_train_batch_size=4, gradient_accumulation_steps=4, bf16=True, optim="adamw_8bit", output_dir="out"),
)
trainer.train()
