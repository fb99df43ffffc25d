cat > run.yaml <<END
model_name_or_path: example-org/Small-8B
stage: sft
finetuning_type: lora
lora_rank: 12
cutoff_len: 640
per_device_train_batch_size: 5
learning_rate: 1.0e-4
bf16: true
END
llamafactory-cli train run.yaml
