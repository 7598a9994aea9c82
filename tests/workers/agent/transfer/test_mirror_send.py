"""One mirror on several connections: complete, within its rate, and without a trace when it is cancelled."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from regroup.workers.agent.transfer import mirror_send
from regroup.workers.agent.transfer.mirror_send import MirrorSend
from regroup.workers.agent.transfer.priorities import Priorities
from regroup.workers.agent.transfer.server import TransferServer
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.state.buffer_layout import HEADER_BYTES
from tests.workers.agent.open_descriptors import descriptors
from tests.workers.agent.transfer.held_shards import KEY, Agent, agents, content, new_shard


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() <= before, "no descriptor leaks"
    assert [each.name for each in threading.enumerate() if each.name.startswith("regroup-")] == []


@pytest.fixture
def shard() -> Iterator[int]:
    fd = new_shard()
    yield fd
    os.close(fd)


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Streams that a connection has joined."""
    found, join = list[str](), TransferServer._join_mirror

    def recorded(server: TransferServer, connection: object, request: dict[str, str]) -> None:
        found.append(request["stream"])
        join(server, connection, request)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(TransferServer, "_join_mirror", recorded)
    return found


def sending(agent: Agent, shard: int, bytes_per_s: float | None = None) -> MirrorSend:
    return MirrorSend(agent.address, KEY, os.dup(shard), 4711, Priorities(), bytes_per_s)


@pytest.mark.parametrize("streams", [1, 2, 4])
async def test_a_shard_arrives_on_several_connections(
    shard: int, streams: int, joins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_send, "MOST_STREAMS", streams)
    async with agents() as (there,):
        sent, seconds = await asyncio.to_thread(sending(there, shard).run)
        fd, size_bytes = there.store.shards[KEY]
        assert (sent, size_bytes) == (os.fstat(shard).st_size, 4711) and seconds > 0
        assert content(fd)[HEADER_BYTES:] == content(shard)[HEADER_BYTES:]
    assert len(joins) <= streams - 1 and len(set(joins)) <= 1


async def test_all_connections_together_keep_to_the_rate(
    shard: int, joins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_send, "MOST_STREAMS", 2)
    async with agents() as (there,):
        nbytes = os.fstat(shard).st_size
        _, seconds = await asyncio.to_thread(sending(there, shard, 2 * nbytes).run)
        assert 0.3 < seconds < 5 and len(joins) == 1


async def test_a_mirror_arrives_although_its_further_connections_are_refused(
    shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(server: TransferServer, connection: object, request: object) -> None:
        raise TransferError("no further connection")

    monkeypatch.setattr(TransferServer, "_join_mirror", refuse)
    async with agents() as (there,):
        await asyncio.to_thread(sending(there, shard).run)
        assert content(there.store.shards[KEY][0])[HEADER_BYTES:] == content(shard)[HEADER_BYTES:]


async def test_no_connection_joins_a_mirror_that_was_not_announced(shard: int) -> None:
    async with agents() as (there,):
        request = {"op": "join", "stream": "0" * 16}
        with (
            pytest.raises(TransferError, match="the mirror has arrived, or was never announced"),
            mirror_send.request(there.address, request, mirror_send.ConnectionSet()) as connection,
        ):
            await asyncio.to_thread(mirror_send.receive_answer, connection, there.address)


async def test_an_abort_ends_all_connections(shard: int) -> None:
    async with agents() as (there,):
        mirror = sending(there, shard, os.fstat(shard).st_size / 60)
        running = asyncio.ensure_future(asyncio.to_thread(mirror.run))
        await asyncio.sleep(0.3)
        started_s = time.monotonic()
        mirror.abort()
        with pytest.raises(TransferError):
            await running
        assert time.monotonic() - started_s < 2 and there.store.shards == {}


async def test_another_shard_is_not_sent(shard: int) -> None:
    async with agents() as (there,):
        with pytest.raises(TransferError, match="found another shard"):
            MirrorSend(there.address, replace(KEY, step=6), os.dup(shard), 1, Priorities()).run()
