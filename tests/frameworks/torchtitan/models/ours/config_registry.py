from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.trainer import Trainer

from . import model_registry

TOKENS = 4096


def ours_debugmodel() -> Trainer.Config:
    """A model of a few layers."""
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(),
        hf_assets_path="./tests/assets/tokenizer",
        model_spec=model_registry("debugmodel"),
        optimizer=default_adamw(lr=8e-4),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=8 * 2048, max_context_length=2048, steps=10),
        activation_checkpoint=SelectiveAC.Config(),
    )


def ours_8b() -> Trainer.Config:
    spec = model_registry("8B")
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=len(spec)),
        ),
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=spec,
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * TOKENS,
            max_context_length=TOKENS,
        ),
        parallelism=ParallelismConfig(data_parallel_shard_degree=4, tensor_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )


def ours_8b_long() -> Trainer.Config:
    config = ours_8b()
    config.training.max_context_length = 2 * TOKENS
    config.parallelism = ParallelismConfig(context_parallel_degree=8, tensor_parallel_degree=1)
    config.compile = CompileConfig(enable=True, components=["model"])
    return config
