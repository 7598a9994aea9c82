"""Ranks whose snapshots one process writes, and the sources from which later ranks restore them.

memory       the snapshots themselves, as after a kill
mirrored     the copies that another node's agent sent back, as after the loss of a node
checkpoint   the files of a checkpoint
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regroup.service.policy.recovery.restore_source import find_differing
from regroup.workers.agent.checkpoints.stored_state import open_checkpoint
from regroup.workers.agent.slices.saved_state import SavedState
from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_FOR_MIRRORS, BUFFERS_PER_RANK, BufferPool
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.messages import Restore
from regroup.workers.parallel.mesh import Alike
from regroup.workers.state.rank_source import RankSource
from regroup.workers.state.replica_check import ReplicaComparison
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable
from regroup.workers.state.slices.slice_source import SliceSource
from regroup.workers.state.snapshot import Copier, ShardSource, Source
from regroup.workers.state.training_state import TrainingState
from tests.workers.shard_writer import finish, save_shards
from tests.workers.state_double import fill, saved_state

CPU = torch.device("cpu")
LAYOUT = "x"
_GENERATION, _STEP = 1, 3


class SavedRanks:
    """The ranks of one generation after their last snapshot."""

    def __init__(self, count: int, *, per_rank: Sequence[str] = (), is_checked: bool = False) -> None:
        """Describe the ranks.

        Args:
            count: number of ranks.
            per_rank: names of objects that differ between ranks.
            is_checked: ranks compare the copies of their state that must be equal.
        """
        self.count, self.per_rank, self.is_checked = count, per_rank, is_checked
        self.buffers: list[ShardBuffer] = []
        self._fds: list[int] = []
        self._size_bytes = 0
        self._closed_last: list[Callable[[], object]] = []

    def state(self, things: Mapping[str, Any], rank: int) -> TrainingState:
        """Return the state of a rank that tracks these objects."""
        return TrainingState(things, CPU, Alike(rank, self.count), rank=rank, per_rank=self.per_rank)

    def save(self, rank: int, state: TrainingState) -> None:
        """Take the snapshot of a rank. Call it for each rank in order."""
        copier, captured = Copier(CPU), state.capture(_STEP)
        compared = ReplicaComparison(rank, Alike(rank, self.count), None, self.is_checked)
        plan = copier.plan(captured.tensors, state.alike, compared)
        fd = os.memfd_create("state")
        buffer = ShardBuffer(os.dup(fd))
        place = {"generation": _GENERATION, "step": _STEP, "rank": rank, "world_size": self.count}
        buffer.begin(plan, captured.facts, layout_hash=LAYOUT, **place)
        copier.copy(buffer, plan, captured.tensors)
        copier.finish()
        buffer.commit(Pin.MIRROR)
        self._size_bytes = state.buffer_bytes()
        self._fds.append(fd)
        self.buffers.append(buffer)

    def differing(self) -> tuple[str, ...]:
        """Return the groups of which ranks have different copies."""
        return find_differing([buffer.free_digests() for buffer in self.buffers])

    def memory(self, rank: int | None = None) -> Source:
        """Return the snapshots of all ranks as a source for other ranks, or only that of one rank."""
        return self._parts(self._fds) if rank is None else ShardSource(self.buffers[rank])

    def checkpoint(self, folder: Path) -> Source:
        """Write a checkpoint of the snapshots, and return it as a source for any ranks."""
        shards = [{"rank": rank} for rank in range(self.count)]
        args = {"directory": str(folder), "shards": shards, "differing": list(self.differing())}
        done = save_shards(args, self._fds)
        parts = os.memfd_create("parts")
        os.write(parts, json.dumps([done]).encode())
        finish({"directory": str(folder)}, [parts])
        os.close(parts)
        state = open_checkpoint(str(folder), range(self.count), self.count)
        self._closed_last.append(state.reader.close)
        return Parts(state, self.count)

    async def mirrored(self, rank: int | None = None) -> Source:
        """Mirror the snapshots to another node, lose the first node, and fetch them from its replacement.

        Args:
            rank: rank that starts on the replacement; None if ranks with another layout start there.
        """
        ranks = range(self.count) if rank is None else [rank]
        lost, other, replacement = _Node("lost"), _Node("other"), _Node("replacement")
        for each in ranks:
            lost.pool.install(each, os.dup(self._fds[each]), self._size_bytes)
        await lost.mirroring.send(_GENERATION, _STEP, ranks, await other.mirroring.address(), None)
        await lost.close()
        holder = ShardHolder(await other.mirroring.address(), tuple(ranks))
        await replacement.mirroring.fetch(Restore("memory", _STEP, _GENERATION), [holder], ranks)
        await other.close()
        fetched: list[int] = []
        for each in ranks:
            found = replacement.pool.find(each, _GENERATION, _STEP)
            assert found is not None and ShardBuffer(os.dup(found[0])).verify(), f"rank {each} is restored"
            fetched.append(found[0])
        self._closed_last.append(replacement.pool.close)
        return self._parts(fetched) if rank is None else ShardSource(ShardBuffer(os.dup(fetched[0])))

    def _parts(self, shards: Sequence[int]) -> "Parts":
        return Parts(saved_state(dict(enumerate(shards))), len(shards))

    def close(self) -> None:
        """Release the memory of the snapshots and of their copies."""
        for close in [*self._closed_last, *(buffer.close for buffer in self.buffers)]:
            close()
        for fd in self._fds:
            os.close(fd)


class Parts:
    """A saved state of which ranks with any layout get their parts."""

    def __init__(self, state: SavedState, world_size: int) -> None:
        self._state = state
        self._slices = SliceSource(json.loads(json.dumps(state.catalog(0, world_size))), self._receive)

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        return self._slices.tensors()

    def extra(self, rank: int, world_size: int) -> Mapping[str, Any]:
        return self._state.catalog(rank, world_size)["facts"]

    def is_of_layout(self, world_size: int, layout_hash: str) -> bool:
        return self._slices.is_of_layout(world_size, layout_hash)

    def read(self, targets: Mapping[str, torch.Tensor]) -> None:
        self._slices.read(targets)

    def _receive(self, table: BoxTable, size_bytes: int) -> memoryview:
        memory = memoryview(bytearray(size_bytes))
        fill(self._state, {0: table}, {0: memory})
        return memory


def view_of(source: Source, rank: int, world_size: int) -> RankSource:
    """Return a source as one of `world_size` ranks sees it. Their layout is that of the saved ranks if the size is."""
    return RankSource(source, rank, world_size, LAYOUT)


class _Node:
    """The memory of one agent, and its part in mirrors."""

    def __init__(self, name: str) -> None:
        config = AgentConfig("j", "t", name, name, "127.0.0.1", "s", "file:///s", "file:///d", mirror=True)
        self.pool = BufferPool(BUFFERS_PER_RANK + BUFFERS_FOR_MIRRORS)
        self.mirroring = Mirroring(config, self.pool)

    async def close(self) -> None:
        await self.mirroring.close()
        self.pool.close()
