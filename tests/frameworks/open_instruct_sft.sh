python mason.py --cluster ai2/some --budget ai2/none --num_nodes 3 --gpus 8 -- accelerate launch \
  --mixed_precision bf16 --num_processes 8 --use_deepspeed \
  --deepspeed_config_file configs/ds_configs/stage3_offloading_accelerate.conf \
  open_instruct/finetune.py \
  --model_name_or_path some-org/Base-8B --tokenizer_name some-org/Base-8B --use_slow_tokenizer False \
  --max_seq_length 3072 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --use_lora --with_tracking
