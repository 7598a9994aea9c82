"""Transfer of shards between the agents of one job, over TCP: `put` sends a mirror, `get` fetches a lost shard.

    server → {"nonce"}
    client → {"op": "put" | "get" | "echo", …, "proof": HMAC of nonce and request under the server's token}
    put: server → {"go": true} | {"error"}, client → bytes, server → {"ok": true} | {"error"}
    get: server → {"file_bytes", "size_bytes"} | {"error"}, then bytes
    echo: server → {"go": true}, client → bytes, server → the same bytes

Lines are JSON. Each run of an agent generates its own token, which other agents get through Ray's authenticated calls.
The data is not encrypted, and neither is that of the collectives: both belong on the cluster's own network.
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
from regroup.workers.state.shard_buffer import Pin, ShardBuffer

CHUNK_BYTES = 4 << 20
_LINE_BYTES = 64 * 1024
ECHO_BYTES = 256 * 1024
"""Size of the echo. It exceeds any packet and most socket buffers, so a link that loses large packets does not return
it."""
_ECHO_TIMEOUT_S = 3.0
_CONNECT_TIMEOUT_S = 10.0
_IDLE_TIMEOUT_S = 30.0
"""Time without progress after which a peer counts as gone."""


class TransferError(Exception):
    """A shard could not be sent or fetched."""


class NoMemoryError(TransferError):
    """The other node has too little memory for a shard."""


@dataclass(frozen=True)
class ShardKey:
    """Identity of one rank's shard of a set."""

    rank: int
    generation: int
    step: int


class ShardStore(Protocol):
    """Store of shards that a server fills and serves."""

    def allocate(self, rank: int, file_bytes: int) -> int:
        """Create a memory file of this size and return its descriptor.

        Raises:
            OSError: the host has too little memory.
        """
        ...

    def put(self, key: ShardKey, fd: int, size_bytes: int) -> None:
        """Store a verified shard. `size_bytes` is the buffer size that its rank requested."""
        ...

    def find(self, key: ShardKey) -> tuple[int, int] | None:
        """Return descriptor and `size_bytes` of a shard, or None."""
        ...


class ShardServer:
    """Serves the shard store of one agent."""

    def __init__(self, host: str, listener: socket.socket, store: ShardStore) -> None:
        """Start to serve.

        Args:
            host: address of the listener for other agents.
            listener: bound socket that listens.
            store: store of shards.
        """
        listener.setblocking(False)
        self.address = TransferAddress(host, listener.getsockname()[1], secrets.token_hex(16))
        self.refused = 0
        """Number of connections with an invalid proof."""
        self._listener, self._store = listener, store
        self._server = asyncio.get_running_loop().create_task(self._serve())
        self._connections: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close the listener and cancel open transfers."""
        tasks = [self._server, *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            task = loop.create_task(self._handle(_Connection(sock)))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _handle(self, connection: "_Connection") -> None:
        with contextlib.closing(connection), contextlib.suppress(OSError, TimeoutError, ValueError):
            nonce = secrets.token_hex(16)
            await connection.send_json({"nonce": nonce})
            request = await connection.receive_json()
            proof = str(request.pop("proof", ""))
            if not hmac.compare_digest(proof, _proof(self.address.token, nonce, request)):
                self.refused += 1
                await connection.send_json(
                    {"error": "invalid proof: the token belongs to another agent, or to an earlier run of this one"}
                )
                return
            try:
                if request["op"] == "put":
                    await self._handle_put(connection, request)
                elif request["op"] == "echo":
                    await connection.send_json({"go": True})
                    await connection.send_bytes(await connection.receive_bytes(ECHO_BYTES))
                else:
                    await self._handle_get(connection, request)
            except (TransferError, KeyError, OSError) as error:
                is_out_of_memory = isinstance(error, NoMemoryError)
                await connection.send_json({"error": f"{type(error).__name__}: {error}", "no_memory": is_out_of_memory})

    async def _handle_put(self, connection: "_Connection", request: Mapping[str, Any]) -> None:
        key = ShardKey(**request["key"])
        try:
            fd = self._store.allocate(key.rank, int(request["file_bytes"]))
        except OSError as error:
            raise NoMemoryError(str(error)) from error
        try:
            await connection.send_json({"go": True})
            await connection.receive_file(fd, int(request["file_bytes"]))
            await _accept(fd, key)
        except BaseException:
            os.close(fd)
            raise
        self._store.put(key, fd, int(request["size_bytes"]))
        await connection.send_json({"ok": True})

    async def _handle_get(self, connection: "_Connection", request: Mapping[str, Any]) -> None:
        key = ShardKey(**request["key"])
        if (found := self._store.find(key)) is None:
            raise TransferError(f"no shard of rank {key.rank}, generation {key.generation}, step {key.step} here")
        fd, size_bytes = found
        fd = os.dup(fd)  # the store may release it during the transfer
        try:
            file_bytes = os.fstat(fd).st_size
            await connection.send_json({"file_bytes": file_bytes, "size_bytes": size_bytes})
            await connection.send_file(fd, file_bytes, None)
        finally:
            os.close(fd)


async def put(
    address: TransferAddress, key: ShardKey, fd: int, size_bytes: int, bytes_per_s: float | None = None
) -> tuple[int, float]:
    """Send a shard to the store at `address`, at no more than `bytes_per_s`. Return its bytes and the seconds.

    Raises:
        NoMemoryError: the other node has too little memory.
        TransferError: the shard could not be sent, or its checksum failed on arrival.
    """
    file_bytes = os.fstat(fd).st_size
    request = {"op": "put", "key": asdict(key), "file_bytes": file_bytes, "size_bytes": size_bytes}
    async with _request(address, request) as connection:
        started = time.monotonic()
        for answer in ("go", "ok"):
            reply = await connection.receive_json()
            if "error" in reply:
                error_class = NoMemoryError if reply.get("no_memory") else TransferError
                raise error_class(f"{address.host}:{address.port} refused a shard: {reply['error']}")
            if answer == "go":
                await connection.send_file(fd, file_bytes, bytes_per_s)
        return file_bytes, time.monotonic() - started


async def get(address: TransferAddress, key: ShardKey, allocate: Callable[[int, int], int]) -> tuple[int, int]:
    """Fetch a shard into a memory file that `allocate(rank, bytes)` creates. Return its descriptor and `size_bytes`.

    Raises:
        TransferError: the other node does not have the shard, or its checksum failed on arrival.
    """
    async with _request(address, {"op": "get", "key": asdict(key)}) as connection:
        head = await connection.receive_json()
        if "error" in head:
            raise TransferError(f"{address.host}:{address.port} did not send a shard: {head['error']}")
        fd = allocate(key.rank, head["file_bytes"])
        try:
            await connection.receive_file(fd, head["file_bytes"])
            await _accept(fd, key)
        except BaseException:
            os.close(fd)
            raise
        return fd, head["size_bytes"]


async def echo(address: TransferAddress) -> None:
    """Send bytes to an agent and check that it returns them.

    Raises:
        TransferError: the agent is unreachable, or returns other bytes.
    """
    sent = os.urandom(ECHO_BYTES)
    try:
        async with asyncio.timeout(_ECHO_TIMEOUT_S), _request(address, {"op": "echo"}) as connection:
            if "error" in (reply := await connection.receive_json()):
                raise TransferError(f"{address.host}:{address.port} refused an echo: {reply['error']}")
            await connection.send_bytes(sent)
            if await connection.receive_bytes(ECHO_BYTES) != sent:
                raise TransferError(f"{address.host}:{address.port} returned other bytes than it was sent")
    except TimeoutError as error:
        raise TransferError(f"no echo from {address.host}:{address.port} within {_ECHO_TIMEOUT_S:.0f} s") from error


@contextlib.asynccontextmanager
async def _request(address: TransferAddress, request: Mapping[str, Any]) -> AsyncGenerator["_Connection"]:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    connection = _Connection(socket.socket(family, socket.SOCK_STREAM))
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await loop.sock_connect(connection.sock, (address.host, address.port))
            nonce = str((await connection.receive_json())["nonce"])
        await connection.send_json({**request, "proof": _proof(address.token, nonce, request)})
        yield connection
    except (OSError, TimeoutError, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TransferError(f"transfer with {address.host}:{address.port} failed: {reason}") from error
    finally:
        connection.close()


class _Connection:
    """A connection that carries lines of JSON and the content of memory files."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self.sock.close()

    async def send_json(self, data: Mapping[str, Any]) -> None:
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            await self._loop.sock_sendall(self.sock, json.dumps(dict(data)).encode() + b"\n")

    async def receive_json(self) -> dict[str, Any]:
        """Read one line, byte by byte, so that no byte after it is consumed. Lines are short, so this costs little."""
        text = bytearray()
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            while not text.endswith(b"\n"):
                piece = await self._loop.sock_recv(self.sock, 1)
                if not piece or len(text) > _LINE_BYTES:
                    raise ConnectionError("the connection ended in the middle of a line")
                text += piece
        return json.loads(text)

    async def send_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            await self._loop.sock_sendall(self.sock, data)

    async def receive_bytes(self, count: int) -> bytes:
        data = bytearray()
        async with asyncio.timeout(_IDLE_TIMEOUT_S):
            while len(data) < count:
                piece = await self._loop.sock_recv(self.sock, min(CHUNK_BYTES, count - len(data)))
                if not piece:
                    raise ConnectionError(f"the connection ended after {len(data)} of {count} bytes")
                data += piece
        return bytes(data)

    async def send_file(self, fd: int, count: int, bytes_per_s: float | None) -> None:
        started = time.monotonic()
        with _mapped(fd, count, mmap.PROT_READ) as memory:
            for start in range(0, count, CHUNK_BYTES):
                async with asyncio.timeout(_IDLE_TIMEOUT_S):
                    await self._loop.sock_sendall(self.sock, memory[start : min(count, start + CHUNK_BYTES)])
                if bytes_per_s is not None:
                    ahead_s = (start + CHUNK_BYTES) / bytes_per_s - (time.monotonic() - started)
                    await asyncio.sleep(max(0.0, ahead_s))

    async def receive_file(self, fd: int, count: int) -> None:
        with _mapped(fd, count, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
            at = 0
            while at < count:
                async with asyncio.timeout(_IDLE_TIMEOUT_S):
                    got = await self._loop.sock_recv_into(self.sock, memory[at : min(count, at + CHUNK_BYTES)])
                if not got:
                    raise ConnectionError(f"the connection ended after {at} of {count} bytes")
                at += got


@contextlib.contextmanager
def _mapped(fd: int, count: int, protection: int) -> Generator[memoryview]:
    memory = mmap.mmap(fd, count, prot=protection)
    view = memoryview(memory)
    try:
        yield view
    finally:
        with contextlib.suppress(BufferError):  # a cancelled transfer may hold a slice: the mapping is freed with it
            view.release()
            memory.close()


async def _accept(fd: int, key: ShardKey) -> None:
    """Check a received shard. Remove its pin for a checkpoint: the sender's saver reads the sender's buffer."""
    with contextlib.closing(ShardBuffer(os.dup(fd))) as buffer:
        header = buffer.header()
        if (header.rank, header.generation, header.step) != (key.rank, key.generation, key.step):
            raise TransferError(
                f"received another shard: rank {header.rank}, generation {header.generation}, step {header.step}"
            )
        if not await asyncio.to_thread(buffer.verify):
            raise TransferError("checksum mismatch: the shard changed during or after sending")
        buffer.release(Pin.CHECKPOINT)


def _proof(token: str, nonce: str, request: Mapping[str, Any]) -> str:
    text = nonce + json.dumps(dict(request), sort_keys=True)
    return hmac.new(token.encode(), text.encode(), "sha256").hexdigest()
