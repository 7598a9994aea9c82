"""Tests of the figures of a job that changed its ranks."""

from typing import Any

import pytest

from benchmarks.tiers.node_memory import MemorySample, NodeMemory
from benchmarks.tiers.resharded_job import CHANGES, read_job
from benchmarks.trials.trial import TrialError

IDS = {"alpha": "a1", "beta": "b1"}
ROWS = [{"time_s": 90.0}, {"time_s": 120.0}]


def job(*actions: str) -> dict[str, Any]:
    incidents = [{"recovery_action": action, "times": {"fault_s": 100.0}} for action in actions]
    return {"incidents": incidents, "parameter_count": 1000}


def restored(node: str, received: int, minimum: int, seconds: float) -> dict[str, Any]:
    data = {"kind": "state_restored", "node": node, "received_bytes": received, "minimum_bytes": minimum,
            "own_bytes": 1000, "seconds": seconds}  # fmt: skip
    return {"type": "note", "data": data}


def memory(peak: int) -> NodeMemory:
    alpha = [MemorySample(99, 5000, 0), MemorySample(101, 800, 0), MemorySample(119, peak, 0)]
    return NodeMemory({"a1": alpha, "b1": [MemorySample(110, 900, 0), MemorySample(121, 7000, 0)]})


def test_bytes_of_all_nodes_and_memory_of_the_worst_one() -> None:
    events = [{"type": "submitted", "data": {}}, restored("alpha", 110, 100, 0.5), restored("beta", 8, 0, 0.7)]
    found = read_job("fsdp4 to fsdp3", job("resize"), events, ROWS, memory(1200), IDS, idle=True)
    assert found.bytes_over_minimum == pytest.approx(1.18)
    assert found.node_memory_over_own == pytest.approx(1.2), "between the change and the last step"
    assert (found.seconds, found.state_bytes) == (0.7, 12_000)


@pytest.mark.parametrize("actions", [(), ("respawn",), ("resize", "respawn")])
def test_another_recovery_is_an_error(actions: tuple[str, ...]) -> None:
    with pytest.raises(TrialError, match="one resize from memory was planned"):
        read_job(next(iter(CHANGES)), job(*actions), [restored("alpha", 1, 1, 0.1)], ROWS, memory(1), IDS, idle=True)


def test_a_resize_that_restored_nothing_is_an_error() -> None:
    with pytest.raises(TrialError, match="one resize from memory was planned"):
        read_job(next(iter(CHANGES)), job("resize"), [], ROWS, memory(1), IDS, idle=True)
