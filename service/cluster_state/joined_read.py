"""One read for all that wait for the same value."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class JoinedRead(Generic[ValueT]):
    """A read that callers share. Each gets the result of a read that began after its call, so it misses no change.

    Args:
        read: reads the value. Only one read is in progress at any time.
    """

    def __init__(self, read: Callable[[], Awaitable[ValueT]]) -> None:
        self._read = read
        self._running: asyncio.Task[ValueT] | None = None
        self._next: asyncio.Task[ValueT] | None = None
        """Read that has not begun."""

    async def get(self) -> ValueT:
        """Return the value. A cancelled caller does not end the read of the others."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._running))
            self._next.add_done_callback(_note_outcome)
        return await asyncio.shield(self._next)

    async def _read_after(self, before: asyncio.Task[ValueT] | None) -> ValueT:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._read()


def _note_outcome(task: asyncio.Task[ValueT]) -> None:
    """Take the error of a read whose callers were all cancelled, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()
