accelerate launch --num_processes 8 own_trainer.py own_trainer.yaml
