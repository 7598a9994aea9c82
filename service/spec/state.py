"""Where a job keeps its state, and how often: in memory, and in durable storage."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from regroup.service.spec.types import Bytes, Duration, Positive, SpecModel, parse_off


class SnapshotSpec(SpecModel):
    """Training state in host memory."""

    every_steps: Positive | Literal["auto"] = "auto"
    """Steps between snapshots: the most that a rank's death can cost. `auto`: every step if snapshots take no more than
    two hundredths of the time then, otherwise as few steps apart as they take no more."""
    mirror: Annotated[Literal["auto", "off"], BeforeValidator(parse_off)] = "auto"
    """`auto`: where a job has several nodes, each holds a copy of another's snapshots, and a lost agent costs no more
    than the steps since the last copy."""
    mirror_share: float = Field(default=0.02, gt=0, le=1)
    """Part of the time that may go into sending those copies; the smaller, the older they are."""
    mirror_bandwidth: Bytes | None = None
    """Bytes a second that a node sends at most; not bounded if absent."""


class CheckpointSpec(SpecModel):
    """Training state in durable storage. The last step is always saved."""

    every_steps: Positive | None = None
    """Steps between checkpoints."""
    every: Duration | None = None
    """Time between checkpoints; with `every_steps`, whichever comes first."""
    keep_last: Positive = 3
    """So many of the newest are kept."""
    keep_best: int = Field(default=0, ge=0)
    """Also keep this many with the lowest validation loss."""
