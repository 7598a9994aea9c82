"""Shards of a set that is restored onto other ranks than wrote it: kept until the new ranks have a set of their own."""

import contextlib
import os
from collections.abc import Collection, Iterator

from regroup.workers.state.shard_buffer import BufferState, ShardBuffer, ShardHeader

Set = tuple[int, int]
"""Generation and step."""


class ReshardSource:
    """Memory files by the rank that wrote them. Nobody writes to them any more."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int, int], tuple[int, int]] = {}
        """Generation, step, rank → descriptor and size of the buffer."""

    def put(self, rank: int, generation: int, step: int, fd: int, size_bytes: int) -> None:
        """Take a complete shard over."""
        self._drop((generation, step, rank))
        self._held[generation, step, rank] = (fd, size_bytes)

    def find(self, rank: int, generation: int, step: int) -> tuple[int, int] | None:
        """Descriptor and size of a rank's shard of a set."""
        return self._held.get((generation, step, rank))

    def whole(self, generation: int, step: int) -> list[int]:
        """Descriptors of all that is here of a set, by rank."""
        return [fd for key, (fd, _) in sorted(self._held.items()) if key[:2] == (generation, step)]

    @property
    def sets(self) -> set[Set | None]:
        """Of which something is here."""
        return {key[:2] for key in self._held}

    def fds(self) -> Iterator[int]:
        """All descriptors."""
        return iter([fd for fd, _ in self._held.values()])

    def keep(self, sets: Collection[Set | None]) -> None:
        """Give up every set but these."""
        for key in [key for key in self._held if key[:2] not in sets]:
            self._drop(key)

    def _drop(self, key: tuple[int, int, int]) -> None:
        if (held := self._held.pop(key, None)) is not None:
            os.close(held[0])


def header_of(fd: int) -> ShardHeader:
    """What a buffer says of itself."""
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        return buffer.header()


def is_of(header: ShardHeader, generation: int, step: int) -> bool:
    """Whether a buffer holds a complete shard of this set."""
    return (header.state, header.generation, header.step) == (BufferState.COMPLETE, generation, step)
