"""A blocking TCP connection that carries lines of JSON, binary heads and the content of memory files.

One thread uses a connection. Another thread may `abort` it at any time.
"""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

IDLE_TIMEOUT_S = 30.0
"""Time without progress after which a peer counts as gone."""
_LINE_BYTES = 64 * 1024
_MAX_RATE = 47
"""`SO_MAX_RATE` of asm-generic/socket.h, which Python's `socket` does not name."""
_BULK_PRIORITY = 2
"""`TC_PRIO_BULK` of linux/pkt_sched.h: this host sends other packets first."""


class Connection:
    """One end of a connection. It takes over the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._closing = threading.Lock()
        self.is_aborted = False
        """True after `abort`."""

    def connect(self, host: str, port: int, timeout_s: float) -> None:
        """Connect to a peer.

        Raises:
            OSError: the peer cannot be reached within `timeout_s`.
        """
        self._sock.settimeout(timeout_s)
        self._sock.connect((host, port))
        if self.is_aborted:  # an abort before the connection existed had no effect on the socket
            raise ConnectionAbortedError("the transfer was cancelled")

    def start(self, idle_s: float = IDLE_TIMEOUT_S) -> None:
        """Use blocking calls from now on that fail after `idle_s` without progress."""
        self._sock.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(idle_s), int(idle_s % 1 * 1e6)))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def yield_to_others(self) -> None:
        """Let this host send the packets of other connections first."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _BULK_PRIORITY)

    def limit_rate(self, bytes_per_s: float) -> None:
        """Let the kernel spread what this end sends, so that a chunk is not a burst."""
        self._sock.setsockopt(socket.SOL_SOCKET, _MAX_RATE, struct.pack("I", int(min(bytes_per_s, 2**32 - 1))))

    def abort(self) -> None:
        """End the connection from any thread. A thread that waits for it gets an error."""
        with self._closing:
            self.is_aborted = True
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with self._closing:
            self._sock.close()

    # ------------------------------------------------------------ data

    def send_json(self, data: Mapping[str, Any]) -> None:
        """Send one line."""
        self.send(json.dumps(dict(data)).encode() + b"\n")

    def receive_json(self, within_s: float = IDLE_TIMEOUT_S) -> dict[str, Any]:
        """Receive one line and no byte after it.

        Raises:
            TimeoutError: the line did not end within `within_s`.
            ConnectionError: the connection ended in the middle of a line, or the line is too long.
            ValueError: the line is not a JSON object.
        """
        text, deadline_s = bytearray(), time.monotonic() + within_s
        while not text.endswith(b"\n"):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"a line did not end within {within_s:.0f} s")
            seen = self._received(self._sock.recv(4096, socket.MSG_PEEK), len(text), _LINE_BYTES)
            end = seen.find(b"\n") + 1
            text += self._sock.recv(end or len(seen))
            if len(text) > _LINE_BYTES:
                raise ConnectionError(f"a line has more than {_LINE_BYTES} bytes")
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, got {type(found).__name__}")
        return found  # pyright: ignore[reportUnknownVariableType]  # keys of a JSON object are texts

    def send(self, data: bytes | memoryview, *, is_followed: bool = False) -> None:
        """Send bytes. `is_followed`: more follow at once, so the kernel need not send a short packet."""
        with memoryview(data) as view:
            at = 0
            while at < len(view):
                at += self._sock.send(view[at:], socket.MSG_MORE if is_followed else 0)

    def receive(self, count: int) -> bytes:
        """Receive exactly `count` bytes.

        Raises:
            ConnectionError: the connection ended before.
        """
        data = bytearray(count)
        with memoryview(data) as view:
            self.receive_into(view)
        return bytes(data)

    def receive_into(self, view: memoryview) -> None:
        """Fill `view`.

        Raises:
            ConnectionError: the connection ended before.
        """
        at = 0
        while at < len(view):
            got = self._sock.recv_into(view[at:], 0, socket.MSG_WAITALL)
            if not got:
                raise ConnectionError(f"the connection ended after {at} of {len(view)} bytes")
            at += got

    @staticmethod
    def _received(data: bytes, at: int, count: int) -> bytes:
        if not data:
            raise ConnectionError(f"the connection ended after {at} bytes of a line of at most {count}")
        return data
