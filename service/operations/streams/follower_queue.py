"""The bounded queue of one follower, between the reader of the server and the connection to the client."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from regroup.service.domain.errors import RegroupError

ItemT = TypeVar("ItemT")


class FollowerDroppedError(RegroupError):
    """A follower read too slowly. It can continue after its last entry."""

    def __init__(self) -> None:
        super().__init__("the client read too slowly and was dropped; continue with the id of the last entry")


class FollowerQueue(Generic[ItemT]):
    """New entries for one follower.

    As long as the follower still reads the past, entries that exceed the limit are `missed`: it reads them with the
    past. Later they are a reason to drop the follower.
    """

    def __init__(self, limit: int) -> None:
        self.is_current = False
        """True after the follower has read the past."""
        self.has_missed = False
        self._limit = limit
        self._items: deque[ItemT] = deque()
        self._is_ended = self._is_dropped = False
        self._wake = asyncio.Event()

    def put(self, items: Sequence[ItemT]) -> None:
        """Add entries, or drop the follower if they exceed the limit."""
        if len(self._items) + len(items) > self._limit and self._items:
            self._items.clear()
            self._is_dropped, self.has_missed = self.is_current, not self.is_current
        if not self._is_dropped:
            self._items.extend(items)
        self._wake.set()

    def end(self) -> None:
        """Mark the end: there will be no more entries."""
        self._is_ended = True
        self._wake.set()

    async def read(self, timeout_s: float) -> ItemT | None:
        """Return the next entry; None if there is none within `timeout_s`.

        Raises:
            EndOfQueue: there is no more entry.
            FollowerDroppedError: the follower was too slow.
        """
        if not self._items and not self._is_dropped and not self._is_ended:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return None
        self._wake.clear()
        if self._is_dropped:
            raise FollowerDroppedError
        if self._items:
            return self._items.popleft()
        if self._is_ended:
            raise EndOfQueue
        return None


class EndOfQueue(Exception):
    """The job has ended, and the queue is empty."""
