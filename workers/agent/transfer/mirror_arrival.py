"""The arrival of one mirror on several connections: that of its request, and others that join it."""

import threading
from collections import deque
from collections.abc import Sequence

from regroup.workers.agent.transfer import chunk_format
from regroup.workers.agent.transfer.arrival import MOST_TRIES, damage
from regroup.workers.agent.transfer.chunk_client import Pull, Read, chunks_of
from regroup.workers.agent.transfer.chunk_format import Kind
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.connection_set import ConnectionSet
from regroup.workers.agent.transfer.priorities import Pace

_PAUSE_S = 5.0
"""Time after which a connection that waits notifies its peer that it lives. It is far below the idle timeout."""


class MirrorArrival:
    """Chunks of one shard that several threads fetch, each on a connection of its own."""

    def __init__(self, pace: Pace) -> None:
        """Initialize without a chunk.

        Args:
            pace: pace of all connections together.
        """
        self._pace, self._changed = pace, threading.Condition()
        self._pull: Pull | None = None
        self._others = ConnectionSet()
        self._joined = 0
        """Other connections that fetch chunks now."""
        self._is_closed = False

    def fetch(self, connection: Connection, reads: Sequence[Read]) -> None:
        """Fetch regions together with the connections that join, and return when none of them uses the memory.

        Raises:
            TransferError: a chunk arrived damaged three times, or the shard was overwritten.
            OSError: this connection ended. If another one ends, this one gets its chunks.
        """
        pull = Pull(deque(chunks_of(reads)))
        with self._changed:
            self._pull = pull
            self._changed.notify_all()
        try:
            self._fetch(connection, pull)
        except BaseException:
            pull.waiting.clear()
            self._others.abort()
            with self._changed:
                self._changed.wait_for(lambda: not self._joined)
            raise

    def join(self, connection: Connection) -> None:
        """Fetch chunks on a further connection until none is left.

        Raises:
            TransferError: the shard was overwritten.
            OSError: the connection ended.
        """
        with self._changed:
            while self._pull is None and not self._is_closed:
                if not self._changed.wait(_PAUSE_S):
                    chunk_format.send_request_kind(connection, Kind.PAUSE)
            if self._is_closed or self._pull is None:
                return
            pull, self._joined = self._pull, self._joined + 1
        self._others.add(connection)
        try:
            pull.run(connection, self._pace)
        finally:
            self._others.remove(connection)
            with self._changed:
                self._joined -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let no further connection join. Those that wait return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _fetch(self, connection: Connection, pull: Pull) -> None:
        for _ in range(MOST_TRIES):
            pull.run(connection, self._pace)
            with self._changed:
                while not self._changed.wait_for(lambda: not self._joined, _PAUSE_S):
                    chunk_format.send_request_kind(connection, Kind.PAUSE)
            if not pull.failed:
                return
            pull.waiting.extend(pull.failed)
            pull.failed.clear()
        raise damage()
