"""The node monitor detects a wall clock that was set, with a clock that no process can set."""

import time

import pytest

from regroup.workers.agent.health.node_monitor import WallClock
from regroup.workers.os import procfs


@pytest.mark.parametrize("hours", [1, -1])
def test_each_jump_of_the_clock_is_reported_once(hours: int) -> None:
    wall, boot = [1e9], [50.0]
    clock = WallClock(lambda: wall[0], lambda: boot[0])
    for passed_s, set_s in ((10, 0), (10, 3600 * hours), (10, 0), (3600, 0), (10, -3600 * hours)):
        boot[0] += passed_s
        wall[0] += passed_s + set_s
        assert clock.poll_jump_s() == pytest.approx(set_s)


def test_a_disciplined_clock_counts_as_not_set() -> None:
    wall, boot = [1e9], [50.0]
    clock = WallClock(lambda: wall[0], lambda: boot[0])
    for _ in range(1000):
        boot[0] += 10
        wall[0] += 10.005
        assert clock.poll_jump_s() == 0


def test_the_clock_of_this_machine_was_not_set() -> None:
    clock = WallClock()
    assert clock.poll_jump_s() == 0


def test_leases_do_not_use_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = procfs.boottime_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert procfs.boottime_s() >= before
