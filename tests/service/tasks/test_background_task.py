"""Work that a loop repeats without waiting for it."""

import asyncio

import pytest

from regroup.service.tasks import background_task
from regroup.service.tasks.background_task import BackgroundTask


async def test_work_that_takes_long_has_longer_pauses_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, took_s, runs = 100.0, 0.0, 0
    monkeypatch.setattr(background_task.time, "monotonic", lambda: now_s)

    async def work() -> None:
        nonlocal now_s, runs
        runs += 1
        now_s += took_s

    async def run_after(pause_s: float) -> bool:
        nonlocal now_s
        now_s += pause_s
        before = runs
        async with asyncio.TaskGroup() as tasks:
            task.start(tasks, work)
        return runs > before

    task = BackgroundTask("nodes", every_s=1.0)
    assert await run_after(0.0) and not await run_after(0.5) and await run_after(0.6)
    took_s = 0.04
    assert await run_after(1.1)
    assert not await run_after(1.5) and await run_after(0.6), "the pause is fifty times the work"
    took_s = 10.0
    assert await run_after(2.1)
    assert await run_after(0.0), "at most five pauses: the work itself took longer"
