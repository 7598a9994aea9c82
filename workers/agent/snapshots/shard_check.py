"""Intact shards in this node's memory: listed by their headers, and read once before a restore uses them."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from regroup.workers.contract.messages import HeldShard
from regroup.workers.os.descriptors import OwnDescriptors
from regroup.workers.state.memory.copy_threads import thread_count
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer, ShardHeader

_Content: TypeAlias = tuple[int, int, int, int]
"""Generation, step, rank and checksum of a shard."""


@dataclass
class _Known:
    """What is known about the content of a memory file, as long as no rank can write to it."""

    intact: _Content | None = None
    """The content when it was read, or when it arrived."""
    damaged: _Content | None = None


class ShardCheck:
    """Reads shards and remembers the result for as long as no rank can write to them.

    A rank that dies leaves a buffer that says `WRITING`. But a rank may also write to any of its buffers through a wild
    pointer. Therefore a shard that a rank committed is read once, after the ranks are dead, and again only after the
    buffer was lent to a rank. Shards of other nodes are read when they arrive. Only this process can write to them.

    Its methods are called in the event loop of the agent.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        """By number of the memory file."""

    def remember(self, fd: int) -> None:
        """Record that a shard was verified on arrival."""
        with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
            self._known[_number(fd)] = _Known(intact=_content(buffer.header()))

    def forget(self, fds: Iterable[int]) -> None:
        """Forget what is known about these buffers: a rank can write to them from now on, or they are released.

        The result of a check that is in progress does not count either.
        """
        for fd in fds:
            self._known.pop(_number(fd), None)

    def open(self, fds: Sequence[int]) -> "OpenShards":
        """Open buffers, to read them once in any thread while their owner may release them."""
        return OpenShards(OwnDescriptors(fds), [self._known.setdefault(_number(fd), _Known()) for fd in fds])


class OpenShards:
    """Buffers that stay open until one of the methods returns."""

    def __init__(self, descriptors: OwnDescriptors, known: Sequence[_Known]) -> None:
        self._descriptors, self._known = descriptors, known

    def describe(self) -> list[HeldShard]:
        """Return the complete shards that are not known to be damaged. Reads headers and indexes only."""
        with self._descriptors as fds:
            found = [_listed(fd, known) for fd, known in zip(fds, self._known, strict=True)]
        return [shard for shard in found if shard is not None]

    def verify(self, generation: int, step: int) -> tuple[list[HeldShard], list[tuple[int, ShardHeader]]]:
        """Read the shards of a set, unless they were read before. Run it off the event loop.

        Returns:
            The intact shards; and for each damaged one the place of its buffer, from 0, and its header.
        """
        intact = list[HeldShard]()
        damaged = list[tuple[int, ShardHeader]]()
        with self._descriptors as fds:
            for place, (fd, known) in enumerate(zip(fds, self._known, strict=True)):
                with _opened(fd) as buffer:
                    header = buffer.header()
                    if (header.state, header.generation, header.step) != (BufferState.COMPLETE, generation, step):
                        continue
                    content = _content(header)
                    if known.intact == content or (known.damaged != content and buffer.verify()):
                        known.intact = content
                        intact.append(_held(header, buffer))
                    else:
                        known.damaged = content
                        damaged.append((place, header))
        return intact, damaged


def damage_note(shard: ShardHeader, node_name: str) -> dict[str, Any]:
    """Return the content of the note about a damaged shard."""
    message = f"rank {shard.rank}'s snapshot of step {shard.step} fails its checksum and is not used for a restore"
    return {"rank": shard.rank, "step": shard.step, "node": node_name, "message": message}


def _listed(fd: int, known: _Known) -> HeldShard | None:
    with _opened(fd) as buffer:
        header = buffer.header()
        if not buffer.has_intact_index() or known.damaged == _content(header):
            return None
        return _held(header, buffer)


def _held(header: ShardHeader, buffer: ShardBuffer) -> HeldShard:
    return HeldShard(
        header.rank,
        header.world_size,
        header.generation,
        header.step,
        header.layout_hash,
        header.data_bytes,
        buffer.digests(),
    )


def _content(header: ShardHeader) -> _Content:
    return header.generation, header.step, header.rank, header.crc32


def _number(fd: int) -> int:
    """Return a number that identifies the memory file for as long as it exists."""
    return os.fstat(fd).st_ino


def _opened(fd: int) -> contextlib.closing[ShardBuffer]:
    return contextlib.closing(ShardBuffer(os.dup(fd), thread_count(1)))
