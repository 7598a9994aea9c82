"""Network faults of a rank: its TCP connections end, or lose packets. Needs no privileges and no network namespace.
Connections opened later are not affected."""

import contextlib
import ctypes
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator, Sequence

_ATTACH_FILTER, _DETACH_FILTER = 26, 27
"""`SO_ATTACH_FILTER`, `SO_DETACH_FILTER` of asm-generic/socket.h, which Python's `socket` does not name."""
_LOAD_RANDOM = (0x20, 0, 0, 0xFFFFF000 + 56)
"""`A = random 32 bits`: a load from `SKF_AD_OFF + SKF_AD_RANDOM` (Documentation/networking/filter.rst of Linux)."""
_ACCEPT, _DROP = (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)


def close_connections() -> None:
    """End all connections in both directions, like a firewall that resets them."""
    for connection in _connections():
        with connection, contextlib.suppress(OSError):  # the other end was faster
            connection.shutdown(socket.SHUT_RDWR)


def drop_packets(share: float, duration_s: float | None) -> None:
    """Drop incoming packets, data and acknowledgements alike. Returns immediately.

    Args:
        share: fraction of the packets that are dropped.
        duration_s: time until packets arrive again; None: until the process ends.

    Raises:
        OSError: the kernel does not support socket filters here.
    """
    connections = list(_connections())
    for connection in connections:
        _attach(connection, _program(share))
    if duration_s is None:
        for connection in connections:
            connection.close()
        return
    timer = threading.Timer(duration_s, _restore, [connections])
    timer.daemon = True
    timer.start()


def _restore(connections: Sequence[socket.socket]) -> None:
    for connection in connections:
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)


def _connections() -> Iterator[socket.socket]:
    """Yield a duplicate descriptor of each TCP connection of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            found = socket.socket(fileno=os.dup(int(name)))
            if (
                found.family in (socket.AF_INET, socket.AF_INET6)
                and found.type == socket.SOCK_STREAM
                and _has_peer(found)
            ):
                yield found
            else:
                found.close()


def _has_peer(found: socket.socket) -> bool:
    try:
        found.getpeername()
    except OSError:
        return False
    return True


def _program(share: float) -> Sequence[tuple[int, int, int, int]]:
    """Return a classic BPF program: instructions of (code, jump if true, jump if false, operand)."""
    if share >= 1:
        return (_DROP,)
    accept_if_at_least = (0x35, 0, 1, int(share * 2**32))
    return (_LOAD_RANDOM, accept_if_at_least, _ACCEPT, _DROP)


def _attach(connection: socket.socket, program: Sequence[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    connection.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(buffer)))
