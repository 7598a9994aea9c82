"""Connections over real sockets."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from regroup.workers.agent.transfer.connection import Connection

Pair = tuple[Connection, Connection]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Connection(socket.socket())
        one.connect("127.0.0.1", listener.getsockname()[1], 5)
        other = Connection(listener.accept()[0])
    for end in (one, other):
        end.start(0.5)
    yield one, other
    for end in (one, other):
        end.close()


def test_a_line_and_the_bytes_after_it_are_separate(pair: Pair) -> None:
    one, other = pair
    one.send(b'{"a": "' + b"x" * 9000 + b'"}\nbytes')
    assert other.receive_json() == {"a": "x" * 9000}
    assert other.receive(5) == b"bytes"


@pytest.mark.parametrize("data", [b"x" * 70_000, b"no newline", b"[]\n", b"nonsense\n"])
def test_anything_but_a_short_json_object_is_an_error(pair: Pair, data: bytes) -> None:
    one, other = pair
    one.send(data)
    one.abort()
    with pytest.raises((ConnectionError, ValueError)):
        other.receive_json()


def test_a_peer_that_sends_nothing_is_an_error(pair: Pair) -> None:
    _, other = pair
    started = time.monotonic()
    with pytest.raises(BlockingIOError):
        other.receive(1)
    assert 0.4 < time.monotonic() - started < 5


def test_a_line_must_end_in_time(pair: Pair) -> None:
    one, other = pair
    ended = threading.Event()

    def trickle() -> None:
        while not ended.wait(0.05):
            one.send(b" ")

    thread = threading.Thread(target=trickle)
    thread.start()
    with pytest.raises(TimeoutError):
        other.receive_json(within_s=0.3)
    ended.set()
    thread.join()


def test_an_abort_wakes_a_thread_that_waits(pair: Pair) -> None:
    one, other = pair
    other.start(30)
    errors = list[OSError]()

    def wait() -> None:
        try:
            other.receive(1)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    other.abort()
    thread.join(2)
    assert len(errors) == 1 and one.is_aborted is False


def test_the_options_of_mirrors_are_accepted_by_the_kernel(pair: Pair) -> None:
    pair[0].yield_to_others()
    pair[0].limit_rate(1e12)
