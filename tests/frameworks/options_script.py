import argparse
import os
from dataclasses import dataclass, field

from peft import LoraConfig
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import DPOTrainer

USE_LORA = True
HALF = False


@dataclass
class Extra:
    max_len: int = 1536
    dropout: float = field(default=0.1, metadata={"help": "of adapters"})
    rank: int = 24


class PairDPOTrainer(DPOTrainer):
    pass


def build(model_name: str = "example-org/Small-7B", grad_accum=int(os.environ.get("ACCUM", "6")), **more):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=3)
    parser.add_argument("--eval-size", type=int, default=None)
    args = parser.parse_args()
    extra = Extra()
    common = dict(gradient_checkpointing=True, optim="adamw_torch")
    common["bf16"] = True
    if HALF:
        common["fp16"] = True
        training = TrainingArguments("half", per_device_train_batch_size=64)
    elif USE_LORA:
        peft = LoraConfig(r=extra.rank, lora_dropout=extra.dropout, target_modules=["q_proj"])
    if not USE_LORA:
        peft = LoraConfig(r=128)
    else:
        training = TrainingArguments(
            "out",
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=args.eval_size,
            gradient_accumulation_steps=grad_accum,
            **common,
        )
    model = AutoModelForCausalLM.from_pretrained(model_name)
    return PairDPOTrainer(model, args=training, peft_config=peft)
