"""Jobs with low device utilization, with a real store."""

import itertools
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.controller.low_utilization import LowUtilizationReconciler
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy as HealthRule
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import WELL_USED, JobRow, Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.job_events import event_data
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store


@dataclass
class Job:
    """A job that trains, with the utilization that a test sets."""

    store: Store
    lease: Lease
    now: float = 1000.0
    step: int = 0
    _seq: int = 0

    async def emit(self, kind: str, **data: Any) -> JobRow:
        self._seq += 1
        data = event_data(kind, 1, self.now, data)
        event = SupervisorEvent(self._seq, f"{kind}:{self._seq}", kind, 1, self.now, data)
        return await self.store.ingest(self.lease, "j-gpt", "boot", [event], {})

    async def train(self, seconds: float, low_utilization: LowUtilizationReconciler, mfu: float) -> JobRow:
        """Train with one step per second and reconcile every 10 s."""
        for _ in range(int(seconds // 10)):
            self.now, self.step = self.now + 10, self.step + 10
            row = {"tokens": 64, "samples": 4, "samples_hash": 1, "stall_s": 0.0, "duration_s": 1.0, "loss": 2.0}
            job = await self.emit("step", step=self.step, **row, extra={"mfu": mfu})
            await low_utilization.reconcile(job, status(), self.now)
        return await self.store.job("j-gpt")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/regroup.db")
    yield opened
    await opened.close()


async def running(store: Store, **fields: Any) -> Job:
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 100000}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    spec = parse_spec({"name": "gpt", "workload": workload, "training": training, **fields})
    await store.submissions.submit(NewJob("j-gpt", spec, "file:///s"), now=900.0, author=Author("test"))
    lease = await store.acquire_lease("test", 3600.0)
    assert lease is not None
    job, states = Job(store, lease), [JobState.QUEUED, JobState.PLACING, JobState.STARTING, JobState.RUNNING]
    for source, target in itertools.pairwise(states):
        await store.apply(lease, check_transition("j-gpt", source, target, Reason.PLACED), now=1000.0)
    split = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1}
    formed = {"number": 1, "layout": split, "world_size": 1, "ranks": [], "start_step": 0, "restore": {}, "cause": ""}
    await job.emit("generation", **formed)
    return job


def reconciler(job: Job, suspend_after_s: float | None = 600.0) -> LowUtilizationReconciler:
    leader = leader_context(
        job.store,
        job.lease,
        low_utilization_threshold=0.05,
        low_utilization_window_s=300.0,
        low_utilization_suspend_s=suspend_after_s,
    )
    return LowUtilizationReconciler(leader)


async def low_use_events(store: Store) -> list[bool]:
    return [event.data["low"] for event in await store.events("j-gpt") if event.type == "low_utilization"]


async def test_low_use_is_reported_cleared_and_reported_again(store: Store) -> None:
    job = await running(store)
    low_utilization = reconciler(job, suspend_after_s=None)
    assert not (await job.train(290, low_utilization, 0.01)).conditions, "the measurement window is not full"
    found = await job.train(100, low_utilization, 0.01)
    assert [(each.type, each.status, each.reason) for each in found.conditions] == [
        (WELL_USED, False, "low_utilization")
    ]
    assert found.conditions[0].message == "the job uses 1.0% of the capacity of its devices, over 5 min"
    text = (await Metrics(store, HealthRule(3600.0, 600.0)).render()).decode()
    assert 'regroup_job_low_utilization{job="gpt",job_id="j-gpt",project="default"} 1.0' in text
    assert not (await job.train(600, low_utilization, 0.3)).conditions
    assert (await job.train(3000, low_utilization, 0.01)).state is JobState.RUNNING, "suspension is disabled"
    assert await low_use_events(store) == [True, False, True]


async def test_a_job_with_low_use_is_suspended_even_after_a_control_plane_restart(store: Store) -> None:
    job = await running(store)
    found = await job.train(400, reconciler(job), 0.01)
    (condition,) = found.conditions
    found = await job.train(800, reconciler(job), 0.01)
    suspension = found.intents["suspend"]
    assert "1.0% of the capacity of its devices" in suspension["why"]
    assert 600 <= suspension["requested_s"] - condition.last_transition_time <= 640
    (event,) = [each for each in await store.events("j-gpt") if each.type == "intent"]
    assert event.actor == "controller"


async def test_a_job_that_cannot_be_preempted_gets_only_a_condition(store: Store) -> None:
    job = await running(store, preemptibility="semi")
    found = await job.train(2000, reconciler(job), 0.01)
    assert found.intents == {} and [each.type for each in found.conditions] == [WELL_USED]
