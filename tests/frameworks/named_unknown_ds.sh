deepspeed --num_gpus 4 train.py --model_name_or_path example-org/Small-8B --per_device_train_batch_size 2 \
  --learning_rate 1e-5 --bf16 True --deepspeed $DS_CONFIG
