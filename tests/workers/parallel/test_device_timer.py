"""The timer counts the time inside its sections, and nothing between them: on a CPU, and on a double of a stream."""

import time

import pytest
import torch

from regroup.workers.parallel.device_timer import DeviceTimer


def spend(seconds: float) -> None:
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass


def test_sections_add_up_and_what_lies_between_does_not_count() -> None:
    timer = DeviceTimer(torch.device("cpu"))
    assert timer.total_s() == 0.0
    began_s = time.perf_counter()
    for _ in range(2):
        with timer:
            spend(0.02)
    spend(0.05)
    with timer:
        spend(0.02)
    whole_s = time.perf_counter() - began_s
    assert 0.06 <= timer.total_s() <= whole_s - 0.05
    timer.reset()
    assert timer.total_s() == 0.0
    with timer:
        spend(0.01)
    assert timer.total_s() >= 0.01


class Event:
    """An event of a double of a stream. Each record advances the clock; its time is known once it was awaited."""

    clock_ms = 0.0
    awaited_ms = -1.0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at_ms = -1.0

    def record(self) -> None:
        Event.clock_ms += 100.0
        self.at_ms = Event.clock_ms

    def synchronize(self) -> None:
        Event.awaited_ms = max(Event.awaited_ms, self.at_ms)

    def elapsed_time(self, end: "Event") -> float:
        assert end.at_ms <= Event.awaited_ms, "torch raises an error for an event that has not completed"
        return end.at_ms - self.at_ms


def test_on_a_device_the_last_section_is_awaited_before_times_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    timer = DeviceTimer(torch.device("cuda"))
    assert timer.total_s() == 0.0
    for sections in (1, 3):
        timer.reset()
        for _ in range(sections):
            with timer:
                pass
            Event.clock_ms += 1000.0
        assert timer.total_s() == pytest.approx(0.1 * sections)
