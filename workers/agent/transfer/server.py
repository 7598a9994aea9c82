"""The server of an agent's transfers: other agents read its shards, and store mirrors here."""

import asyncio
import contextlib
import os
import secrets
import socket
import threading
import zlib
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any

from regroup.workers.agent.transfer import arrival, chunk_format, shard_index
from regroup.workers.agent.transfer.arrival import fetch_on
from regroup.workers.agent.transfer.chunk_format import Kind
from regroup.workers.agent.transfer.chunk_server import ServedShard, serve_chunks
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.echo import ECHO_BYTES
from regroup.workers.agent.transfer.handshake import receive_request
from regroup.workers.agent.transfer.mirror_arrival import MirrorArrival
from regroup.workers.agent.transfer.priorities import MirrorPace, Pace, Priorities
from regroup.workers.agent.transfer.shard_store import NoMemoryError, ShardKey, ShardStore, TransferError
from regroup.workers.agent.transfer.threads import call_in_loop, run_in_thread
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.contract.agent_records import TransferAddress

_MOST_CONNECTIONS = 512
"""Most connections at a time. Further ones wait."""
_ACCEPT_PAUSE_S = 0.1


class TransferServer:
    """Serves the shards of one agent, with one thread for each connection."""

    def __init__(
        self, host: str, listener: socket.socket, store: ShardStore, priorities: Priorities, faults: TransferFaults
    ) -> None:
        """Start to serve. Call it in the event loop of the agent.

        Args:
            host: address of the listener for other agents.
            listener: bound socket that listens. The server takes it over.
            store: store of shards.
            priorities: order of this agent's transfers.
            faults: planned faults of what it sends.
        """
        listener.settimeout(None)
        self.address = TransferAddress(host, listener.getsockname()[1], secrets.token_hex(16))
        self.refused = 0
        """Number of connections with an invalid proof."""
        self._listener, self._store, self._priorities, self._faults = listener, store, priorities, faults
        self._loop = asyncio.get_running_loop()
        self._connections = ConnectionSet()
        self._mirrors = dict[str, MirrorArrival]()
        """Name of a stream → the mirror that arrives on it and on the connections that join."""
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._closing = threading.Event()
        self._threads = set[threading.Thread]()
        self._acceptor = threading.Thread(target=self._accept, name="regroup-transfer-server", daemon=True)
        self._acceptor.start()

    async def close(self) -> None:
        """Close the listener, abort open transfers, and wait for their threads."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._connections.abort()
        self._priorities.wake()
        await run_in_thread(self._join, lambda: None)
        self._listener.close()

    def _join(self) -> None:
        self._acceptor.join()
        for thread in list(self._threads):
            thread.join()

    # ------------------------------------------------------------ connections

    def _accept(self) -> None:
        while not self._closing.is_set():
            self._slots.acquire()
            try:
                sock, _ = self._listener.accept()
            except OSError:  # the server closes, the client was faster, or too many files are open
                self._slots.release()
                self._closing.wait(_ACCEPT_PAUSE_S)
                continue
            connection = Connection(sock)
            thread = threading.Thread(target=self._handle, args=(connection,), name="regroup-transfer", daemon=True)
            self._threads.add(thread)
            self._connections.add(connection)
            thread.start()

    def _handle(self, connection: Connection) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                request = receive_request(connection, self.address.token)
                if request is None:
                    self.refused += 1
                else:
                    self._answer(connection, request)
        finally:
            self._connections.remove(connection)
            connection.close()
            self._slots.release()
            self._threads.discard(threading.current_thread())

    def _answer(self, connection: Connection, request: Mapping[str, Any]) -> None:
        try:
            match request["op"]:
                case "put":
                    self._store_mirror(connection, request)
                case "join":
                    self._join_mirror(connection, request)
                case "read":
                    with self._priorities.recovery():
                        self._serve_shard(connection, request)
                case "index":
                    self._send_indexes(connection, request)
                case "echo":
                    connection.send_json({"go": True})
                    connection.send(connection.receive(ECHO_BYTES))
                case other:
                    raise TransferError(f"unknown request {str(other)[:100]!r}")
        except (TransferError, KeyError, TypeError, OSError) as error:
            is_out_of_memory = isinstance(error, NoMemoryError)
            connection.send_json({"error": f"{type(error).__name__}: {error}", "no_memory": is_out_of_memory})

    # ------------------------------------------------------------ requests

    def _store_mirror(self, connection: Connection, request: Mapping[str, Any]) -> None:
        key, file_bytes, size_bytes = _key_in(request), int(request["file_bytes"]), int(request["size_bytes"])
        try:
            fd = self._store.allocate(key.rank, file_bytes)
        except OSError as error:
            raise NoMemoryError(str(error)) from error
        try:
            with self._arrival() as (stream, mirror):
                connection.send_json({"go": True, "stream": stream})
                connection.yield_to_others()
                self._receive_mirror(connection, fd, key, mirror)
            call_in_loop(self._loop, lambda: self._store.put(key, fd, size_bytes))
        except BaseException:
            os.close(fd)
            raise
        connection.send_json({"ok": True})

    @contextlib.contextmanager
    def _arrival(self) -> Generator[tuple[str, MirrorArrival]]:
        """Return an arrival, and the name with which other connections of its sender join it."""
        stream, mirror = secrets.token_hex(8), MirrorArrival(MirrorPace(self._priorities))
        self._mirrors[stream] = mirror
        try:
            yield stream, mirror
        finally:
            del self._mirrors[stream]
            mirror.close()

    def _receive_mirror(self, connection: Connection, fd: int, key: ShardKey, mirror: MirrorArrival) -> None:
        try:
            with arrival.opened(fd, key) as shard:
                shard.receive_index(partial(fetch_on, connection, MirrorPace(self._priorities)))
                shard.receive_data(partial(mirror.fetch, connection))
        except TransferError:
            chunk_format.send_request_kind(connection, Kind.END)  # the client sends chunks until then
            raise
        chunk_format.send_request_kind(connection, Kind.END)

    def _join_mirror(self, connection: Connection, request: Mapping[str, Any]) -> None:
        if (mirror := self._mirrors.get(str(request["stream"]))) is None:
            raise TransferError("the mirror has arrived, or was never announced")
        connection.send_json({"go": True})
        connection.yield_to_others()
        try:
            mirror.join(connection)
        finally:
            chunk_format.send_request_kind(connection, Kind.END)

    def _serve_shard(self, connection: Connection, request: Mapping[str, Any]) -> None:
        key = _key_in(request)
        fd, size_bytes = self._find(key)
        with contextlib.closing(ServedShard(fd, key)) as source:
            connection.send_json({"file_bytes": source.file_bytes, "size_bytes": size_bytes})
            serve_chunks(connection, source, Pace(), self._faults)

    def _send_indexes(self, connection: Connection, request: Mapping[str, Any]) -> None:
        place = int(request["generation"]), int(request["step"])
        packed = shard_index.pack([self._describe(ShardKey(int(rank), *place)) for rank in request["ranks"]])
        connection.send_json({"nbytes": len(packed), "crc32": zlib.crc32(packed)})
        connection.send(packed)

    def _describe(self, key: ShardKey) -> shard_index.ShardDescription:
        return shard_index.describe(self._find(key)[0], key)

    def _find(self, key: ShardKey) -> tuple[int, int]:
        """Return a descriptor of a shard, which the caller owns, and its `size_bytes`."""

        def find() -> tuple[int, int] | None:
            found = self._store.find(key)
            return None if found is None else (os.dup(found[0]), found[1])  # the store may release it at any time

        if (found := call_in_loop(self._loop, find)) is None:
            raise TransferError(f"no shard of {key} here")
        return found


def _key_in(request: Mapping[str, Any]) -> ShardKey:
    key = request["key"]
    return ShardKey(int(key["rank"]), int(key["generation"]), int(key["step"]))
