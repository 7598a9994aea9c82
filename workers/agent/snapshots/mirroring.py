"""This node's part in the mirrors of its job: send its ranks' shards, store those of other nodes, fetch lost ones."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.agent.snapshots.mirror_store import MirrorStore
from regroup.workers.agent.snapshots.shard_check import Damaged, damage_note
from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import MirrorSent, ShardHolder, TransferAddress
from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Restore
from regroup.workers.os import node_facts
from regroup.workers.state.shard_buffer import Pin

Note: TypeAlias = Callable[[str, dict[str, Any]], None]
VERIFY_S = 0.5
"""Time in seconds after the death of ranks in which their newest set is verified at once. Sets of up to about 5 GB per
node are done then, and the supervisor makes no further call to verify them."""


class Mirroring:
    """Sends and fetches shards. The port opens at the first call of `address`, so a job without mirrors opens none."""

    def __init__(
        self,
        config: AgentConfig,
        own: BufferPool,
        note: Note = lambda kind, data: None,
    ) -> None:
        """Initialize without any mirrored shard.

        Args:
            config: configuration of the agent.
            own: buffers of this node's ranks.
            note: emits an event for people.
        """
        self.store = MirrorStore(own)
        self._config, self._buffers, self._note = config, own, note
        self.transfers = TransferEngine(self.store, self._note_trouble)
        self._address: TransferAddress | None = None

    async def address(self) -> TransferAddress:
        """Return the address at which other agents of the job reach this one.

        Raises:
            OSError: no port is free.
        """
        if self._address is None:
            first, last = self._config.port_first, self._config.port_last
            listener = node_facts.bind_listener(self._config.address, range(first, last + 1) if last else None)
            opened = self.transfers.open(self._config.address, listener)
            self._address = replace(opened, node_id=self._config.node_id)
        return self._address

    async def send(
        self, generation: int, step: int, ranks: Sequence[int], to: TransferAddress, bytes_per_s: float | None
    ) -> MirrorSent:
        """Send the shards that these ranks pinned, one after the other.

        Raises:
            LookupError: a rank has no such shard.
            TransferError: a shard could not be sent.
        """
        fds = self._buffers.pinned(generation, step, ranks, Pin.MIRROR)
        size_bytes, seconds = 0, 0.0
        for rank, fd in zip(ranks, fds, strict=True):
            found = self._buffers.find(rank, generation, step)
            if found is None or found[0] != fd:
                raise LookupError(f"rank {rank} released generation {generation}, step {step} during its transfer")
            key = ShardKey(rank, generation, step)
            sent_bytes, duration_s = await self.transfers.put(to, key, fd, found[1], bytes_per_s)
            size_bytes, seconds = size_bytes + sent_bytes, seconds + duration_s
        return MirrorSent(size_bytes, seconds)

    async def fetch(self, restore: Restore, holders: Sequence[ShardHolder], ranks: Sequence[int]) -> None:
        """Fetch the lost shards of the ranks that start on this node. Their number and layout are as before.

        A mirrored shard of a rank that starts on this node becomes the node's own.

        Args:
            restore: set to restore.
            holders: agents that have the lost shards.
            ranks: ranks that start on this node.

        Raises:
            TransferError: a shard is missing, on this node or another one, or arrives damaged.
        """
        if restore.source != "memory":
            return
        keys = [ShardKey(rank, restore.generation, restore.step) for rank in ranks]
        addresses: dict[int, list[TransferAddress]] = {}
        for holder in holders:
            for rank in holder.ranks:
                addresses.setdefault(rank, []).append(holder.address)

        async def fetch_one(key: ShardKey) -> None:
            fd, size_bytes = await self.transfers.get(addresses[key.rank], key, self.store.allocate)
            self._buffers.install(key.rank, fd, size_bytes)

        lost = [key for key in keys if key.rank in addresses]
        for error in await asyncio.gather(*(fetch_one(key) for key in lost), return_exceptions=True):
            if isinstance(error, BaseException):
                raise error
        for key in keys:  # a resized generation failed before it had a set of its own
            self._buffers.reuse_source_shard(key.rank, key.generation, key.step)
        installed = [key for key in keys if self._install_mirrored(key)]
        if lost or installed:
            self._buffers.retain_mirrored(restore.generation, restore.step)
        for key in keys:
            if self._buffers.find(key.rank, key.generation, key.step) is None:
                shard = f"rank {key.rank} of generation {key.generation}, step {key.step}"
                raise TransferError(f"this node no longer has the shard of {shard}")

    def retain_source(self, generation: int, step: int) -> dict[int, int]:
        """Retain this node's shards of a set as the source of a restore onto another layout.

        Mirrored shards count as well: they lie here, and belong to this node from now on.

        Returns:
            Rank → descriptor of its shard.
        """
        self._buffers.retain_source(generation, step)
        self.store.release_spares()  # old and new shards need the memory
        for key in self.store.keys_of(generation, step):
            if self._buffers.find(key.rank, generation, step) is None:
                self._buffers.add_source_shard(key.rank, generation, step, *self.store.share(key))
        return self._buffers.source_shards(generation, step)

    def held_bytes(self) -> int:
        """Return the host memory of this node's buffers and mirrored shards. A file with two uses counts once."""
        return sum((self._buffers.file_sizes() | self.store.file_sizes()).values())

    async def held_shards(self) -> list[HeldShard]:
        """Return every complete shard in this node's memory. Their data is not read."""
        shards = self._buffers.check.open([*self._buffers.fds(), *self.store.fds()])
        return await asyncio.to_thread(shards.describe)

    async def verify_shards(self, generation: int, step: int) -> list[HeldShard]:
        """Read the shards of a set in this node's memory and return the intact ones."""
        own = self._buffers.fds()
        shards = self._buffers.check.open([*own, *self.store.fds()])
        intact, damaged = await asyncio.to_thread(shards.verify, generation, step)
        self._note_damage(damaged, len(own))
        return intact

    async def verify_newest(self, within_s: float = VERIFY_S) -> list[HeldShard]:
        """Read the newest set of this node's ranks, as far as that is done in `within_s` seconds.

        Return every complete shard in this node's memory, without the damaged ones.
        """
        own = self._buffers.fds()
        shards = self._buffers.check.open([*own, *self.store.fds()])
        held, damaged = await asyncio.to_thread(shards.verify_newest, len(own), within_s)
        self._note_damage(damaged, len(own))
        return held

    def retain(self, generation: int, step: int) -> None:
        """Retain this set, which is fully mirrored, as own and mirrored shards. Release every other mirrored set."""
        self._buffers.retain_mirrored(generation, step)
        self.store.retain(generation, step)

    def release_others(self, generation: int, step: int) -> None:
        """Release every mirrored set except this one, which is sent next. No set is fully mirrored until it arrives."""
        self._buffers.release_mirrored(generation, step)
        self.store.retain(generation, step)
        self.store.release_spares()

    def _note_damage(self, damaged: Sequence[Damaged], own: int) -> None:
        """Emit an event for each damaged shard of this node's own ranks, which are in the first `own` buffers."""
        for place, header in damaged:
            if place < own:
                self._note("snapshot_damaged", damage_note(header, self._config.node_name))

    def _note_trouble(self, reason: str) -> None:
        self._note("transfer_repeated", {"message": reason, "node": self._config.node_name})

    def _install_mirrored(self, key: ShardKey) -> bool:
        if self._buffers.find(key.rank, key.generation, key.step) is not None or (shard := self.store.pop(key)) is None:
            return False
        self._buffers.install(key.rank, *shard)
        return True

    async def close(self) -> None:
        """Release all mirrored shards and close the port."""
        await self.transfers.close()
        self.store.close()
