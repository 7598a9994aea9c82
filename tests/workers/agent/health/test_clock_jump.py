"""A clock that is set is noticed by one that nobody can set."""

import time

import pytest

from regroup.workers.agent.health.clock_jump import WallClock
from regroup.workers.os import procfs


@pytest.mark.parametrize("hours", [1, -1])
def test_an_hour_to_and_fro_is_told_once_each(hours: int) -> None:
    shown, steady = [1e9], [50.0]
    clock = WallClock(lambda: shown[0], lambda: steady[0])
    for passed_s, set_s in ((10, 0), (10, 3600 * hours), (10, 0), (3600, 0), (10, -3600 * hours)):
        steady[0] += passed_s
        shown[0] += passed_s + set_s
        assert clock.jumped_s() == pytest.approx(set_s)


def test_one_that_is_disciplined_is_not_set() -> None:
    shown, steady = [1e9], [50.0]
    clock = WallClock(lambda: shown[0], lambda: steady[0])
    for _ in range(1000):
        steady[0] += 10
        shown[0] += 10.005
        assert clock.jumped_s() == 0


def test_the_one_of_this_machine_is_not_set_just_now() -> None:
    clock = WallClock()
    assert clock.jumped_s() == 0


def test_leases_run_on_the_one_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    before = procfs.boottime_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert procfs.boottime_s() >= before
