"""Connections that end or lose packets, made by a process for itself: real sockets, real loss."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from regroup.workers.rank.faults import network_faults

_PIECES = 300


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        near = socket.create_connection(listens.getsockname())
        far, _ = listens.accept()
        with near, far:
            yield near, far


def alone(act: str, *arguments: object, connection: socket.socket) -> int:
    """Fork a process that injects a fault into itself and then waits for two bytes. Return its pid."""
    child = os.fork()
    if child == 0:
        try:
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) != connection.fileno():
                    try:
                        os.close(int(name))
                    except OSError:
                        continue
            getattr(network_faults, act)(*arguments)
            connection.sendall(b"r")
            os._exit(0 if connection.recv(2) == b"ok" else 3)
        except OSError:
            os._exit(4)
        finally:
            os._exit(5)
    return child


def test_cut_connections_end_at_once_on_both_sides(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    child = alone("close_connections", connection=near)
    far.settimeout(10)
    assert far.recv(1) == b"", "the other side sees the end"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4, "and the process itself cannot write"


def test_lost_packets_are_retransmitted_after_the_fault_has_ended(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    child = alone("drop_packets", 1.0, 1.0, connection=near)
    far.settimeout(10)
    assert far.recv(1) == b"r", "outgoing packets arrive"
    began_s = time.monotonic()
    far.sendall(b"ok")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert time.monotonic() - began_s > 0.5, "it came when packets were let in again"


def test_a_share_of_packets_is_lost_and_none_of_the_bytes(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    network_faults._attach(near, network_faults._program(0.2))  # not all of this process' connections
    sent = bytes(range(256)) * _PIECES
    for at in range(0, len(sent), 256):
        far.sendall(sent[at : at + 256])
    received = b""
    while len(received) < len(sent):
        received += near.recv(1 << 16)
    assert received == sent
    resent = int.from_bytes(far.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[100:104], "little")
    assert resent > 0, "tcpi_total_retrans"


def test_only_tcp_connections_are_affected(ends: tuple[socket.socket, socket.socket]) -> None:
    left, right = socket.socketpair()
    with left, right, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        inodes = {os.fstat(other.fileno()).st_ino for other in (left, right, datagrams)}
        found = list(network_faults._connections())
        try:
            faulty = {os.fstat(each.fileno()).st_ino for each in found}
            assert faulty.isdisjoint(inodes) and {os.fstat(end.fileno()).st_ino for end in ends} <= faulty
        finally:
            for each in found:
                each.close()
