"""Intact shards in this node's memory: listed by their headers, and read once before a restore uses them."""

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.os.descriptors import OwnDescriptors
from regroup.workers.state.memory.copy_threads import thread_count
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer, ShardHeader

_Content: TypeAlias = tuple[int, int, int, int]
"""Generation, step, rank and checksum of a shard."""
Damaged: TypeAlias = tuple[int, ShardHeader]
"""Place of a buffer, from 0, and the header of the damaged shard in it."""


@dataclass
class _Facts:
    """Facts about the content of a memory file, as long as no rank can write to it."""

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
        self._facts: dict[int, _Facts] = {}
        """By number of the memory file."""

    def remember(self, fd: int) -> None:
        """Record that a shard was verified on arrival."""
        with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
            self._facts[_number(fd)] = _Facts(intact=_content(buffer.header()))

    def forget(self, fds: Iterable[int]) -> None:
        """Forget what is known about these buffers: a rank can write to them from now on, or they are released.

        The result of a check that is in progress does not count either.
        """
        for fd in fds:
            self._facts.pop(_number(fd), None)

    def open(self, fds: Sequence[int]) -> "OpenShards":
        """Open buffers, to read them once in any thread while their owner may release them."""
        return OpenShards(OwnDescriptors(fds), [self._facts.setdefault(_number(fd), _Facts()) for fd in fds])


class OpenShards:
    """Buffers that stay open until one of the methods returns."""

    def __init__(self, descriptors: OwnDescriptors, facts: Sequence[_Facts]) -> None:
        self._descriptors, self._facts = descriptors, facts

    def describe(self) -> list[HeldShard]:
        """Return the complete shards that are not known to be damaged. Reads headers and indexes only."""
        with self._descriptors as fds:
            return list(self._describe(fds).values())

    def verify(self, generation: int, step: int) -> tuple[list[HeldShard], list[Damaged]]:
        """Read the shards of a set, unless they were read before. Run it off the event loop.

        Returns:
            The intact shards, and those that were found to be damaged now.
        """
        with self._descriptors as fds:
            intact, damaged = self._verify(fds, (generation, step))
        return list(intact.values()), damaged

    def verify_newest(self, own: int, within_s: float) -> tuple[list[HeldShard], list[Damaged]]:
        """Read the shards of the newest set of this node's own ranks, unless they were read before.

        Shards whose turn does not come in time are not read. Run it off the event loop.

        Args:
            own: number of the first buffers, those of the node's own ranks.
            within_s: time in seconds after which no further shard is read.

        Returns:
            All complete shards, without the damaged ones, and the shards that were found to be damaged now.
        """
        with self._descriptors as fds:
            held = self._describe(fds)
            newest = _newest_set(shard for place, shard in held.items() if place < own)
            if newest is None:
                return list(held.values()), []
            intact, damaged = self._verify(fds, newest, time.monotonic() + within_s)
        held |= intact
        for place, _ in damaged:
            held.pop(place, None)
        return list(held.values()), damaged

    def _describe(self, fds: Sequence[int]) -> dict[int, HeldShard]:
        """Return place of a buffer → the shard in it."""
        found = enumerate(_listed(fd, facts) for fd, facts in zip(fds, self._facts, strict=True))
        return {place: shard for place, shard in found if shard is not None}

    def _verify(
        self, fds: Sequence[int], which: tuple[int, int], until_s: float = math.inf
    ) -> tuple[dict[int, HeldShard], list[Damaged]]:
        intact, damaged = dict[int, HeldShard](), list[Damaged]()
        for place, (fd, facts) in enumerate(zip(fds, self._facts, strict=True)):
            with _opened(fd) as buffer:
                header = buffer.header()
                if (header.state, header.generation, header.step) != (BufferState.COMPLETE, *which):
                    continue
                content = _content(header)
                if facts.damaged == content or (facts.intact != content and time.monotonic() >= until_s):
                    continue
                if facts.intact == content or buffer.verify():
                    facts.intact = content
                    intact[place] = _held(header, buffer, is_verified=True)
                else:
                    facts.damaged = content
                    damaged.append((place, header))
        return intact, damaged


def damage_note(shard: ShardHeader, node_name: str) -> dict[str, Any]:
    """Return the content of the note about a damaged shard."""
    message = f"rank {shard.rank}'s snapshot of step {shard.step} fails its checksum and is not used for a restore"
    return {"rank": shard.rank, "step": shard.step, "node": node_name, "message": message}


def _listed(fd: int, facts: _Facts) -> HeldShard | None:
    with _opened(fd) as buffer:
        header = buffer.header()
        if not buffer.has_intact_index() or facts.damaged == _content(header):
            return None
        return _held(header, buffer, is_verified=facts.intact == _content(header))


def _newest_set(own: Iterable[HeldShard]) -> tuple[int, int] | None:
    """Return generation and step of the newest set of which a node has the most shards; None if it has no shard.

    A rank that died while the others took a snapshot does not have the newest one.
    """
    counts = Counter((shard.generation, shard.step) for shard in own)
    return max((count, *which) for which, count in counts.items())[1:] if counts else None


def _held(header: ShardHeader, buffer: ShardBuffer, *, is_verified: bool) -> HeldShard:
    return HeldShard(
        header.rank,
        header.world_size,
        header.generation,
        header.step,
        header.layout_hash,
        buffer.digests(),
        is_verified,
    )


def _content(header: ShardHeader) -> _Content:
    return header.generation, header.step, header.rank, header.crc32


def _number(fd: int) -> int:
    """Return a number that identifies the memory file for as long as it exists."""
    return os.fstat(fd).st_ino


def _opened(fd: int) -> contextlib.closing[ShardBuffer]:
    return contextlib.closing(ShardBuffer(os.dup(fd), thread_count(1)))
