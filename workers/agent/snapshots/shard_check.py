"""Intact shards in this node's memory: listed by their headers, and read once before a restore uses them."""

import contextlib
import os
from collections.abc import Iterable
from typing import Any

from regroup.workers.contract.messages import HeldShard
from regroup.workers.state.memory.copy_threads import thread_count
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer, ShardHeader

_Content = tuple[int, int, int, int]
"""Generation, step, rank and checksum of a shard."""


class ShardCheck:
    """Reads shards and remembers the result for as long as no rank can write to them.

    A rank that dies leaves a buffer that says `WRITING`. But a rank may also write to any of its buffers through a wild
    pointer. Therefore a shard that a rank committed is read once, after the ranks are dead, and again only after the
    buffer was lent to a rank. Shards of other nodes are read when they arrive. Only this process can write to them.
    """

    def __init__(self) -> None:
        self._intact: dict[int, _Content] = {}
        """Number of a memory file → its content when it was read, or when it arrived."""
        self._damaged: dict[int, _Content] = {}

    def remember(self, fd: int) -> None:
        """Record that a shard was verified on arrival."""
        with _open(fd) as buffer:
            self._intact[_number(fd)] = _content(buffer.header())

    def forget(self, fds: Iterable[int]) -> None:
        """Forget what is known about these buffers: a rank can write to them from now on, or they are released."""
        for fd in fds:
            self._intact.pop(_number(fd), None)
            self._damaged.pop(_number(fd), None)

    def shard_in(self, fd: int) -> HeldShard | None:
        """Return the complete shard in a buffer. Reads its header and index only.

        Returns:
            None if there is none, or if it is known to be damaged.
        """
        with _open(fd) as buffer:
            header = buffer.header()
            if not buffer.has_intact_index() or self._damaged.get(_number(fd)) == _content(header):
                return None
            return _held(header, buffer)

    def verify(self, fds: Iterable[int], generation: int, step: int) -> tuple[list[HeldShard], list[ShardHeader]]:
        """Read the shards of a set, unless they were read before. Run it off the event loop.

        Returns:
            The intact shards, and the headers of the damaged ones.
        """
        intact: list[HeldShard] = []
        damaged: list[ShardHeader] = []
        for fd in fds:
            with _open(fd) as buffer:
                header = buffer.header()
                if (header.state, header.generation, header.step) != (BufferState.COMPLETE, generation, step):
                    continue
                content = _content(header)
                if self._intact.get(_number(fd)) == content or (
                    self._damaged.get(_number(fd)) != content and buffer.verify()
                ):
                    self._intact[_number(fd)] = content
                    intact.append(_held(header, buffer))
                else:
                    self._damaged[_number(fd)] = content
                    damaged.append(header)
        return intact, damaged


def damage_note(shard: ShardHeader, node_name: str) -> dict[str, Any]:
    """Return the content of the note about a damaged shard."""
    message = f"rank {shard.rank}'s snapshot of step {shard.step} fails its checksum and is not used for a restore"
    return {"rank": shard.rank, "step": shard.step, "node": node_name, "message": message}


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


def _open(fd: int) -> contextlib.closing[ShardBuffer]:
    return contextlib.closing(ShardBuffer(os.dup(fd), thread_count(1)))
