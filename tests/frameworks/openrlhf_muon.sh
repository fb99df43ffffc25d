deepspeed --num_gpus 2 --module openrlhf.cli.train_sft --model.model_name_or_path some-org/Some-8B \
   --model.gradient_checkpointing_enable --model.gradient_checkpointing_reentrant --ds.zero_stage 2 --optim muon
