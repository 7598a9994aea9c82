"""Restores onto other ranks over real sockets: two agents, each with half of the ranks. And from checkpoints."""

import asyncio
import contextlib
import mmap
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regroup.workers.agent.checkpoints.stored_state import open_checkpoint
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
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.state_error import StateError
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from tests.support.inputs.node_shards import NodeShards
from tests.workers.agent.checkpoints.test_stored_state import written
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
        return RestoreSession(joins, holders, self.pool, self.mirroring, self.restores.append, open_checkpoint)

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
    more = [node.restores[0].received_bytes - node.restores[0].fetched_bytes for node in nodes]
    assert more == [0, len('{"rank":0,"random":0}')], "node 1 gets the facts of rank 0"


async def test_a_resize_reports_the_memory_of_old_and_new_shards(nodes: list[Node]) -> None:
    shard_bytes = os.fstat(shard_of(nodes[0], 0)).st_size
    session = nodes[0].restored(range(2), 3, await holders_of(nodes))
    await asyncio.gather(*(fill(nodes[0], session, rank) for rank in range(2)))
    (traffic,) = nodes[0].restores
    assert traffic.own_bytes == 2 * shard_bytes + sum(table_of(rank)[1] for rank in range(2))
    assert traffic.memory_bytes == nodes[0].pool.size_bytes(), "memory is used in whole pages"
    assert traffic.own_bytes <= traffic.memory_bytes < traffic.own_bytes + 4 * mmap.PAGESIZE


async def test_the_memory_of_the_old_shards_ends_with_their_release(nodes: list[Node]) -> None:
    """Check the mappings, because one would keep it until the end of the generation."""
    old = {str(os.fstat(shard_of(nodes[0], rank)).st_ino) for rank in BEFORE.ranks_on(0)}
    session = nodes[0].restored(range(2), 3, await holders_of(nodes))
    await asyncio.gather(*(fill(nodes[0], session, rank) for rank in range(2)))
    session.release_source()
    async with asyncio.timeout(10):
        while old & mapped_files():  # noqa: ASYNC110 - a thread closes the state
            await asyncio.sleep(0.01)


def shard_of(node: Node, rank: int) -> int:
    found = node.pool.find(rank, 1, STEP)
    assert found is not None
    return found[0]


def mapped_files() -> set[str]:
    """Return the memory files that this process has mapped, by number."""
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    return {fields[4] for fields in lines if fields[5:] and fields[5].startswith("/memfd:")}


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
    with pytest.raises(StateLostError, match="the shard of rank 0, generation 1, step 7 is lost") as lost:
        await session.wait()
    assert lost.value.failed_holders == ("node-0",)


async def test_a_tensor_that_is_not_saved_is_an_error_for_all_ranks_of_the_node(nodes: list[Node]) -> None:
    session = nodes[0].restored(range(2), 3, await holders_of(nodes))
    for rank in range(2):
        await session.lend(BuffersRequest(rank, 2, SIZE))
    box = TensorBox("float64", 8, (2,), AFTER.box(0, (2,)))
    unknown = packed(BoxTable.of([("unknown", box, 0)]).to_json())
    requested = [session.fill(StateRequest(rank, 2, 0, 4096), unknown) for rank in range(2)]
    errors = await asyncio.gather(*requested, return_exceptions=True)
    assert all(isinstance(error, StateError) and "'unknown'" in str(error) for error in errors)


WIDTH = 9 << 20
"""Bytes of a tensor of each of two ranks in a checkpoint: more than a chunk."""


@contextlib.asynccontextmanager
async def from_checkpoint(folder: Path) -> AsyncIterator[tuple[Node, RestoreSession]]:
    """Restore a checkpoint of two ranks onto three, all on one node."""
    node = Node(0)
    join = Join(
        "j", 2, 0, 3, 0, 3, 0, 1, {}, "cpu", "h", 1, Restore("checkpoint", 8, 1, str(folder)), "m:f", RankConfig()
    )
    joins = [replace(join, rank=rank) for rank in range(3)]
    session = RestoreSession(joins, [], node.pool, node.mirroring, node.restores.append, open_checkpoint)
    yield node, session
    session.close()
    await node.close()


async def read_third(session: RestoreSession, rank: int) -> bytes:
    """Ask for a third of the tensor in a checkpoint."""
    share = 2 * WIDTH // 3
    fds, source = await session.lend(BuffersRequest(rank, 2, share))
    assert source == -1
    box = TensorBox("uint8", 1, (2 * WIDTH,), Box((rank * share,), (share,)))
    await session.fill(StateRequest(rank, 2, 0, share), packed(BoxTable.of([("w0", box, 0)]).to_json()))
    return os.pread(fds[0], share, 0)


def open_files(folder: Path) -> list[str]:
    """Return the files below `folder` that this process has open."""
    found: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(folder))]


async def until_closed(folder: Path) -> None:
    async with asyncio.timeout(10):
        while open_files(folder):  # noqa: ASYNC110 - a thread closes them
            await asyncio.sleep(0.01)


async def test_ranks_read_their_parts_of_a_checkpoint_from_storage(tmp_path: Path) -> None:
    shards, folder = NodeShards([0, 1], [WIDTH]), tmp_path / "step-8.gen-1"
    written(folder, shards)
    async with from_checkpoint(folder) as (node, session):
        await session.wait()
        catalog = unpacked(await session.catalog(StateCatalogRequest(2, 2)))
        assert (catalog["tensors"], catalog["world_size"]) == ({"w0": ["uint8", [2 * WIDTH]]}, 2)
        assert session.progress() is None, "it is unknown what the ranks need"
        parts = await asyncio.gather(*(read_third(session, rank) for rank in range(3)))
        progress = session.progress()
        assert progress is not None and progress.bytes_per_s > 0
        assert 2 * WIDTH <= progress.done_bytes == progress.total_bytes < 2.1 * WIDTH, "with the containers"
        assert b"".join(parts) == shards.values[0, "w0"] + shards.values[1, "w0"]
        (restored,) = node.restores
        assert (restored.fetched_bytes, restored.copied_bytes) == (2 * WIDTH, 0)
        files = sum((folder / f"__{rank}_0.distcp").stat().st_size for rank in range(2))
        assert 2 * WIDTH <= restored.received_bytes <= files, "each chunk is read once"
        await until_closed(folder)


async def test_damage_inside_a_file_fails_the_ranks_that_need_it(tmp_path: Path) -> None:
    folder = tmp_path / "step-8.gen-1"
    written(folder, NodeShards([0, 1], [WIDTH]))
    with (folder / "__1_0.distcp").open("r+b") as file:
        file.seek(WIDTH // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    async with from_checkpoint(folder) as (node, session):
        await session.wait()
        first, *errors = await asyncio.gather(*(read_third(session, rank) for rank in range(3)), return_exceptions=True)
        assert all(isinstance(error, StorageError) and "__1_0.distcp is damaged" in str(error) for error in errors)
        assert not isinstance(first, BaseException) or first is errors[0], "it needs only the other file"
        assert not node.restores
        await until_closed(folder)


async def test_a_checkpoint_that_cannot_be_opened_fails_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "step-8.gen-1"
    for error in (StorageUnavailable, StorageError):
        async with from_checkpoint(folder) as (_, session):
            with pytest.raises(error):
                await session.wait()
            with pytest.raises(error):
                await session.catalog(StateCatalogRequest(0, 2))
        folder.mkdir(parents=True, exist_ok=True)


async def test_an_end_of_the_ranks_before_they_asked_closes_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "step-8.gen-1"
    written(folder, NodeShards([0, 1], [WIDTH]))
    threads = set(threading.enumerate())
    async with from_checkpoint(folder) as (_, session):
        await session.lend(BuffersRequest(0, 2, 8))
        reading = asyncio.ensure_future(read_third(session, 1))
        await session.wait()
        session.close()
        with pytest.raises((asyncio.CancelledError, StateLostError)):
            await reading
    await until_closed(folder)
    assert not [each for each in set(threading.enumerate()) - threads if "checkpoint-read" in each.name]


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
