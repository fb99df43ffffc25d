litgpt pretrain pythia-160m --tokenizer_dir some-org/tokens --data TextFiles --out_dir out
