"""Load: HTTP/1.1 requests over kept connections, with as little work of the client as possible."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """Status and time of a request."""

    status: int
    seconds: float
    body: bytes


class Connection:
    """One connection, for one request after the other.

    Args:
        url: URL of the server.
        token: token of the requests; empty for none.
    """

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None, url
        self._host, self._port = parts.hostname, parts.port
        self._head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def send(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send a request and read its answer."""
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode()
        began_s = time.perf_counter()
        self._writer.write(head + body)
        status, length = await self._read_head()
        content = await self._reader.readexactly(length)
        return Answer(status, time.perf_counter() - began_s, content)

    async def _read_head(self) -> tuple[int, int]:
        """Return the status and the length of the body."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        lengths = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
        return int(lines[0].split()[1]), int(lengths[0]) if lengths else 0

    async def follow(self, path: str) -> asyncio.StreamReader:
        """Open a stream, and return its reader after the headers. Chunk sizes are part of what it reads."""
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._head}Accept: text/event-stream\r\n\r\n".encode())
        status, _ = await self._read_head()
        assert status == 200, f"status {status} for {path}"
        return self._reader


async def send_all(
    url: str, token: str, path: str, bodies: Sequence[bytes], connections: int
) -> tuple[list[Answer], float]:
    """POST all bodies over several connections at once; return the answers, and the seconds for all of them."""
    waiting, answers = list(reversed(bodies)), list[Answer]()

    async def work() -> None:
        async with Connection(url, token) as connection:
            while waiting:
                answers.append(await connection.send("POST", path, waiting.pop()))

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return answers, time.perf_counter() - began_s
