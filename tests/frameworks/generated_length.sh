deepspeed --num_gpus 4 src/train_bash.py --stage sft --do_train --model_name_or_path baichuan-inc/Baichuan2-13B-Chat \
    --cutoff_len 1536 --max_length 320 --template baichuan2 --finetuning_type full --output_dir out \
    --per_device_train_batch_size 1 --bf16
