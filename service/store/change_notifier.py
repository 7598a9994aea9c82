"""Notification of followers when this process has written to a job. Writes of other replicas are found by polling."""

import asyncio
from collections import defaultdict


class Changes:
    """A counter per job. Read the counter, read the store, then wait for a higher count: no change is missed."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[str, int] = {}
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._waiting_for_any: set[asyncio.Event] = set()

    def mark(self) -> int:
        """Return the current count, before the caller reads the store."""
        return self._count

    def announce(self, job_id: str) -> None:
        """Wake the followers of a job after a transaction that wrote to it has committed."""
        self._count += 1
        self._last[job_id] = self._count
        for event in (*self._waiting.get(job_id, ()), *self._waiting_for_any):
            event.set()

    async def wait(self, job_id: str, mark: int, timeout_s: float) -> None:
        """Wait until the job has changed since `mark`, at most `timeout_s`."""
        if self._last.get(job_id, 0) > mark:
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
