"""Heads of chunks on a real connection: they arrive as sent, and anything else is refused."""

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.workers.agent.transfer import chunk_format
from regroup.workers.agent.transfer.chunk_format import Kind, Reply
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.state.slices.boxes import Region

Pair = tuple[Connection, Connection]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = connected()
    yield ends
    for end in ends:
        end.close()


def connected() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        ends = Connection(one), Connection(listener.accept()[0])
    for end in ends:
        end.start(5)
    return ends


def test_requests_and_replies_arrive(pair: Pair) -> None:
    client, server = pair
    regions = [Region(5, 7), Region(2**40, 64, (3, 2), (1000, 100)), Region(0, 0)]
    chunk_format.send_request(client, regions)
    chunk_format.send_request_kind(client, Kind.END)
    assert chunk_format.receive_request(server) == (Kind.CHUNK, regions)
    assert chunk_format.receive_request(server) == (Kind.END, [])
    chunk_format.send_reply(server, Kind.CHUNK, 2**32 - 1, 2**40)
    server.send(b"")
    chunk_format.send_reply(server, Kind.PAUSE)
    assert chunk_format.receive_reply(client) == Reply(Kind.CHUNK, 2**32 - 1, 2**40)
    assert chunk_format.receive_reply(client) == Reply(Kind.PAUSE, 0, 0)


@given(st.binary(min_size=8, max_size=400))
def test_any_bytes_are_a_request_or_a_value_error(data: bytes) -> None:
    client, server = connected()
    client.send(data)
    client.abort()
    try:
        kind, regions = chunk_format.receive_request(server)
        assert isinstance(kind, Kind) and all(region.offset >= 0 for region in regions)
    except (ValueError, ConnectionError):
        pass
    finally:
        client.close()
        server.close()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (struct.pack("<BxxxI", 1, 2**31), "a request for a chunk has 2147483648 bytes"),
        (struct.pack("<BxxxIQQI", 1, 20, 0, 1, 99), "a region has 99 levels"),
        (struct.pack("<BxxxIQQI", 1, 20, 0, 1, 2), "ends in the middle of a region"),
        (struct.pack("<BxxxI", 77, 0), "77 is not a valid Kind"),
    ],
)
def test_a_request_that_asks_for_too_much_memory_is_refused(pair: Pair, head: bytes, message: str) -> None:
    client, server = pair
    client.send(head)
    with pytest.raises(ValueError, match=message):
        chunk_format.receive_request(server)


def test_a_request_with_too_many_regions_is_refused(pair: Pair) -> None:
    client, server = pair
    chunk_format.send_request(client, [Region(0, 1)] * (chunk_format.MOST_REGIONS + 1))
    with pytest.raises(ValueError, match="at most"):
        chunk_format.receive_request(server)
