"""Work that a loop starts repeatedly and does not wait for."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from regroup.service.domain.errors import PreconditionError, UnavailableError
from regroup.service.tasks.supervised_task import describe_error, restart_delay_s

_log = structlog.get_logger(__name__)


_MOST_SHARE = 0.02
"""Most of the time that the work takes, unless its pause is the longest one."""
_LONGEST = 5.0
"""Longest pause after success, in regular pauses."""


class BackgroundTask:
    """Work that may wait for the cluster. A failure is logged, counted, and followed by a longer pause.

    Work that takes long, because the cluster is large, is followed by a longer pause, too.
    """

    def __init__(self, name: str, every_s: float = 1.0) -> None:
        self.name = name
        self.failures = 0
        """Number of failures since the start of the process."""
        self._every_s = every_s
        self._consecutive = 0
        self._last_error = ""
        self._task: asyncio.Task[None] | None = None
        self._started_s = -float("inf")
        self._took_s = 0.0

    def start(self, tasks: asyncio.TaskGroup, work: Callable[[], Awaitable[None]]) -> None:
        """Start the work, if the last start is long enough ago and has ended."""
        now_s = time.monotonic()
        pause_s = min(max(self._every_s, self._took_s / _MOST_SHARE), _LONGEST * self._every_s)
        if self._consecutive:
            pause_s = max(pause_s, restart_delay_s(self._consecutive))
        if now_s - self._started_s > pause_s and (self._task is None or self._task.done()):
            self._started_s = now_s
            self._task = tasks.create_task(self._run(work))

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        begun_s = time.monotonic()
        try:
            await work()
            self._took_s = time.monotonic() - begun_s
        except UnavailableError:
            return  # the work runs again soon, and the pass reports the error
        except PreconditionError:
            raise
        except Exception as error:
            self.failures += 1
            self._consecutive += 1
            if (described := describe_error(error)) != self._last_error:
                self._last_error = described
                _log.error("background work failed", task=self.name, exc_info=error)
            return
        self._consecutive, self._last_error = 0, ""
