job="finetune_job"
cat >$job <<EOD
#!/bin/bash
#SBATCH --nodes=1
srun litgpt finetune_lora checkpoints/meta-llama/Llama-3.2-1B --data Alpaca --train.micro_batch_size 4
EOD
sbatch $job
