"""This node's part in the mirrors of its job: sends its ranks' shards, holds those of others, gets lost ones back."""

import asyncio
import os
from collections.abc import Mapping, Sequence

from regroup.workers.agent.snapshots import shard_transfer
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.agent.snapshots.mirror_store import MirrorStore
from regroup.workers.agent.snapshots.shard_transfer import ShardKey, ShardTransfer, TransferError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import MirrorSent, TransferAddress
from regroup.workers.contract.messages import Restore
from regroup.workers.os import node_facts
from regroup.workers.state.shard_buffer import Pin


class Mirroring:
    """Nothing here is opened before the supervisor asks for the address, which it does if the job has mirrors."""

    def __init__(self, config: AgentConfig, own: BufferPool) -> None:
        self.held = MirrorStore(own)
        self._config, self._own = config, own
        self._exchange: ShardTransfer | None = None
        self._opening = asyncio.Lock()

    async def address(self) -> TransferAddress:
        """Where other agents of the job reach this one.

        Raises:
            OSError: no port is free.
        """
        async with self._opening:
            if self._exchange is None:
                first, last = self._config.port_first, self._config.port_last
                listener = node_facts.bind_listener(self._config.address, range(first, last + 1) if last else None)
                self._exchange = ShardTransfer(self._config.address, listener, self.held)
        return self._exchange.address

    async def send(
        self, generation: int, step: int, ranks: Sequence[int], to: TransferAddress, bytes_per_s: float | None
    ) -> MirrorSent:
        """Send these ranks' shards, which they hold pinned, one after the other.

        Raises:
            LookupError: a rank holds no such shard.
            ExchangeError: one could not be sent.
        """
        fds = self._own.pinned(generation, step, ranks, Pin.MIRROR)
        sent, seconds = 0, 0.0
        for rank, fd in zip(ranks, fds, strict=True):
            found = self._own.find(rank, generation, step)
            if found is None or found[0] != fd:
                raise LookupError(f"rank {rank} gave up generation {generation}, step {step} while it was sent")
            key = ShardKey(rank, generation, step)
            count, took_s = await shard_transfer.put(to, key, fd, found[1], bytes_per_s)
            sent, seconds = sent + count, seconds + took_s
        return MirrorSent(sent, seconds)

    async def fetch(self, restore: Restore, holders: Mapping[int, TransferAddress], ranks: Sequence[int]) -> None:
        """Bring the shards of these ranks here, each from where it is held: rank → address. Where other ranks wrote the
        set, it is set aside, with what comes of it. What this node holds for another is its own where it is the shard
        of one of `ranks`, which are to run here.

        Raises:
            ExchangeError: one is not there any more, or arrives damaged; or one that was held here is not.
        """

        async def one(rank: int, address: TransferAddress) -> None:
            key = ShardKey(rank, restore.generation, restore.step)
            fd, size_bytes = await shard_transfer.get(address, key, self.held.room)
            if restore.world_size:
                self._own.shelve(rank, key.generation, key.step, fd, size_bytes)
            else:
                self._own.take_over(rank, fd, size_bytes)

        if restore.world_size:
            self._own.set_aside(restore.generation, restore.step)

        results = await asyncio.gather(
            *(one(rank, address) for rank, address in holders.items()), return_exceptions=True
        )
        for error in results:
            if isinstance(error, BaseException):
                raise error
        for rank in range(restore.world_size):  # what this node holds for another is its own now
            key = ShardKey(rank, restore.generation, restore.step)
            if self._own.find(rank, key.generation, key.step) is None and (held := self.held.find(key)) is not None:
                self._own.shelve(rank, key.generation, key.step, os.dup(held[0]), held[1])
        if restore.source == "memory" and not restore.world_size:
            keys = [ShardKey(rank, restore.generation, restore.step) for rank in ranks]
            taken = [key for key in keys if self._takes(key)]
            if holders or taken:
                self._own.keep_mirrored(restore.generation, restore.step)
            for key in keys:
                if self._own.find(key.rank, key.generation, key.step) is None:
                    gone = f"rank {key.rank} of generation {key.generation}, step {key.step}"
                    raise TransferError(f"no shard of {gone} is here any more")

    def keep(self, generation: int, step: int) -> None:
        """All mirrors hold this set: it is kept, here and for others, and every other one given up."""
        self._own.keep_mirrored(generation, step)
        self.held.keep(generation, step)

    def make_room(self, generation: int, step: int) -> None:
        """Every set but this one, which is to be sent next, is given up: no mirror is whole until it has come."""
        self._own.forget_mirrored(generation, step)
        self.held.keep(generation, step)

    def _takes(self, key: ShardKey) -> bool:
        if self._own.find(key.rank, key.generation, key.step) is not None or (held := self.held.give(key)) is None:
            return False
        self._own.take_over(key.rank, *held)
        return True

    async def close(self) -> None:
        """Give up what is held."""
        if self._exchange is not None:
            await self._exchange.close()
        self.held.close()
