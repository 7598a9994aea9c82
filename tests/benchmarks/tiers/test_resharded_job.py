"""Tests of the figures of a job that changed its ranks."""

from typing import Any

import pytest

from benchmarks.tiers.node_memory import MemorySample, NodeMemory
from benchmarks.tiers.resharded_job import read_job
from benchmarks.trials.trial import TrialError

CHANGES = ["fsdp4 to fsdp6", "fsdp6 to fsdp3"]
IDS = {"alpha": "a1", "beta": "b1"}
ROWS = [{"time_s": time_s} for time_s in (90.0, 104.0, 106.0, 108.0, 113.0, 117.0)]
BEGINS, FIRST_STEPS = (100.0, 110.0), (104.0, 113.0)


def job(*actions: str) -> dict[str, Any]:
    incidents = [
        {"recovery_action": action, "times": {"fault_s": begin, "first_step_s": first}}
        for action, begin, first in zip(actions, BEGINS, FIRST_STEPS, strict=False)
    ]
    return {"incidents": incidents, "parameter_count": 1000}


def restored(time_s: float, node: str, received: int, minimum: int, seconds: float) -> dict[str, Any]:
    data = {"kind": "state_restored", "node": node, "received_bytes": received, "minimum_bytes": minimum,
            "own_bytes": 1000, "seconds": seconds}  # fmt: skip
    return {"type": "note", "time_s": time_s, "data": data}


EVENTS = [
    {"type": "submitted", "time_s": 1.0, "data": {}},
    restored(101, "alpha", 110, 100, 0.5),
    restored(102, "beta", 8, 0, 0.7),
    restored(111, "alpha", 0, 0, 0.2),
]


def memory(peak: int) -> NodeMemory:
    alpha = [
        MemorySample(99, 5000, 0),
        MemorySample(101, peak, 0),
        MemorySample(106, 7000, 0),
        MemorySample(112, 900, 0),
        MemorySample(116, 7000, 0),
    ]
    return NodeMemory({"a1": alpha, "b1": [MemorySample(104.5, 900, 0)]})


def test_bytes_of_all_nodes_and_memory_of_the_worst_one_of_each_change() -> None:
    first, second = read_job(CHANGES, job("resize", "resize"), EVENTS, ROWS, memory(1200), IDS, idle=True)
    assert first.bytes_over_minimum == pytest.approx(1.18)
    assert first.node_memory_over_own == pytest.approx(1.2), "between this change and the release of the old shards"
    assert (first.change, first.seconds, first.state_bytes) == ("fsdp4 to fsdp6", 0.7, 12_000)
    assert second.bytes_over_minimum == 1.0, "nothing had to move, and nothing did"
    assert second.node_memory_over_own == pytest.approx(0.9), "later, memory for more snapshots is in use"


@pytest.mark.parametrize("actions", [(), ("resize",), ("resize", "respawn")])
def test_another_recovery_is_an_error(actions: tuple[str, ...]) -> None:
    with pytest.raises(TrialError, match="2 resizes were planned, but the job shows"):
        read_job(CHANGES, job(*actions), EVENTS, ROWS, memory(1), IDS, idle=True)


def test_a_resize_that_restored_nothing_is_an_error() -> None:
    with pytest.raises(TrialError, match="fsdp6 to fsdp3: the state was planned to come from memory"):
        read_job(CHANGES, job("resize", "resize"), EVENTS[:-1], ROWS, memory(1), IDS, idle=True)


def test_a_job_that_ends_with_the_first_step_after_a_change_is_an_error() -> None:
    with pytest.raises(TrialError, match="1 steps after a change"):
        read_job(CHANGES, job("resize", "resize"), EVENTS, ROWS[:-1], memory(1), IDS, idle=True)
