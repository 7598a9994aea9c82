"""Order of transfers."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from regroup.workers.agent.transfer import priorities
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.priorities import MirrorPace, Pace, Priorities


@pytest.fixture
def connection() -> Iterator[Connection]:
    one, other = socket.socketpair()
    made = Connection(one)
    yield made
    made.close()
    other.close()


def test_a_mirror_waits_for_every_recovery_and_tells_its_peer(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priorities, "_PAUSE_S", 0.05)
    order, notified, passed = Priorities(), threading.Semaphore(0), threading.Event()

    def mirror() -> None:
        MirrorPace(order).before_chunk(connection, 1, notified.release)
        passed.set()

    with order.recovery():
        with order.recovery():
            thread = threading.Thread(target=mirror)
            thread.start()
            assert notified.acquire(timeout=5) and notified.acquire(timeout=5)
        assert not passed.is_set(), "one recovery is left"
    thread.join(5)
    assert passed.is_set()


def test_a_recovery_never_waits(connection: Connection) -> None:
    order = Priorities()
    with order.recovery():
        started = time.monotonic()
        Pace().before_chunk(connection, 1 << 30, lambda: pytest.fail("a recovery does not pause"))
        assert time.monotonic() - started < 0.1


def test_chunks_keep_to_the_rate_and_a_pause_does_not_allow_more(connection: Connection) -> None:
    pace, started = MirrorPace(Priorities(), 1e6), time.monotonic()
    for _ in range(4):
        pace.before_chunk(connection, 100_000, lambda: None)
    assert 0.29 < time.monotonic() - started < 1
    time.sleep(0.4)  # longer than several chunks take
    started = time.monotonic()
    for _ in range(3):
        pace.before_chunk(connection, 100_000, lambda: None)
    assert time.monotonic() - started > 0.19


def test_an_aborted_transfer_stops_to_wait(connection: Connection) -> None:
    order, errors = Priorities(), list[BaseException]()

    def mirror() -> None:
        try:
            MirrorPace(order).before_chunk(connection, 1, lambda: None)
        except ConnectionAbortedError as error:
            errors.append(error)

    with order.recovery():
        thread = threading.Thread(target=mirror)
        thread.start()
        connection.abort()
        order.wake()
        thread.join(2)
    assert len(errors) == 1
