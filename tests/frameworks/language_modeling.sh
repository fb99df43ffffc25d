python run_language_modeling.py --output_dir=output --model_type=gpt2 --model_name_or_path=gpt2 --do_train --train_data_file=train.txt \
	--do_eval --eval_data_file=valid.txt --per_gpu_train_batch_size=1
