"""The snapshot buffers of this node: memory files that outlive the ranks, grouped by rank of the layout."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from regroup.workers.agent.snapshots.reshard_source import ReshardSource, header_of, is_complete_shard
from regroup.workers.agent.snapshots.shard_check import ShardCheck
from regroup.workers.contract.messages import BuffersRequest, Restore
from regroup.workers.os.memory_files import new_memory_file
from regroup.workers.state.shard_buffer import Pin, ShardBuffer

BUFFERS_PER_RANK = 3
"""Buffers of a rank: the newest complete one, the one in writing, and one pinned for a checkpoint."""
BUFFERS_FOR_MIRRORS = 2
"""Further buffers of a rank: the newest set that is fully mirrored, and the set in transfer to the mirrors."""

LentBuffers = tuple[Sequence[int], int]
"""Descriptors of a rank's buffers, and the index of the one with the state to restore; -1: none has it."""


@dataclass
class _RankBuffers:
    size_bytes: int
    fds: list[int] = field(default_factory=list[int])


class BufferPool:
    """Owns the memory files and lends their descriptors to ranks and savers."""

    def __init__(self, count: int = BUFFERS_PER_RANK) -> None:
        """Initialize an empty pool with `count` buffers for each rank."""
        self._count = count
        self._ranks: dict[int, _RankBuffers] = {}
        self._source = ReshardSource()
        self.check = ShardCheck()
        """Results of checks on this node, of own and of mirrored shards."""
        self.mirrored: tuple[int, int] | None = None
        """Generation and step of the set that is fully mirrored. It is retained until a newer one is."""

    def lend(self, request: BuffersRequest, restore: Restore) -> LentBuffers:
        """Return the buffers of a rank's shard, created on first use."""
        buffers = self._ranks.get(request.rank)
        if buffers is None or buffers.size_bytes != request.size_bytes:
            buffers = self._make(request.rank, request.size_bytes)
        self.check.forget(buffers.fds)
        source = -1
        if restore.source == "memory" and not restore.world_size:
            for index, fd in enumerate(buffers.fds):
                if is_complete_shard(header_of(fd), restore.generation, restore.step):
                    source = index
        return buffers.fds, source

    def buffer_of(self, rank: int, number: int) -> int:
        """Return the descriptor of one of the buffers that a rank was lent.

        Raises:
            ValueError: there is no such buffer.
        """
        buffers = self._ranks.get(rank)
        if buffers is None or not 0 <= number < len(buffers.fds):
            raise ValueError(f"rank {rank} has no buffer {number}")
        return buffers.fds[number]

    def retain_source(self, generation: int, step: int) -> None:
        """Retain this set as the source of a restore onto another layout, so that no rank overwrites it.

        The fully mirrored set is retained as well. All other buffers are released.
        """
        for rank, buffers in list(self._ranks.items()):
            for fd in list(buffers.fds):
                header = header_of(fd)
                if is_complete_shard(header, generation, step) or (
                    self.mirrored and is_complete_shard(header, *self.mirrored)
                ):
                    buffers.fds.remove(fd)
                    self._source.add(rank, header.generation, header.step, fd, buffers.size_bytes)
            self._drop(rank)
        self._source.retain({(generation, step), self.mirrored})

    def add_source_shard(self, rank: int, generation: int, step: int, fd: int, size_bytes: int) -> None:
        """Add a mirrored shard, which was verified on arrival, of a set that is retained as a source."""
        self.check.remember(fd)
        self._source.add(rank, generation, step, fd, size_bytes)

    def source_shards(self, generation: int, step: int) -> dict[int, int]:
        """Return rank → descriptor of the shards of a retained set."""
        return self._source.shards_of(generation, step)

    def release_source(self) -> None:
        """Release the source of the last restore: the ranks have a complete set of their own."""
        self._source.retain({self.mirrored})

    def fds(self) -> list[int]:
        """Return the descriptors of all buffers. Another thread must not use them: the pool closes them at any time."""
        return [*chain(*(buffers.fds for _, buffers in sorted(self._ranks.items()))), *self._source.fds()]

    def find(self, rank: int, generation: int, step: int) -> tuple[int, int] | None:
        """Return descriptor and size of the buffer with a rank's shard of a set, or None."""
        if (buffers := self._ranks.get(rank)) is not None:
            for fd in buffers.fds:
                if is_complete_shard(header_of(fd), generation, step):
                    return fd, buffers.size_bytes
        return self._source.find(rank, generation, step)

    def install(self, rank: int, fd: int, size_bytes: int) -> None:
        """Make a fetched shard, which was verified on arrival, one of this rank's buffers. Release those it had."""
        buffers = self._make(rank, size_bytes)
        os.close(buffers.fds[0])
        buffers.fds[0] = fd
        self.check.remember(fd)

    def reuse_source_shard(self, rank: int, generation: int, step: int) -> None:
        """Make the retained shard of a rank its own again, if its own buffers do not have this set."""
        own = self._ranks[rank].fds if rank in self._ranks else []
        if any(is_complete_shard(header_of(fd), generation, step) for fd in own):
            return
        if (shard := self._source.pop(rank, generation, step)) is not None:
            self.install(rank, *shard)

    def retain_mirrored(self, generation: int, step: int) -> None:
        """Retain this node's part of a set that is now fully mirrored. Release older mirrored sets."""
        self._source.retain({(generation, step), *self._source.sets - {self.mirrored}})
        self.mirrored = (generation, step)
        self._release_mirrors()

    def release_mirrored(self, generation: int, step: int) -> None:
        """Record that no set is fully mirrored. Retain only this set for the mirrors."""
        self._source.retain(self._source.sets - {self.mirrored})
        self.mirrored = None
        self._release_mirrors(excluded=(generation, step))

    def pinned(self, generation: int, step: int, ranks: Sequence[int], pin: Pin = Pin.CHECKPOINT) -> list[int]:
        """Return the descriptors of the buffers pinned for `pin` with `step` of these ranks, in their order.

        Raises:
            LookupError: a rank has no such buffer.
        """
        found: list[int] = []
        for rank in ranks:
            for fd in self._ranks[rank].fds if rank in self._ranks else ():
                with _open(fd) as buffer:
                    header = buffer.header()
                    if pin in header.pinned and (header.generation, header.step) == (generation, step):
                        found.append(fd)
                        break
            else:
                raise LookupError(f"no pinned snapshot of rank {rank}, generation {generation}, step {step}")
        return found

    def release(self, fds: Sequence[int]) -> None:
        """Remove the checkpoint pins of these buffers."""
        for fd in fds:
            with _open(fd) as buffer:
                buffer.release(Pin.CHECKPOINT)

    def release_all(self, *, saving: bool) -> None:
        """Remove the pins of dead ranks: all except those of the mirrored set and, while `saving`, those of savers."""
        if not saving:
            for buffers in self._ranks.values():
                self.release(buffers.fds)
        self._release_mirrors()

    def size_bytes(self) -> int:
        """Return the host memory in use."""
        return sum(self.file_sizes().values())

    def file_sizes(self) -> dict[int, int]:
        """Return number of a memory file → the host memory that it uses."""
        return file_sizes(self.fds())

    def close(self) -> None:
        """Release all memory."""
        for rank in list(self._ranks):
            self._drop(rank)
        self._source.retain(())

    def _release_mirrors(self, excluded: tuple[int, int] | None = None) -> None:
        for buffers in self._ranks.values():
            for fd in buffers.fds:
                with _open(fd) as buffer:
                    header = buffer.header()
                    if Pin.MIRROR in header.pinned and (header.generation, header.step) not in (
                        self.mirrored,
                        excluded,
                    ):
                        buffer.release(Pin.MIRROR)

    def _make(self, rank: int, size_bytes: int) -> _RankBuffers:
        if rank in self._ranks:
            self._drop(rank)
        fds = [new_memory_file(f"regroup-snapshot-{rank}-{index}") for index in range(self._count)]
        self._ranks[rank] = _RankBuffers(size_bytes, fds)
        return self._ranks[rank]

    def _drop(self, rank: int) -> None:
        fds = self._ranks.pop(rank).fds
        self.check.forget(fds)
        for fd in fds:
            os.close(fd)


def file_sizes(fds: Iterable[int]) -> dict[int, int]:
    """Return number of a memory file → the host memory that it uses. Several descriptors may have the same file."""
    return {status.st_ino: status.st_blocks * 512 for status in map(os.fstat, fds)}


def _open(fd: int) -> contextlib.closing[ShardBuffer]:
    return contextlib.closing(ShardBuffer(os.dup(fd)))
