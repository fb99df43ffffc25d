CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-1.5B-Instruct --train_type full --freeze_parameters_ratio 1 \
    --trainable_parameters model.layers.26 model.layers.27 --max_length 1024 --tuner_backend unsloth
