# a model made for a trainer that another file has
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Qwen2.5-7B-bnb-4bit",
    max_seq_length=4096,
    dtype=None,
    load_in_4bit=True,
)
model = FastLanguageModel.get_peft_model(
    model,
    r=24,
    target_modules=["q_proj", "v_proj"],
    lora_dropout=0,
    use_gradient_checkpointing=True,
)
