"""The messages with which a rank gets its snapshot buffers and its part of a saved state. No torch, no ray."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BuffersRequest:
    """Ask for the snapshot buffers of this rank's shard, each of `size_bytes`."""

    rank: int
    generation: int
    size_bytes: int


@dataclass(frozen=True)
class Buffers:
    """Reply to `BuffersRequest`. The memory file descriptors travel with it."""

    count: int
    source_index: int
    """Buffer that holds the state to restore; -1: there is none, or the rank asks for its parts of it."""


@dataclass(frozen=True)
class StateCatalogRequest:
    """Ask what the saved state contains. It was written by other ranks, or is not in a buffer of this rank."""

    rank: int
    generation: int


@dataclass(frozen=True)
class StateRequest:
    """Ask for parts of the saved state. A memory file travels with it: a table of boxes, as compressed JSON.

    The reply comes when all ranks of the node have asked and the parts are in place.
    """

    rank: int
    generation: int
    buffer: int
    """Buffer of this rank that receives the parts, at the positions in the table."""
    size_bytes: int
    """Bytes that the buffer needs."""


@dataclass(frozen=True)
class SourceReleaseRequest:
    """Let the node release the state that other ranks wrote: all ranks have a complete snapshot of their own.

    The reply comes when its memory is free, so the rank can use more memory for its snapshots.
    """

    rank: int
    generation: int


@dataclass(frozen=True)
class StateReply:
    """Reply to `StateCatalogRequest`, with a memory file that has the catalog, and to the requests after it."""

    error: str = ""
    is_lost: bool = False
    """The state was there and can no longer be read: another attempt may find another source."""
    is_damaged: bool = False
    """The state is a checkpoint that is not complete, or damaged: another attempt must use another one."""
    failed_holders: tuple[str, ...] = ()
    """If it is lost: nodes that had it and did not deliver it."""
