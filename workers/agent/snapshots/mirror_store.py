"""Mirrored shards: the shards that this node has in memory for other nodes."""

import errno
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from regroup.workers.agent.snapshots.buffer_pool import BufferPool, file_sizes
from regroup.workers.agent.transfer.shard_store import ShardKey
from regroup.workers.os import node_facts
from regroup.workers.os.memory_files import allocate_memory, new_memory_file

_FREE_SHARE = 0.05
"""Share of the host's memory that stays free. It exceeds the bound of `resource_pressure`, so that a mirror alone never
causes memory pressure."""


@dataclass(frozen=True)
class _MirroredShard:
    fd: int
    size_bytes: int
    is_shared: bool = False
    """Another owner reads the same memory file, so it must not be overwritten."""


class MirrorStore:
    """Stores the shards of other nodes, and finds those and the node's own."""

    def __init__(self, own: BufferPool) -> None:
        """Initialize an empty store next to the buffers of this node's ranks."""
        self._buffers, self._check = own, own.check
        self._shards: dict[ShardKey, _MirroredShard] = {}
        self._spares: dict[int, int] = {}
        """Rank → memory file of its replaced mirror. The next mirror overwrites it: first use of memory is slow."""
        self._lock = threading.Lock()
        """Held where a spare could be closed while another thread uses it: threads of transfers take spares."""

    def allocate(self, rank: int, file_bytes: int) -> int:
        """Return the descriptor of a memory file whose memory is allocated: that of a replaced mirror, or a new one.

        Only the kernel limits memory files, and it kills processes when memory runs out. Therefore a share of the
        memory stays free.

        Raises:
            OSError: the host has too little free memory.
        """
        with self._lock:
            if (spare := self._spares.pop(rank, None)) is not None:
                if os.fstat(spare).st_size == file_bytes:
                    return spare
                os.close(spare)
        facts = node_facts.host_facts()
        free, required = facts["free_memory_bytes"] - file_bytes, _FREE_SHARE * facts["memory_bytes"]
        if free < required:
            message = (
                f"only {max(0, free) >> 20} MiB of memory would stay free; at least {int(required) >> 20} MiB must"
            )
            raise OSError(errno.ENOMEM, message)
        fd = new_memory_file(f"regroup-mirror-{rank}")
        try:
            allocate_memory(fd, file_bytes)
        except OSError:
            os.close(fd)
            raise
        return fd

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        """Store a verified shard."""
        self._drop(key)
        self._check.remember(fd)
        self._shards[key] = _MirroredShard(fd, size_bytes)

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        """Return descriptor and buffer size of a shard, mirrored or the node's own; None if it is not here."""
        if (shard := self._shards.get(key)) is not None:
            return shard.fd, shard.size_bytes
        return self._buffers.find(key.rank, key.generation, key.step)

    def keys_of(self, generation: int, step: int) -> list[ShardKey]:
        """Return the keys of the mirrored shards of a set."""
        return [key for key in self._shards if (key.generation, key.step) == (generation, step)]

    def share(self, key: ShardKey) -> tuple[int, int]:
        """Return a new descriptor of a mirrored shard, and its buffer size. The store never overwrites its memory."""
        shard = self._shards[key] = replace(self._shards[key], is_shared=True)
        return os.dup(shard.fd), shard.size_bytes

    def pop(self, key: ShardKey) -> tuple[int, int] | None:
        """Return descriptor and buffer size of a mirrored shard and hand its ownership over; None if it is not here."""
        shard = self._shards.pop(key, None)
        return None if shard is None else (shard.fd, shard.size_bytes)

    def retain(self, generation: int, step: int) -> None:
        """Release every shard except those of this set. The next mirrors get the memory of replaced ones."""
        kept = {key.rank for key in self.keys_of(generation, step)}
        self._release_spares(self._spares.keys() - kept)
        for key in [key for key in self._shards if (key.generation, key.step) != (generation, step)]:
            shard = self._shards[key]
            if key.rank in kept and key.rank not in self._spares and not shard.is_shared:
                self._check.forget([shard.fd])
                self._spares[key.rank] = self._shards.pop(key).fd
            else:
                self._drop(key)

    def fds(self) -> list[int]:
        """Return the descriptors of all shards. Another thread must not use them: the store may close them."""
        return [shard.fd for shard in self._shards.values()]

    def size_bytes(self) -> int:
        """Return the host memory in use."""
        return sum(self.file_sizes().values())

    def file_sizes(self) -> dict[int, int]:
        """Return number of a memory file → the host memory that it uses."""
        with self._lock:
            return file_sizes([*self.fds(), *self._spares.values()])

    def close(self) -> None:
        """Release all memory."""
        for key in list(self._shards):
            self._drop(key)
        self.release_spares()

    def release_spares(self) -> None:
        """Release the memory of replaced mirrors."""
        self._release_spares(list(self._spares))

    def _release_spares(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if (spare := self._spares.pop(rank, None)) is not None:  # the next mirror may have taken it
                os.close(spare)

    def _drop(self, key: ShardKey) -> None:
        if (shard := self._shards.pop(key, None)) is not None:
            self._check.forget([shard.fd])
            os.close(shard.fd)
