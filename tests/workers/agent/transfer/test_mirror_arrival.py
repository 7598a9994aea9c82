"""A mirror that arrives on several connections: each chunk once, whatever happens to one of them."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from regroup.workers.agent.transfer import chunk_client, mirror_arrival
from regroup.workers.agent.transfer.chunk_client import PartSum, Pull, Read
from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES
from regroup.workers.agent.transfer.chunk_server import ServedShard, serve_chunks
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.mirror_arrival import MirrorArrival
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.state.memory.checksum import checksum
from regroup.workers.state.slices.boxes import Region
from tests.workers.agent.transfer.held_shards import KEY, content, new_shard

NBYTES = 2 * CHUNK_BYTES + 777


@dataclass
class Streams:
    """Connections to a sender that serves a shard on each of them, in threads."""

    shard: int
    target: memoryview
    faults: TransferFaults = field(default_factory=TransferFaults)
    errors: list[BaseException] = field(default_factory=list[BaseException])
    _ends: list[Connection] = field(default_factory=list[Connection])
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def open(self, most_chunks: int | None = None) -> Connection:
        """Return a connection. Its sender ends it after `most_chunks`."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = Connection(socket.create_connection(listener.getsockname()))
            receiver = Connection(listener.accept()[0])
        for end in (sender, receiver):
            end.start(20)
            self._ends.append(end)
        self.start(lambda: self._serve(sender, most_chunks))
        return receiver

    def start(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except (OSError, TransferError) as error:
                self.errors.append(error)

        thread = threading.Thread(target=guarded)
        self._threads.append(thread)
        thread.start()
        return thread

    def read(self) -> tuple[Read, PartSum]:
        part = PartSum()
        return Read(Region(64, NBYTES), self.target, Region(0, NBYTES), part), part

    def close(self) -> None:
        for end in self._ends:
            end.abort()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for end in self._ends:
            end.close()

    def _serve(self, connection: Connection, most_chunks: int | None) -> None:
        with contextlib.closing(ServedShard(os.dup(self.shard), KEY)) as source:
            serve_chunks(connection, source, _Ending(connection, most_chunks), self.faults)


class _Ending(Pace):
    """Ends a connection before a chunk."""

    def __init__(self, connection: Connection, most_chunks: int | None) -> None:
        self._connection, self._left = connection, most_chunks

    def before_chunk(self, connection: Connection, nbytes: int, notify: Callable[[], None]) -> None:
        if self._left is None:
            return
        if not self._left:
            connection.abort()
            raise ConnectionAbortedError
        self._left -= 1


@pytest.fixture
def streams() -> Iterator[Streams]:
    made = Streams(new_shard(), memoryview(bytearray(NBYTES)))
    yield made
    made.close()
    os.close(made.shard)


def expected(streams: Streams) -> bytes:
    return content(streams.shard)[64 : 64 + NBYTES]


def test_connections_share_the_chunks(streams: Streams) -> None:
    mirror = MirrorArrival(Pace())
    read, part = streams.read()
    joined = [streams.start(partial(mirror.join, streams.open())) for _ in range(2)]
    mirror.fetch(streams.open(), [read])
    for thread in joined:
        thread.join(10)
    assert bytes(streams.target) == expected(streams)
    assert part.checksum() == checksum(memoryview(expected(streams))), "no chunk was added twice"
    assert streams.errors == []


@pytest.mark.parametrize("most_chunks", [0, 1])
def test_chunks_of_a_connection_that_ends_arrive_on_the_first_one(streams: Streams, most_chunks: int) -> None:
    mirror, order = MirrorArrival(Pace()), threading.Event()
    read, part = streams.read()
    other, first = streams.open(most_chunks), streams.open()

    def join() -> None:
        order.set()
        mirror.join(other)

    joining = streams.start(join)
    assert order.wait(5)
    mirror.fetch(first, [read])
    joining.join(10)
    assert bytes(streams.target) == expected(streams)
    assert part.checksum() == checksum(memoryview(expected(streams)))


def test_a_damaged_chunk_is_requested_again(streams: Streams) -> None:
    mirror = MirrorArrival(Pace())
    read, part = streams.read()
    for _ in range(2):
        streams.faults.plan("corrupt_transfer")
    mirror.fetch(streams.open(), [read])
    assert part.checksum() == checksum(memoryview(expected(streams)))
    for _ in range(30):
        streams.faults.plan("corrupt_transfer")
    with pytest.raises(TransferError, match="a chunk arrived damaged 3 times"):
        mirror.fetch(streams.open(), [streams.read()[0]])


def test_no_thread_uses_the_memory_after_an_error(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check this because the memory is closed then, and its descriptor may name another file."""
    active, run = list[Connection](), Pull.run

    def recorded(pull: Pull, connection: Connection, pace: Pace) -> None:
        active.append(connection)
        try:
            run(pull, connection, pace)
        finally:
            active.remove(connection)

    monkeypatch.setattr(Pull, "run", recorded)
    monkeypatch.setattr(chunk_client, "_AHEAD", 1)  # no connection requests all chunks before the other one starts
    mirror, silent = MirrorArrival(Pace()), [socket.socketpair() for _ in range(2)]
    first, other = (Connection(end) for end, _ in silent)
    joining = streams.start(lambda: mirror.join(other))
    fetching = streams.start(lambda: mirror.fetch(first, [streams.read()[0]]))
    deadline_s = time.monotonic() + 10
    while len(active) < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    first.abort()
    fetching.join(10)
    assert not fetching.is_alive() and active == []
    joining.join(10)
    assert other.is_aborted and len(streams.errors) == 2
    for end, peer in silent:
        end.close()
        peer.close()


def test_a_connection_that_waits_tells_its_peer_and_ends_with_the_mirror(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_arrival, "_PAUSE_S", 0.05)
    mirror, pauses = MirrorArrival(Pace()), threading.Semaphore(0)
    monkeypatch.setattr(mirror_arrival.chunk_format, "send_request_kind", lambda *_: pauses.release())
    waiting = streams.start(lambda: mirror.join(streams.open()))
    assert pauses.acquire(timeout=5) and pauses.acquire(timeout=5)
    mirror.close()
    waiting.join(5)
    assert not waiting.is_alive() and streams.errors == []
