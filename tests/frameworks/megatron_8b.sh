#!/bin/bash
# A launch script in the form of Megatron-LM's examples: arrays, defaults, a branch.
#SBATCH --nodes=2 --gres=gpu:8
export CUDA_DEVICE_MAX_CONNECTIONS=1
DATA=$1
GPUS_PER_NODE=8
TP=${TP:-4}
PP=2
LAYERS=32
DTYPE=${2:-bf16}
DISTRIBUTED_ARGS=(
	--nproc_per_node $GPUS_PER_NODE
	--nnodes $SLURM_NNODES   # Slurm's
)
MODEL_ARGS=(
	--use-mcore-models
	--num-layers $LAYERS --hidden-size 4096 --ffn-hidden-size 14336
	--num-attention-heads 32 --group-query-attention --num-query-groups 8
	--seq-length 4096 --max-position-embeddings 4096
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size $((GPUS_PER_NODE * 16)) --lr 1e-4)
if [[ "$DTYPE" == "fp8" ]]; then
	TRAINING_ARGS+=(--fp8-format hybrid)
else
	TRAINING_ARGS+=(--bf16)
fi
PARALLEL="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
	--num-layers-per-virtual-pipeline-stage 8 --sequence-parallel"
CMD="pretrain_gpt.py ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} $PARALLEL --use-distributed-optimizer \
	--recompute-granularity full --recompute-method block --recompute-num-layers 4 --data-path $DATA"
echo "starting $CMD"
srun --jobid $SLURM_JOBID bash -c "torchrun ${DISTRIBUTED_ARGS[*]} $CMD" 2>&1 | tee run.log
