set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --data.max_len 4096 --data.dataset some/data --data.input_key question \
   --train.batch_size 64 --train.micro_batch_size 2 \
   --model.model_name_or_path some-org/Some-8B --ckpt.output_dir ./out \
   --ds.zero_stage 3 --train.max_epochs 1 --ds.param_dtype bf16 --adam.lr 5e-6 \
   --ds.packing_samples --model.gradient_checkpointing_enable --ds.adam_offload
EOF
deepspeed --num_gpus 8 --module $training_commands
