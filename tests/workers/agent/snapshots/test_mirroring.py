"""A node's part in mirrors: shards that it stores for others, retains of its own ranks, and fetches."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.snapshots.buffer_pool import BUFFERS_FOR_MIRRORS, BUFFERS_PER_RANK, BufferPool
from regroup.workers.agent.snapshots.mirroring import Mirroring
from regroup.workers.agent.transfer.shard_store import NoMemoryError, ShardKey, TransferError
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.messages import BuffersRequest, Restore
from regroup.workers.os import node_facts
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import Pin, ShardBuffer, ShardHeader
from tests.workers.agent.open_descriptors import descriptors

PLAN = BufferLayout((Entry("weight", "uint8", (1000,), (0,), (1000,), 1000),))
SIZE = 5000


class Node:
    """One agent's memory and its mirrors."""

    def __init__(self, name: str) -> None:
        config = AgentConfig("j", "t", name, name, "127.0.0.1", "s", "file:///s", "file:///d", mirror=True)
        self.pool = BufferPool(BUFFERS_PER_RANK + BUFFERS_FOR_MIRRORS)
        self.notes: list[tuple[str, Any]] = []
        self.mirroring = Mirroring(config, self.pool, lambda kind, data: self.notes.append((kind, data)))

    def write_snapshot(self, rank: int, step: int, pin: Pin, generation: int = 1) -> int:
        """Write a snapshot of a rank and return the number of the buffer."""
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

    def mirrored(self) -> set[tuple[int, int]]:
        """Return (rank, step) of the shards that this node stores for others."""
        return {(shard.rank, shard.step) for shard in self.pool.check.open(self.mirroring.store.fds()).describe()}

    def pins(self, rank: int) -> dict[int, Pin]:
        """Return step → pins of a rank's buffers."""
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
    assert descriptors() <= before, "no descriptor leaks"


async def mirror(nodes: tuple[Node, Node], step: int, pin: Pin = Pin.MIRROR) -> None:
    """Write a step on both nodes and mirror it to the other node."""
    for rank, (node, other) in enumerate(((nodes[0], nodes[1]), (nodes[1], nodes[0]))):
        node.write_snapshot(rank, step, pin)
        await node.mirroring.send(1, step, [rank], await other.mirroring.address(), None)


async def test_a_replacement_node_fetches_the_shard_from_the_mirror(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 4)
    assert (pair[0].mirrored(), pair[1].mirrored()) == ({(1, 4)}, {(0, 4)})
    replacement = Node("a")
    await replacement.mirroring.fetch(
        Restore("memory", 4, 1), [ShardHolder(await pair[1].mirroring.address(), (0,))], [0]
    )
    fds, source = replacement.pool.lend(BuffersRequest(0, 2, SIZE), Restore("memory", 4, 1))
    assert len(fds) == 5 and source >= 0
    with contextlib.closing(ShardBuffer(os.dup(fds[source]))) as buffer:
        assert buffer.verify() and bytes(buffer.view(PLAN.entries[0])) == bytes([4]) * 1000
    assert replacement.pins(0) == {4: Pin.MIRROR}, "the set is still fully mirrored"
    replacement.pool.release_all(saving=False)
    assert replacement.pins(0) == {4: Pin.MIRROR}
    await replacement.close()


@pytest.mark.parametrize("ran_here_before", [False, True])
async def test_a_mirrored_shard_becomes_own_when_its_rank_starts_on_the_node(
    pair: tuple[Node, Node], ran_here_before: bool
) -> None:
    node = pair[0]
    if ran_here_before:
        node.write_snapshot(1, 2, Pin.CHECKPOINT)
        node.pool.release_all(saving=False)
    await mirror(pair, 4)
    node.mirroring.retain(1, 4)
    await node.mirroring.fetch(Restore("memory", 4, 1), [], [0, 1])
    for rank in (0, 1):
        fds, source = node.pool.lend(BuffersRequest(rank, 2, SIZE), Restore("memory", 4, 1))
        assert source >= 0
        with contextlib.closing(ShardBuffer(os.dup(fds[source]))) as buffer:
            assert buffer.verify() and bytes(buffer.view(PLAN.entries[0])) == bytes([4]) * 1000
    assert node.mirrored() == set(), "the mirror no longer owns the buffer of a rank"
    assert {(each.rank, each.step) for each in node.pool.check.open(node.pool.fds()).describe()} == {(0, 4), (1, 4)}
    assert node.pins(1) == {4: Pin.MIRROR}, "the set is retained until a newer one is fully mirrored"


@pytest.mark.parametrize("is_replaced", [False, True], ids=["on the node of the mirror", "on a replacement node"])
async def test_a_mirror_of_a_step_being_saved_waits_for_no_saver(pair: tuple[Node, Node], is_replaced: bool) -> None:
    await mirror(pair, 4, Pin.MIRROR | Pin.CHECKPOINT)
    pair[1].mirroring.retain(1, 4)
    node, holders = pair[1], list[ShardHolder]()
    if is_replaced:
        node, holders = Node("a"), [ShardHolder(await pair[1].mirroring.address(), (0,))]
    await node.mirroring.fetch(Restore("memory", 4, 1), holders, [0])
    assert node.pins(0) == {4: Pin.MIRROR}, "the saver ran where the snapshot was written"
    if is_replaced:
        await node.close()


async def test_a_shard_fetched_from_a_node_that_saves_it_waits_for_no_saver(pair: tuple[Node, Node]) -> None:
    pair[0].write_snapshot(0, 4, Pin.CHECKPOINT)
    await pair[1].mirroring.fetch(Restore("memory", 4, 1), [ShardHolder(await pair[0].mirroring.address(), (0,))], [0])
    assert pair[0].pins(0) == {4: Pin.CHECKPOINT} and pair[1].pins(0) == {}


async def test_a_missing_local_shard_is_an_error(pair: tuple[Node, Node]) -> None:
    pair[0].write_snapshot(0, 3, Pin.CHECKPOINT)
    with pytest.raises(TransferError, match="no longer has the shard of rank 0 of generation 1, step 4"):
        await pair[0].mirroring.fetch(Restore("memory", 4, 1), [], [0])


async def test_only_the_fully_mirrored_set_is_retained(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 4)
    for node in pair:
        node.mirroring.retain(1, 4)
    await mirror(pair, 6)
    assert pair[0].mirrored() == {(1, 4), (1, 6)} and pair[0].pins(0) == {4: Pin.MIRROR, 6: Pin.MIRROR}
    for node in pair:
        node.mirroring.retain(1, 6)
    assert pair[0].mirrored() == {(1, 6)} and pair[0].pins(0) == {6: Pin.MIRROR}


async def test_a_mirrored_set_is_released_for_the_next_one_if_memory_is_short(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    await mirror(pair, 4)
    for node in pair:
        node.mirroring.retain(1, 4)
    monkeypatch.setattr(node_facts, "free_memory_bytes", lambda: 1 << 20)
    pair[0].write_snapshot(0, 6, Pin.MIRROR)
    with pytest.raises(NoMemoryError, match="MiB of memory would stay free"):
        await pair[0].mirroring.send(1, 6, [0], await pair[1].mirroring.address(), None)
    assert pair[1].mirrored() == {(0, 4)}
    monkeypatch.undo()
    for node in pair:
        node.mirroring.release_others(1, 6)
    assert pair[1].mirrored() == set() and pair[0].pins(0) == {6: Pin.MIRROR} and pair[1].pins(1) == {}
    assert pair[0].pool.mirrored is None
    await pair[0].mirroring.send(1, 6, [0], await pair[1].mirroring.address(), None)
    assert pair[1].mirrored() == {(0, 6)}


async def test_the_end_of_a_generation_releases_partly_mirrored_sets(pair: tuple[Node, Node]) -> None:
    node = pair[0]
    await mirror(pair, 4)
    node.mirroring.retain(1, 4)
    node.write_snapshot(0, 6, Pin.MIRROR | Pin.CHECKPOINT)
    node.write_snapshot(0, 7, Pin.CHECKPOINT)
    node.pool.release_all(saving=True)
    assert node.pins(0) == {4: Pin.MIRROR, 6: Pin.CHECKPOINT, 7: Pin.CHECKPOINT}
    node.pool.release_all(saving=False)
    assert node.pins(0) == {4: Pin.MIRROR}


async def test_a_snapshot_without_a_mirror_pin_is_not_sent(pair: tuple[Node, Node]) -> None:
    pair[0].write_snapshot(0, 4, Pin.CHECKPOINT)
    with pytest.raises(LookupError, match="rank 0, generation 1, step 4"):
        await pair[0].mirroring.send(1, 4, [0], await pair[1].mirroring.address(), None)


async def test_a_missing_remote_shard_is_an_error(pair: tuple[Node, Node]) -> None:
    with pytest.raises(TransferError, match="no shard of rank 0"):
        await pair[0].mirroring.fetch(
            Restore("memory", 4, 1), [ShardHolder(await pair[1].mirroring.address(), (0,))], [0]
        )


async def test_own_and_mirrored_shards_are_the_source_of_a_new_layout(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 4)
    pair[1].write_snapshot(2, 4, Pin.MIRROR)
    retained = pair[0].mirroring.retain_source(1, 4)
    shards = [ShardBuffer(os.dup(fd)) for fd in retained.values()]
    assert [(shard.header().rank, shard.verify()) for shard in shards] == [(0, True), (1, True)]
    for shard in shards:
        shard.close()
    assert pair[0].mirroring.retain_source(1, 4) == retained
    assert pair[0].mirroring.store.find(ShardKey(1, 1, 4)) is not None, "other nodes can read it"


async def test_a_lost_shard_is_fetched_from_another_holder_if_the_first_has_none(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 4)
    replacement, empty = Node("a"), Node("c")
    holders = [ShardHolder(await node.mirroring.address(), (0, 1)) for node in (empty, pair[1])]
    await replacement.mirroring.fetch(Restore("memory", 4, 1), holders, [0])
    assert replacement.pins(0) == {4: Pin.MIRROR} and replacement.pool.find(1, 1, 4) is None
    for node in (replacement, empty):
        await node.close()


async def test_ranks_of_the_original_size_use_their_retained_shards(pair: tuple[Node, Node]) -> None:
    """Check a job that grew and failed before its first complete set, and returns to its former size."""
    pair[0].write_snapshot(0, 4, Pin.NONE)
    pair[0].mirroring.retain_source(1, 4)
    await pair[0].mirroring.fetch(Restore("memory", 4, 1), [], [0])
    _, source = pair[0].pool.lend(BuffersRequest(0, 3, SIZE), Restore("memory", 4, 1))
    assert source >= 0


def memory_of(node: Node, key: ShardKey) -> int:
    """Return the number of the memory file of a mirrored shard."""
    found = node.mirroring.store.find(key)
    assert found is not None
    return os.fstat(found[0]).st_ino


async def test_the_memory_of_a_replaced_mirror_gets_the_next_one(pair: tuple[Node, Node]) -> None:
    for step in (2, 4):
        await mirror(pair, step)
        pair[1].mirroring.retain(1, step)
    replaced = memory_of(pair[1], ShardKey(0, 1, 4))
    assert pair[1].mirrored() == {(0, 4)}, "a file that waits for the next mirror has no shard"
    await mirror(pair, 6)
    pair[1].mirroring.retain(1, 6)
    await mirror(pair, 8)
    assert memory_of(pair[1], ShardKey(0, 1, 8)) == replaced
    fd, _ = pair[1].mirroring.store.find(ShardKey(0, 1, 8)) or (-1, 0)
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        assert buffer.verify() and bytes(buffer.view(PLAN.entries[0])) == bytes([8]) * 1000


async def test_a_mirror_that_became_the_source_of_a_layout_is_never_overwritten(pair: tuple[Node, Node]) -> None:
    await mirror(pair, 2)
    pair[1].mirroring.retain(1, 2)
    source = os.fstat(pair[1].mirroring.retain_source(1, 2)[0]).st_ino
    for step in (4, 6, 8):
        await mirror(pair, step)
        pair[1].mirroring.retain(1, step)
        assert memory_of(pair[1], ShardKey(0, 1, step)) != source


async def test_no_memory_waits_for_mirrors_once_all_are_released(pair: tuple[Node, Node]) -> None:
    for step in (2, 4):
        await mirror(pair, step)
        pair[1].mirroring.retain(1, step)
    store = pair[1].mirroring.store
    kept_bytes = store.size_bytes()
    assert kept_bytes > 0
    pair[1].mirroring.retain_source(1, 4)
    assert store.size_bytes() < kept_bytes, "old and new shards need the memory"
    pair[1].mirroring.retain(0, 0)
    assert store.size_bytes() == 0


async def test_shards_are_listed_while_the_mirrors_of_older_sets_are_released(pair: tuple[Node, Node]) -> None:
    """Check that a thread never reads a descriptor that the store closed, or another file that opened as its number."""
    await mirror(pair, 2)
    node = pair[1]
    is_closing, is_closed, opened = threading.Event(), threading.Event(), ShardBuffer.header

    def header_after_release(buffer: ShardBuffer) -> ShardHeader:
        is_closing.set()
        assert is_closed.wait(10)
        return opened(buffer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardBuffer, "header", header_after_release)
        listed = asyncio.create_task(node.mirroring.held_shards())
        await asyncio.to_thread(is_closing.wait, 10)
        patch.undo()
        node.mirroring.retain(0, 0)
        node.pool.close()
        is_closed.set()
    assert {(each.rank, each.step) for each in await listed} == {(0, 2), (1, 2)}
    assert await node.mirroring.held_shards() == []


async def test_a_rank_may_write_to_a_shard_whose_check_is_in_progress(pair: tuple[Node, Node]) -> None:
    """Check that a result counts only until the buffer is lent: a wild pointer may damage it from then on."""
    node = pair[0]
    node.write_snapshot(0, 4, Pin.CHECKPOINT)
    is_reading, is_lent, verify = threading.Event(), threading.Event(), ShardBuffer.verify

    def verify_late(buffer: ShardBuffer) -> bool:
        is_intact = verify(buffer)
        is_reading.set()
        assert is_lent.wait(10)
        return is_intact

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardBuffer, "verify", verify_late)
        checked = asyncio.create_task(node.mirroring.verify_shards(1, 4))
        await asyncio.to_thread(is_reading.wait, 10)
        fds, source = node.pool.lend(BuffersRequest(0, 2, SIZE), Restore("memory", 4, 1))
        is_lent.set()
    assert len(await checked) == 1
    with contextlib.closing(ShardBuffer(os.dup(fds[source]))) as buffer:
        buffer.view(PLAN.entries[0])[7] ^= 1
    assert await node.mirroring.verify_shards(1, 4) == []
    assert [(kind, data["rank"], data["node"]) for kind, data in node.notes] == [("snapshot_damaged", 0, "a")]
    assert [shard.step for shard in await node.mirroring.verify_newest()] == []
    assert len(node.notes) == 1, "the damage is reported once"


async def test_damage_of_a_mirrored_shard_is_not_reported_by_its_holder(
    pair: tuple[Node, Node],
) -> None:
    await mirror(pair, 4)
    held = await pair[0].mirroring.verify_newest()
    assert {(shard.step, shard.is_verified) for shard in held} == {(4, True)}
    (fd,) = pair[1].mirroring.store.fds()
    pair[1].pool.check.forget([fd])
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        buffer.view(PLAN.entries[0])[7] ^= 1
    assert [shard.rank for shard in await pair[1].mirroring.verify_shards(1, 4)] == [1]
    assert pair[1].notes == []


async def test_memory_is_counted_while_a_transfer_takes_a_spare(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (2, 4):
        await mirror(pair, step)
        pair[1].mirroring.retain(1, step)
    store, used, fstat = pair[1].mirroring.store, threading.Event(), os.fstat

    def use_spare() -> None:
        os.close(store.allocate(0, 2 * SIZE))  # the spare is too small and is closed
        used.set()

    def fstat_after_use(fd: int) -> os.stat_result:
        if threading.current_thread() is threading.main_thread() and not taker.ident:
            taker.start()
            used.wait(0.5)
        return fstat(fd)

    taker = threading.Thread(target=use_spare)
    monkeypatch.setattr(os, "fstat", fstat_after_use)
    assert store.size_bytes() > 0
    taker.join()
