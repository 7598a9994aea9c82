"""Durable storage for an agent, in threads of its own, so that hanging storage delays nothing else.

A read fails after its time limit. A write is retried for some minutes and reported as late. Training does not wait.
"""

import asyncio
import errno
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable

_Result = TypeVar("_Result")
_THREADS = ThreadPoolExecutor(16, "storage")
"""A hanging call cannot be cancelled and keeps its thread."""
LATE_S = 30.0
PATIENCE_S = 300.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


async def call_within(within_s: float, call: Callable[..., _Result], *args: object) -> _Result:
    """Call storage and return its result or raise its error, within a time limit.

    Raises:
        StorageUnavailable: Storage did not answer in time.
    """
    running = _in_thread(call, *args)
    done, _ = await asyncio.wait({running}, timeout=within_s)
    if not done:
        raise StorageUnavailable(f"durable storage did not answer within {within_s:.0f} s")
    return running.result()


async def write_with_retries(label: str, write: Callable[[], _Result], report: Callable[[str], None]) -> _Result:
    """Write until it succeeds.

    Args:
        label: Name for the data in messages.
        write: Blocking write.
        report: Receives a message when the write is late or failed, with the time since the start, and `""` when it
            succeeds after all.

    Raises:
        StorageError: The storage is full, or the write did not succeed within `PATIENCE_S`. The last report stands.
    """
    began, pause_s, is_reported = time.monotonic(), _FIRST_PAUSE_S, False
    while True:
        writing = _in_thread(write)
        await asyncio.wait({writing}, timeout=LATE_S)
        if not writing.done():
            report(f"writing {label} to durable storage has taken {time.monotonic() - began:.0f} s so far")
            is_reported = True
            await asyncio.wait({writing}, timeout=max(0.0, PATIENCE_S - (time.monotonic() - began)))
        error = writing.exception() if writing.done() else TimeoutError("no answer")
        if error is None:
            if is_reported:
                report("")
            return writing.result()
        message = f"{label} cannot be written: {type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.errno in _FULL:
            raise StorageError(message) from error  # a retry would only keep the memory of the snapshot for longer
        is_reported = True
        if time.monotonic() - began + pause_s > PATIENCE_S:
            report(f"{message}; no retry after {time.monotonic() - began:.0f} s")
            raise StorageError(message) from error
        report(f"{message}; retrying")
        await asyncio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)


def _in_thread(call: Callable[..., _Result], *args: object) -> asyncio.Future[_Result]:
    running = asyncio.get_running_loop().run_in_executor(_THREADS, call, *args)
    # Retrieves the exception: the caller may have stopped waiting.
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return running
