trl reward --model_name_or_path some-org/Some-1B --dataset_name some/pairs --accelerate_config configs/fsdp2.yaml
