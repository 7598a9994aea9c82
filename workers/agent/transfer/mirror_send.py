"""One mirror to the store of another agent, sent on several connections. Works in threads."""

import contextlib
import os
import threading
import time
from collections.abc import Generator
from dataclasses import asdict

from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES
from regroup.workers.agent.transfer.chunk_server import ServedShard, serve_chunks
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.handshake import receive_answer, request
from regroup.workers.agent.transfer.priorities import MirrorPace, Priorities
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.contract.agent_records import TransferAddress

MOST_STREAMS = min(2, os.cpu_count() or 1)
"""Connections on which a mirror is sent, fewer than those of a recovery. One thread serves each of them."""


class MirrorSend:
    """Sends a shard. The other agent requests its chunks on each connection, so a slow one gets fewer."""

    def __init__(
        self,
        address: TransferAddress,
        key: ShardKey,
        fd: int,
        size_bytes: int,
        priorities: Priorities,
        bytes_per_s: float | None = None,
    ) -> None:
        """Prepare a transfer; open no connection.

        Args:
            address: the other agent.
            key: the shard.
            fd: its memory file. The transfer takes over the descriptor.
            size_bytes: size of the buffer that its rank requested.
            priorities: order of this agent's transfers.
            bytes_per_s: most bytes per second, on all connections together.
        """
        self._address, self._key, self._fd, self._size_bytes = address, key, fd, size_bytes
        self._priorities, self._bytes_per_s = priorities, bytes_per_s
        self._pace = MirrorPace(priorities, bytes_per_s)
        self._connections = ConnectionSet()

    def abort(self) -> None:
        """End the transfer, from any thread."""
        self._connections.abort()
        self._priorities.wake()

    def run(self) -> tuple[int, float]:
        """Send the shard. Return its bytes and the seconds.

        Raises:
            NoMemoryError: the other node has too little memory.
            TransferError: the shard could not be sent, or its checksum failed on arrival.
        """
        with contextlib.closing(ServedShard(self._fd, self._key)) as source:
            sizes = {"file_bytes": source.file_bytes, "size_bytes": self._size_bytes}
            streams = max(1, min(MOST_STREAMS, source.file_bytes // CHUNK_BYTES))
            content = {"op": "put", "key": asdict(self._key), **sizes}
            with request(self._address, content, self._connections) as connection:
                self._limit(connection, streams)
                answer = receive_answer(connection, self._address)
                started_s = time.monotonic()
                with self._others(str(answer["stream"]), streams):
                    serve_chunks(connection, source, self._pace)
                    receive_answer(connection, self._address)
                return source.file_bytes, time.monotonic() - started_s

    @contextlib.contextmanager
    def _others(self, stream: str, streams: int) -> Generator[None]:
        """Serve chunks on further connections until the end of the context."""
        threads = [
            threading.Thread(target=self._serve, args=(stream, streams), name="regroup-stream", daemon=True)
            for _ in range(streams - 1)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.abort()  # the shard has arrived, or never will
            for thread in threads:
                thread.join()

    def _serve(self, stream: str, streams: int) -> None:
        """Serve chunks on one further connection. If it ends, the first one gets the requests for its chunks."""
        with (
            contextlib.suppress(TransferError, OSError),
            contextlib.closing(ServedShard(os.dup(self._fd), self._key)) as source,
            request(self._address, {"op": "join", "stream": stream}, self._connections) as connection,
        ):
            self._limit(connection, streams)
            receive_answer(connection, self._address)
            serve_chunks(connection, source, self._pace)

    def _limit(self, connection: Connection, streams: int) -> None:
        connection.yield_to_others()
        if self._bytes_per_s is not None:
            connection.limit_rate(self._bytes_per_s / streams)
