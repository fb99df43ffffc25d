from peft import LoraConfig
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import DPOTrainer
model = AutoModelForCausalLM.from_pretrained("some-org/Some-1B", torch_dtype="bfloat16")
args = TrainingArguments(per_device_train_batch_size=2, gradient_checkpointing=True, bf16=True, output_dir="out")
trainer = DPOTrainer(model, args=args, peft_config=LoraConfig(r=4), beta=0.1, max_prompt_length=300, max_length=700)
