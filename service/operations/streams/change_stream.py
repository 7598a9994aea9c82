"""Notices as a list and as a stream. One reader per server reads each notice once, and passes it to all followers.

A follower that is too slow for its queue is dropped; it can continue after the number of its last notice.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from regroup.service.domain.errors import UnavailableError
from regroup.service.operations.streams.follower_queue import FollowerQueue
from regroup.service.operations.streams.followers import IDLE_S, Entry
from regroup.service.store.notices.notice_rows import Notice, Topic
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks
from regroup.service.tasks.supervised_task import SupervisedTask

START, MISSED = "start", "missed"
"""Kinds of notices about the stream: it begins here; or notices before this one were removed, so read all again."""
QUEUE_LIMIT = 2000
"""Number of notices that a follower may lag behind."""
_POLL_S = 0.4  # writes of this process wake the reader at once; polling finds the writes of other servers
_PAUSE_S = 0.05  # between two reads: changes of this time arrive together
_PAGE = 1000


@dataclass(frozen=True)
class NoticePage:
    """A part of the list of notices."""

    notices: tuple[Notice, ...]
    next_after: int
    """Number after which the next part begins."""
    is_complete: bool
    """False if notices before the first one were removed."""


class ChangeStream:
    """Use cases of notices."""

    def __init__(self, store: Store, tasks: ServerTasks, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._queues = set[FollowerQueue[Entry[Notice]]]()
        self._position: int | None = None
        """Number of the newest notice that was passed on; None without a follower."""
        self._wake = asyncio.Event()
        self._is_in_query = False
        self._reader = SupervisedTask("reader for followers of changes", self._read)
        self._reading: asyncio.Task[None] | None = None
        tasks.track(self._reader)
        store.changes.listen(self._on_change)

    async def page(self, after: int | None, limit: int) -> NoticePage:
        """Return notices after a number; without one, only the number of the newest notice."""
        stored = await self._store.notices.range()
        if after is None or after > stored.newest:
            return NoticePage((), stored.newest, after is None)
        found = await self._store.notices.after(after, limit)
        return NoticePage(tuple(found), found[-1].number if found else after, stored.has_all_after(after))

    async def follow(self, after: int | None) -> AsyncGenerator[Entry[Notice] | None]:
        """Yield notices after a number, without an end; None while there is no new one.

        Args:
            after: number of the last notice that the caller has. Without it, the stream begins now, with a notice
                `START` that has the number. If notices after it were removed, the stream begins now with `MISSED`.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        queue = FollowerQueue[Entry[Notice]](QUEUE_LIMIT)
        self._queues.add(queue)  # before the past is read: nothing is missed between the two
        try:
            stored = await self._store.notices.range()
            if self._position is None:
                self._position = stored.newest
            self._start_reader()
            if after is None or not stored.has_all_after(after):
                kind, after = START if after is None else MISSED, stored.newest
                yield Entry(Notice(Topic.STREAM, kind, self._clock(), after))
            while not queue.is_current:
                queue.has_missed = False
                while rows := await self._store.notices.after(after, _PAGE):
                    for row in rows:
                        after = row.number
                        yield Entry(row)
                    if len(rows) < _PAGE:
                        break
                queue.is_current = not queue.has_missed
            while True:
                entry = await queue.read(IDLE_S)
                if entry is None:
                    yield None
                elif entry.row.number > after:
                    after = entry.row.number
                    yield entry
        finally:
            self._queues.discard(queue)
            self._stop_idle_reader()

    # ------------------------------------------------------------ the reader

    def _on_change(self, _: str) -> None:
        self._wake.set()

    def _start_reader(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._reader.run(), name=self._reader.name)

    def _stop_idle_reader(self) -> None:
        """End the reader without a follower, but not within a query: a cancelled query costs its connection."""
        if not self._queues and self._reading is not None and not self._is_in_query:
            self._reading.cancel()
            self._reading = self._position = None

    async def _read(self) -> None:
        while True:
            self._wake.clear()
            self._is_in_query = True
            try:
                await self._pass_on()
            except UnavailableError:
                self._wake.set()  # the server reports it, and followers wait
            finally:
                self._is_in_query = False
            self._stop_idle_reader()
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pass_on(self) -> None:
        is_more = True
        while is_more and self._position is not None:
            rows = await self._store.notices.after(self._position, _PAGE)
            if rows:
                self._position = rows[-1].number
                entries = [Entry(row) for row in rows]
                for queue in self._queues:
                    queue.put(entries)
            is_more = len(rows) == _PAGE
