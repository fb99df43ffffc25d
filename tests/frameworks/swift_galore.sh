swift sft --model some-org/Some-7B --tuner_type full --dataset some#100 \
    --per_device_train_batch_size 2 --use_galore true --galore_rank 256 --max_length 1024
