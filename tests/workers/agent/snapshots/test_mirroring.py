"""A node's part in mirrors: what it holds for others, what it keeps of its own, what it gets back."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_FOR_MIRRORS, BUFFERS_PER_RANK, BufferPool
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.agent.snapshots.shard_transfer import NoRoomError, TransferError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import BuffersRequest, Restore
from regroup.workers.os import node_facts
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from tests.workers.agent.open_descriptors import descriptors

PLAN = BufferLayout((Entry("weight", "uint8", (1000,), (0,), (1000,), 1000),))
SIZE = 5000


class Node:
    """One agent's memory and its mirrors."""

    def __init__(self, name: str) -> None:
        config = AgentConfig("j", "t", name, name, "127.0.0.1", "s", "file:///s", "file:///d", mirror=True)
        self.pool = BufferPool(BUFFERS_PER_RANK + BUFFERS_FOR_MIRRORS)
        self.mirroring = Mirroring(config, self.pool)

    def writes(self, rank: int, step: int, pin: Pin, generation: int = 1) -> int:
        """A rank takes a snapshot; returns the number of the buffer."""
        fds, *_ = self.pool.lend(BuffersRequest(rank, generation, SIZE), Restore("none"))
        for number, fd in enumerate(fds):
            with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
                if not buffer.header().pinned:
                    place = {"generation": generation, "step": step, "rank": rank}
                    buffer.begin(PLAN, {}, world_size=2, layout_hash="0" * 16, **place)
                    buffer.view(PLAN.entries[0])[:] = bytes([step]) * 1000
                    buffer.commit(pin)
                    return number
        raise AssertionError("every buffer is pinned")

    def held(self) -> set[tuple[int, int]]:
        """Rank and step of what it holds for others."""
        return {(holding.rank, holding.step) for holding in self.mirroring.held.holdings()}

    def pins(self, rank: int) -> dict[int, Pin]:
        """Step → what it is pinned for."""
        fds, *_ = self.pool.lend(BuffersRequest(rank, 1, SIZE), Restore("none"))
        found: dict[int, Pin] = {}
        for fd in fds:
            with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
                if (header := buffer.header()).pinned:
                    found[header.step] = header.pinned
        return found

    async def close(self) -> None:
        await self.mirroring.close()
        self.pool.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Node, Node]]:
    before = descriptors()
    nodes = Node("a"), Node("b")
    yield nodes
    for node in nodes:
        await node.close()
    assert descriptors() == before, "descriptors are left"


async def mirror(nodes: tuple[Node, Node], step: int) -> None:
    """Both send each other what they hold of a step."""
    for rank, (node, other) in enumerate(((nodes[0], nodes[1]), (nodes[1], nodes[0]))):
        node.writes(rank, step, Pin.MIRROR)
        await node.mirroring.send(1, step, [rank], await other.mirroring.address(), None)


async def test_what_a_node_lost_comes_back_from_its_pair(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 4)
    assert (pair[0].held(), pair[1].held()) == ({(1, 4)}, {(0, 4)})
    heir = Node("a")
    await heir.mirroring.fetch(Restore("memory", 4, 1), {0: await pair[1].mirroring.address()}, [0])
    fds, source, _ = heir.pool.lend(BuffersRequest(0, 2, SIZE), Restore("memory", 4, 1))
    assert len(fds) == 5 and source >= 0
    with contextlib.closing(ShardBuffer(os.dup(fds[source]))) as buffer:
        assert buffer.verify() and bytes(buffer.view(PLAN.entries[0])) == bytes([4]) * 1000
    assert heir.pins(0) == {4: Pin.MIRROR}, "it is still the set that all hold"
    heir.pool.release_all(saving=False)
    assert heir.pins(0) == {4: Pin.MIRROR}
    await heir.close()


@pytest.mark.parametrize("ran_here_before", [False, True])
async def test_what_a_node_holds_for_another_is_its_own_where_that_ones_rank_comes_to_it(
    pair: tuple[Node, Node], ran_here_before: bool
) -> None:
    node = pair[0]
    if ran_here_before:
        node.writes(1, 2, Pin.CHECKPOINT)
        node.pool.release_all(saving=False)
    await mirror(pair, 4)
    node.mirroring.keep(1, 4)
    await node.mirroring.fetch(Restore("memory", 4, 1), {}, [0, 1])
    for rank in (0, 1):
        fds, source, others = node.pool.lend(BuffersRequest(rank, 2, SIZE), Restore("memory", 4, 1))
        assert source >= 0 and not others
        with contextlib.closing(ShardBuffer(os.dup(fds[source]))) as buffer:
            assert buffer.verify() and bytes(buffer.view(PLAN.entries[0])) == bytes([4]) * 1000
    assert node.held() == set(), "nobody else writes to what a rank writes to"
    assert {(each.rank, each.step) for each in node.pool.holdings()} == {(0, 4), (1, 4)}
    assert node.pins(1) == {4: Pin.MIRROR}, "it is kept until mirrors hold a newer set"


async def test_a_shard_that_was_said_to_be_here_and_is_not_is_an_error(pair: tuple[Node, Node]) -> None:
    pair[0].writes(0, 3, Pin.CHECKPOINT)
    with pytest.raises(TransferError, match="no shard of rank 0 of generation 1, step 4 is here"):
        await pair[0].mirroring.fetch(Restore("memory", 4, 1), {}, [0])


async def test_only_the_set_that_all_hold_is_kept(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 4)
    for node in pair:
        node.mirroring.keep(1, 4)
    await mirror(pair, 6)
    assert pair[0].held() == {(1, 4), (1, 6)} and pair[0].pins(0) == {4: Pin.MIRROR, 6: Pin.MIRROR}
    for node in pair:
        node.mirroring.keep(1, 6)
    assert pair[0].held() == {(1, 6)} and pair[0].pins(0) == {6: Pin.MIRROR}


async def test_where_memory_is_short_the_set_that_is_held_makes_room_for_the_next(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    await mirror(pair, 4)
    for node in pair:
        node.mirroring.keep(1, 4)
    monkeypatch.setattr(node_facts, "free_memory_bytes", lambda: 1 << 20)
    pair[0].writes(0, 6, Pin.MIRROR)
    with pytest.raises(NoRoomError, match="MiB of memory would be left"):
        await pair[0].mirroring.send(1, 6, [0], await pair[1].mirroring.address(), None)
    assert pair[1].held() == {(0, 4)}
    monkeypatch.undo()
    for node in pair:
        node.mirroring.make_room(1, 6)
    assert pair[1].held() == set() and pair[0].pins(0) == {6: Pin.MIRROR} and pair[1].pins(1) == {}
    assert pair[0].pool.mirrored is None
    await pair[0].mirroring.send(1, 6, [0], await pair[1].mirroring.address(), None)
    assert pair[1].held() == {(0, 6)}


async def test_the_end_of_a_generation_gives_up_what_did_not_become_whole(pair: tuple[Node, Node]) -> None:
    node = pair[0]
    await mirror(pair, 4)
    node.mirroring.keep(1, 4)
    node.writes(0, 6, Pin.MIRROR | Pin.CHECKPOINT)
    node.writes(0, 7, Pin.CHECKPOINT)
    node.pool.release_all(saving=True)
    assert node.pins(0) == {4: Pin.MIRROR, 6: Pin.CHECKPOINT, 7: Pin.CHECKPOINT}
    node.pool.release_all(saving=False)
    assert node.pins(0) == {4: Pin.MIRROR}


async def test_what_was_not_pinned_is_not_sent(pair: tuple[Node, Node]) -> None:
    pair[0].writes(0, 4, Pin.CHECKPOINT)
    with pytest.raises(LookupError, match="rank 0, generation 1, step 4"):
        await pair[0].mirroring.send(1, 4, [0], await pair[1].mirroring.address(), None)


async def test_a_shard_that_is_not_there_any_more_is_an_error(pair: tuple[Node, Node]) -> None:
    with pytest.raises(TransferError, match="no shard of rank 0"):
        await pair[0].mirroring.fetch(Restore("memory", 4, 1), {0: await pair[1].mirroring.address()}, [0])


async def test_for_other_ranks_a_node_gets_all_shards_there_are(pair: tuple[Node, Node]) -> None:
    """Its own, one that it holds for another node, and what only the other node has."""
    await mirror(pair, 4)
    pair[1].writes(2, 4, Pin.MIRROR)
    restore = Restore("memory", 4, 1, world_size=3)
    await pair[0].mirroring.fetch(restore, {2: await pair[1].mirroring.address()}, [0, 1])
    _, source, others = pair[0].pool.lend(BuffersRequest(0, 2, 2 * SIZE), restore)
    shards = [ShardBuffer(os.dup(fd)) for fd in others]
    assert source == -1 and [(shard.header().rank, shard.verify()) for shard in shards] == [
        (0, True), (1, True), (2, True),
    ]  # fmt: skip
    for shard in shards:
        shard.close()
