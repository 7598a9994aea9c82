"""The transfers of one agent: its server, and what it fetches from and sends to other agents.

The methods are called in the event loop of the agent, and work in threads. A method that is cancelled ends its threads
before it returns, so nothing changes the memory of its targets later.
"""

import os
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence

from regroup.workers.agent.transfer import shard_index
from regroup.workers.agent.transfer.chunk_client import Read
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.handshake import receive_answer, request
from regroup.workers.agent.transfer.mirror_send import MirrorSend
from regroup.workers.agent.transfer.priorities import Priorities
from regroup.workers.agent.transfer.server import TransferServer
from regroup.workers.agent.transfer.shard_fetch import ShardFetch
from regroup.workers.agent.transfer.shard_index import ShardDescription
from regroup.workers.agent.transfer.shard_store import ShardKey, ShardStore
from regroup.workers.agent.transfer.threads import run_in_thread
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.contract.agent_records import TransferAddress


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

    async def read(self, addresses: Sequence[TransferAddress], key: ShardKey, reads: Sequence[Read]) -> int:
        """Fetch regions of a shard to regions of memory. Return the bytes that arrived, with those of repeated chunks.

        Args:
            addresses: agents that have the shard. The first one gets all requests, and the others get those that it
                does not fulfill.
            key: the shard.
            reads: regions to fetch, with their place in memory. Single runs may have any size, other regions at most
                `chunk_format.MOST_CHUNK_BYTES`.

        Raises:
            TransferError: no agent delivered all bytes undamaged.
        """
        fetch = ShardFetch(addresses, key, self.priorities)
        await run_in_thread(lambda: fetch.read(reads), fetch.abort)
        self._report(fetch)
        return fetch.received_bytes

    async def get(
        self, addresses: Sequence[TransferAddress], key: ShardKey, allocate: Callable[[int, int], int]
    ) -> tuple[int, int]:
        """Fetch a shard to a memory file that `allocate(rank, bytes)` creates, in a thread.

        Return its descriptor, which the caller owns, and its `size_bytes`.

        Raises:
            TransferError: no agent delivered the shard undamaged.
        """
        fetch = ShardFetch(addresses, key, self.priorities)
        fetched = await run_in_thread(lambda: fetch.get(allocate), fetch.abort)
        self._report(fetch)
        return fetched

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
        sending = MirrorSend(address, key, os.dup(fd), size_bytes, self.priorities, bytes_per_s)
        return await run_in_thread(sending.run, sending.abort)

    def _report(self, fetch: ShardFetch) -> None:
        for reason in fetch.reasons:
            self._on_trouble(reason)
