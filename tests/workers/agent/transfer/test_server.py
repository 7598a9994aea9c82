"""The server against clients that are not agents: each affects only its own connection."""

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
from dataclasses import asdict
from typing import Any

import pytest

from regroup.workers.agent.transfer import handshake, server
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.contract.agent_records import TransferAddress
from tests.workers.agent.open_descriptors import descriptors
from tests.workers.agent.transfer.held_shards import KEY, Agent, agents, new_shard, until

READ = {"op": "read", "key": asdict(KEY)}


async def is_served(agent: Agent) -> bool:
    """Return True if a mirror is stored and read."""
    fd = new_shard()
    try:
        await agent.engine.put(agent.address, KEY, fd, 1)
        read, _ = await agent.engine.get([agent.address], KEY, agent.store.allocate)
        os.close(read)
    finally:
        os.close(fd)
    return True


def connected(address: TransferAddress, request: dict[str, Any] | None = None) -> tuple[Connection, str]:
    """Return a connection and its nonce, after a request with a valid proof if one is given."""
    connection = Connection(socket.create_connection((address.host, address.port)))
    connection.start(10)
    nonce = connection.receive_json()["nonce"]
    if request is not None:
        connection.send_json({**request, "proof": handshake.proof(address.token, nonce, request)})
    return connection, nonce


async def test_a_proof_is_valid_for_one_connection_only() -> None:
    """Check that a recorded proof is useless: each connection has its own nonce."""
    async with agents() as (agent,):
        agent.store.add()
        first, nonce = await asyncio.to_thread(connected, agent.address, READ)
        second, other = await asyncio.to_thread(connected, agent.address)
        assert nonce != other
        second.send_json({**READ, "proof": handshake.proof(agent.address.token, nonce, READ)})
        answer = await asyncio.to_thread(second.receive_json)
        assert "invalid proof" in answer["error"]
        for connection in (first, second):
            connection.close()
        assert await is_served(agent)


@pytest.mark.parametrize(
    "data", [b"nonsense\n", b"x" * 200_000, b"", b'{"op": "put"}\n', b"[]\n", b'{"proof": "\xc3\xa4"}\n', b"\xff\n"]
)
async def test_an_invalid_request_ends_only_its_own_connection(data: bytes) -> None:
    async with agents() as (agent,):
        reader, writer = await asyncio.open_connection(agent.address.host, agent.address.port)
        with contextlib.suppress(OSError):  # the server may end the connection first
            writer.write(data)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 15)
        writer.close()
        assert await is_served(agent)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"op": "other"},
        {"op": "read"},
        {"op": "read", "key": {"rank": "x", "generation": 1, "step": 1}},
        {"op": "read", "key": 7},
        {"op": "put", "key": asdict(KEY), "file_bytes": -1, "size_bytes": 1},
        {"op": "put", "key": asdict(KEY), "file_bytes": 0, "size_bytes": 1},
        {"op": "put", "key": asdict(KEY), "file_bytes": 1 << 60, "size_bytes": 1},
        {"op": "index", "generation": 1, "step": 2, "ranks": 3},
        {"op": "index", "generation": 1, "step": 2, "ranks": [1]},
    ],
)
async def test_a_request_of_an_agent_with_wrong_fields_is_an_error(request_: dict[str, Any]) -> None:
    async with agents() as (agent,):
        connection, _ = await asyncio.to_thread(connected, agent.address, request_)
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.to_thread(connection.receive_json)
            assert "error" in answer or answer == {"go": True}
        connection.close()
        assert await is_served(agent)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        struct.pack("<BxxxIQQI", 1, 20, 1 << 50, 8, 0),
        struct.pack("<BxxxIQQI", 1, 20, 0, 1 << 62, 0),
        struct.pack("<BxxxIQQIQQ", 1, 36, 0, 8, 1, 1 << 62, 1 << 62),
        struct.pack("<BxxxIQQIQQ", 1, 36, 0, 8, 1, 1 << 40, 0),
        struct.pack("<BxxxI", 1, 1 << 31),
    ],
)
async def test_a_request_for_bytes_that_no_shard_has_ends_the_connection(data: bytes) -> None:
    async with agents() as (agent,):
        agent.store.add()
        connection, _ = await asyncio.to_thread(connected, agent.address, READ)
        assert "file_bytes" in await asyncio.to_thread(connection.receive_json)
        connection.send(data)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(connection.receive, 1)
        connection.close()
        assert await is_served(agent)


async def test_an_interrupted_mirror_leaves_nothing_behind() -> None:
    async with agents() as (agent,):
        before = descriptors()
        request = {"op": "put", "key": asdict(KEY), "file_bytes": 1 << 20, "size_bytes": 1}
        connection, _ = await asyncio.to_thread(connected, agent.address, request)
        assert (await asyncio.to_thread(connection.receive_json)).keys() == {"go", "stream"}
        connection.send(struct.pack("<BxxxIQ", 1, 0, 1 << 20) + b"half")
        connection.close()
        await until(lambda: descriptors() <= before)
        assert agent.store.shards == {}


async def test_a_client_that_sends_its_request_slowly_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_PROOF_TIMEOUT_S", 0.5)
    async with agents() as (agent,):
        reader, writer = await asyncio.open_connection(agent.address.host, agent.address.port)
        assert b"nonce" in await reader.readline()
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < 10 and not reader.at_eof():
                writer.write(b" ")
                await asyncio.sleep(0.1)
                if writer.is_closing():
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.01)
        assert time.monotonic() - started < 5
        writer.close()


async def test_further_connections_wait_until_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 2)
    async with agents() as (agent,):
        idle = [(await asyncio.to_thread(connected, agent.address))[0] for _ in range(2)]
        waiting = asyncio.create_task(asyncio.to_thread(connected, agent.address))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        idle[0].close()
        third, _ = await waiting
        for connection in (third, idle[1]):
            connection.close()


async def test_a_server_closes_while_clients_are_connected() -> None:
    async with agents() as (agent,):
        agent.store.add()
        open_ones = [(await asyncio.to_thread(connected, agent.address, request))[0] for request in (None, READ)]
        started = time.monotonic()
        await agent.engine.close()
        assert time.monotonic() - started < 2
        for connection in open_ones:
            connection.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((agent.address.host, agent.address.port))


async def test_lines_are_json() -> None:
    async with agents() as (agent,):
        reader, writer = await asyncio.open_connection(agent.address.host, agent.address.port)
        assert set(json.loads(await reader.readline())) == {"nonce"}
        writer.close()
        await writer.wait_closed()
