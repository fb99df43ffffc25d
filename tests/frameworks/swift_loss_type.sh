swift sft --model some-org/Some-7B --tuner_type full --torch_dtype bfloat16 --max_length 3000 \
    --use_liger_kernel true --loss_type focal
