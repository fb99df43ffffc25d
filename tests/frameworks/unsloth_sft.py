# A notebook's cells as a script.
from unsloth import FastLanguageModel, is_bfloat16_supported
from trl import SFTTrainer, SFTConfig

max_seq_length = 2 * 1024
R = 32
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "example-org/Small-8B",   # any model
    max_seq_length = max_seq_length,
    load_in_4bit = True,
)
model = FastLanguageModel.get_peft_model(
    model,
    r = R,
    target_modules = ["q_proj", "k_proj", "v_proj", "o_proj",],
    lora_dropout = 0,
    use_gradient_checkpointing = "unsloth",
)
prompt = """SFTConfig(per_device_train_batch_size = 99)"""
trainer = SFTTrainer(
    model = model,
    args = SFTConfig(
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 4,   # don't count this comment's "quote
        fp16 = not is_bfloat16_supported(),
        bf16 = is_bfloat16_supported(),
        optim = "adamw_torch_fused",
    ),
)
if False:
    model, tokenizer = FastLanguageModel.from_pretrained("other", load_in_4bit = False)
