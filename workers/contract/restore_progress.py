"""Progress of a restore from durable storage on one node, as its agent reports it. No torch, no ray."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RestoreProgress:
    """Bytes that a node reads from durable storage for its ranks."""

    done_bytes: int
    """Bytes that it has read and verified."""
    total_bytes: int
    """Bytes that it reads in all."""
    bytes_per_s: float
    """Rate of the last seconds; after the end, of the whole restore."""
