"""Forecasts of a queue: starts and ends of jobs, nodes that leave, and the limit of the calculation."""

import pytest

from regroup.service.domain.errors import UnavailableError
from regroup.service.operations.capacity import forecast as module
from regroup.service.operations.capacity.forecast import QueueJob, QueueState, forecast
from regroup.service.policy.scheduling.decide import SchedulingPolicy
from regroup.service.policy.scheduling.entries import Preemptibility, RunningJob, WaitingJob
from tests.support.inputs.queue_inputs import demand, node, sizes

DAY_S = 86_400.0


def waiting(name: str, ranks: int = 8, left_s: float = 3600.0) -> QueueJob:
    return QueueJob(WaitingJob(name, name, sizes(ranks), preemptibility=Preemptibility.none), left_s, "assumed")


def running(name: str, node_id: str, left_s: float) -> QueueJob:
    part = RunningJob(name, name, demand(8), ((node_id, 8),), preemptibility=Preemptibility.none)
    return QueueJob(WaitingJob(name, name, sizes(8), preemptibility=Preemptibility.none), left_s, "progress", (part,))


def test_a_job_starts_when_another_one_ends() -> None:
    state = QueueState([node("a", free=0)], [running("first", "a", 600.0), waiting("second")], {})
    found = forecast(state, SchedulingPolicy(), DAY_S)
    assert found.ends_s["first"] == pytest.approx(600, abs=60)
    assert found.starts_s["second"] == pytest.approx(600, abs=120)
    assert found.ends_s["second"] - found.starts_s["second"] >= 3600
    assert 0 < found.utilisation < 1


def test_a_job_that_never_fits_has_no_start() -> None:
    found = forecast(QueueState([node("a")], [waiting("wide", 16), waiting("fits")], {}), SchedulingPolicy(), DAY_S)
    assert "wide" not in found.starts_s and found.starts_s["fits"] < 60


def test_a_node_that_leaves_takes_no_job() -> None:
    jobs = [waiting("one"), waiting("two")]
    both = forecast(QueueState([node("a"), node("b")], jobs, {}), SchedulingPolicy(), DAY_S)
    one = forecast(QueueState([node("a"), node("b")], jobs, {}, leaving=["b"]), SchedulingPolicy(), DAY_S)
    assert max(both.starts_s.values()) < 60 and max(one.starts_s.values()) >= 3600


def test_a_forecast_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CPU_LIMIT_S", -1.0)
    with pytest.raises(UnavailableError, match="shorter horizon_s"):
        forecast(QueueState([node("a")], [waiting("one")], {}), SchedulingPolicy(), DAY_S)
