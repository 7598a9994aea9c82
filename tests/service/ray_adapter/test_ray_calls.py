"""Blocking calls that never return: they block neither the caller, nor other calls, nor the end of the process."""

import asyncio
import subprocess
import sys
import threading

import pytest

from regroup.service.ports.cluster import ClusterUnavailableError
from regroup.service.ray_adapter.ray_calls import RayCalls


async def test_a_call_returns_its_result_or_its_error() -> None:
    calls = RayCalls(2)
    assert await calls.run(lambda: 7, 5.0) == 7

    def fail() -> None:
        raise ValueError("as the caller expects it")

    with pytest.raises(ValueError, match="expects"):
        await calls.run(fail, 5.0)
    with pytest.raises(ClusterUnavailableError, match="does not answer"):
        await calls.run(lambda: (_ for _ in ()).throw(RuntimeError("no connection")).__next__(), 5.0)


async def test_calls_that_never_return_are_refused_at_once_when_all_threads_are_blocked() -> None:
    calls, release = RayCalls(2), threading.Event()
    for _ in range(2):
        with pytest.raises(ClusterUnavailableError, match="within 0 s"):
            await calls.run(release.wait, 0.05)
    assert calls.overdue == 2
    begin_s = asyncio.get_running_loop().time()
    with pytest.raises(ClusterUnavailableError, match="2 calls have not returned"):
        await calls.run(lambda: 1, 60.0)
    assert asyncio.get_running_loop().time() - begin_s < 1
    release.set()
    async with asyncio.timeout(5):
        while calls.overdue:  # noqa: ASYNC110  (the end of a thread sets no event)
            await asyncio.sleep(0.01)
    assert await calls.run(lambda: 1, 5.0) == 1


async def test_a_cancelled_call_holds_its_thread_until_it_returns() -> None:
    calls, release = RayCalls(1), threading.Event()
    waiting = asyncio.create_task(calls.run(release.wait, 60.0))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert calls.overdue == 1
    release.set()


def test_a_blocked_call_does_not_delay_the_end_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


BLOCKED = """
import asyncio, threading
from regroup.service.ports.cluster import ClusterUnavailableError
from regroup.service.ray_adapter.ray_calls import RayCalls

async def main():
    try:
        await RayCalls(1).run(threading.Event().wait, 0.1)
    except ClusterUnavailableError:
        print("refused", flush=True)

asyncio.run(main())
"""
