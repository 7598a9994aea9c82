"""Error that a rank reports before it ends, and the classes of such errors. No torch, no ray."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ErrorClass(StrEnum):
    """Class of an exception of training code; it decides the reaction."""

    USER = "user"
    """Import, shape, assertion and every other error of the code: FAILED at once."""
    IO = "io"
    """Connection, timeout and storage errors: their own budget."""
    DEVICE = "device"
    """The device is out of memory, or its context is corrupt: this process cannot continue, a new one may."""
    COLLATERAL = "collateral"
    """Follows from another rank's death, e.g. "connection reset by peer": never the cause."""
    INPUT = "input"
    """The spec names something that is missing or different: data, storage, preload."""
    NON_FINITE = "non_finite"
    """A loss or a gradient norm is NaN or infinite, on all ranks."""
    LOSS_SPIKE = "loss_spike"
    """A loss stands out from those before it, on all ranks alike, and the spec wants its step done again."""
    CORRUPTION = "corruption"
    """Ranks hold different values of what all of them hold alike."""


@dataclass(frozen=True)
class RankError:
    """A structured report of an exception, sent before the rank exits."""

    error_class: ErrorClass
    kind: str
    """Exception type, e.g. `ValueError`."""
    message: str
    traceback: str
    step: int
    phase: str
    time_s: float
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    """For corruption: the ranks and parts that differ; for a loss spike: the loss and the expected range."""
    failed_holders: tuple[str, ...] = ()
    """Nodes that had the state of this rank and did not deliver it."""
