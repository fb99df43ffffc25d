# written for this test: a script with options of its own
from dataclasses import dataclass, field
from typing import Optional
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default=None)
    lora: bool = field(default=False)
    lora_r: int = field(default=24)


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    bf16: bool = field(default=True)
    gradient_checkpointing: bool = field(default=True)
    model_max_length: int = field(default=768, metadata={"help": "longest row"})


def train(rows: int = 3):
    parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, attn_implementation="flash_attention_2", torch_dtype=torch.bfloat16)
    if model_args.lora:
        model = get_peft_model(model, LoraConfig(r=model_args.lora_r, lora_dropout=0.2, target_modules=["q_proj"]))
    Trainer(model=model, args=training_args).train()
