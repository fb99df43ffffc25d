import argparse
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", type=str, default="some-org/Some-1B")
parser.add_argument("--rows", type=int, default=2)
parser.add_argument("--adapters", action="store_true", default=False)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype="bfloat16", attn_implementation="eager")
if args.adapters:
    config = LoraConfig(r=8)
trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=args.rows, max_length=384, packing=True))
