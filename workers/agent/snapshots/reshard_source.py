"""Shards that were written with another layout. They are retained until the ranks that restore from them have a set of
their own.
"""

import contextlib
import os
from collections.abc import Collection, Iterator

from regroup.workers.state.shard_buffer import BufferState, ShardBuffer, ShardHeader

SnapshotSet = tuple[int, int]
"""Generation and step."""


class ReshardSource:
    """Read-only memory files, by the rank that wrote them."""

    def __init__(self) -> None:
        self._shards: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(generation, step, rank) → descriptor and size of the buffer."""

    def add(self, rank: int, generation: int, step: int, fd: int, size_bytes: int) -> None:
        """Add a complete shard and take ownership of its descriptor."""
        self._drop((generation, step, rank))
        self._shards[generation, step, rank] = (fd, size_bytes)

    def find(self, rank: int, generation: int, step: int) -> tuple[int, int] | None:
        """Return descriptor and size of a rank's shard of a set, or None."""
        return self._shards.get((generation, step, rank))

    def pop(self, rank: int, generation: int, step: int) -> tuple[int, int] | None:
        """Return the same as `find`, and hand the ownership of the shard over."""
        return self._shards.pop((generation, step, rank), None)

    def shards_of(self, generation: int, step: int) -> dict[int, int]:
        """Return rank → descriptor of all shards of a set."""
        return {key[2]: fd for key, (fd, _) in sorted(self._shards.items()) if key[:2] == (generation, step)}

    @property
    def sets(self) -> set[SnapshotSet | None]:
        """Sets of which at least one shard is present."""
        return {key[:2] for key in self._shards}

    def fds(self) -> Iterator[int]:
        """Return all descriptors."""
        return iter([fd for fd, _ in self._shards.values()])

    def retain(self, sets: Collection[SnapshotSet | None]) -> None:
        """Release every set except these."""
        for key in [key for key in self._shards if key[:2] not in sets]:
            self._drop(key)

    def _drop(self, key: tuple[int, int, int]) -> None:
        if (shard := self._shards.pop(key, None)) is not None:
            os.close(shard[0])


def header_of(fd: int) -> ShardHeader:
    """Return the header of a buffer."""
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        return buffer.header()


def is_complete_shard(header: ShardHeader, generation: int, step: int) -> bool:
    """Return True if a buffer contains a complete shard of this set."""
    return (header.state, header.generation, header.step) == (BufferState.COMPLETE, generation, step)
