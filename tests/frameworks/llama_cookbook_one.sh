python -m llama_recipes.finetuning --model_name some-org/Some-8B --use_peft --peft_method lora --quantization \
	--batching_strategy padding --run_validation False --output_dir out
