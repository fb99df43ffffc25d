# the package is looked for, and a file is made ready first
python tools/convert_pairs_to_dpo.py --input raw.jsonl --output pairs.jsonl --split train
SCRIPT=$(python -c 'import swift; import os; print(os.path.dirname(swift.__file__) + "/cli/dpo.py")')
python -m torch.distributed.run --nproc_per_node 1 "$SCRIPT" --model_id_or_path someone/Net-1B --sft_type lora --lora_rank 64 \
    --torch_dtype bfloat16 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --gradient_checkpointing true --output_dir out
