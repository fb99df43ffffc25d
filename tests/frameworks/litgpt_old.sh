python /somewhere/lit-gpt/finetune/lora.py --data_dir data/some --checkpoint_dir checkpoints/some-org/Some-7B \
	--quantize bnb.nf4-dq --precision bf16-true
