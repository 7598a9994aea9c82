"""State sections of a job spec: snapshots in memory and checkpoints in durable storage."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from regroup.service.spec.types import Bytes, Duration, Integer, Number, SpecModel, Steps, parse_off

_MAX_CHECKPOINTS = 100_000


class SnapshotSpec(SpecModel):
    """Snapshots: training state in host memory."""

    every_steps: Steps | Literal["auto"] = "auto"
    """Number of steps between snapshots, which is the most that a failed rank can cost. `auto`: every step if snapshots
    take at most 2 % of the time, otherwise the smallest interval for which they do."""
    mirror: Annotated[Literal["auto", "off"], BeforeValidator(parse_off)] = "auto"
    """`auto`: each node of a job with several nodes holds a copy of another node's snapshots, so that a lost agent
    costs only the steps since the last copy. `off`: no copies."""
    mirror_share: Number = Field(default=0.02, gt=0, le=1)
    """Fraction of the time that a node may spend sending mirrors. With a smaller fraction, mirrors are older."""
    mirror_bandwidth: Bytes | None = None
    """Maximum bandwidth for mirrors, in bytes per second and node. Default: no limit."""


class CheckpointSpec(SpecModel):
    """Checkpoints: training state in durable storage. The last step is always saved."""

    every_steps: Steps | None = None
    """Number of steps between checkpoints."""
    every: Duration | None = None
    """Time between checkpoints. With `every_steps`, the earlier of the two applies."""
    keep_last: Integer = Field(default=3, ge=1, le=_MAX_CHECKPOINTS)
    """Number of newest checkpoints to retain."""
    keep_best: Integer = Field(default=0, ge=0, le=_MAX_CHECKPOINTS)
    """Number of checkpoints with the lowest validation loss to retain as well."""
