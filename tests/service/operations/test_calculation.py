"""Calculations in threads: a time limit, and a limit of those that wait."""

import asyncio
import threading

import pytest

from regroup.service.domain.errors import SpecError, UnavailableError
from regroup.service.operations import calculation
from regroup.service.operations.calculation import Calculations


async def test_results_and_errors_are_those_of_the_function() -> None:
    calculations = Calculations()
    assert await calculations.run(pow, 2, 10) == 1024

    def fail() -> None:
        raise SpecError([])

    with pytest.raises(SpecError):
        await calculations.run(fail)


async def test_a_calculation_that_takes_too_long_is_refused_and_occupies_its_thread() -> None:
    calculations, release = Calculations(time_limit_s=0.05), threading.Event()
    try:
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"did not finish within 0\.05 s; ask for fewer devices"):
                await calculations.run(release.wait)
        with pytest.raises(UnavailableError, match="did not finish"):
            await calculations.run(pow, 2, 3)
    finally:
        release.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await calculations.run(pow, 2, 3) == 8
                return
            except UnavailableError:
                await asyncio.sleep(0.02)


async def test_only_a_few_calculations_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculation, "_WAITING", 1)
    calculations, release = Calculations(), threading.Event()
    running = [asyncio.create_task(calculations.run(release.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="3 calculations wait on this server"):
        await calculations.run(pow, 2, 3)
    release.set()
    assert await asyncio.gather(*running) == [True] * 3
