from dataclasses import dataclass, field
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    use_lora: bool = field(default=False)


def load(path, bf16, use_lora):
    if bf16:
        dtype = torch.bfloat16
    else:
        dtype = torch.float16
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=dtype)
    if use_lora:
        model = get_peft_model(model, LoraConfig(r=64, lora_dropout=0.1))
    return model
