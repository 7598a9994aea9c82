"""Shards between agents over real sockets: whole or not at all, and only for who has the token."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from regroup.workers.agent.snapshots import shard_transfer
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.agent.snapshots.mirror_store import MirrorStore
from regroup.workers.agent.snapshots.shard_transfer import ShardKey, ShardTransfer, TransferError, get, put
from regroup.workers.os.node_facts import bind_listener
from regroup.workers.state.buffer_layout import HEADER_BYTES, BufferLayout, Entry
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from tests.workers.agent.open_descriptors import descriptors

BYTES = 3 * shard_transfer.CHUNK_BYTES + 17
PLAN = BufferLayout((Entry("weight", "uint8", (BYTES,), (0,), (BYTES,), BYTES),))
KEY = ShardKey(rank=1, generation=3, step=5)


def write(fd: int, key: ShardKey = KEY) -> None:
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        place = {"generation": key.generation, "step": key.step, "rank": key.rank}
        buffer.begin(PLAN, {}, world_size=2, layout_hash="0123456789abcdef", **place)
        view = buffer.view(PLAN.entries[0])
        view[:] = os.urandom(1 << 16) * (BYTES // (1 << 16)) + bytes(BYTES % (1 << 16))
        view.release()
        buffer.commit(Pin.MIRROR)


def content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


@pytest.fixture
def shard() -> Iterator[int]:
    fd = os.memfd_create("shard")
    write(fd)
    yield fd
    os.close(fd)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[ShardTransfer, MirrorStore]]:
    shelf = MirrorStore(BufferPool())
    served = ShardTransfer("127.0.0.1", bind_listener("127.0.0.1", None), shelf)
    try:
        yield served, shelf
    finally:
        await served.close()
        shelf.close()


async def test_a_shard_goes_there_and_comes_back_byte_for_byte(shard: int) -> None:
    async with serving() as (served, shelf):
        sent, seconds = await put(served.address, KEY, shard, 4711)
        assert sent == os.fstat(shard).st_size and seconds > 0
        assert [holding.rank for holding in shelf.holdings()] == [1]
        fd, size_bytes = await get(served.address, KEY, shelf.room)
        assert (content(fd), size_bytes) == (content(shard), 4711)
        os.close(fd)


async def test_a_shard_of_an_own_rank_is_given_too() -> None:
    own = BufferPool()
    fd = os.memfd_create("own")
    write(fd)
    wanted = content(fd)
    own.take_over(KEY.rank, fd, 12)
    shelf = MirrorStore(own)
    served = ShardTransfer("127.0.0.1", bind_listener("127.0.0.1", None), shelf)
    got, size_bytes = await get(served.address, KEY, shelf.room)
    assert (content(got)[HEADER_BYTES:], size_bytes) == (wanted[HEADER_BYTES:], 12)
    os.close(got)
    await served.close()
    own.close()


async def test_what_is_not_there_is_said(shard: int) -> None:
    async with serving() as (served, shelf):
        with pytest.raises(TransferError, match="no shard of rank 1, generation 3, step 6"):
            await get(served.address, replace(KEY, step=6), shelf.room)


async def test_nobody_enters_without_the_token(shard: int) -> None:
    async with serving() as (served, shelf):
        stranger = replace(served.address, token="0" * 32)
        with pytest.raises(TransferError, match="proof is wrong"):
            await put(stranger, KEY, shard, 1)
        with pytest.raises(TransferError, match="proof is wrong"):
            await get(stranger, KEY, shelf.room)
        assert served.refused == 2 and shelf.holdings() == []


async def test_a_proof_is_good_for_one_request_alone() -> None:
    """What somebody on the network has heard opens nothing: each connection has a number of its own."""
    async with serving() as (served, _):
        request = {"op": "get", "key": {"rank": 1, "generation": 3, "step": 5}}
        proof = shard_transfer._proof(served.address.token, "an older number", request)  # pyright: ignore[reportPrivateUsage]
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        assert "nonce" in json.loads(await reader.readline())
        writer.write(json.dumps({**request, "proof": proof}).encode() + b"\n")
        assert "proof is wrong" in json.loads(await reader.readline())["error"]
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("said", [b"nonsense\n", b"x" * 200_000, b"", b'{"op": "put"}\n'])
async def test_nonsense_ends_its_own_connection_only(shard: int, said: bytes) -> None:
    async with serving() as (served, shelf):
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        writer.write(said)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await put(served.address, KEY, shard, 1)
        assert len(shelf.holdings()) == 1


async def test_a_shard_that_changes_while_it_is_sent_is_not_taken(shard: int) -> None:
    """Its rank may write the buffer anew when its generation has ended."""
    async with serving() as (served, shelf):
        sending = asyncio.create_task(put(served.address, KEY, shard, 1, bytes_per_s=2 * BYTES))
        while not sending.done():
            os.pwrite(shard, b"torn", os.fstat(shard).st_size - 8)
            await asyncio.sleep(0.01)
        with pytest.raises(TransferError, match="checksum is wrong"):
            await sending
        assert shelf.holdings() == []
        with pytest.raises(TransferError, match="no shard"):
            await get(served.address, KEY, shelf.room)


async def test_another_set_than_was_named_is_not_taken(shard: int) -> None:
    async with serving() as (served, shelf):
        with pytest.raises(TransferError, match="what came is rank 1, generation 3, step 5"):
            await put(served.address, replace(KEY, step=6), shard, 1)
        assert shelf.holdings() == []


async def test_a_node_without_room_says_so(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, count: int) -> None:
        raise OSError(28, "No space left on device")

    async with serving() as (served, shelf):
        monkeypatch.setattr(os, "posix_fallocate", full)
        before = descriptors()
        with pytest.raises(TransferError, match="No space left"):
            await put(served.address, KEY, shard, 1)
        monkeypatch.undo()
        assert descriptors() == before
        assert shelf.holdings() == []


async def test_a_peer_that_is_gone_is_an_error(shard: int) -> None:
    async with serving() as (served, _):
        address = served.address
    with pytest.raises(TransferError, match=f"exchange with 127.0.0.1:{address.port} broke"):
        await put(address, KEY, shard, 1)


async def test_a_peer_that_dies_in_the_middle_leaves_nothing() -> None:
    async with serving() as (served, shelf):
        sock = socket.create_connection((served.address.host, served.address.port))
        sock.setblocking(False)
        line = shard_transfer._Line(sock)  # pyright: ignore[reportPrivateUsage]
        nonce = (await line.hear())["nonce"]
        request = {"op": "put", "key": {"rank": 1, "generation": 3, "step": 5}, "file_bytes": 1 << 20, "size_bytes": 1}
        proof = shard_transfer._proof(served.address.token, nonce, request)  # pyright: ignore[reportPrivateUsage]
        await line.say({**request, "proof": proof})
        assert await line.hear() == {"go": True}
        await asyncio.get_running_loop().sock_sendall(sock, b"half")
        before = descriptors()
        sock.close()
        while descriptors() > before - 3:  # noqa: ASYNC110  # this socket, the accepted one, the memory file
            await asyncio.sleep(0.01)
        assert shelf.holdings() == []


async def test_sending_keeps_to_its_rate(shard: int) -> None:
    async with serving() as (served, _):
        _, seconds = await put(served.address, KEY, shard, 1, bytes_per_s=4 * BYTES)
        assert 0.2 < seconds < 5
