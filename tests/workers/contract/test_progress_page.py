"""The page that a rank writes and its agent reads: where it is, and what is usual there."""

import os
import time

import pytest

from regroup.workers.contract.messages import Phase
from regroup.workers.contract.progress_page import PAGE_BYTES, ProgressPage, new_page


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_longest_of_late_is_usual_but_not_the_first_time(clock: list[float]) -> None:
    page = new_page()
    rank, agent = ProgressPage(page), ProgressPage(page)
    for took_s in (60.0, 2.0, 1.0):
        rank.set(1, Phase.FORWARD)
        clock[0] += took_s
        rank.set(1, Phase.OPTIMIZER)
        clock[0] += 0.5
    rank.set(2, Phase.FORWARD)
    clock[0] += 7.0
    assert (agent.read(), agent.age_s()) == ((2, "forward"), 7.0)
    assert agent.usual() == (3, pytest.approx(1.98))
    assert agent.firsts() == {"forward": 60.0, "optimizer": 0.5}


def test_one_slow_time_is_forgotten(clock: list[float]) -> None:
    rank = ProgressPage(new_page())
    for step, took_s in enumerate([1.0, 100.0, *[1.0] * 500]):
        rank.set(step, Phase.FORWARD)
        clock[0] += took_s
    rank.set(502, Phase.FORWARD)
    assert rank.usual()[1] == 1.0


def test_a_rank_cannot_shorten_the_page_that_its_agent_reads() -> None:
    """Check this because an access beyond the end of a mapped file would end the agent."""
    page = new_page()
    agent = ProgressPage(page)
    with pytest.raises(PermissionError):
        os.ftruncate(page, 0)
    assert os.fstat(page).st_size == PAGE_BYTES and agent.usual() == (0, 0.0)
