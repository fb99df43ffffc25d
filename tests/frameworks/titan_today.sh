torchrun --nproc_per_node=8 -m torchtitan.train --module ours --config ours_8b --parallelism.tensor_parallel_degree 1 --training.steps 5 --parallelism.data_parallel_shard_degree 8
