"""Connections that end together."""

import socket
import threading
from collections.abc import Iterator

import pytest

from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.connection_set import ConnectionSet

Ends = list[tuple[Connection, Connection]]


@pytest.fixture
def pairs() -> Iterator[Ends]:
    made: Ends = []
    for _ in range(2):
        one, other = socket.socketpair()
        made.append((Connection(one), Connection(other)))
    yield made
    for pair in made:
        for end in pair:
            end.close()


def test_threads_that_wait_on_any_of_them_get_an_error(pairs: Ends) -> None:
    together, errors = ConnectionSet(), list[OSError]()

    def wait(connection: Connection) -> None:
        try:
            connection.receive(1)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait, args=(one,)) for one, _ in pairs]
    for (one, _), thread in zip(pairs, threads, strict=True):
        together.add(one)
        thread.start()
    together.abort()
    for thread in threads:
        thread.join(5)
    assert len(errors) == 2 and all(one.is_aborted for one, _ in pairs)


def test_a_connection_that_was_removed_continues(pairs: Ends) -> None:
    together = ConnectionSet()
    (one, other), (rest, _) = pairs
    for each in (one, rest):
        together.add(each)
    together.remove(one)
    together.remove(one)
    together.abort()
    assert rest.is_aborted and not one.is_aborted
    other.send(b"x")
    assert one.receive(1) == b"x"


def test_connections_after_an_abort_are_aborted_too() -> None:
    together, late = ConnectionSet(), Connection(socket.socket())
    together.abort()
    together.add(late)
    assert late.is_aborted
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConnectionAbortedError):
        late.connect("127.0.0.1", listener.getsockname()[1], 5)
    late.close()
