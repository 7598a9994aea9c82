"""Progress of reading and writing durable storage on one node, as its agent reports it. No torch, no ray."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StorageProgress:
    """Bytes that a node reads or writes for its ranks."""

    done_bytes: int
    """Bytes so far. Those that were read are verified."""
    total_bytes: int
    """Bytes in all."""
    bytes_per_s: float
    """Rate of the last seconds; after the end, of the whole."""


@dataclass(frozen=True)
class SaveProgress:
    """The part of a checkpoint that a node has written."""

    generation: int
    step: int
    progress: StorageProgress
