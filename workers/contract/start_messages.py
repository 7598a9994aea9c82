"""The state from which a generation starts, and the messages with which a prepared rank begins. No torch, no ray."""

from dataclasses import dataclass

LATER = "later"
"""Source of the state of a rank that is prepared: it learns the source with `Begin`."""


@dataclass(frozen=True)
class Restore:
    """Source of a generation's state."""

    source: str
    """`none`, `memory`, `checkpoint`, of which `uri` is the directory, or `later`: the rank waits for `Begin`."""
    step: int = 0
    """Committed steps in that state."""
    generation: int = 0
    """The generation that wrote it."""
    uri: str = ""
    world_size: int = 0
    """For `memory`: number of ranks that wrote it, if they were others or were split differently; otherwise 0."""


@dataclass(frozen=True)
class Prepared:
    """This rank is as far as it can be without its state. It waits for `Begin`."""

    rank: int
    generation: int
    time_s: float


@dataclass(frozen=True)
class Begin:
    """To a prepared rank: the generation before it is dead, so restore this state and train."""

    restore: Restore
    lock: str
    """Path of the lock file of the rank's device."""
