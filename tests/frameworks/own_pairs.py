from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class Options:
    model_name_or_path: str = field(default=None)
    per_device_train_batch_size: int = field(default=4)
    max_source_length: int = field(default=1024)
    max_target_length: int = field(default=512)
    use_peft: bool = field(default=True)
    bf16: bool = field(default=True)


def main():
    args = HfArgumentParser(Options).parse_args_into_dataclasses()[0]
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    config = DPOConfig(
        max_length=args.max_source_length + args.max_target_length,
        per_device_train_batch_size=args.per_device_train_batch_size,
        bf16=args.bf16,
        loss_type="orpo",
    )
    DPOTrainer(model, args=config).train()


main()
