"""Restores onto other ranks over real sockets: two agents, each with half of the ranks."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from regroup.workers.agent.slices.node_restore import RestoreTraffic
from regroup.workers.agent.slices.restore_session import RestoreSession
from regroup.workers.agent.slices.saved_state import StateLostError
from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_PER_RANK, BufferPool
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.messages import Join, Restore
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.state_messages import BuffersRequest, StateCatalogRequest, StateRequest
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable, TensorBox, packed, unpacked
from regroup.workers.state.state_error import StateError
from tests.workers.state.slices.saved_meshes import Mesh, SavedMesh, part_of

TENSORS = {f"layers.{number}": np.arange(24 * 5, dtype="float64").reshape(24, 5) + number for number in range(3)}
BEFORE, AFTER = Mesh(((0, 4),), 2), Mesh(((0, 3),), 2)
STEP, SIZE = 7, 1 << 16


class Node:
    """The memory and the transfers of one agent."""

    def __init__(self, number: int) -> None:
        name = f"node-{number}"
        config = AgentConfig("j", "t", name, name, "127.0.0.1", "s", "file:///s", "file:///d")
        self.number, self.pool = number, BufferPool(BUFFERS_PER_RANK)
        self.mirroring = Mirroring(config, self.pool)
        self.restores: list[RestoreTraffic] = []

    def write(self, rank: int) -> None:
        """Write the snapshot of a rank of the first generation."""
        fds, _ = self.pool.lend(BuffersRequest(rank, 1, SIZE), Restore("none"))
        boxes = {name: BEFORE.box(rank, tensor.shape) for name, tensor in TENSORS.items()}
        plan = BufferLayout(
            [Entry(name, "float64", (24, 5), box.offset, box.shape, box.size * 8) for name, box in boxes.items()]
        )
        with contextlib.closing(ShardBuffer(os.dup(fds[0]))) as buffer:
            facts = {"rank": rank, "random": rank}
            buffer.begin(plan, facts, generation=1, step=STEP, rank=rank, world_size=4, layout_hash="h")
            for entry in plan.entries:
                buffer.view(entry)[:] = part_of(TENSORS[entry.name], boxes[entry.name]).tobytes()
            buffer.commit()

    def restored(self, ranks: range, world_size: int, holders: list[ShardHolder]) -> RestoreSession:
        """Start the restore of new ranks on this node."""
        join = Join(
            "j", 2, 0, world_size, 0, len(ranks), self.number, 2, {}, "cpu", "h", 1,
            Restore("memory", STEP, 1, world_size=4), "m:f", RankConfig(),
        )  # fmt: skip
        joins = [replace(join, rank=rank) for rank in ranks]
        return RestoreSession(joins, holders, self.pool, self.mirroring, self.restores.append)

    async def close(self) -> None:
        await self.mirroring.close()
        self.pool.close()


@pytest.fixture
async def nodes() -> AsyncIterator[list[Node]]:
    made = [Node(number) for number in range(2)]
    for node in made:
        for rank in BEFORE.ranks_on(node.number):
            node.write(rank)
    yield made
    for node in made:
        await node.close()


async def holders_of(nodes: list[Node]) -> list[ShardHolder]:
    return [ShardHolder(await node.mirroring.address(), tuple(BEFORE.ranks_on(node.number))) for node in nodes]


def table_of(rank: int) -> tuple[BoxTable, int]:
    rows: list[tuple[str, TensorBox, int]] = []
    at = 4096
    for name, tensor in TENSORS.items():
        box = TensorBox("float64", 8, (24, 5), AFTER.box(rank, tensor.shape))
        rows.append((name, box, at))
        at += box.size_bytes
    return BoxTable.of(rows), at


async def fill(node: Node, session: RestoreSession, rank: int) -> bytes:
    """Ask for a rank's parts and return the content of its buffer."""
    fds, source = await session.lend(BuffersRequest(rank, 2, SIZE))
    assert source == -1
    table, size_bytes = table_of(rank)
    await session.fill(StateRequest(rank, 2, 0, size_bytes), packed(table.to_json()))
    return os.pread(fds[0], size_bytes, 0)


async def test_a_resize_moves_exactly_the_minimum(nodes: list[Node]) -> None:
    holders = await holders_of(nodes)
    sessions = [node.restored(AFTER.ranks_on(node.number), 3, holders) for node in nodes]
    await asyncio.gather(*(session.wait() for session in sessions))
    requested = [(node, sessions[node.number], rank) for node in nodes for rank in AFTER.ranks_on(node.number)]
    contents = await asyncio.gather(*(fill(*each) for each in requested))
    for (_, _, rank), content in zip(requested, contents, strict=True):
        for name, box, start in table_of(rank)[0].rows():
            assert content[start : start + box.size_bytes] == part_of(TENSORS[name], box.box).tobytes()
    saved = SavedMesh(TENSORS, BEFORE)
    for node in nodes:
        (traffic,) = node.restores
        assert traffic.fetched_bytes == traffic.minimum_bytes == saved.minimum_bytes(AFTER, node.number)
    assert [node.restores[0].fetched_bytes for node in nodes] == [3 * 4 * 5 * 8, 0], "rows 12 to 15, of three tensors"


async def test_ranks_learn_what_the_state_contains(nodes: list[Node]) -> None:
    """Check the small facts: the rank's own if the number of ranks is the same, otherwise those of rank 0."""
    holders = await holders_of(nodes)
    fewer = nodes[1].restored(range(2, 3), 3, holders)
    assert unpacked(await fewer.catalog(StateCatalogRequest(2, 2))) == {
        "tensors": {name: ["float64", [24, 5]] for name in TENSORS},
        "facts": {"rank": 0},
        "world_size": 4,
        "layout_hash": "h",
    }
    same = nodes[1].restored(range(2, 4), 4, holders)
    assert unpacked(await same.catalog(StateCatalogRequest(3, 2)))["facts"] == {"rank": 3, "random": 3}


async def test_a_lost_shard_fails_the_start_and_is_named(nodes: list[Node]) -> None:
    holders = await holders_of(nodes)
    await nodes[0].mirroring.close()
    session = nodes[1].restored(range(2, 3), 3, holders)
    with pytest.raises(StateLostError, match="the shard of rank 0, generation 1, step 7 is lost"):
        await session.wait()


async def test_a_tensor_that_is_not_saved_is_an_error_for_all_ranks_of_the_node(nodes: list[Node]) -> None:
    session = nodes[0].restored(range(2), 3, await holders_of(nodes))
    for rank in range(2):
        await session.lend(BuffersRequest(rank, 2, SIZE))
    box = TensorBox("float64", 8, (2,), AFTER.box(0, (2,)))
    unknown = packed(BoxTable.of([("unknown", box, 0)]).to_json())
    requested = [session.fill(StateRequest(rank, 2, 0, 4096), unknown) for rank in range(2)]
    errors = await asyncio.gather(*requested, return_exceptions=True)
    assert all(isinstance(error, StateError) and "'unknown'" in str(error) for error in errors)


@pytest.mark.parametrize(
    ("rank", "buffer", "size_bytes", "message"),
    [
        (0, 9, 4096, "no buffer 9"),
        (0, 0, 4096, "exceeds a buffer"),
        (0, 0, 0, "cannot receive"),
        (5, 0, 4096, "no buffer"),
    ],
)
async def test_invalid_requests_are_refused(
    nodes: list[Node], rank: int, buffer: int, size_bytes: int, message: str
) -> None:
    session = nodes[0].restored(range(2), 3, await holders_of(nodes))
    await session.lend(BuffersRequest(0, 2, SIZE))
    with pytest.raises(ValueError, match=message):
        await session.fill(StateRequest(rank, 2, buffer, size_bytes), packed(table_of(0)[0].to_json()))
    session.close()
