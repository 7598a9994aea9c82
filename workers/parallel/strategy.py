"""How a model is spread over its mesh, beside the degrees: the part of a spec that parallelism reads."""

from dataclasses import dataclass

from regroup.workers.contract.rank_config import RankConfig


@dataclass(frozen=True)
class Strategy:
    """What is chosen for a layout. Degrees are the layout's."""

    data_parallel: str
    """`ddp` replicates, `zero1` shards the optimizer's state too, `zero2` gradients too, `fsdp` parameters too."""
    precision: str
    activation_checkpointing: str | int | float
    """See `activation_checkpoint.py`."""
    reduce: str = "fp32"
    """Gradients are summed over ranks in this; see `precision.py`."""
    compile: str = "off"
    """Mode of torch.compile, which each block goes through."""
    reshard_after_forward: bool | int = True
    """Of `fsdp`: gather parameters again in backward; a number keeps them sharded over so many ranks until then."""
    prefetch: int = 1
    """Of sharded parameters: so many blocks are gathered ahead."""
    offload: bool = False
    """Of sharded parameters: shards, gradients and the optimizer's state are in host memory."""
    bucket_mib: int = 25
    """Of replicas: gradients are summed in buckets of this size."""
    find_unused_parameters: bool = False
    """Of replicas: a forward may leave out a part of the model."""
    sequence_parallel: bool = True
    """Between the parts that tensor parallelism splits, a rank holds a part of the sequence and not all of it."""

    schedule: str = "1f1b"
    """Of a pipeline: see `pipeline_stages.py`."""

    @property
    def kept_share(self) -> float | None:
        """Of activations, if the compiler is to choose what is kept."""
        return self.activation_checkpointing if isinstance(self.activation_checkpointing, float) else None

    @property
    def is_mixed(self) -> bool:
        """Computation has another type than parameters."""
        return self.precision in ("bf16", "fp16")

    @property
    def is_sharded(self) -> bool:
        """Parameters are sharded between steps."""
        return self.data_parallel in ("zero2", "fsdp")

    @property
    def resharding(self) -> bool | int:
        """What `fully_shard` is told."""
        return False if self.data_parallel == "zero2" else self.reshard_after_forward


def strategy_of(config: RankConfig) -> Strategy:
    """The strategy of a rank's configuration."""
    return Strategy(
        precision=config.training.precision,
        activation_checkpointing=config.training.activation_checkpointing,
        reduce=config.training.reduce,
        compile=config.training.compile,
        **vars(config.parallel),
    )
