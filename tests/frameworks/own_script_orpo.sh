accelerate launch --num_processes 2 main.py --lr 5e-6 --model_name some-org/Some-7B --data_name some/pairs \
	--prompt_max_length 700 --response_max_length 900 --flash_attention_2 --optim adamw_bnb_8bit \
	--gradient_accumulation_steps 2 --per_device_train_batch_size 3
