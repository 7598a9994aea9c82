"""The snapshot buffers of this node: memory files that outlive every rank, kept per rank of the layout."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from regroup.workers.contract import Holding, Restore, WantBuffers
from regroup.workers.state.buffer import BufferState, ShardBuffer

BUFFERS_PER_RANK = 3
"""Newest complete, being written, and one held by a checkpoint."""


@dataclass
class _RankBuffers:
    size_bytes: int
    fds: list[int] = field(default_factory=list[int])


class BufferPool:
    """Owns the memory files; hands duplicates to ranks and savers."""

    def __init__(self) -> None:
        self._ranks: dict[int, _RankBuffers] = {}

    def lend(self, want: WantBuffers, restore: Restore) -> tuple[Sequence[int], int]:
        """The buffers of a rank's shard (made on first use), and which of them holds the state to restore, or -1."""
        held = self._ranks.get(want.rank)
        if held is None or held.size_bytes != want.size_bytes:
            if held is not None:
                self._drop(want.rank)
            fds = [
                os.memfd_create(f"regroup-snapshot-{want.rank}-{index}", os.MFD_CLOEXEC)
                for index in range(BUFFERS_PER_RANK)
            ]
            held = self._ranks[want.rank] = _RankBuffers(want.size_bytes, fds)
        source = -1
        if restore.source == "memory":
            for index, fd in enumerate(held.fds):
                with _open(fd) as buffer:
                    header = buffer.header()
                    if (header.state, header.generation, header.step) == (
                        BufferState.COMPLETE,
                        restore.generation,
                        restore.step,
                    ):
                        source = index
        return held.fds, source

    def holdings(self) -> list[Holding]:
        """Every complete shard whose checksum verifies. Reads all of them: run it off the event loop."""
        found: list[Holding] = []
        for rank, held in sorted(self._ranks.items()):
            for fd in held.fds:
                with _open(fd) as buffer:
                    if buffer.verify():
                        header = buffer.header()
                        found.append(
                            Holding(
                                rank,
                                header.world_size,
                                header.generation,
                                header.step,
                                header.layout_hash,
                                header.data_bytes,
                            )
                        )
        return found

    def pinned(self, generation: int, step: int, ranks: Sequence[int]) -> list[int]:
        """Descriptors of the pinned buffers that hold `step` of these ranks, in their order.

        Raises:
            LookupError: a rank has no such buffer.
        """
        found: list[int] = []
        for rank in ranks:
            for fd in self._ranks[rank].fds if rank in self._ranks else ():
                with _open(fd) as buffer:
                    header = buffer.header()
                    if header.pinned and (header.generation, header.step) == (generation, step):
                        found.append(fd)
                        break
            else:
                raise LookupError(f"no pinned snapshot of rank {rank}, generation {generation}, step {step}")
        return found

    def release(self, fds: Sequence[int]) -> None:
        """Let ranks write these buffers again."""
        for fd in fds:
            with _open(fd) as buffer:
                buffer.release()

    def release_all(self) -> None:
        """Let ranks write every buffer again; call when no saver runs and no rank lives."""
        for held in self._ranks.values():
            self.release(held.fds)

    def size_bytes(self) -> int:
        """Host memory in use."""
        return sum(os.fstat(fd).st_blocks * 512 for held in self._ranks.values() for fd in held.fds)

    def close(self) -> None:
        """Give all memory back."""
        for rank in list(self._ranks):
            self._drop(rank)

    def _drop(self, rank: int) -> None:
        for fd in self._ranks.pop(rank).fds:
            os.close(fd)


def _open(fd: int) -> contextlib.closing[ShardBuffer]:
    return contextlib.closing(ShardBuffer(os.dup(fd)))
