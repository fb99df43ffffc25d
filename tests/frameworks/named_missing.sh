export CUDA_VISIBLE_DEVICES=0,1
tune run --nproc_per_node 2 lora_finetune_distributed --config not_here.yaml
