"""The transfers of one agent: its server, and what it fetches from and sends to other agents.

The methods are called in the event loop of the agent, and work in threads. A method that is cancelled ends its threads
before it returns, so nothing changes the memory of its targets later.
"""

import contextlib
import os
import socket
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

from regroup.workers.agent.transfer import chunk_format, shard_index
from regroup.workers.agent.transfer.arrival import MOST_TRIES, accept_shard, whole_file
from regroup.workers.agent.transfer.chunk_client import Pull, Read, chunks_of
from regroup.workers.agent.transfer.chunk_format import Kind
from regroup.workers.agent.transfer.chunk_server import ShardSource, serve_chunks
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.handshake import name_of, receive_answer, request
from regroup.workers.agent.transfer.priorities import MirrorPace, Pace, Priorities
from regroup.workers.agent.transfer.server import TransferServer
from regroup.workers.agent.transfer.shard_index import ShardDescription
from regroup.workers.agent.transfer.shard_store import ShardKey, ShardStore, TransferError
from regroup.workers.agent.transfer.threads import run_all, run_in_thread
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.contract.agent_records import TransferAddress

STREAMS = min(4, os.cpu_count() or 1)
"""Connections on which a shard is fetched. One thread serves each of them."""


class TransferEngine:
    """Fetches and sends the state of ranks."""

    def __init__(self, store: ShardStore, on_trouble: Callable[[str], None] = lambda reason: None) -> None:
        """Initialize the engine; open no port.

        Args:
            store: shards that it serves.
            on_trouble: called with the reason, in the event loop, if a shard was fetched although an agent failed to
                deliver it, or delivered it damaged.
        """
        self.priorities = Priorities()
        self.faults = TransferFaults()
        self._store, self._on_trouble = store, on_trouble
        self._server: TransferServer | None = None

    def open(self, host: str, listener: socket.socket) -> TransferAddress:
        """Serve the shards on a bound socket that listens, which the engine takes over. Return the address."""
        if self._server is None:
            self._server = TransferServer(host, listener, self._store, self.priorities, self.faults)
        return self._server.address

    async def close(self) -> None:
        """Stop to serve and wait for the threads of the server."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    # ------------------------------------------------------------ recovery

    async def read(self, addresses: Sequence[TransferAddress], key: ShardKey, reads: Sequence[Read]) -> None:
        """Fetch regions of a shard to regions of memory.

        Args:
            addresses: agents that have the shard. The first one gets all requests, and the others get those that it
                does not fulfill.
            key: the shard.
            reads: regions to fetch, with their place in memory. Single runs may have any size, other regions at most
                `chunk_format.MOST_CHUNK_BYTES`.

        Raises:
            TransferError: no agent delivered all bytes undamaged.
        """
        connections = ConnectionSet()
        self._report(await run_in_thread(lambda: self._read(addresses, key, reads, connections), connections.abort))

    async def get(
        self, addresses: Sequence[TransferAddress], key: ShardKey, allocate: Callable[[int, int], int]
    ) -> tuple[int, int]:
        """Fetch a shard to a memory file that `allocate(rank, bytes)` creates, in a thread.

        Return its descriptor, which the caller owns, and its `size_bytes`.

        Raises:
            TransferError: no agent delivered the shard undamaged.
        """
        connections = ConnectionSet()
        fd, size_bytes, reasons = await run_in_thread(
            lambda: self._get(addresses, key, allocate, connections), connections.abort
        )
        self._report(reasons)
        return fd, size_bytes

    async def indexes(
        self, address: TransferAddress, generation: int, step: int, ranks: Sequence[int]
    ) -> Mapping[int, ShardDescription]:
        """Return the descriptions of the shards of these ranks that an agent has.

        Raises:
            TransferError: the agent lacks a shard, or does not answer.
        """
        connections = ConnectionSet()
        content = {"op": "index", "generation": generation, "step": step, "ranks": list(ranks)}

        def fetch() -> Mapping[int, ShardDescription]:
            with self.priorities.recovery(), request(address, content, connections) as connection:
                head = receive_answer(connection, address)
                if (nbytes := int(head["nbytes"])) > shard_index.MOST_PACKED_BYTES:
                    raise ValueError(f"the indexes of {len(ranks)} shards have {nbytes} bytes")
                packed = connection.receive(nbytes)
                if zlib.crc32(packed) != head["crc32"]:
                    raise ValueError("the indexes arrived damaged")
                return shard_index.unpack(packed)

        return await run_in_thread(fetch, connections.abort)

    # ------------------------------------------------------------ mirrors

    async def put(
        self, address: TransferAddress, key: ShardKey, fd: int, size_bytes: int, bytes_per_s: float | None = None
    ) -> tuple[int, float]:
        """Send a shard to the store of another agent, at no more than `bytes_per_s`. Return its bytes and the seconds.

        It waits while this agent or the other one recovers.

        Raises:
            NoMemoryError: the other node has too little memory.
            TransferError: the shard could not be sent, or its checksum failed on arrival.
        """
        connections, own = ConnectionSet(), os.dup(fd)

        def send() -> tuple[int, float]:
            with contextlib.closing(ShardSource(own, key)) as source:
                content = {"op": "put", "key": asdict(key), "file_bytes": source.file_bytes, "size_bytes": size_bytes}
                with request(address, content, connections) as connection:
                    connection.yield_to_others()
                    if bytes_per_s is not None:
                        connection.limit_rate(bytes_per_s)
                    receive_answer(connection, address)
                    started = time.monotonic()
                    serve_chunks(connection, source, MirrorPace(self.priorities, bytes_per_s))
                    receive_answer(connection, address)
                    return source.file_bytes, time.monotonic() - started

        def cancel() -> None:
            connections.abort()
            self.priorities.wake()

        return await run_in_thread(send, cancel)

    def _report(self, reasons: Sequence[str]) -> None:
        for reason in reasons:
            self._on_trouble(reason)

    # ------------------------------------------------------------ in threads

    def _get(
        self,
        addresses: Sequence[TransferAddress],
        key: ShardKey,
        allocate: Callable[[int, int], int],
        connections: ConnectionSet,
    ) -> tuple[int, int, Sequence[str]]:
        with self.priorities.recovery():
            file_bytes, size_bytes = _head(addresses, key, connections)
            fd = allocate(key.rank, file_bytes)
            try:
                with whole_file(fd) as read:
                    reasons = self._read(addresses, key, [read], connections)
                accept_shard(fd, key)
            except BaseException:
                os.close(fd)
                raise
            return fd, size_bytes, reasons

    def _read(
        self, addresses: Sequence[TransferAddress], key: ShardKey, reads: Sequence[Read], connections: ConnectionSet
    ) -> Sequence[str]:
        """Fetch regions. Return the reasons for each further try."""
        left, holders, tries, reasons = list(chunks_of(reads)), list(addresses), 0, list[str]()
        with self.priorities.recovery():
            while left and holders and tries < MOST_TRIES:
                address, tries = holders[0], tries + 1
                pull = Pull(deque(left))
                streams = [partial(_stream, address, key, pull, connections)] * min(STREAMS, len(left))
                if errors := run_all(streams):
                    reasons += sorted({str(error) for error in errors})
                    holders.remove(address)
                    _raise_unexpected(errors)
                elif pull.failed:
                    reasons.append(f"{name_of(address)} delivered {len(pull.failed)} damaged chunks of {key}")
                    holders.append(holders.pop(0))
                left = [*pull.failed, *pull.waiting]
        if left:
            raise TransferError(f"cannot fetch the shard of {key}: {'; '.join(reasons) or 'no agent has it'}")
        return reasons


def _stream(address: TransferAddress, key: ShardKey, pull: Pull, connections: ConnectionSet) -> None:
    """Fetch chunks on one connection, together with other threads."""
    with request(address, {"op": "read", "key": asdict(key)}, connections) as connection:
        receive_answer(connection, address)
        pull.run(connection, Pace())
        chunk_format.send_request_kind(connection, Kind.END)


def _head(addresses: Sequence[TransferAddress], key: ShardKey, connections: ConnectionSet) -> tuple[int, int]:
    """Return the bytes of a shard's memory file and its `size_bytes`, from the first agent that answers."""
    reasons = list[str]()
    for address in addresses:
        try:
            with request(address, {"op": "read", "key": asdict(key)}, connections) as connection:
                head = receive_answer(connection, address)
                chunk_format.send_request_kind(connection, Kind.END)
                return int(head["file_bytes"]), int(head["size_bytes"])
        except TransferError as error:
            reasons.append(str(error))
    raise TransferError(f"cannot fetch the shard of {key}: {'; '.join(reasons) or 'no agent has it'}")


def _raise_unexpected(errors: Sequence[BaseException]) -> None:
    for error in errors:
        if not isinstance(error, TransferError):
            raise error
