"""Work in threads: results, errors, and the end of work whose caller was cancelled."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from regroup.workers.agent.transfer import threads
from regroup.workers.agent.transfer.threads import call_in_loop, run_all, run_in_thread


async def test_results_and_errors_reach_the_caller() -> None:
    assert await run_in_thread(lambda: 7, lambda: None) == 7
    with pytest.raises(KeyError):
        await run_in_thread(lambda: {}["x"], lambda: None)


async def test_a_cancelled_caller_waits_for_the_end_of_the_thread() -> None:
    cancelled, ended = threading.Event(), threading.Event()

    def work() -> None:
        cancelled.wait(10)
        ended.set()

    task = asyncio.create_task(run_in_thread(work, cancelled.set))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


def test_all_works_run_at_the_same_time_and_their_errors_are_returned() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def fail() -> None:
        meeting.wait()
        raise ValueError("no")

    assert [str(error) for error in run_all([meeting.wait, fail, meeting.wait])] == ["no"]  # pyright: ignore[reportArgumentType]  # the result is not used
    assert run_all([]) == []


async def test_a_thread_calls_in_the_loop() -> None:
    loop, main = asyncio.get_running_loop(), threading.get_ident()
    assert await asyncio.to_thread(call_in_loop, loop, threading.get_ident) == main
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(call_in_loop, loop, lambda: 1 // 0)


async def test_the_result_of_a_call_that_began_late_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_LOOP_TIMEOUT_S", 0.05)
    loop, has_begun, may_end = asyncio.get_running_loop(), threading.Event(), threading.Event()

    def call() -> int:
        has_begun.set()
        may_end.wait(10)
        return 7

    def cancel_then_end(future: "Future[int]", cancel: Callable[["Future[int]"], bool] = Future[int].cancel) -> bool:
        assert has_begun.is_set()
        may_end.set()
        return cancel(future)

    monkeypatch.setattr(Future, "cancel", cancel_then_end)
    assert await asyncio.to_thread(call_in_loop, loop, call) == 7
