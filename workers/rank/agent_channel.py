"""The rank's end of the socket to its agent: one message per packet, with its file descriptors."""

import select
import socket
from collections import deque
from collections.abc import Sequence

from regroup.workers.contract.messages import AgentRequest, Message, decode, encode
from regroup.workers.rank import own_process

MAX_PACKET_BYTES = 160 * 1024
"""Below Linux's default send buffer, so that one packet always fits."""
_MAX_FDS = 253  # the kernel passes no more at once


class AgentGone(ConnectionError):
    """The agent closed its end: this rank has no owner left."""


class Channel:
    """Blocking messages to the agent. Not for use by several threads at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pending: deque[Message] = deque()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send a message to the agent, with descriptors. Do nothing in a process that the rank forked.

        Raises:
            AgentGone: the agent closed its end.
        """
        if own_process.is_forked():
            return
        data = encode(message)
        assert len(data) <= MAX_PACKET_BYTES, f"{type(message).__name__} of {len(data)} bytes does not fit a packet"
        try:
            socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
        except OSError as error:
            raise AgentGone(f"agent is gone: {error}") from error

    def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, Sequence[int]]:
        """Send and wait for the reply. Requests from the agent that arrive first are queued for `poll`.

        Raises:
            AgentGone: the agent closed its end.
            NotTheRankError: the rank forked this process.
        """
        self.send(message, fds)
        while True:
            reply, fds = self._receive()
            if not isinstance(reply, AgentRequest):
                return reply, fds
            self._pending.append(reply)

    def receive(self) -> Message:
        """Wait for the next message."""
        return self._pending.popleft() if self._pending else self._receive()[0]

    def poll(self) -> Message | None:
        """Return a message that has already arrived, or None. Return None in a process that the rank forked."""
        if own_process.is_forked():
            return None
        if self._pending:
            return self._pending.popleft()
        poll = select.poll()  # select() knows no descriptor above 1023, and training code may hold many
        poll.register(self._sock, select.POLLIN)
        return self._receive()[0] if poll.poll(0) else None

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def _receive(self) -> tuple[Message, list[int]]:
        if own_process.is_forked():
            raise own_process.NotTheRankError
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, MAX_PACKET_BYTES, _MAX_FDS)
        except OSError as error:
            raise AgentGone(f"agent is gone: {error}") from error
        if not data:
            raise AgentGone("agent closed the channel")
        return decode(data), fds
