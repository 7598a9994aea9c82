"""A long-lived task of the server under supervision: its failures are logged, counted and followed by a new start."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from regroup.service.domain.backoff import backoff_s

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_RECOVERED_AFTER_S = 60.0
"""Time after which a start counts as successful."""
_LONGEST_TEXT = 300
"""Characters of an error in a description."""
UNHEALTHY_AFTER = 5
"""Number of consecutive failures after which `/livez` fails, so that the process is restarted."""
_log = structlog.get_logger(__name__)


def restart_delay_s(failures: int) -> float:
    """Return the delay before the next start after this number of consecutive failures."""
    return backoff_s(max(1, failures), first_s=_FIRST_DELAY_S, longest_s=_LONGEST_DELAY_S)


class SupervisedTask:
    """Runs a coroutine function that should never end, and starts it again when it fails or ends."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[None]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.failures = 0
        """Number of failures since the start of the process."""
        self._work, self._monotonic, self._sleep = work, monotonic, sleep
        self._consecutive = 0
        self._last_error = ""
        self._started_s: float | None = None
        """Monotonic time of the current start; None while the task waits for it."""

    async def run(self) -> None:
        """Run the work until cancelled."""
        while True:
            self._started_s = self._monotonic()
            try:
                await self._work()
                self._record_failure(RuntimeError("it ended, which it never should"))
            except Exception as error:
                self._record_failure(error)
            self._started_s = None
            await self._sleep(restart_delay_s(self._consecutive))

    def problem(self) -> str:
        """Return why the task is unhealthy; empty unless it failed repeatedly."""
        if self._consecutive < UNHEALTHY_AFTER or self._has_recovered():
            return ""
        return f"the {self.name} failed {self._consecutive} times in a row; the last error was {self._last_error}"

    def _has_recovered(self) -> bool:
        return self._started_s is not None and self._monotonic() - self._started_s >= _RECOVERED_AFTER_S

    def _record_failure(self, error: Exception) -> None:
        self._consecutive = 1 if self._has_recovered() else self._consecutive + 1
        self.failures += 1
        self._last_error = describe_error(error)
        _log.error(
            "a task of the server failed and starts again",
            task=self.name,
            failures=self.failures,
            restart_in_s=restart_delay_s(self._consecutive),
            exc_info=error,
        )


def describe_error(error: BaseException) -> str:
    """Return an error as one line of limited length, with its type. Groups name their first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_LONGEST_TEXT]}" if text else type(error).__name__
