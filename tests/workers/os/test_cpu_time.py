"""Processor time of a thread as the kernel accounts for it: computing counts, waiting does not."""

import os
import subprocess
import sys
import threading
import time

import pytest

from regroup.workers.contract.messages import Phase
from regroup.workers.contract.progress_page import ProgressPage, new_page
from regroup.workers.os import cpu_time


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_computing_is_work_and_waiting_is_not() -> None:
    page = new_page()
    rank, agent = ProgressPage(page), ProgressPage(page)
    for step in range(1, 8):
        rank.set(step, Phase.FORWARD)
        compute(0.03)
        rank.set(step, Phase.BACKWARD)
        time.sleep(0.2)
    measured, work_s, ready_s = agent.pace.read()
    assert measured == 6
    assert 0.03 <= work_s < 0.15 and ready_s < 0.15, "a fifth of a second a step was spent asleep"


def test_ready_time_is_separate_from_processor_time() -> None:
    """Pin this process and its rivals to one processor, so that they share it."""
    allowed = os.sched_getaffinity(0)
    rank, rivals = ProgressPage(new_page()), list[subprocess.Popen[bytes]]()
    try:
        os.sched_setaffinity(0, {min(allowed)})
        rivals += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
        for step in range(1, 8):
            rank.set(step, Phase.FORWARD)
            compute(0.1)
    finally:
        os.sched_setaffinity(0, allowed)
        for rival in rivals:
            rival.kill()
            rival.wait()
    _, work_s, ready_s = rank.pace.read()
    assert 0.1 <= work_s < 0.15 and ready_s > work_s


def test_only_the_newest_steps_count() -> None:
    rank = ProgressPage(new_page())
    for step in range(1, 40):
        rank.set(step, Phase.FORWARD)
        compute(0.02 if step < 20 else 0.0)
    measured, work_s, _ = rank.pace.read()
    assert (measured, work_s) == (38, pytest.approx(0.0, abs=0.01))


def test_a_step_that_another_thread_ends_is_left_out() -> None:
    rank = ProgressPage(new_page())
    for step in (1, 2):
        compute(0.01)
        rank.set(step, Phase.FORWARD)
    other = threading.Thread(target=rank.set, args=(3, Phase.FORWARD))
    other.start()
    other.join()
    assert rank.pace.read()[0] == 1


def test_times_that_decrease_belong_to_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = iter([(1.0, 1.0), (1.2, 1.1), (5.0, 0.3)])
    monkeypatch.setattr(cpu_time, "spent_s", lambda: next(accounts))
    rank = ProgressPage(new_page())
    for step in (1, 2, 3):
        rank.set(step, Phase.FORWARD)
    assert rank.pace.read() == (1, pytest.approx(0.2), pytest.approx(0.1))
