"""Shards between the agents of one job, over TCP: a mirror is put where it is held, a lost shard got from there.

    server → {"nonce"}
    client → {"op": "put" | "get" | "echo", …, "proof": HMAC of nonce and request under the server's token}
    put: server → {"go": true} | {"error"}, client → bytes, server → {"ok": true} | {"error"}
    get: server → {"file_bytes", "size_bytes"} | {"error"}, then bytes
    echo: server → {"go": true}, client → bytes, server → the same bytes

Lines are JSON. The token is made anew by every agent and reaches others through Ray's own, authenticated calls. What is
sent is not encrypted, as that of the collectives is not: both belong on the cluster's own network.
"""

import asyncio
import contextlib
import hmac
import json
import mmap
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.state.shard_buffer import ShardBuffer

CHUNK_BYTES = 4 << 20
_LINE_BYTES = 64 * 1024
ECHO_BYTES = 256 * 1024
"""More than any packet and most socket buffers hold: a link that loses large packets does not give it back."""
_ECHO_TIMEOUT_S = 3.0
_CONNECT_TIMEOUT_S = 10.0
_IDLE_TIMEOUT_S = 30.0
"""A peer that takes or gives nothing for so long is gone."""


class TransferError(Exception):
    """A shard could not be sent or fetched."""


class NoRoomError(TransferError):
    """The other node has no memory for a shard."""


@dataclass(frozen=True)
class ShardKey:
    """One rank's shard of one set."""

    rank: int
    generation: int
    step: int


class Shelf(Protocol):
    """Where shards that come are put, and those that are asked for found."""

    def room(self, rank: int, file_bytes: int) -> int:
        """A new memory file of that size; returns its descriptor.

        Raises:
            OSError: the host has no room.
        """
        ...

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        """Take a verified shard over. `size_bytes` is what its rank asked for a buffer."""
        ...

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        """Descriptor and `size_bytes` of a shard, or None."""
        ...


class ShardTransfer:
    """One agent's end: serves its shelf."""

    def __init__(self, host: str, listener: socket.socket, shelf: Shelf) -> None:
        """`listener`: bound and listening; `host`: how others reach it."""
        listener.setblocking(False)
        self.address = TransferAddress(host, listener.getsockname()[1], secrets.token_hex(16))
        self.refused = 0
        """Connections whose proof was wrong."""
        self._listener, self._shelf = listener, shelf
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._open: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Listen no longer, and end what is going on."""
        tasks = [self._serving, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            task = loop.create_task(self._answer(_Line(sock)))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _answer(self, line: "_Line") -> None:
        with contextlib.closing(line), contextlib.suppress(OSError, TimeoutError, ValueError):
            nonce = secrets.token_hex(16)
            await line.say({"nonce": nonce})
            request = await line.hear()
            proof = str(request.pop("proof", ""))
            if not hmac.compare_digest(proof, _proof(self.address.token, nonce, request)):
                self.refused += 1
                await line.say({"error": "the proof is wrong: this is another agent, or another life of it"})
                return
            try:
                if request["op"] == "put":
                    await self._take(line, request)
                elif request["op"] == "echo":
                    await line.say({"go": True})
                    await line.give(await line.take(ECHO_BYTES))
                else:
                    await self._give(line, request)
            except (TransferError, KeyError, OSError) as error:
                no_room = isinstance(error, NoRoomError)
                await line.say({"error": f"{type(error).__name__}: {error}", "no_room": no_room})

    async def _take(self, line: "_Line", request: Mapping[str, Any]) -> None:
        key = ShardKey(**request["key"])
        try:
            fd = self._shelf.room(key.rank, int(request["file_bytes"]))
        except OSError as error:
            raise NoRoomError(str(error)) from error
        try:
            await line.say({"go": True})
            await line.receive(fd, int(request["file_bytes"]))
            await _check(fd, key)
        except BaseException:
            os.close(fd)
            raise
        self._shelf.put(key, fd, int(request["size_bytes"]))
        await line.say({"ok": True})

    async def _give(self, line: "_Line", request: Mapping[str, Any]) -> None:
        key = ShardKey(**request["key"])
        if (found := self._shelf.find(key)) is None:
            raise TransferError(f"no shard of rank {key.rank}, generation {key.generation}, step {key.step} here")
        fd, size_bytes = found
        fd = os.dup(fd)  # the shelf may drop it meanwhile
        try:
            file_bytes = os.fstat(fd).st_size
            await line.say({"file_bytes": file_bytes, "size_bytes": size_bytes})
            await line.send(fd, file_bytes, None)
        finally:
            os.close(fd)


async def put(
    address: TransferAddress, key: ShardKey, fd: int, size_bytes: int, bytes_per_s: float | None = None
) -> tuple[int, float]:
    """Send a shard to be held at `address`, at no more than `bytes_per_s`; returns bytes and seconds of sending.

    Raises:
        NoRoomError: there is no memory for it.
        ExchangeError: it could not be, or what arrived is not what the shard's checksum says.
    """
    file_bytes = os.fstat(fd).st_size
    request = {"op": "put", "key": asdict(key), "file_bytes": file_bytes, "size_bytes": size_bytes}
    async with _called(address, request) as line:
        started = time.monotonic()
        for answer in ("go", "ok"):
            reply = await line.hear()
            if "error" in reply:
                refused = NoRoomError if reply.get("no_room") else TransferError
                raise refused(f"{address.host}:{address.port} refused a shard: {reply['error']}")
            if answer == "go":
                await line.send(fd, file_bytes, bytes_per_s)
        return file_bytes, time.monotonic() - started


async def get(address: TransferAddress, key: ShardKey, room: Callable[[int, int], int]) -> tuple[int, int]:
    """Fetch a shard into a memory file that `room(rank, bytes)` makes; returns its descriptor and `size_bytes`.

    Raises:
        ExchangeError: it is not there, or what arrived is not what the shard's checksum says.
    """
    async with _called(address, {"op": "get", "key": asdict(key)}) as line:
        head = await line.hear()
        if "error" in head:
            raise TransferError(f"{address.host}:{address.port} gave no shard: {head['error']}")
        fd = room(key.rank, head["file_bytes"])
        try:
            await line.receive(fd, head["file_bytes"])
            await _check(fd, key)
        except BaseException:
            os.close(fd)
            raise
        return fd, head["size_bytes"]


async def echo(address: TransferAddress) -> None:
    """Have an agent give back what it is sent.

    Raises:
        ExchangeError: it is not reached, or what comes back is something else.
    """
    sent = os.urandom(ECHO_BYTES)
    try:
        async with asyncio.timeout(_ECHO_TIMEOUT_S), _called(address, {"op": "echo"}) as line:
            if "error" in (reply := await line.hear()):
                raise TransferError(f"{address.host}:{address.port} gave no echo: {reply['error']}")
            await line.give(sent)
            if await line.take(ECHO_BYTES) != sent:
                raise TransferError(f"{address.host}:{address.port} gave back other bytes than it was sent")
    except TimeoutError as error:
        raise TransferError(f"no echo from {address.host}:{address.port} in {_ECHO_TIMEOUT_S:.0f} s") from error


@contextlib.asynccontextmanager
async def _called(address: TransferAddress, request: Mapping[str, Any]) -> AsyncGenerator["_Line"]:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    line = _Line(socket.socket(family, socket.SOCK_STREAM))
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await loop.sock_connect(line.sock, (address.host, address.port))
            nonce = str((await line.hear())["nonce"])
        await line.say({**request, "proof": _proof(address.token, nonce, request)})
        yield line
    except (OSError, TimeoutError, ValueError, KeyError) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TransferError(f"exchange with {address.host}:{address.port} broke: {what}") from error
    finally:
        line.close()


class _Line:
    """A connection: lines of JSON, and the bytes of memory files."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self.sock.close()

    async def say(self, data: Mapping[str, Any]) -> None:
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            await self._loop.sock_sendall(self.sock, json.dumps(dict(data)).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """One line. Nothing may follow it unasked: it is read byte by byte, which for a short line costs little."""
        heard = bytearray()
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            while not heard.endswith(b"\n"):
                piece = await self._loop.sock_recv(self.sock, 1)
                if not piece or len(heard) > _LINE_BYTES:
                    raise ConnectionError("it ended in the middle of a line")
                heard += piece
        return json.loads(heard)

    async def give(self, data: bytes) -> None:
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            await self._loop.sock_sendall(self.sock, data)

    async def take(self, count: int) -> bytes:
        taken = bytearray()
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            while len(taken) < count:
                piece = await self._loop.sock_recv(self.sock, min(CHUNK_BYTES, count - len(taken)))
                if not piece:
                    raise ConnectionError(f"it ended after {len(taken)} of {count} bytes")
                taken += piece
        return bytes(taken)

    async def send(self, fd: int, count: int, bytes_per_s: float | None) -> None:
        started = time.monotonic()
        with _mapped(fd, count, mmap.PROT_READ) as memory:
            for start in range(0, count, CHUNK_BYTES):
                async with asyncio.timeout(_IDLE_TIMEOUT_S):
                    await self._loop.sock_sendall(self.sock, memory[start : min(count, start + CHUNK_BYTES)])
                if bytes_per_s is not None:
                    ahead_s = (start + CHUNK_BYTES) / bytes_per_s - (time.monotonic() - started)
                    await asyncio.sleep(max(0.0, ahead_s))

    async def receive(self, fd: int, count: int) -> None:
        with _mapped(fd, count, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
            at = 0
            while at < count:
                async with asyncio.timeout(_IDLE_TIMEOUT_S):
                    got = await self._loop.sock_recv_into(self.sock, memory[at : min(count, at + CHUNK_BYTES)])
                if not got:
                    raise ConnectionError(f"it ended after {at} of {count} bytes")
                at += got


@contextlib.contextmanager
def _mapped(fd: int, count: int, protection: int) -> Generator[memoryview]:
    memory = mmap.mmap(fd, count, prot=protection)
    view = memoryview(memory)
    try:
        yield view
    finally:
        with contextlib.suppress(BufferError):  # what was cancelled may hold a slice: the mapping ends with it
            view.release()
            memory.close()


async def _check(fd: int, key: ShardKey) -> None:
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        header = buffer.header()
        if (header.rank, header.generation, header.step) != (key.rank, key.generation, key.step):
            raise TransferError(f"what came is rank {header.rank}, generation {header.generation}, step {header.step}")
        if not await asyncio.to_thread(buffer.verify):
            raise TransferError("its checksum is wrong: it was changed while it was sent, or on the way")


def _proof(token: str, nonce: str, request: Mapping[str, Any]) -> str:
    said = nonce + json.dumps(dict(request), sort_keys=True)
    return hmac.new(token.encode(), said.encode(), "sha256").hexdigest()
