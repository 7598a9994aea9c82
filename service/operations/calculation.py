"""Calculations that may take seconds: in threads of their own, a few at a time, and with a time limit."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from regroup.service.domain.errors import UnavailableError

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")
TIME_LIMIT_S = 60.0
_AT_ONCE = 2
_WAITING = 16
"""Number of calculations that may wait for a thread."""


class Calculations:
    """The threads for calculations of one server. Other threads stay free for storage and the cluster."""

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="calculation")
        self._time_limit_s = time_limit_s
        self._pending, self._lock = 0, threading.Lock()

    async def run(
        self, function: Callable[ParamsT, ResultT], /, *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """Return the result of a pure function.

        Raises:
            UnavailableError: too many calculations wait, or this one did not finish in time.
        """
        if self._pending >= _AT_ONCE + _WAITING:
            raise UnavailableError(f"{self._pending} calculations wait on this server; try again later")
        with self._lock:
            self._pending += 1
        future = self._threads.submit(function, *args, **kwargs)
        future.add_done_callback(self._finish)  # a calculation that exceeds its time still occupies its thread
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self._time_limit_s)
        if done:
            return waiting.result()
        waiting.cancel()
        raise UnavailableError(
            f"the calculation did not finish within {self._time_limit_s:g} s; ask for fewer devices, or set some of "
            "the fields that the planner chooses"
        )

    def _finish(self, _: object) -> None:
        with self._lock:
            self._pending -= 1


CALCULATIONS = Calculations()
"""The threads of this process."""
