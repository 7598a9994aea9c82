"""A receiver of notifications over HTTP on loopback, which records requests and answers as a test chooses."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Received:
    """A request."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """Verify the signature as docs/operations/hooks.md describes it, without code of the server."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return any(hmac.compare_digest(each, expected) for each in self.headers["webhook-signature"].split())


@dataclass
class HookReceiver:
    """A running receiver."""

    port: int = 0
    scheme: str = "http"
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list[tuple[int, dict[str, str]]])
    """Status and headers of the next answers; afterwards 204."""
    received: list[Received] = field(default_factory=list[Received])
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for it."""
    most_at_once: int = 0
    """Largest number of requests that waited at the same time."""
    _waiting: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str = "/in", host: str = "127.0.0.1") -> str:
        """Return the URL of a path."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def wait_for(self, count: int, timeout_s: float = 20.0) -> list[Received]:
        """Wait until this number of requests have arrived, and return all."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= count)
        return list(self.received)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Record one request and answer it."""
        try:
            received = await _read(reader)
            async with self._changed:
                self.received.append(received)
                self._changed.notify_all()
            self._waiting += 1
            self.most_at_once = max(self.most_at_once, self._waiting)
            try:
                await self.gate.wait()
            finally:
                self._waiting -= 1
            status, headers = self.answers.pop(0) if self.answers else (204, {})
            lines = [f"HTTP/1.1 {status} answer", *(f"{name}: {value}" for name, value in headers.items())]
            if "Content-Length" not in headers:
                lines.append("Content-Length: 0")
            writer.write("\r\n".join([*lines, "", ""]).encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender left
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split()[1], headers, body)


@asynccontextmanager
async def running_receiver(context: ssl.SSLContext | None = None) -> AsyncIterator[HookReceiver]:
    """Start a receiver that answers at once, with TLS if there is a context; end it when the block ends."""
    receiver = HookReceiver(scheme="http" if context is None else "https")
    receiver.gate.set()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.gate.set()
        server.close()
        await server.wait_closed()
