"""A share of the connections for work on many jobs, so that requests and the leader's lease find a free one.

Without it, thousands of jobs wait for connections at the same time, all of them longer than the timeout of the pool.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

MOST_SHARED = 8
"""Number of connections of the share."""
_IS_LIMITED: ContextVar[bool] = ContextVar("this task uses the share only", default=False)


def limit_to_share() -> None:
    """Let this task, and those that it starts from now on, use only connections of the share."""
    _IS_LIMITED.set(True)


@contextmanager
def without_limit() -> Generator[None]:
    """Let this task use any connection in the block. Work that others wait for, such as under a lock, needs no turn.

    Otherwise a scheduling pass that needs the lock would wait for the turns of thousands of jobs.
    """
    token = _IS_LIMITED.set(False)
    try:
        yield
    finally:
        _IS_LIMITED.reset(token)


class ConnectionShare:
    """Gives turns to limited tasks, in the order in which they ask. Other tasks do not wait."""

    def __init__(self, most: int = MOST_SHARED) -> None:
        """Initialize the share of `most` connections."""
        self._free = asyncio.Semaphore(most)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a turn, which ends with the block. A block inside it needs no turn of its own."""
        if not _IS_LIMITED.get():
            yield
            return
        async with self._free:
            with without_limit():
                yield
