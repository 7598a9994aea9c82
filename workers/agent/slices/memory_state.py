"""The state in the memory of a job's nodes: the shards of each node, and how to read them."""

import asyncio
import json
import mmap
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.workers.agent.slices.saved_state import SavedState, SliceRead, StateLostError
from regroup.workers.agent.transfer.chunk_client import Read
from regroup.workers.agent.transfer.engine import TransferEngine
from regroup.workers.agent.transfer.shard_index import ShardDescription, describe
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.contract.agent_records import ShardHolder, TransferAddress
from regroup.workers.contract.messages import Restore
from regroup.workers.os.descriptors import OwnDescriptors
from regroup.workers.state.slices.boxes import Region
from regroup.workers.state.slices.held_state import HeldState, Holder


@dataclass(frozen=True)
class LocalShards:
    """The shards of a set on this node."""

    ranks: tuple[int, ...]
    """Ranks that wrote them."""
    descriptors: OwnDescriptors
    """One of each of them, in this order."""


@dataclass(frozen=True)
class MemoryHolder:
    """The shard of a rank in the memory of a node."""

    rank: int
    address: TransferAddress | None
    """Address of the agent that has it; None: it is on this node."""


async def memory_state(
    restore: Restore,
    local: LocalShards,
    holders: Sequence[ShardHolder],
    engine: TransferEngine,
    facts_of: Collection[int],
) -> SavedState:
    """Find out what the nodes of a job hold of a set of snapshots. All of them get the request at the same time.

    Args:
        restore: set to restore.
        local: shards of the set on this node.
        holders: agents that have shards of the set.
        engine: transfers of this agent.
        facts_of: ranks that wrote the set and whose small facts are needed, in addition to rank 0.

    Raises:
        StateLostError: a shard is nowhere any more.
    """
    reader = _MemoryReader(restore, engine)
    own, near = await asyncio.to_thread(_opened, local, restore)
    found = await reader.find(holders, local.ranks)
    contents = {**own, **found}
    reader.require(contents)
    facts: dict[int, Mapping[str, Any]] = {}
    for rank in sorted({0, *facts_of}):
        holder = next(holder for holder in contents if holder.rank == rank)
        facts[rank] = await reader.facts(holder, contents[holder].facts, near.get(holder))
    first = next(iter(contents.values()))
    held = HeldState((holder, content.table) for holder, content in contents.items())
    return SavedState(held, first.world_size, first.layout_hash, facts, reader, near)


class _MemoryReader:
    """Reads shards in the memory of other nodes."""

    def __init__(self, restore: Restore, engine: TransferEngine) -> None:
        self._restore, self._engine = restore, engine
        self._addresses: dict[int, list[TransferAddress]] = {}
        """Rank → agents that have its shard."""
        self._errors: list[TransferError] = []
        self._received_bytes = 0

    @property
    def received_bytes(self) -> int:
        """Bytes that arrived so far, with those of repeated chunks."""
        return self._received_bytes

    async def find(
        self, holders: Sequence[ShardHolder], local: Collection[int]
    ) -> dict[MemoryHolder, ShardDescription]:
        """Return the contents of the shards on other nodes, without the ranks whose shards are on this node."""
        generation, step = self._restore.generation, self._restore.step

        async def query(address: TransferAddress, ranks: Sequence[int]) -> Mapping[int, ShardDescription]:
            try:
                return await self._engine.indexes(address, generation, step, ranks)
            except TransferError as error:
                self._errors.append(error)
                return {}

        requested = [(each.address, [rank for rank in each.ranks if rank not in local]) for each in holders]
        queried = [(address, ranks) for address, ranks in requested if ranks]
        answers = await asyncio.gather(*(query(address, ranks) for address, ranks in queried))
        found: dict[MemoryHolder, ShardDescription] = {}
        for (address, _), contents in zip(queried, answers, strict=True):
            for rank, content in contents.items():
                found[MemoryHolder(rank, address)] = content
                self._addresses.setdefault(rank, []).append(address)
        return found

    def require(self, contents: Mapping[MemoryHolder, ShardDescription]) -> None:
        """Check that the shard of every rank was found.

        Raises:
            StateLostError: one was not.
        """
        missing = set(range(self._restore.world_size)) - {holder.rank for holder in contents}
        if missing:
            reason = self._errors[0] if self._errors else "no node has it"
            failed_holders = {node for error in self._errors for node in error.failed_holders}
            raise StateLostError(
                f"the shard of rank {min(missing)}, generation {self._restore.generation}, step {self._restore.step} "
                f"is lost ({len(missing)} of {self._restore.world_size} are): {reason}",
                tuple(sorted(failed_holders)),
            )

    async def facts(self, holder: MemoryHolder, place: Region, near: memoryview | None) -> Mapping[str, Any]:
        """Return the small facts of a shard."""
        if near is not None:
            return json.loads(bytes(near[place.offset : place.end]))
        text = bytearray(place.size_bytes)
        await self.read(holder, [SliceRead(place, memoryview(text), Region(0, place.size_bytes))])
        return json.loads(text)

    async def read(self, holder: Holder, reads: Sequence[SliceRead]) -> None:
        """Read parts of one shard. If its node does not deliver them, another holder gets the request."""
        assert isinstance(holder, MemoryHolder) and holder.address is not None, f"{holder} is on another node"
        others = [address for address in self._addresses[holder.rank] if address != holder.address]
        key = ShardKey(holder.rank, self._restore.generation, self._restore.step)
        parts = [Read(each.source, each.memory, each.target) for each in reads]
        try:
            self._received_bytes += await self._engine.read([holder.address, *others], key, parts)
        except TransferError as error:
            raise StateLostError(str(error), error.failed_holders) from error

    def total_bytes(self, reads: Mapping[Holder, Sequence[SliceRead]]) -> int:
        """Return the number of bytes of the reads."""
        return sum(each.source.size_bytes for parts in reads.values() for each in parts)

    def close(self) -> None:
        """Do nothing: the transfers belong to the agent."""


def _opened(
    local: LocalShards, restore: Restore
) -> tuple[dict[MemoryHolder, ShardDescription], dict[Holder, memoryview]]:
    """Return the descriptions of the shards on this node, and their memory."""
    described: dict[MemoryHolder, ShardDescription] = {}
    near: dict[Holder, memoryview] = {}
    with local.descriptors as fds:
        for rank, fd in zip(local.ranks, fds, strict=True):
            holder = MemoryHolder(rank, None)
            try:
                described[holder] = describe(os.dup(fd), ShardKey(rank, restore.generation, restore.step))
            except TransferError as error:
                raise StateLostError(str(error)) from error
            near[holder] = _mapped(fd)
    return described, near


def _mapped(fd: int) -> memoryview:
    return memoryview(mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ))
