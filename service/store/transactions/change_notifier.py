"""Notification of followers when this process has written to a job. Writes of other replicas are found by polling."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

_REMEMBERED = 10_000
"""Number of jobs whose last change is remembered."""


@dataclass(frozen=True)
class _Last:
    """The last changes of one job."""

    count: int
    """Count of the last change."""
    revision: int
    """Newest revision of the job's row that was announced; 0 if none was."""
    unknown: int
    """Count of the last change without a revision; 0 if there was none."""


class Changes:
    """A counter per job. Read the counter, read the store, then wait for a higher count: no change is missed."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[str, _Last] = {}
        """Job id → its last changes, the oldest change first."""
        self._forgotten = 0
        """Count up to which changes of other jobs were forgotten: a waiter from before that is woken in vain."""
        self._listeners: list[Callable[[str], None]] = []
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._waiting_for_any: set[asyncio.Event] = set()
        self._passing = 0
        """Count of the last change that is more than progress."""

    def mark(self) -> int:
        """Return the current count, before the caller reads the store."""
        return self._count

    def announce(self, job_id: str, revision: int = 0, *, is_progress: bool = False) -> None:
        """Wake the followers of a job after a transaction that wrote to it has committed.

        Args:
            revision: revision of the row that it wrote; 0 if the caller does not know it.
            is_progress: nothing but the progress of training has changed. Those who wait for any job are not woken.
        """
        self._count += 1
        before = self._last.pop(job_id, _Last(0, 0, 0))
        self._last[job_id] = _Last(
            self._count, max(revision, before.revision), before.unknown if revision else self._count
        )
        if len(self._last) > _REMEMBERED:
            self._forgotten = self._last.pop(next(iter(self._last))).count
        for listener in self._listeners:
            listener(job_id)
        woken = self._waiting.get(job_id, ())
        if not is_progress:
            self._passing = self._count
            woken = (*woken, *self._waiting_for_any)
        for event in woken:
            event.set()

    def revision(self, job_id: str) -> int:
        """Return the newest revision of a job that was announced; 0 if none is known."""
        return self._last[job_id].revision if job_id in self._last else 0

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the id of each job that changes."""
        self._listeners.append(listener)

    def has_changed(self, job_id: str, mark: int, revision: int | None = None) -> bool:
        """Return whether the job may have changed since `mark`, other than to a `revision` that the caller has."""
        last = self._last.get(job_id)
        if last is None:
            return self._forgotten > mark
        if revision is None:
            return last.count > mark
        return last.unknown > mark or (last.count > mark and last.revision > revision)

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
        """Wait until any job has changed by more than progress since `mark`, at most `timeout_s`."""
        if self._passing > mark:
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
