"""The followers of the output of ranks: one reader per server reads each piece once, and passes it to all followers.

A follower reads by itself until it is at the end of the output, and then gets new pieces from a bounded queue.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.operations.logs import LogPiece, LogPosition, read_step
from regroup.service.operations.streams.follower_queue import EndOfQueue, FollowerQueue
from regroup.service.operations.streams.followers import IDLE_S
from regroup.service.ports.cluster import Cluster
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks
from regroup.service.tasks.supervised_task import SupervisedTask

_POLL_S = 0.5  # the store emits no event for rank output
_QUEUE_LIMIT = 64
"""Number of pieces that a follower may lag behind. A piece has at most 64 KiB."""
_MAX_PIECES = 16
"""Number of pieces that the reader reads of one output before it reads the others."""


@dataclass(frozen=True)
class LogSource:
    """The output of one rank of a job."""

    job_id: str
    rank: int
    stream: str
    only: int | None
    """The only generation to read; None for all."""


@dataclass(eq=False)
class _Feed:
    source: LogSource
    position: LogPosition | None = None
    """Position after the last piece that was passed on; None before a follower was at the end of the output."""
    queues: set[FollowerQueue[LogPiece]] = field(default_factory=set["FollowerQueue[LogPiece]"])
    task: asyncio.Task[None] | None = None


class LogFollowers:
    """The one reader of rank output of a server. It runs while there are followers."""

    def __init__(self, store: Store, cluster: Cluster, tasks: ServerTasks) -> None:
        self._store, self._cluster = store, cluster
        self._feeds: dict[LogSource, _Feed] = {}
        self._reader = SupervisedTask("reader of rank output", self._read)
        self._reading: asyncio.Task[None] | None = None
        tasks.track(self._reader)

    async def follow(self, source: LogSource, position: LogPosition) -> AsyncGenerator[LogPiece | None]:
        """Yield output from `position` until the job, or the only generation, has ended; None while there is none.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        feed, queue = self._feeds.setdefault(source, _Feed(source)), FollowerQueue[LogPiece](_QUEUE_LIMIT)
        feed.queues.add(queue)
        try:
            while True:
                # 1. Read until the end of the output.
                step = await read_step(self._cluster, await self._store.job(source.job_id), source, position)
                position = step.next
                if step.piece is not None:
                    yield step.piece
                if step.is_ended:
                    return
                if not step.is_idle:
                    continue
                # 2. Take what the reader finds, as long as it continues where this follower is.
                queue.is_current = True
                if feed.position is None:
                    feed.position = position
                self._start_reader()
                yield None
                try:
                    while (piece := await queue.read(IDLE_S)) is None or piece.position <= position:
                        if piece is None:
                            yield None
                        elif piece.position == position:
                            yield piece
                            position = piece.next
                        elif piece.next > position:
                            break  # the piece begins before the position
                except EndOfQueue:
                    continue  # the next read finds the end
        finally:
            feed.queues.discard(queue)
            if not feed.queues and self._feeds.get(source) is feed:
                del self._feeds[source]
                if feed.task is not None:
                    feed.task.cancel()
            if not self._feeds and self._reading is not None:
                self._reading.cancel()
                self._reading = None

    # ------------------------------------------------------------ the reader

    def _start_reader(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._reader.run(), name=self._reader.name)

    async def _read(self) -> None:
        while True:
            for feed in list(self._feeds.values()):
                # One task for each output: a node that does not answer does not delay the output of others.
                if feed.position is not None and (feed.task is None or feed.task.done()):
                    if feed.task is not None and not feed.task.cancelled() and (error := feed.task.exception()):
                        feed.task = None
                        raise error
                    feed.task = asyncio.create_task(self._pass_on(feed))
            await asyncio.sleep(_POLL_S)

    async def _pass_on(self, feed: _Feed) -> None:
        try:
            job: JobRow = await self._store.job(feed.source.job_id)
            for _ in range(_MAX_PIECES):
                assert feed.position is not None, "a follower has set it"
                step = await read_step(self._cluster, job, feed.source, feed.position)
                feed.position = step.next
                for queue in feed.queues:
                    if step.piece is not None:
                        queue.put([step.piece])
                    if step.is_ended:
                        queue.end()
                if step.is_idle or step.is_ended:
                    return
        except UnavailableError:
            return  # the node, the database or the storage may answer later
        except NotFoundError:
            for queue in feed.queues:  # the job was removed
                queue.end()
