"""Durable storage as an agent waits for it: in threads of its own, so that storage that hangs holds nothing else up.

What only has to be known soon is given up after a while. What has to be written is tried again for some minutes, and
said to be late meanwhile; training does not wait for it.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable

_Result = TypeVar("_Result")
_THREADS = ThreadPoolExecutor(16, "storage")
"""A call that hangs cannot be ended, and keeps its thread."""
LATE_S = 30.0
PATIENCE_S = 300.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


async def answered(within_s: float, call: Callable[..., _Result], *args: object) -> _Result:
    """What a call of storage returns or raises, if it does so in time.

    Raises:
        StorageUnavailable: it does not.
    """
    asked = _in_thread(call, *args)
    done, _ = await asyncio.wait({asked}, timeout=within_s)
    if not done:
        raise StorageUnavailable(f"durable storage did not answer within {within_s:.0f} s")
    return asked.result()


async def written(what: str, write: Callable[[], _Result], tell: Callable[[str], None]) -> _Result:
    """Write until it succeeds. `tell` hears that it is late or failed, and for how long, and in the end `""`.

    Raises:
        StorageError: it did not within `PATIENCE_S`; what was told last stands.
    """
    began, pause_s, is_told = time.monotonic(), _FIRST_PAUSE_S, False
    while True:
        writing = _in_thread(write)
        await asyncio.wait({writing}, timeout=LATE_S)
        if not writing.done():
            tell(f"{what} has been on its way to durable storage for {time.monotonic() - began:.0f} s")
            is_told = True
            await asyncio.wait({writing}, timeout=max(0.0, PATIENCE_S - (time.monotonic() - began)))
        error = writing.exception() if writing.done() else TimeoutError("no answer")
        if error is None:
            if is_told:
                tell("")
            return writing.result()
        said = f"{what} cannot be written: {type(error).__name__}: {error}"
        is_told = True
        if time.monotonic() - began + pause_s > PATIENCE_S:
            tell(f"{said}; given up after {time.monotonic() - began:.0f} s")
            raise StorageError(said) from error
        tell(f"{said}; it is tried again")
        await asyncio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)


def _in_thread(call: Callable[..., _Result], *args: object) -> asyncio.Future[_Result]:
    running = asyncio.get_running_loop().run_in_executor(_THREADS, call, *args)
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may wait for it any more
    return running
