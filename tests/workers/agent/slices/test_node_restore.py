"""The ranks of a node get their parts by one plan, and the state is closed in the end."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regroup.workers.agent.slices.node_restore import NodeRestore, RestoreTraffic
from regroup.workers.agent.slices.saved_state import SavedState, StateLostError
from regroup.workers.state.slices.box_table import unpacked
from tests.workers.agent.slices.mesh_state import Buffers, MeshReader, state_of
from tests.workers.state.slices.saved_meshes import Holder, Mesh, SavedMesh

TENSORS = {"w": np.arange(48, dtype="float64").reshape(24, 2)}
BEFORE, AFTER = Mesh(((0, 4),), 2), Mesh(((0, 3),), 2)


class Rig:
    """The restore of node 0 with two of three new ranks."""

    def __init__(self, before: Callable[[Holder], None] = lambda holder: None) -> None:
        saved = SavedMesh(TENSORS, BEFORE)
        self.reader, self.buffers = MeshReader(saved, before), Buffers(saved, AFTER, 0)
        self.state = state_of(saved, 0, self.reader)
        self.old_bytes = sum(len(view) for view in self.state.near.values())
        self.minimum_bytes = saved.minimum_bytes(AFTER, 0)
        self.found = asyncio.get_running_loop().create_future()
        self.restored: list[RestoreTraffic] = []
        self.expected: list[int] = []
        self.restore = NodeRestore(self.found, range(2), 0, self.restored.append, self.expected.append, lambda: 12_345)

    def fill(self, rank: int) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self.restore.fill(rank, self.buffers.needed[rank], self.buffers.memory[rank]))

    async def until_closed(self) -> None:
        assert await asyncio.to_thread(self.reader.is_closed.wait, 10)
        assert not self.state.near


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_nothing_is_read_before_all_ranks_have_asked(rig: Rig) -> None:
    rig.found.set_result(rig.state)
    first = rig.fill(0)
    done, _ = await asyncio.wait([first], timeout=0.1)
    assert not done and rig.reader.begun == [] and rig.expected == []
    await asyncio.wait_for(asyncio.gather(first, rig.fill(1)), 10)
    assert rig.buffers.wrong() == []
    await rig.until_closed()


async def test_the_traffic_is_reported_once(rig: Rig) -> None:
    new_bytes = sum(len(view) for view in rig.buffers.memory.values())
    rig.found.set_result(rig.state)
    await asyncio.wait_for(asyncio.gather(rig.fill(0), rig.fill(1)), 10)
    (traffic,) = rig.restored
    assert traffic.fetched_bytes == traffic.minimum_bytes == traffic.received_bytes == rig.minimum_bytes > 0
    assert traffic.fetched_bytes + traffic.copied_bytes == 2 * TENSORS["w"].nbytes // 3
    assert (traffic.own_bytes, traffic.memory_bytes) == (rig.old_bytes + new_bytes, 12_345)
    assert traffic.waited_s > traffic.seconds > 0 and rig.expected == [rig.minimum_bytes]


async def test_ranks_that_ask_before_the_state_is_found_wait_for_it(rig: Rig) -> None:
    filling = [rig.fill(rank) for rank in range(2)]
    catalog = asyncio.ensure_future(rig.restore.catalog(1, 3))
    done, _ = await asyncio.wait([*filling, catalog], timeout=0.1)
    assert not done
    rig.found.set_result(rig.state)
    await asyncio.wait_for(asyncio.gather(*filling), 10)
    assert unpacked(await catalog)["facts"] == {"rank": 0}, "another number of ranks"
    assert rig.buffers.wrong() == []


@pytest.mark.parametrize("rank", [0, 2])
async def test_a_rank_asks_once_and_on_its_own_node(rig: Rig, rank: int) -> None:
    rig.found.set_result(rig.state)
    first = rig.fill(0)
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match=f"rank {rank} asked for its state twice, or does not run on this node"):
        await rig.restore.fill(rank, rig.buffers.needed[0], rig.buffers.memory[0])
    await asyncio.wait_for(asyncio.gather(first, rig.fill(1)), 10)
    assert rig.buffers.wrong() == [], "the other requests are served"


async def test_parts_that_exceed_the_buffer_are_refused_and_may_be_requested_again(rig: Rig) -> None:
    rig.found.set_result(rig.state)
    end = max(start + box.size_bytes for _, box, start in rig.buffers.needed[0].rows())
    with pytest.raises(ValueError, match=f"'w' of .* exceeds a buffer of {end - 1} bytes"):
        await rig.restore.fill(0, rig.buffers.needed[0], rig.buffers.memory[0][: end - 1])
    await asyncio.wait_for(asyncio.gather(rig.fill(0), rig.fill(1)), 10)
    assert rig.buffers.wrong() == []


async def test_a_failed_read_fails_the_ranks_that_wait_for_it_and_closes_the_state() -> None:
    def fail(holder: Holder) -> None:
        raise StateLostError(f"{holder} is gone")

    rig = Rig(fail)
    rig.found.set_result(rig.state)
    results = await asyncio.wait_for(asyncio.gather(rig.fill(0), rig.fill(1), return_exceptions=True), 10)
    assert [str(each) for each in results] == ["None", "(1, 2) is gone"], "all parts of rank 0 were on its node"
    assert [rank for rank, _ in rig.buffers.wrong()] == [1] and rig.restored == []
    await rig.until_closed()


async def test_a_rank_gets_its_parts_while_another_one_still_waits(rig: Rig) -> None:
    rig.reader.may_end.clear()
    rig.found.set_result(rig.state)
    filling = [rig.fill(rank) for rank in range(2)]
    await asyncio.wait_for(filling[0], 10)
    assert not filling[1].done() and rig.restored == []
    rig.reader.may_end.set()
    await asyncio.wait_for(filling[1], 10)
    assert rig.buffers.wrong() == [] and len(rig.restored) == 1


async def test_a_state_that_is_not_found_fails_all_ranks(rig: Rig) -> None:
    rig.found.set_exception(StateLostError("the shard of rank 3 is lost"))
    errors = await asyncio.gather(rig.fill(0), rig.fill(1), rig.restore.catalog(0, 3), return_exceptions=True)
    assert [str(error) for error in errors] == ["the shard of rank 3 is lost"] * 3


async def test_ranks_that_die_while_they_wait_leave_nothing_open(rig: Rig) -> None:
    first = rig.fill(0)
    await asyncio.sleep(0)
    rig.restore.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(first, 10)
    with pytest.raises(StateLostError, match="after the end of its generation"):
        await rig.fill(1)
    rig.found.set_result(rig.state)  # the state is found after the end
    await rig.until_closed()


async def test_the_end_of_a_restore_stops_its_reads(rig: Rig) -> None:
    rig.reader.may_end.clear()
    rig.found.set_result(rig.state)
    filling = [rig.fill(rank) for rank in range(2)]
    async with asyncio.timeout(10):
        while not rig.reader.begun:  # noqa: ASYNC110  # the plan is made in a thread
            await asyncio.sleep(0.01)
    rig.restore.close()
    results: list[Any] = await asyncio.wait_for(asyncio.gather(*filling, return_exceptions=True), 10)
    assert results[0] is None and isinstance(results[1], asyncio.CancelledError), "only rank 1 waits for a read"
    assert rig.reader.received_bytes == 0 and rig.restored == []
    await rig.until_closed()


async def test_a_cancelled_search_is_not_closed(rig: Rig) -> None:
    found: asyncio.Future[SavedState] = rig.found
    found.cancel()
    rig.restore.close()
    await asyncio.sleep(0)
    assert not rig.reader.is_closed.is_set()
