python3 -m verl.trainer.main config=easyr1.yaml worker.actor.model.model_path=some-org/Some-4B \
	worker.actor.model.lora.rank=16 trainer.n_gpus_per_node=2
