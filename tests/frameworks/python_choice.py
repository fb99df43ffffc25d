import argparse
from dataclasses import dataclass, fields

import torch
from peft import LoraConfig
from transformers import BitsAndBytesConfig
from trl import GRPOConfig, GRPOTrainer


@dataclass
class Settings:
    model: str = "some-org/Some-1.5B"
    four_bit: bool = False
    adapters: bool = True
    rows: int = 3


def settings():
    parser = argparse.ArgumentParser()
    for f in fields(Settings):
        parser.add_argument(f"--{f.name}", type=f.type, default=f.default)
    return Settings(**vars(parser.parse_args()))


cfg = settings()
args = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=cfg.rows,
    gradient_accumulation_steps=4 if cfg.adapters else 8,
    max_completion_length=300,
    bf16=True,
    model_init_kwargs={
        "torch_dtype": torch.bfloat16,
        "attn_implementation": "eager",
        **(
            {"quantization_config": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")}
            if cfg.four_bit
            else {}
        ),
    },
    optim="adamw_8bit" if not cfg.adapters else "adamw_torch",
)
peft_config = (
    LoraConfig(r=12, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
    if cfg.adapters
    else None
)
trainer = GRPOTrainer(model=cfg.model, args=args, peft_config=peft_config, reward_funcs=[len])
trainer.train()
