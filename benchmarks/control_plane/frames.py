"""Calls in both directions over a Unix socket, in place of calls of Ray actors. Arguments are pickled, as by Ray.

A frame is the length of its content (4 bytes) and the pickled tuple (number, kind, value). A reply has the number of
its call and the kind `ok` or `failed`. Frames are gathered for a write of the socket, because 2,048 agents share it.
"""

import asyncio
import inspect
import pickle
import struct
from collections.abc import Awaitable, Callable
from typing import Any

Answer = Callable[[str, Any], Awaitable[Any] | Any]
"""Returns the answer to a call of a kind with a value. Answers that take no time are plain values."""
Arrival = Callable[[str, Any], None]
_LENGTH = struct.Struct("<I")
_WRITE_BYTES = 1 << 16


class CallFailedError(Exception):
    """The other side raised, or the connection has ended."""


class Peer(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, answer: Answer, on_call: Arrival = lambda kind, value: None) -> None:
        """Initialize the end.

        Args:
            answer: handles the calls of the other side.
            on_call: receives the kind and the value of each call when it has arrived, before any answer to it.
        """
        self._answer, self._on_call = answer, on_call
        self._unsent, self._unsent_bytes = list[bytes](), 0
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
        self._on_call(kind, value)
        asyncio.get_running_loop().call_soon(self._reply, number, kind, value)

    def _reply(self, number: int, kind: str, value: Any) -> None:
        try:
            answer = self._answer(kind, value)
        except Exception as error:
            self._send_error(number, error)
            return
        if not inspect.isawaitable(answer):
            self._send(number, "ok", answer)
            return
        task = asyncio.ensure_future(self._reply_later(number, answer))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _reply_later(self, number: int, answer: Awaitable[Any]) -> None:
        try:
            self._send(number, "ok", await answer)
        except Exception as error:
            self._send_error(number, error)

    def _send_error(self, number: int, error: Exception) -> None:
        if not isinstance(error, CallFailedError):
            self._send(number, "failed", f"{type(error).__name__}: {error}")

    def _send(self, number: int, kind: str, value: Any) -> None:
        content = pickle.dumps((number, kind, value), protocol=5)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += (_LENGTH.pack(len(content)), content)
        self._unsent_bytes += len(content)
        if self._unsent_bytes > _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._unsent and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0
