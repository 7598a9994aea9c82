"""Layout of a generation: the parallel degrees, whose product is the world size."""

from dataclasses import dataclass

from regroup.service.domain.errors import FieldIssue, SpecError

_MICRO_BATCH = "micro_batch"
_DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp")


@dataclass(frozen=True)
class Layout:
    """Parallel degrees. Their product is the world size. In rank order, tp is innermost and pp outermost."""

    dp_replicate: int = 1
    """Number of replicas of the model."""
    dp_shard: int = 1
    """Number of ranks over which data parallelism splits the state."""
    cp: int = 1
    """Context-parallel degree; 1, because the trainer does not support it."""
    tp: int = 1
    """Tensor-parallel degree."""
    pp: int = 1
    """Number of pipeline stages."""
    micro_batch: int | None = None
    """Samples per forward if fewer than in the spec, because that number is illegal or does not fit here."""

    def __post_init__(self) -> None:
        for name, degree in self.to_json().items():
            if degree < 1:
                raise SpecError([FieldIssue(f"layout.{name}", "a parallel degree must be at least 1", degree)])

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.dp_replicate * self.dp_shard * self.cp * self.tp * self.pp

    @property
    def data_degree(self) -> int:
        """Number of ranks with different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def segment_size(self) -> int:
        """Number of ranks of a TP group, which a placement keeps inside the innermost domain."""
        return self.tp

    @property
    def degrees(self) -> dict[str, int]:
        """Degrees by name."""
        return {name: getattr(self, name) for name in _DEGREES}

    def to_json(self) -> dict[str, int]:
        """Return plain data: the degrees, and the micro-batch if it differs from the spec."""
        return self.degrees if self.micro_batch is None else {**self.degrees, _MICRO_BATCH: self.micro_batch}

    def __str__(self) -> str:
        split = "×".join(f"{name}={degree}" for name, degree in self.degrees.items() if degree > 1) or "dp_shard=1"
        return split if self.micro_batch is None else f"{split}, {_MICRO_BATCH}={self.micro_batch}"
