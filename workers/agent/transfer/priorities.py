"""Order of the transfers of an agent: recoveries go first. Mirrors wait for them, and keep to a rate."""

import contextlib
import threading
import time
from collections.abc import Callable, Generator

from regroup.workers.agent.transfer.connection import Connection

_PAUSE_S = 5.0
"""Time after which a paused transfer notifies its peer that it lives. It is far below the idle timeout."""


class Priorities:
    """Counts the recovery transfers of an agent, in both directions."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._recoveries = 0

    @contextlib.contextmanager
    def recovery(self) -> Generator[None]:
        """Let mirrors of this agent wait until the end of the context."""
        with self._changed:
            self._recoveries += 1
        try:
            yield
        finally:
            with self._changed:
                self._recoveries -= 1
                self._changed.notify_all()

    @property
    def recoveries(self) -> int:
        """Number of recovery transfers in progress."""
        return self._recoveries

    def wake(self) -> None:
        """Let waiting transfers check whether they were aborted."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, connection: Connection, timeout_s: float, *, is_rate: bool = False) -> bool:
        """Wait until no recovery is in progress; with `is_rate`, until the time has passed. Return False if it has.

        Raises:
            ConnectionAbortedError: the transfer was aborted.
        """
        with self._changed:
            is_free = self._changed.wait_for(
                lambda: connection.is_aborted or (not is_rate and not self._recoveries), timeout_s
            )
        if connection.is_aborted:
            raise ConnectionAbortedError("the transfer was cancelled")
        return is_free


class Pace:
    """Pace of one transfer, between its chunks."""

    def before_chunk(self, connection: Connection, nbytes: int, notify: Callable[[], None]) -> None:
        """Wait until the next chunk may move. A recovery does not wait."""


class MirrorPace(Pace):
    """Pace of a mirror: it waits for recoveries, and keeps to `bytes_per_s` on all of its connections together."""

    def __init__(self, priorities: Priorities, bytes_per_s: float | None = None) -> None:
        self._priorities, self._bytes_per_s = priorities, bytes_per_s
        self._lock = threading.Lock()
        self._next_s = time.monotonic()

    def before_chunk(self, connection: Connection, nbytes: int, notify: Callable[[], None]) -> None:
        """Wait until the next chunk may move."""
        while not self._priorities.wait(connection, _PAUSE_S):
            notify()
        if self._bytes_per_s is None:
            return
        with self._lock:
            start_s = max(self._next_s, time.monotonic())
            self._next_s = start_s + nbytes / self._bytes_per_s
        while (ahead_s := start_s - time.monotonic()) > 0:
            self._priorities.wait(connection, min(ahead_s, _PAUSE_S), is_rate=True)
            if ahead_s > _PAUSE_S:
                notify()
