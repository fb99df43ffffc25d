python own_pairs.py --model_name_or_path some-org/Some-2B --per_device_train_batch_size 2 --use_peft True
