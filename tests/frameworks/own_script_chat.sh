CUDA_VISIBLE_DEVICES=0 python main.py --do_train --train_file a.json --prompt_column content --response_column summary \
	--model_name_or_path some-org/chat --max_source_length 60 --max_target_length 30 --per_device_train_batch_size 1 \
	--gradient_accumulation_steps 4 --learning_rate 2e-5 --output_dir out
