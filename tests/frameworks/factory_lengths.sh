CUDA_VISIBLE_DEVICES=0 python src/train_bash.py \
    --stage sft --do_train --template llama2 \
    --model_name_or_path meta-llama/Llama-2-7b-hf \
    --finetuning_type lora --lora_target q_proj,v_proj \
    --max_source_length 1536 --max_target_length 512 \
    --per_device_train_batch_size 2 --bf16 --output_dir out
