"""Sums over the jobs of the store, as the metrics need them."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.domain.states import JobState
from regroup.service.store.rows.records import JobRow

SampleKey = tuple[str, tuple[str, ...]]
"""Name of a metric, and the values of its labels."""
Sums = Mapping[SampleKey, float]
"""Sums over jobs."""


@dataclass(frozen=True)
class Totals:
    """Sums over the whole store, for the metrics."""

    jobs: Mapping[JobState, int]
    """State → number of jobs."""
    sums: Sums
    """Sums over the jobs that have ended and were counted."""
    uncounted: tuple[JobRow, ...]
    """All other jobs."""
    checkpoint_bytes: int
    """Bytes of all checkpoints in storage now."""
    queue_wait_s: float
    """Longest waiting time of a queued job so far; 0 if the queue is empty."""
