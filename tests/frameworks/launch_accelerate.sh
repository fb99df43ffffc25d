set -e
export OMP_NUM_THREADS=4
MODEL=example-org/Small-7B
cd "$(dirname "$0")" && ACCELERATE_LOG_LEVEL=info accelerate launch --num_machines 2 --num_processes 16 \
	--mixed_precision bf16 --use_fsdp --fsdp_version 2 --main_process_ip $HEAD_NODE \
	-m example.train \
	--model_name_or_path "$MODEL" --dtype bfloat16 --per_device_train_batch_size=2 \
	--lora_target_modules q_proj v_proj --use_peft --lora_r 8 --max_length 2048 \
	--gradient_checkpointing_kwargs '{"use_reentrant": false}' --learning_rate $LR
