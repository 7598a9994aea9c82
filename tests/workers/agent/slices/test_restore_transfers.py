"""The transfers of a node bring each rank exactly its parts, and end together."""

import asyncio

import numpy as np
import pytest

from regroup.workers.agent.slices.restore_transfers import _MOST_READS, fill_buffers
from regroup.workers.agent.slices.saved_state import StateLostError
from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.state_error import StateError
from tests.workers.agent.slices.mesh_state import Buffers, MeshReader, state_of
from tests.workers.state.slices.saved_meshes import Holder, Mesh, SavedMesh

TENSORS = {f"layers.{number}": np.arange(24 * 6, dtype="float64").reshape(24, 6) + number for number in range(3)}
FOUR = Mesh(((0, 4),), 2)
"""Rows on four ranks of two nodes."""


@pytest.fixture
def saved() -> SavedMesh:
    return SavedMesh(TENSORS, FOUR)


@pytest.mark.parametrize(
    "after",
    [Mesh(((0, 3),), 2), Mesh(((1, 3),), 3), Mesh(((0, 2), (1, 2)), 2), Mesh(((None, 2), (0, 2)), 2)],
    ids=["fewer rows", "columns", "rows and columns", "two copies of two parts"],
)
async def test_each_rank_gets_its_parts(saved: SavedMesh, after: Mesh) -> None:
    for node in after.nodes:
        reader, buffers, expected = MeshReader(saved), Buffers(saved, after, node), list[int]()
        plan = await fill_buffers(state_of(saved, node, reader), buffers.needed, buffers.memory, node, expected.append)
        assert buffers.wrong() == []
        assert reader.received_bytes == plan.fetched_bytes == saved.minimum_bytes(after, node)
        assert expected == [reader.received_bytes], "known before the first read"


async def test_bytes_that_two_ranks_need_are_fetched_once_and_passed_on() -> None:
    saved = SavedMesh(TENSORS, Mesh(((0, 2),), 1))
    copies = Mesh(((None, 2),), 2)
    reader, buffers = MeshReader(saved), Buffers(saved, copies, 0)
    plan = await fill_buffers(state_of(saved, 0, reader), buffers.needed, buffers.memory, 0)
    assert buffers.wrong() == []
    half = sum(tensor.nbytes for tensor in TENSORS.values()) // 2
    assert (reader.received_bytes, plan.fetched_bytes, plan.copied_bytes) == (half, half, 3 * half)


@pytest.mark.parametrize(
    "after",
    [Mesh(((0, 3),), 3), Mesh(((None, 3),), 3), Mesh(((None, 2), (0, 2)), 4), Mesh(((0, 2), (None, 2)), 4)],
    ids=["own parts", "copies", "two copies of two parts", "two parts with two copies"],
)
async def test_a_filled_buffer_is_complete_and_nothing_uses_it_any_more(after: Mesh) -> None:
    """Overwrite each filled buffer: its rank may write the next snapshot there while others still wait."""
    saved = SavedMesh(TENSORS, Mesh(((0, 2),), 1))
    reader, buffers, wrong, filled = MeshReader(saved), Buffers(saved, after, 0), list[tuple[int, str]](), list[int]()

    def use(rank: int) -> None:
        filled.append(rank)
        wrong.extend(each for each in buffers.wrong() if each[0] == rank)
        buffers.memory[rank][:] = bytes(len(buffers.memory[rank]))

    await fill_buffers(state_of(saved, 0, reader), buffers.needed, buffers.memory, 0, on_filled=use)
    assert wrong == [] and sorted(filled) == list(after.ranks_on(0))
    assert not any(map(any, buffers.memory.values())), "nothing was written afterwards"


async def test_a_rank_that_needs_nothing_is_filled_at_once(saved: SavedMesh) -> None:
    reader, buffers, filled = MeshReader(saved), Buffers(saved, Mesh(((0, 3),), 2), 0), list[int]()
    buffers.needed[7], buffers.memory[7] = BoxTable.of([]), memoryview(bytearray())
    await fill_buffers(state_of(saved, 0, reader), buffers.needed, buffers.memory, 0, on_filled=filled.append)
    assert sorted(filled) == [0, 1, 7]


async def test_what_several_ranks_need_is_read_first() -> None:
    tensor = TENSORS["layers.0"]
    saved = SavedMesh({"w": tensor}, Mesh(((0, 4),), 1))

    def rows(first: int, last: int) -> BoxTable:
        box = TensorBox(str(tensor.dtype), tensor.itemsize, tensor.shape, Box((first, 0), (last - first, 6)))
        return BoxTable.of([("w", box, 0)])

    needed = {0: rows(0, 6), 1: rows(6, 12), 2: rows(12, 24), 3: rows(12, 18)}
    for node in range(4, 8):
        reader, memory = MeshReader(saved), {rank: memoryview(bytearray(12 * 48)) for rank in needed}
        await fill_buffers(state_of(saved, node, reader), needed, memory, node)
        assert {rank for _, rank in reader.begun[:2]} == {2, 3}, "both files of rank 2, of which rank 3 gets a part"
        assert bytes(memory[3][: 6 * 48]) == tensor[12:18].tobytes()


async def test_nodes_begin_with_different_holders() -> None:
    saved = SavedMesh(TENSORS, Mesh(((0, 6),), 1))
    firsts: list[Holder] = []
    for node in range(3):
        reader, buffers = MeshReader(saved), Buffers(saved, Mesh(((None, 3),), 1), node)
        await fill_buffers(state_of(saved, node, reader), buffers.needed, buffers.memory, node)
        assert buffers.wrong() == [] and len(reader.begun) == 5
        firsts.append(reader.begun[0])
    assert len(set(firsts)) == 3


async def test_the_number_of_holders_at_the_same_time_is_bounded() -> None:
    saved = SavedMesh(TENSORS, Mesh(((0, 24),), 1))
    reader, buffers = MeshReader(saved), Buffers(saved, Mesh(((None, 1),), 1), 0)
    await fill_buffers(state_of(saved, 0, reader), buffers.needed, buffers.memory, 0)
    assert buffers.wrong() == [] and len(reader.begun) == 23
    assert reader.most == _MOST_READS


async def test_an_error_is_raised_when_no_other_read_uses_the_memory_any_more() -> None:
    saved = SavedMesh(TENSORS, Mesh(((0, 3),), 1))

    def fail(holder: Holder) -> None:
        if holder == (1, 1):
            raise StateLostError("node 1 is gone", ("node-1",))

    reader, buffers = MeshReader(saved, fail), Buffers(saved, Mesh(((None, 1),), 1), 0)
    reader.may_end.clear()
    filling = asyncio.ensure_future(fill_buffers(state_of(saved, 0, reader), buffers.needed, buffers.memory, 0))
    async with asyncio.timeout(10):
        while len(reader.begun) < 2:  # noqa: ASYNC110  # the plan is made in a thread
            await asyncio.sleep(0.01)
    done, _ = await asyncio.wait([filling], timeout=0.1)
    assert not done, "the read from node 2 has not ended"
    reader.may_end.set()
    with pytest.raises(StateLostError, match="node 1 is gone"):
        await filling
    size = TENSORS["layers.0"].nbytes // 3
    assert reader.received_bytes == 3 * size, "the other node delivered all of its parts"


async def test_a_state_without_what_is_needed_reads_nothing(saved: SavedMesh) -> None:
    more = SavedMesh({**TENSORS, "head": np.zeros((4, 2))}, FOUR)
    reader, buffers = MeshReader(saved), Buffers(more, Mesh(((0, 3),), 2), 0)
    with pytest.raises(StateError, match="'head'"):
        await fill_buffers(state_of(saved, 0, reader), buffers.needed, buffers.memory, 0)
    assert reader.begun == []
