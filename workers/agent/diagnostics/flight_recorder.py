"""Asks ranks for the collectives that they entered last (`workers/rank/flight_recorder.py` answers)."""

import contextlib
import json
import select
import socket
from typing import Any

PATIENCE_S = 1.0
_PACKET_BYTES = 160 * 1024


def ask(sock: socket.socket, patience_s: float = PATIENCE_S) -> list[dict[str, Any]] | None:
    """What the rank at the other end entered last, oldest first; None if it does not answer in time. Blocking."""
    try:
        with contextlib.suppress(BlockingIOError):
            while sock.recv(_PACKET_BYTES):  # the answer to an earlier question came late
                pass
        sock.send(b"?")
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        data = sock.recv(_PACKET_BYTES) if poll.poll(patience_s * 1000) else b""
        return json.loads(data) if data else None
    except (OSError, ValueError):
        return None  # it has ended
