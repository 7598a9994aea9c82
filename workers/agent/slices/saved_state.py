"""A saved state from which the ranks of a node restore, in the memory of nodes or in the files of a checkpoint."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from regroup.workers.state.slices.boxes import Region
from regroup.workers.state.slices.held_state import HeldState, Holder


class StateLostError(Exception):
    """A part of the state was held, but can no longer be read. Another attempt may find another source."""

    def __init__(self, message: str, failed_holders: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failed_holders = failed_holders
        """Nodes that had it and whose agents could not be reached, or ended the connection."""


@dataclass(frozen=True)
class SliceRead:
    """Bytes of a holder, and the memory that they fill."""

    source: Region
    """Bytes in the file of the holder."""
    memory: memoryview
    """Writable buffer of a rank."""
    target: Region
    """Position in `memory`. Its bytes have the same order as those of `source`."""


class SliceReader(Protocol):
    """Reads bytes of holders on other nodes or in storage."""

    async def read(self, holder: Holder, reads: Sequence[SliceRead]) -> None:
        """Read parts of one holder and verify them. Several calls run at once.

        A call has all that is read from this holder. The reader moves it in chunks and bounds the memory that it uses.

        Raises:
            StateLostError: Neither this holder nor another one with the same bytes delivers them. The message names it.
            StorageError: The bytes in durable storage are damaged, or missing.
        """
        ...

    def total_bytes(self, reads: Mapping[Holder, Sequence[SliceRead]]) -> int:
        """Return how many bytes the reader moves for these reads of all holders, without repeated ones."""
        ...

    @property
    def received_bytes(self) -> int:
        """Bytes that arrived so far: those of repeated parts, and of the rest of a chunk, count as well."""
        ...

    def close(self) -> None:
        """Release what the reader uses. It waits for reads that still run."""
        ...


@dataclass(frozen=True)
class SavedState:
    """Boxes of the state with their holders, and how to read them."""

    held: HeldState
    world_size: int
    """Number of ranks that wrote the state."""
    layout_hash: str
    facts: Mapping[int, Mapping[str, Any]]
    """Rank that wrote the state → its small facts: of rank 0, and of each rank of this node if the ranks are as many
    as before."""
    reader: SliceReader
    near: MutableMapping[Holder, memoryview]
    """Holders on this node, with their readable bytes, until `close`."""

    def close(self) -> None:
        """Release the bytes on this node, whose memory would live as long as its mapping, and the reader.

        It waits for reads that still run.
        """
        self.near.clear()
        self.reader.close()

    def catalog(self, rank: int, world_size: int) -> dict[str, Any]:
        """Return what a rank learns before it asks for its parts.

        The small facts are those of the same rank if the number of ranks is the same, otherwise those of rank 0 without
        its random state.
        """
        facts = dict(self.facts[rank if world_size == self.world_size else 0])
        if world_size != self.world_size:
            facts.pop("random", None)
        return {
            "tensors": self.held.tensors(),
            "facts": facts,
            "world_size": self.world_size,
            "layout_hash": self.layout_hash,
        }
