"""Shards that this node holds for others, and which set its mirrors are whole of."""

import contextlib
import errno
import os
from dataclasses import dataclass

from regroup.workers.agent.snapshots.buffer_pool import BufferPool, holding_in, new_buffer
from regroup.workers.agent.snapshots.shard_transfer import ShardKey
from regroup.workers.contract.messages import VerifiedShard
from regroup.workers.os import node_facts
from regroup.workers.state.shard_buffer import ShardBuffer

_LEFT_FREE = 0.05
"""Of the host's memory: more than `wellness` calls short, so that a mirror alone never makes it so."""


@dataclass(frozen=True)
class _Held:
    fd: int
    size_bytes: int


class MirrorStore:
    """The shelf of this node's exchange: takes others' shards, finds those and the node's own."""

    def __init__(self, own: BufferPool) -> None:
        self._own = own
        self._held: dict[ShardKey, _Held] = {}

    def room(self, rank: int, file_bytes: int) -> int:
        """A new memory file of that size, whose memory is taken at once; returns its descriptor.

        Nothing bounds a memory file but the kernel, which would kill for it: so much is left free that it does not.

        Raises:
            OSError: the host has no room.
        """
        facts = node_facts.host_facts()
        left, least = facts["free_memory_bytes"] - file_bytes, _LEFT_FREE * facts["memory_bytes"]
        if left < least:
            mib = f"{max(0, left) >> 20} MiB of memory would be left, at least {int(least) >> 20} MiB have to be"
            raise OSError(errno.ENOMEM, mib)
        fd = new_buffer(f"regroup-mirror-{rank}")
        try:
            os.posix_fallocate(fd, 0, file_bytes)
        except OSError:
            os.close(fd)
            raise
        return fd

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        """Hold a verified shard."""
        self._drop(key)
        self._held[key] = _Held(fd, size_bytes)

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        """Descriptor and buffer size of a shard that is held here, for others or as the node's own."""
        if (held := self._held.get(key)) is not None:
            return held.fd, held.size_bytes
        return self._own.find(key.rank, key.generation, key.step)

    def give(self, key: ShardKey) -> tuple[int, int] | None:
        """Descriptor and buffer size of a shard that is held for another node, and is the taker's from now on."""
        held = self._held.pop(key, None)
        return None if held is None else (held.fd, held.size_bytes)

    def keep(self, generation: int, step: int) -> None:
        """Drop every shard but those of this set."""
        for key in [key for key in self._held if (key.generation, key.step) != (generation, step)]:
            self._drop(key)

    def holdings(self) -> list[VerifiedShard]:
        """Every shard whose checksum verifies. Reads all of them: run it off the event loop."""
        found: list[VerifiedShard] = []
        for held in list(self._held.values()):
            with contextlib.suppress(OSError), contextlib.closing(ShardBuffer(os.dup(held.fd))) as buffer:
                if (holding := holding_in(buffer)) is not None:
                    found.append(holding)
        return found

    def size_bytes(self) -> int:
        """Host memory in use."""
        return sum(os.fstat(held.fd).st_blocks * 512 for held in self._held.values())

    def close(self) -> None:
        """Give all memory back."""
        for key in list(self._held):
            self._drop(key)

    def _drop(self, key: ShardKey) -> None:
        if (held := self._held.pop(key, None)) is not None:
            os.close(held.fd)
