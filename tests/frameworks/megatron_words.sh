MORE=$(cat more.txt)
OLD="--model-parallel-size 2 --batch-size 3 --fp16 --checkpoint-activations --partition-activations --synchronize-each-layer"
torchrun --nproc_per_node 4 pretrain_gpt2.py --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512 \
  $OLD --split 949,50,1 $MORE --moe-expert-model-parallelism
