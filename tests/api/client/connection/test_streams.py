"""Reconnection of streams, with a clock that the test sets."""

import time

import pytest

from regroup.api.client.connection.errors import ServerUnreachableError
from regroup.api.client.connection.streams import EventStream, Follower


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_quiet_stream_that_is_lost_late_has_its_whole_patience(clock: Clock) -> None:
    follower = Follower(EventStream("/logs", str), 10.0, "server")
    follower.connect_options()
    clock.now_s += 300
    assert follower.feed(b": keepalive\n") == []
    assert follower.reconnect_delay_s("the server was restarted") > 0
    clock.now_s += 11
    with pytest.raises(ServerUnreachableError, match="lost the stream /logs of server: the server was restarted"):
        follower.reconnect_delay_s("the server was restarted")


def test_a_client_stops_retrying_a_server_that_accepts_and_closes_again(clock: Clock) -> None:
    follower = Follower(EventStream("/logs", str), 10.0, "server")
    with pytest.raises(ServerUnreachableError):
        for _ in range(100):
            follower.connect_options()
            follower.feed(b": keepalive\n")
            clock.now_s += follower.reconnect_delay_s("the stream ended early")
