"""Supervision of long-lived tasks: restarts with bounded delays, counts, and the health of the process."""

import asyncio
import contextlib

import pytest

from regroup.service.tasks.pass_record import STALE_AFTER_S, STUCK_AFTER_S, PassRecord
from regroup.service.tasks.server_tasks import ServerTasks
from regroup.service.tasks.supervised_task import UNHEALTHY_AFTER, SupervisedTask, describe_error, restart_delay_s


class ManualTime:
    """A clock that moves when a task sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.delays: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


async def run_until(task: SupervisedTask, failures: int) -> None:
    running = asyncio.create_task(task.run())
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0)
            if task.failures >= failures:
                break
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_task_that_fails_starts_again_with_growing_and_bounded_delays() -> None:
    time = ManualTime()

    async def fail() -> None:
        raise OverflowError("int too large to convert to float")

    task = SupervisedTask("controller", fail, monotonic=time, sleep=time.sleep)
    assert task.problem() == ""
    await run_until(task, 12)
    assert time.delays[:3] == [0.5, 1.0, 2.0] and max(time.delays) == 30.0
    assert task.failures == 12
    assert "controller failed" in task.problem() and "OverflowError: int too large" in task.problem()


async def test_a_task_that_ends_starts_again() -> None:
    time, starts = ManualTime(), list[int]()

    async def end() -> None:
        starts.append(1)

    task = SupervisedTask("reader", end, monotonic=time, sleep=time.sleep)
    await run_until(task, 3)
    assert len(starts) == 3


async def test_a_task_is_healthy_until_it_failed_repeatedly_and_after_it_ran_for_a_minute() -> None:
    time, left = ManualTime(), UNHEALTHY_AFTER
    runs = asyncio.Event()

    async def work() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            runs.set()
            await asyncio.sleep(3600)
        raise RuntimeError("broken")

    task = SupervisedTask("controller", work, monotonic=time, sleep=time.sleep)
    running = asyncio.create_task(task.run())
    await asyncio.wait_for(runs.wait(), 10)
    assert task.failures == UNHEALTHY_AFTER and task.problem()
    time.now_s += 61
    assert task.problem() == ""
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_all_tasks_end_with_the_server() -> None:
    tasks, ended = ServerTasks(), list[str]()

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(name)

    tasks.add("a", lambda: work("a"))
    tasks.add("b", lambda: work("b"))
    async with tasks.run():
        await asyncio.sleep(0)
        assert tasks.problems() == {} and tasks.failures() == {"a": 0, "b": 0}
    assert sorted(ended) == ["a", "b"]


def test_delays_are_bounded_for_any_number_of_failures() -> None:
    assert [restart_delay_s(count) for count in (0, 1, 2, 10_000)] == [0.5, 0.5, 1.0, 30.0]


def test_an_error_is_described_in_one_line_with_its_type() -> None:
    group = ExceptionGroup("several", [ValueError("first\nline  two" + "x" * 1000)])
    assert describe_error(group).startswith("ValueError: first line two") and len(describe_error(group)) < 400
    assert describe_error(KeyError()) == "KeyError"


def test_the_age_of_the_last_pass_counts_only_while_the_server_leads() -> None:
    time = ManualTime()
    record = PassRecord(clock=lambda: 5000.0, monotonic=time)
    assert record.age_s() is None and record.completed_at_s is None
    record.lead()
    time.now_s += STALE_AFTER_S
    assert record.age_s() == STALE_AFTER_S, "it counts from the start of leading"
    record.begin()
    time.now_s += 2
    record.complete()
    time.now_s += 3
    assert (record.age_s(), record.duration_s, record.completed_at_s) == (3, 2, 5000.0)
    record.yield_lead()
    assert record.age_s() is None


@pytest.mark.parametrize(("cause", "is_unhealthy"), [("fault", True), ("unavailable", False)])
def test_only_repeated_faults_make_the_process_unhealthy(cause: str, is_unhealthy: bool) -> None:
    record = PassRecord(monotonic=ManualTime())
    record.lead()
    for _ in range(UNHEALTHY_AFTER):
        assert record.problem() == ""
        record.begin()
        record.fail(cause, "OverflowError: too large")
    assert bool(record.problem()) is is_unhealthy, "a restart does not help if a component does not answer"
    assert record.failed[cause] == UNHEALTHY_AFTER
    record.complete()
    assert record.problem() == ""


def test_a_pass_that_never_ends_makes_the_process_unhealthy() -> None:
    time = ManualTime()
    record = PassRecord(monotonic=time)
    record.lead()
    record.begin()
    time.now_s += STUCK_AFTER_S + 1
    assert "has not ended" in record.problem()
    record.fail("unavailable", "the cluster does not answer")
    assert record.problem() == ""
