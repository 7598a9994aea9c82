"""A job that waits, as the queue shows it. The API sends it as it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    project: str
    """Project of the job."""
    priority: str
    """Priority class."""
    ranks: int | None
    """Number of devices that it requests; null if its spec cannot be read."""
    queued_at_s: float
    """Time since which it waits."""
    position: int | None
    """Number of jobs ahead of it, also of projects that you do not see; null if its spec cannot be read."""
    reason: str
    """Code of the reason why it waits; empty before its first evaluation."""
    message: str
    """Reason why it waits, for people."""
    estimated_start_s: float | None
    """Predicted start, as of the newest scheduling pass; null if it cannot be predicted."""
