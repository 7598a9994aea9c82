"""Ranks of a generation meet over its store, each call in the same order on every rank.

No process group is needed, so it holds for any backend, for none, and before and after the script's own. For small
things, seldom: every call costs a few requests of each rank to one process.
"""

import datetime

import torch.distributed as dist

from regroup.workers.contract.messages import Join

_NO_TIMEOUT = datetime.timedelta(days=365)
"""A peer that never comes has died or hangs, and that ends the generation from outside."""


class StoreCollectives:
    """What ranks need to agree on something: everybody hears rank 0, rank 0 hears everybody."""

    def __init__(self, join: Join, name: str) -> None:
        """Connect; `name` keeps the keys apart from what else is in the store."""
        store = dist.TCPStore(join.store_host, join.store_port, is_master=False, timeout=_NO_TIMEOUT)
        self._store = dist.PrefixStore(f"{name}-{join.generation}", store)
        self._rank, self._world_size = join.rank, join.world_size
        self._calls = 0
        self._broadcast_keys: list[str] = []
        """Keys of rank 0 that somebody may not have read yet."""

    def broadcast(self, value: bytes) -> bytes:
        """What rank 0 says; what the others say is not asked for."""
        key = self._next("broadcast")
        if self._world_size == 1:
            return value
        if self._rank == 0:
            self._store.set(key, value)  # pyright: ignore[reportArgumentType]  # its stub says str, it takes bytes
            self._broadcast_keys.append(key)
            return value
        return self._store.get(key)

    def gather(self, value: bytes) -> list[bytes]:
        """What every rank says, by rank, on rank 0; nothing on the others, who do not wait for it."""
        key = self._next("gather")
        if self._rank:
            self._store.set(f"{key}/{self._rank}", value)  # pyright: ignore[reportArgumentType]
            return []
        keys = [f"{key}/{rank}" for rank in range(1, self._world_size)]
        values = [value, *(self._store.get(each) for each in keys)]
        for read in (*keys, *self._broadcast_keys):  # who has spoken has read all that was value to it before
            self._store.delete_key(read)
        self._broadcast_keys.clear()
        return values

    def barrier(self) -> None:
        """Until every rank is here."""
        self.gather(b"")
        self.broadcast(b"")

    def _next(self, kind: str) -> str:
        self._calls += 1
        return f"{self._calls}/{kind}"
