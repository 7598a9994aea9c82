"""Collectives over the generation's store. All ranks make the same calls in the same order.

They need no process group, so they work for any backend, and before and after the script's own group exists. Use them
rarely and for small values: every call costs a few requests of each rank to one process.
"""

import datetime

import torch.distributed as dist

from regroup.workers.contract.messages import Join

_NO_TIMEOUT = datetime.timedelta(days=365)
"""A peer that never arrives is dead or hangs; the agent then ends the generation."""


class StoreCollectives:
    """Broadcast from rank 0, gather on rank 0, and barrier."""

    def __init__(self, join: Join, name: str) -> None:
        """Connect. `name` is the prefix of the keys in the store."""
        store = dist.TCPStore(join.store_host, join.store_port, is_master=False, timeout=_NO_TIMEOUT)
        self._store = dist.PrefixStore(f"{name}-{join.generation}", store)
        self._rank, self._world_size = join.rank, join.world_size
        self._calls = 0
        self._broadcast_keys: list[str] = []
        """Keys of earlier broadcasts that some rank may not have read yet."""

    def broadcast(self, value: bytes) -> bytes:
        """Return the value of rank 0. The values of other ranks are ignored."""
        key = self._next("broadcast")
        if self._world_size == 1:
            return value
        if self._rank == 0:
            self._store.set(key, value)  # pyright: ignore[reportArgumentType]  # its stub says str, it takes bytes
            self._broadcast_keys.append(key)
            return value
        return self._store.get(key)

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all ranks, by rank, on rank 0. Other ranks return an empty list and do not wait."""
        key = self._next("gather")
        if self._rank:
            self._store.set(f"{key}/{self._rank}", value)  # pyright: ignore[reportArgumentType]
            return []
        keys = [f"{key}/{rank}" for rank in range(1, self._world_size)]
        values = [value, *(self._store.get(each) for each in keys)]
        for read in (*keys, *self._broadcast_keys):  # a rank that sent a value has read all earlier broadcasts
            self._store.delete_key(read)
        self._broadcast_keys.clear()
        return values

    def barrier(self) -> None:
        """Wait until all ranks arrive."""
        self.gather(b"")
        self.broadcast(b"")

    def _next(self, kind: str) -> str:
        self._calls += 1
        return f"{self._calls}/{kind}"
