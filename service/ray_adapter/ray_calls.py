"""Blocking calls of Ray in threads that end with the process.

Some calls never return once Ray's head is gone. Threads of an executor would then block the end of the process, and
the calls that wait for a free thread would wait forever.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ray import exceptions

from regroup.service.ports.cluster import ClusterUnavailableError
from regroup.service.ray_adapter.task_errors import describe_ray_error

T = TypeVar("T")


class RayCalls:
    """Runs calls, each with a time limit. All methods belong to one event loop."""

    def __init__(self, most: int) -> None:
        """Initialize without threads. `most` is the number of calls that run at once."""
        self._most = most
        self._free = asyncio.Semaphore(most)
        self.overdue = 0
        """Number of calls that have not returned although their callers stopped waiting."""

    async def run(self, function: Callable[[], T], limit_s: float) -> T:
        """Return the result of a blocking function.

        Raises:
            ClusterUnavailableError: it did not return within the limit, all threads are blocked, or Ray failed.
        """
        if self.overdue >= self._most:
            raise ClusterUnavailableError(f"Ray does not answer: {self.overdue} calls have not returned")
        try:
            async with asyncio.timeout(limit_s):
                return await self._run(function)
        except TimeoutError as error:
            raise ClusterUnavailableError(f"Ray did not answer within {limit_s:.0f} s") from error
        except (exceptions.RaySystemError, exceptions.RpcError, ConnectionError, RuntimeError) as error:
            raise ClusterUnavailableError(f"Ray does not answer: {describe_ray_error(error)}") from error

    async def _run(self, function: Callable[[], T]) -> T:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        threading.Thread(target=_work, args=(function, loop, outcome, self._finish), name="ray", daemon=True).start()
        try:
            return await outcome
        finally:
            if outcome.cancelled():
                self.overdue += 1

    def _finish(self, outcome: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._free.release()
        if outcome.cancelled():
            self.overdue -= 1
        elif error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)


def _work(
    function: Callable[[], Any],
    loop: asyncio.AbstractEventLoop,
    outcome: "asyncio.Future[Any]",
    finish: Callable[["asyncio.Future[Any]", Any, BaseException | None], None],
) -> None:
    result, error = None, None
    try:
        result = function()
    except BaseException as raised:  # the caller gets it
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
        loop.call_soon_threadsafe(finish, outcome, result, error)
