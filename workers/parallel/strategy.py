"""Distribution of a model over its mesh, apart from the degrees."""

from dataclasses import dataclass

from regroup.workers.contract.rank_config import RankConfig


@dataclass(frozen=True)
class Strategy:
    """Options of parallelism. The degrees belong to the layout."""

    data_parallel: str
    """`ddp` replicates. `zero1` shards optimizer states, `zero2` gradients too, `fsdp` parameters too."""
    precision: str
    activation_checkpointing: str | int | float
    """See `activation_checkpoint.py`."""
    reduce: str = "fp32"
    """Data type in which gradients are summed over ranks; see `precision.py`."""
    compile: str = "off"
    """Mode of torch.compile for each block."""
    reshard_after_forward: bool | int = True
    """FSDP only: free gathered parameters after forward; a number reshards them to that many ranks."""
    prefetch: int = 1
    """Number of blocks whose sharded parameters are gathered ahead."""
    offload: bool = False
    """Keep shards, gradients and optimizer states in host memory."""
    bucket_mib: int = 25
    """DDP only: size of a gradient bucket."""
    find_unused_parameters: bool = False
    """DDP only: a forward pass may leave out parts of the model."""
    sequence_parallel: bool = True
    """Shard the activations between tensor-parallel regions along the sequence."""

    schedule: str = "1f1b"
    """Pipeline schedule; see `pipeline_stages.py`."""

    @property
    def kept_share(self) -> float | None:
        """Share of the activations that the compiler may keep; None if it does not choose."""
        return self.activation_checkpointing if isinstance(self.activation_checkpointing, float) else None

    @property
    def is_mixed(self) -> bool:
        """True if computation and parameters have different data types."""
        return self.precision in ("bf16", "fp16")

    @property
    def is_sharded(self) -> bool:
        """True if parameters are sharded between steps."""
        return self.data_parallel in ("zero2", "fsdp")

    @property
    def resharding(self) -> bool | int:
        """Argument `reshard_after_forward` of `fully_shard`."""
        return False if self.data_parallel == "zero2" else self.reshard_after_forward


def strategy_of(config: RankConfig) -> Strategy:
    """Return the strategy of a rank's configuration."""
    return Strategy(
        precision=config.training.precision,
        activation_checkpointing=config.training.activation_checkpointing,
        reduce=config.training.reduce,
        compile=config.training.compile,
        **vars(config.parallel),
    )
