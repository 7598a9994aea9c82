"""Calls in both directions over a Unix socket, in place of calls of Ray actors. Arguments are pickled, as by Ray.

A frame is the length of its content (4 bytes) and the pickled tuple (number, kind, value). A reply has the number of
its call and the kind `ok` or `failed`.
"""

import asyncio
import pickle
import struct
from collections.abc import Awaitable, Callable
from typing import Any

Answer = Callable[[str, Any], Awaitable[Any]]
"""Answers a call from its kind and its value."""
_LENGTH = struct.Struct("<I")


class CallFailedError(Exception):
    """The other side raised, or the connection has ended."""


class Peer(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, answer: Answer) -> None:
        """Initialize the end. `answer` handles the calls of the other side."""
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._work: set[asyncio.Task[None]] = set()
        self.is_open = False
        self.ended = asyncio.Event()

    async def call(self, kind: str, value: Any) -> Any:
        """Return the answer of the other side.

        Raises:
            CallFailedError: it raised, or the connection has ended.
        """
        if not self.is_open:
            raise CallFailedError("the connection has ended")
        self._number += 1
        reply = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        self._send(self._number, kind, value)
        return await reply

    def connection_made(self, transport: Any) -> None:
        """Keep the connection."""
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """Read all complete frames."""
        self._data += data
        start = 0
        while len(self._data) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data, start)
            end = start + _LENGTH.size + size
            if len(self._data) < end:
                break
            self._receive(*pickle.loads(memoryview(self._data)[start + _LENGTH.size : end]))
            start = end
        del self._data[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all calls that wait for an answer."""
        self.is_open = False
        self.ended.set()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(CallFailedError("the connection has ended"))
        self._waiting.clear()

    def _receive(self, number: int, kind: str, value: Any) -> None:
        if kind in ("ok", "failed"):
            reply = self._waiting.pop(number, None)
            if reply is not None and not reply.done():
                if kind == "ok":
                    reply.set_result(value)
                else:
                    reply.set_exception(CallFailedError(value))
            return
        task = asyncio.get_running_loop().create_task(self._reply(number, kind, value))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _reply(self, number: int, kind: str, value: Any) -> None:
        try:
            self._send(number, "ok", await self._answer(kind, value))
        except CallFailedError:
            return
        except Exception as error:
            self._send(number, "failed", f"{type(error).__name__}: {error}")

    def _send(self, number: int, kind: str, value: Any) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        content = pickle.dumps((number, kind, value), protocol=5)
        self._transport.write(_LENGTH.pack(len(content)) + content)
