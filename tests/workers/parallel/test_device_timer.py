"""The timer of a CPU counts the time inside its sections, and nothing between them."""

import time

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
