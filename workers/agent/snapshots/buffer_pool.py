"""The snapshot buffers of this node: memory files that outlive every rank, kept per rank of the layout."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from regroup.workers.agent.snapshots.reshard_source import ReshardSource, header_of, is_of
from regroup.workers.contract.messages import BuffersRequest, Restore, VerifiedShard
from regroup.workers.state.shard_buffer import BufferState, Pin, ShardBuffer, ShardHeader

BUFFERS_PER_RANK = 3
"""Newest complete, being written, and one held by a checkpoint."""
BUFFERS_FOR_MIRRORS = 2
"""Beside those: the newest set that mirrors hold whole, and the one on its way there."""

Lent = tuple[Sequence[int], int, Sequence[int]]
"""A rank's own buffers, which of them holds the state to restore (-1: none), and those of other ranks that do."""


@dataclass
class _RankBuffers:
    size_bytes: int
    fds: list[int] = field(default_factory=list[int])


class BufferPool:
    """Owns the memory files; hands duplicates to ranks and savers."""

    def __init__(self, count: int = BUFFERS_PER_RANK) -> None:
        """`count`: buffers of each rank."""
        self._count = count
        self._ranks: dict[int, _RankBuffers] = {}
        self._aside = ReshardSource()
        self.mirrored: tuple[int, int] | None = None
        """Generation and step of the set that mirrors hold whole: it is kept until they hold a newer one."""
        self.damaged: list[ShardHeader] = []
        """Shards that were complete once, and did not verify when `holdings` looked last."""

    def lend(self, want: BuffersRequest, restore: Restore) -> Lent:
        """The buffers of a rank's shard, made on first use, and what it restores from."""
        held = self._ranks.get(want.rank)
        if held is None or held.size_bytes != want.size_bytes:
            held = self._make(want.rank, want.size_bytes)
        source = -1
        if restore.source == "memory" and not restore.world_size:
            for index, fd in enumerate(held.fds):
                if is_of(header_of(fd), restore.generation, restore.step):
                    source = index
        if restore.source == "memory" and source < 0:
            return held.fds, source, self._aside.whole(restore.generation, restore.step)
        return held.fds, source, ()

    def set_aside(self, generation: int, step: int) -> None:
        """Other ranks restore this set than wrote it: keep it, and what mirrors hold whole, from being overwritten,
        and give up the buffers of ranks that there are no more."""
        for rank, held in list(self._ranks.items()):
            for fd in list(held.fds):
                header = header_of(fd)
                if is_of(header, generation, step) or (self.mirrored and is_of(header, *self.mirrored)):
                    held.fds.remove(fd)
                    self._aside.put(rank, header.generation, header.step, fd, held.size_bytes)
            self._drop(rank)
        self._aside.keep({(generation, step), self.mirrored})

    def shelve(self, rank: int, generation: int, step: int, fd: int, size_bytes: int) -> None:
        """Another node's shard of a set that is set aside."""
        self._aside.put(rank, generation, step, fd, size_bytes)

    def give_up_source(self) -> None:
        """The ranks have a whole set of their own: what they were restored from is needed no longer."""
        self._aside.keep({self.mirrored})

    def holdings(self) -> list[VerifiedShard]:
        """Every complete shard whose checksum verifies. Reads all of them: run it off the event loop."""
        found: list[VerifiedShard] = []
        damaged: list[ShardHeader] = []
        for fd in chain(*(held.fds for _, held in sorted(self._ranks.items())), self._aside.fds()):
            with _open(fd) as buffer:
                if (holding := holding_in(buffer)) is not None:
                    found.append(holding)
                elif (header := buffer.header()).state is BufferState.COMPLETE:
                    damaged.append(header)
        self.damaged = damaged
        return found

    def find(self, rank: int, generation: int, step: int) -> tuple[int, int] | None:
        """Descriptor and size of the buffer that holds a rank's shard of a set."""
        if (held := self._ranks.get(rank)) is not None:
            for fd in held.fds:
                if is_of(header_of(fd), generation, step):
                    return fd, held.size_bytes
        return self._aside.find(rank, generation, step)

    def take_over(self, rank: int, fd: int, size_bytes: int) -> None:
        """A shard that was fetched becomes one of this rank's buffers; those it had are given up."""
        held = self._make(rank, size_bytes)
        os.close(held.fds[0])
        held.fds[0] = fd

    def keep_mirrored(self, generation: int, step: int) -> None:
        """Mirrors hold this set whole: hold this node's part of it too, and older ones no longer."""
        self._aside.keep({(generation, step), *self._aside.sets - {self.mirrored}})
        self.mirrored = (generation, step)
        self._release_mirrors()

    def forget_mirrored(self, generation: int, step: int) -> None:
        """Mirrors hold no set whole any more; hold this one alone for them."""
        self._aside.keep(self._aside.sets - {self.mirrored})
        self.mirrored = None
        self._release_mirrors(but=(generation, step))

    def pinned(self, generation: int, step: int, ranks: Sequence[int], pin: Pin = Pin.CHECKPOINT) -> list[int]:
        """Descriptors of the buffers pinned for `pin` that hold `step` of these ranks, in their order.

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
        """These buffers are held for no checkpoint any more."""
        for fd in fds:
            with _open(fd) as buffer:
                buffer.release(Pin.CHECKPOINT)

    def release_all(self, *, saving: bool) -> None:
        """Hold nothing any more but the set that mirrors hold, and, while `saving`, what savers read. No rank lives."""
        if not saving:
            for held in self._ranks.values():
                self.release(held.fds)
        self._release_mirrors()

    def size_bytes(self) -> int:
        """Host memory in use."""
        fds = chain(*(held.fds for held in self._ranks.values()), self._aside.fds())
        return sum(os.fstat(fd).st_blocks * 512 for fd in fds)

    def close(self) -> None:
        """Give all memory back."""
        for rank in list(self._ranks):
            self._drop(rank)
        self._aside.keep(())

    def _release_mirrors(self, but: tuple[int, int] | None = None) -> None:
        for held in self._ranks.values():
            for fd in held.fds:
                with _open(fd) as buffer:
                    header = buffer.header()
                    if Pin.MIRROR in header.pinned and (header.generation, header.step) not in (self.mirrored, but):
                        buffer.release(Pin.MIRROR)

    def _make(self, rank: int, size_bytes: int) -> _RankBuffers:
        if rank in self._ranks:
            self._drop(rank)
        fds = [new_buffer(f"regroup-snapshot-{rank}-{index}") for index in range(self._count)]
        self._ranks[rank] = _RankBuffers(size_bytes, fds)
        return self._ranks[rank]

    def _drop(self, rank: int) -> None:
        for fd in self._ranks.pop(rank).fds:
            os.close(fd)


def new_buffer(name: str) -> int:
    """A memory file without a name to leak; returns its descriptor."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def holding_in(buffer: ShardBuffer) -> VerifiedShard | None:
    """The shard that a buffer holds, if it verifies. Reads all of it."""
    if not buffer.verify():
        return None
    header = buffer.header()
    return VerifiedShard(
        header.rank,
        header.world_size,
        header.generation,
        header.step,
        header.layout_hash,
        header.data_bytes,
        buffer.digests(),
    )


def _open(fd: int) -> contextlib.closing[ShardBuffer]:
    return contextlib.closing(ShardBuffer(os.dup(fd)))
