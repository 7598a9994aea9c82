"""Notification of followers when this process has written to a job. Writes of other replicas are found by polling."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

_REMEMBERED = 10_000
"""Number of jobs whose last change is remembered."""


class Changes:
    """A counter per job. Read the counter, read the store, then wait for a higher count: no change is missed."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[str, int] = {}
        """Job id → count of its last change, the oldest change first."""
        self._forgotten = 0
        """Count up to which changes of other jobs were forgotten: a waiter from before that is woken in vain."""
        self._listeners: list[Callable[[str], None]] = []
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._waiting_for_any: set[asyncio.Event] = set()

    def mark(self) -> int:
        """Return the current count, before the caller reads the store."""
        return self._count

    def announce(self, job_id: str) -> None:
        """Wake the followers of a job after a transaction that wrote to it has committed."""
        self._count += 1
        self._last.pop(job_id, None)
        self._last[job_id] = self._count
        if len(self._last) > _REMEMBERED:
            self._forgotten = self._last.pop(next(iter(self._last)))
        for listener in self._listeners:
            listener(job_id)
        for event in (*self._waiting.get(job_id, ()), *self._waiting_for_any):
            event.set()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the id of each job that changes."""
        self._listeners.append(listener)

    def has_changed(self, job_id: str, mark: int) -> bool:
        """Return whether the job may have changed since `mark`."""
        return self._last.get(job_id, self._forgotten) > mark

    async def wait(self, job_id: str, mark: int, timeout_s: float) -> None:
        """Wait until the job has changed since `mark`, at most `timeout_s`."""
        if self.has_changed(job_id, mark):
            return
        event = asyncio.Event()
        self._waiting[job_id].add(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._waiting[job_id].discard(event)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    async def wait_any(self, mark: int, timeout_s: float) -> None:
        """Wait until any job has changed since `mark`, at most `timeout_s`."""
        if self._count > mark:
            return
        event = asyncio.Event()
        self._waiting_for_any.add(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._waiting_for_any.discard(event)
