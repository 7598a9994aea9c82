"""Shards as transfers know them: their identity, the store that holds them, and the errors of a transfer."""

from dataclasses import dataclass
from typing import Protocol


class TransferError(Exception):
    """State could not be sent or fetched."""

    def __init__(self, message: str, failed_holders: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failed_holders = failed_holders
        """Nodes whose agents could not be reached, or ended the connection."""


class NoMemoryError(TransferError):
    """The other node has too little memory for a shard."""


@dataclass(frozen=True)
class ShardKey:
    """Identity of one rank's shard of a set."""

    rank: int
    generation: int
    step: int

    def __str__(self) -> str:
        return f"rank {self.rank}, generation {self.generation}, step {self.step}"


class ShardStore(Protocol):
    """Store of shards that a server fills and serves. `put` and `find` are called in the event loop of the agent."""

    def allocate(self, rank: int, file_bytes: int) -> int:
        """Create a memory file of this size and return its descriptor. May be called in any thread.

        Raises:
            OSError: the host has too little memory.
        """
        ...

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        """Store a verified shard. `size_bytes` is the buffer size that its rank requested."""
        ...

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        """Return descriptor and `size_bytes` of a shard, or None."""
        ...
