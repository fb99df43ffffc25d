accelerate launch --num_processes 4 train_sft.py --model_name_or_path some-org/Some-7B --bf16 True --gradient_accumulation_steps 2 --per_device_train_batch_size 1 --learning_rate 1e-5
accelerate launch --num_processes 4 train_sft.py --model_name_or_path some-org/Some-7B --bf16 True --gradient_accumulation_steps 2 --per_device_train_batch_size 1 --learning_rate 1e-6
