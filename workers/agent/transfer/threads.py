"""Work in threads of its own, for callers in an event loop. Transfers need no share of the loop's thread pool."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")
_LOOP_TIMEOUT_S = 60.0
"""Time after which a call in the event loop counts as lost."""


async def run_in_thread(work: Callable[[], _Result], cancel: Callable[[], None]) -> _Result:
    """Run `work` in a new thread and return its result.

    If the caller is cancelled, call `cancel` and wait for the end of the thread, so that it changes no memory later.
    """
    future: Future[_Result] = Future()

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # the caller gets it
            future.set_exception(error)

    threading.Thread(target=body, name="regroup-transfer", daemon=True).start()
    waiting = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        cancel()
        await _ended(waiting)
        raise


def run_all(works: Sequence[Callable[[], None]]) -> list[BaseException]:
    """Run each of `works` in a thread of its own, the last one in this thread. Return their errors."""
    errors = list[BaseException]()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # the caller gets it
            errors.append(error)

    threads = [
        threading.Thread(target=guarded, args=(work,), name="regroup-stream", daemon=True) for work in works[:-1]
    ]
    for thread in threads:
        thread.start()
    for work in works[-1:]:
        guarded(work)
    for thread in threads:
        thread.join()
    return errors


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], _Result]) -> _Result:
    """Call a function in an event loop, from another thread. Return its result.

    Raises:
        TimeoutError: the loop does not respond.
        RuntimeError: the loop is closed.
    """
    future: Future[_Result] = Future()

    def body() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # the thread gets it
                future.set_exception(error)

    loop.call_soon_threadsafe(body)
    try:
        return future.result(_LOOP_TIMEOUT_S)
    except TimeoutError:
        if future.cancel():
            raise
        return future.result()  # the call has begun; its result, for example a descriptor, would be lost


async def _ended(waiting: "asyncio.Future[_Result]") -> None:
    """Wait for the end of a thread after its cancellation. The caller may be cancelled again."""
    while not waiting.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([waiting])
    if not waiting.cancelled():
        waiting.exception()
