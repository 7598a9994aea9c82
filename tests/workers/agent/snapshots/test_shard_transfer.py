"""Transfer of shards over real sockets: complete or not at all, and only with the token."""

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
from regroup.workers.agent.snapshots.shard_transfer import ShardKey, ShardServer, TransferError, get, put
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
async def serving() -> AsyncIterator[tuple[ShardServer, MirrorStore]]:
    store = MirrorStore(BufferPool())
    served = ShardServer("127.0.0.1", bind_listener("127.0.0.1", None), store)
    try:
        yield served, store
    finally:
        await served.close()
        store.close()


async def test_a_shard_is_stored_and_fetched_unchanged(shard: int) -> None:
    async with serving() as (served, store):
        sent, seconds = await put(served.address, KEY, shard, 4711)
        assert sent == os.fstat(shard).st_size and seconds > 0
        assert [each.rank for each in store.held_shards()] == [1]
        fd, size_bytes = await get(served.address, KEY, store.allocate)
        assert (content(fd), size_bytes) == (content(shard), 4711)
        os.close(fd)


async def test_a_shard_of_an_own_rank_is_served_too() -> None:
    own = BufferPool()
    fd = os.memfd_create("own")
    write(fd)
    expected = content(fd)
    own.install(KEY.rank, fd, 12)
    store = MirrorStore(own)
    served = ShardServer("127.0.0.1", bind_listener("127.0.0.1", None), store)
    fetched, size_bytes = await get(served.address, KEY, store.allocate)
    assert (content(fetched)[HEADER_BYTES:], size_bytes) == (expected[HEADER_BYTES:], 12)
    os.close(fetched)
    await served.close()
    own.close()


async def test_a_missing_shard_is_an_error(shard: int) -> None:
    async with serving() as (served, store):
        with pytest.raises(TransferError, match="no shard of rank 1, generation 3, step 6"):
            await get(served.address, replace(KEY, step=6), store.allocate)


async def test_requests_without_the_token_are_refused(shard: int) -> None:
    async with serving() as (served, store):
        stranger = replace(served.address, token="0" * 32)
        with pytest.raises(TransferError, match="invalid proof"):
            await put(stranger, KEY, shard, 1)
        with pytest.raises(TransferError, match="invalid proof"):
            await get(stranger, KEY, store.allocate)
        assert served.refused == 2 and store.held_shards() == []


async def test_a_proof_is_valid_for_one_connection_only() -> None:
    """Check that a recorded proof is useless: each connection has its own nonce."""
    async with serving() as (served, _):
        request = {"op": "get", "key": {"rank": 1, "generation": 3, "step": 5}}
        proof = shard_transfer._proof(served.address.token, "an older nonce", request)  # pyright: ignore[reportPrivateUsage]
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        assert "nonce" in json.loads(await reader.readline())
        writer.write(json.dumps({**request, "proof": proof}).encode() + b"\n")
        assert "invalid proof" in json.loads(await reader.readline())["error"]
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("data", [b"nonsense\n", b"x" * 200_000, b"", b'{"op": "put"}\n'])
async def test_an_invalid_request_ends_only_its_own_connection(shard: int, data: bytes) -> None:
    async with serving() as (served, store):
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        writer.write(data)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await put(served.address, KEY, shard, 1)
        assert len(store.held_shards()) == 1


async def test_a_shard_that_changes_during_the_transfer_is_refused(shard: int) -> None:
    """Check this because a rank of the next generation may overwrite the buffer."""
    async with serving() as (served, store):
        sending = asyncio.create_task(put(served.address, KEY, shard, 1, bytes_per_s=2 * BYTES))
        while not sending.done():
            os.pwrite(shard, b"torn", os.fstat(shard).st_size - 8)
            await asyncio.sleep(0.01)
        with pytest.raises(TransferError, match="checksum mismatch"):
            await sending
        assert store.held_shards() == []
        with pytest.raises(TransferError, match="no shard"):
            await get(served.address, KEY, store.allocate)


async def test_a_shard_of_another_set_is_refused(shard: int) -> None:
    async with serving() as (served, store):
        with pytest.raises(TransferError, match="received another shard: rank 1, generation 3, step 5"):
            await put(served.address, replace(KEY, step=6), shard, 1)
        assert store.held_shards() == []


async def test_a_node_without_free_memory_refuses_a_shard(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, count: int) -> None:
        raise OSError(28, "No space left on device")

    async with serving() as (served, store):
        monkeypatch.setattr(os, "posix_fallocate", full)
        before = descriptors()
        with pytest.raises(TransferError, match="No space left"):
            await put(served.address, KEY, shard, 1)
        monkeypatch.undo()
        assert descriptors() == before
        assert store.held_shards() == []


async def test_an_unreachable_peer_is_an_error(shard: int) -> None:
    async with serving() as (served, _):
        address = served.address
    with pytest.raises(TransferError, match=f"transfer with 127.0.0.1:{address.port} failed"):
        await put(address, KEY, shard, 1)


async def test_an_interrupted_transfer_leaves_nothing_behind() -> None:
    async with serving() as (served, store):
        sock = socket.create_connection((served.address.host, served.address.port))
        sock.setblocking(False)
        connection = shard_transfer._Connection(sock)  # pyright: ignore[reportPrivateUsage]
        nonce = (await connection.receive_json())["nonce"]
        request = {"op": "put", "key": {"rank": 1, "generation": 3, "step": 5}, "file_bytes": 1 << 20, "size_bytes": 1}
        proof = shard_transfer._proof(served.address.token, nonce, request)  # pyright: ignore[reportPrivateUsage]
        await connection.send_json({**request, "proof": proof})
        assert await connection.receive_json() == {"go": True}
        await asyncio.get_running_loop().sock_sendall(sock, b"half")
        before = descriptors()
        sock.close()
        while descriptors() > before - 3:  # noqa: ASYNC110  # this socket, the accepted one, the memory file
            await asyncio.sleep(0.01)
        assert store.held_shards() == []


async def test_a_transfer_respects_its_rate(shard: int) -> None:
    async with serving() as (served, _):
        _, seconds = await put(served.address, KEY, shard, 1, bytes_per_s=4 * BYTES)
        assert 0.2 < seconds < 5
