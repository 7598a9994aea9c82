"""The followers of jobs: one reader per server reads each new event and step once, and passes it to all followers.

A follower reads the past from the database, and gets everything later from a bounded queue. A follower that is too slow
for its queue is dropped; it can continue after the id of its last entry.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regroup.service.domain.errors import UnavailableError
from regroup.service.operations.streams.follower_queue import EndOfQueue, FollowerQueue
from regroup.service.store.notices.notice_rows import Notice
from regroup.service.store.rows.records import Event, JobPosition, JobRow, Step
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks
from regroup.service.tasks.supervised_task import SupervisedTask

RowT = TypeVar("RowT", Event, Step, Notice)
IDLE_S = 5.0
"""Time without an entry after which a follower gets None."""
QUEUE_LIMIT = 2000
"""Number of entries that a follower may lag behind."""
_POLL_S = 1.0  # writes of this process wake the reader at once; polling finds the writes of other replicas
_PAUSE_S = 0.05  # between two reads: changes of this time arrive together
_PAGE = 1000


@dataclass(frozen=True)
class Entry(Generic[RowT]):
    """An event, a step or a notice, shared by all its followers."""

    row: RowT
    _rendered: list[bytes] = field(default_factory=list[bytes], compare=False)

    def render(self, write: Callable[[RowT], bytes]) -> bytes:
        """Return the entry as `write` writes it. The first call writes it for all followers."""
        if not self._rendered:
            self._rendered.append(write(self.row))
        return self._rendered[0]


@dataclass(eq=False)
class _Feed(Generic[RowT]):
    """The newest events, or steps, of one job."""

    job_id: str
    read: Callable[[str, int, int], Awaitable[list[RowT]]]
    """Reads entries of a job above a number, up to a limit."""
    newest: Callable[[JobPosition], int]
    position: int | None = None
    """Number of the newest entry that was passed on; None before the first follower has come."""
    queues: set[FollowerQueue[Entry[RowT]]] = field(default_factory=set["FollowerQueue[Entry[RowT]]"])

    async def catch_up(self, at: JobPosition) -> None:
        """Pass on everything up to this position of the job, and the end of the job."""
        if self.position is None:
            return
        newest = self.newest(at)
        while self.position < newest and (rows := await self.read(self.job_id, self.position, _PAGE)):
            self.position = rows[-1].number
            entries = [Entry(row) for row in rows]
            for queue in self.queues:
                queue.put(entries)
        if at.state.is_terminal:
            self.end()

    def end(self) -> None:
        """Pass on that there will be no more entries."""
        for queue in self.queues:
            queue.end()


class Followers:
    """The one reader of events and steps of a server. It runs while there are followers."""

    def __init__(self, store: Store, tasks: ServerTasks) -> None:
        self._store = store
        self._events: dict[str, _Feed[Event]] = {}
        self._steps: dict[str, _Feed[Step]] = {}
        self._changed: set[str] = set()
        """Followed jobs that changed since the last read."""
        self._wake = asyncio.Event()
        self._reader = SupervisedTask("reader for followers", self._read)
        self._reading: asyncio.Task[None] | None = None
        tasks.track(self._reader)
        store.changes.listen(self._on_change)

    def follow_events(self, job: JobRow, after: int) -> AsyncGenerator[Entry[Event] | None]:
        """Yield events with numbers above `after` until the job has ended; None while there is no new event.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        return self._follow(self._events, _Feed(job.id, self._store.events, lambda at: at.version), after)

    def follow_steps(self, job: JobRow, after: int) -> AsyncGenerator[Entry[Step] | None]:
        """Yield step rows with numbers above `after`; otherwise as `follow_events`."""
        return self._follow(self._steps, _Feed(job.id, self._store.step_rows, lambda at: at.step_rows), after)

    async def _follow(
        self, feeds: dict[str, _Feed[RowT]], new: _Feed[RowT], after: int
    ) -> AsyncGenerator[Entry[RowT] | None]:
        feed, queue = feeds.setdefault(new.job_id, new), FollowerQueue[Entry[RowT]](QUEUE_LIMIT)
        feed.queues.add(queue)  # before the past is read: nothing is missed between the two
        try:
            if feed.position is None:
                at = (await self._store.positions({feed.job_id})).get(feed.job_id)
                if feed.position is None:  # another follower may have been faster
                    feed.position = 0 if at is None else feed.newest(at)
            self._start_reader()
            self._on_change(feed.job_id)
            while not queue.is_current:
                queue.has_missed = False
                while rows := await feed.read(feed.job_id, after, _PAGE):
                    for row in rows:
                        after = row.number
                        yield Entry(row)
                    if len(rows) < _PAGE:
                        break
                queue.is_current = not queue.has_missed
            while True:
                try:
                    entry = await queue.read(IDLE_S)
                except EndOfQueue:
                    return
                if entry is None:
                    yield None
                elif entry.row.number > after:
                    after = entry.row.number
                    yield entry
        finally:
            feed.queues.discard(queue)
            if not feed.queues and feeds.get(feed.job_id) is feed:
                del feeds[feed.job_id]
            self._stop_idle_reader()

    # ------------------------------------------------------------ the reader

    def _on_change(self, job_id: str) -> None:
        if job_id in self._events or job_id in self._steps:
            self._changed.add(job_id)
            self._wake.set()

    def _start_reader(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._reader.run(), name=self._reader.name)

    def _stop_idle_reader(self) -> None:
        if not self._events and not self._steps and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self) -> None:
        polled_s = -float("inf")
        while True:
            self._wake.clear()
            polled, followed = self._changed, self._events.keys() | self._steps.keys()
            if time.monotonic() - polled_s >= _POLL_S:
                polled, polled_s = set(followed), time.monotonic()
            self._changed = set()
            try:
                positions = await self._store.positions(polled & followed)
                for job_id in polled & followed:
                    await self._pass_on(job_id, positions.get(job_id))
            except UnavailableError:  # the server reports it, and followers wait
                self._changed |= polled
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pass_on(self, job_id: str, at: JobPosition | None) -> None:
        for feed in (self._events.get(job_id), self._steps.get(job_id)):
            if feed is None:
                continue
            if at is None:
                feed.end()  # the job was removed
            else:
                await feed.catch_up(at)
