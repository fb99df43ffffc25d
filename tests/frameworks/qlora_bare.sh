python qlora.py --model_name_or_path example-org/some-65b
