# Three stages of one run, a server beside them and what turns its weights into another format.
python -m openrlhf.models.remote_rm.math_verifier --dataset some.jsonl --input_key message --micro_train_batch_size 9 &
python convert.py --bf16 True
accelerate launch --num_processes 4 train_sft.py --model_name_or_path some-org/Some-7B --bf16 True --learning_rate 1e-5 \
	--per_device_train_batch_size 4 --max_length 1024
accelerate launch --num_processes 8 train_dpo.py --model_name_or_path some-org/Some-7B --bf16 True --learning_rate 1e-6 \
	--per_device_train_batch_size 1 --max_length 2048
