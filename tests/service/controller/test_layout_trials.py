"""Layout trials: a job tries each candidate and uses the fastest. Its history has the result of each trial."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.controller.layout_trials import LayoutTrialReconciler
from regroup.service.domain.author import Author
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.operations.job_plan import get_job_plan
from regroup.service.policy.elasticity.layout_trials import TRIAL_STEPS, TRIAL_TIMEOUT_S
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.store.projects import RESIZE
from regroup.service.store.rows.records import Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.auto_layout_specs import auto_json
from tests.support.inputs.job_events import event_data
from tests.support.inputs.sync_records import status
from tests.support.servers.stores import open_store

A, B, C = Layout(dp_shard=4), Layout(dp_shard=2, tp=2), Layout(pp=4)
ENOUGH = TRIAL_STEPS + 2


@dataclass
class Trained:
    """A job of 1000 steps, the events of its supervisor, and the reconciler of its trials."""

    store: Store
    lease: Lease
    reconciler: LayoutTrialReconciler
    emitted: int = 0
    generation: int = 0
    step: int = 0

    async def emit(self, kind: str, data: dict[str, Any]) -> None:
        self.emitted += 1
        time_s = 5.0 + self.emitted
        data = event_data(kind, self.generation, time_s, data)
        event = SupervisorEvent(self.emitted, f"{kind}:{self.emitted}", kind, self.generation, time_s, data)
        await self.store.ingest(self.lease, "job_1", "boot", [event], {})

    async def start_generation(self, layout: Layout) -> None:
        """Start a generation with this layout, and clear the request to resize."""
        self.generation += 1
        ranks = [{"rank": rank, "node_id": "n1"} for rank in range(4)]
        data = {"number": self.generation, "layout": layout.to_json(), "world_size": 4, "ranks": ranks}
        await self.emit("generation", {**data, "start_step": self.step})
        await self.store.intend("job_1", lambda _: {RESIZE: None}, now=1.0, author=Author("test"), action="jobs.resize")

    async def train(self, steps: int, step_s: float) -> None:
        for _ in range(steps):
            self.step += 1
            row = {"step": self.step, "duration_s": step_s, "tokens": 1, "samples": 16, "samples_hash": 1}
            await self.emit("step", row)

    async def reconcile(self, now: float = 100.0) -> dict[str, Any] | None:
        """Run a pass and return the requested resize, if any."""
        await self.reconciler.reconcile(await self.store.job("job_1"), status(), now)
        return (await self.store.job("job_1")).intents.get(RESIZE)

    async def journal(self) -> list[dict[str, Any]]:
        return [event.data for event in await self.store.predictions.trials("job_1")]


@pytest.fixture
async def trained(tmp_path: Path) -> AsyncGenerator[Any]:
    opened: list[Store] = []

    async def make(candidates: Sequence[Layout] = (A, B, C), steps: int = 1000) -> Trained:
        store = await open_store(f"sqlite:///{tmp_path}/regroup.db")
        opened.append(store)
        lease = await store.acquire_lease("test", 60.0)
        assert lease is not None
        spec = parse_spec(auto_json({"dp": 4}, micro_batch=2, steps=steps))
        plan = {"candidates": [{"layout": each.to_json(), "step_s": 0.1} for each in candidates]}
        await store.submissions.submit(NewJob("job_1", spec, "file:///s", plan=plan), now=1.0, author=Author("test"))
        for source, target, reason in (
            (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
            (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
            (JobState.STARTING, JobState.RUNNING, Reason.FIRST_STEP),
        ):
            await store.apply(lease, check_transition("job_1", source, target, reason), now=2.0)
        return Trained(store, lease, LayoutTrialReconciler(leader_context(store, lease)))

    yield make
    for store in opened:
        await store.close()


async def test_each_layout_runs_for_a_few_steps_and_the_fastest_is_kept(trained: Any) -> None:
    job: Trained = await trained()
    for layout, step_s, following in ((A, 0.5, B), (B, 0.2, C), (C, 0.4, B)):
        await job.start_generation(layout)
        await job.train(ENOUGH - 1, step_s)
        assert await job.reconcile() is None, "too few steps for a measurement"
        await job.train(1, step_s)
        resize = await job.reconcile()
        assert resize is not None and resize["layout"] == following.to_json()
        assert resize["is_requested"] is False
        assert await job.reconcile() == resize, "the second pass changes nothing"
    await job.start_generation(B)
    assert await job.reconcile() is None
    await job.train(3, 0.3)
    assert await job.reconcile() is None
    found = await job.journal()
    assert [(each["number"], each["measured_s"], each["generation"]) for each in found[:-1]] == [
        (1, 0.5, 1), (2, 0.2, 2), (3, 0.4, 3),
    ]  # fmt: skip
    assert found[-1] == {"kept": B.to_json(), "why": "its steps were the fastest"}
    plan = await get_job_plan(job.store, await job.store.job("job_1"))
    assert [str(trial.layout) for trial in plan.trials] == [str(A), str(B), str(C)] and plan.kept == B


async def test_the_job_returns_to_the_first_layout_if_that_is_the_fastest(trained: Any) -> None:
    job: Trained = await trained((A, B))
    await job.start_generation(A)
    await job.train(ENOUGH, 0.1)
    await job.reconcile()
    await job.start_generation(B)
    await job.train(ENOUGH, 0.2)
    resize = await job.reconcile()
    assert resize is not None and (resize["layout"], resize["why"]) == (A.to_json(), "its steps were the fastest")


async def test_a_failure_during_a_trial_extends_the_trial(trained: Any) -> None:
    job: Trained = await trained()
    await job.start_generation(A)
    await job.train(ENOUGH - 2, 0.5)
    await job.start_generation(A)  # a rank died
    await job.train(ENOUGH - 1, 0.5)
    assert await job.reconcile() is None
    await job.train(1, 0.5)
    assert await job.reconcile() is not None


async def test_a_new_leader_continues_the_trials(trained: Any) -> None:
    job: Trained = await trained()
    await job.start_generation(A)
    await job.train(ENOUGH, 0.5)
    await job.reconcile()
    job.reconciler = LayoutTrialReconciler(leader_context(job.store, job.lease))
    resize = await job.reconcile()
    assert resize is not None and resize["layout"] == B.to_json()
    assert len(await job.journal()) == 1


async def test_a_resize_by_a_user_ends_the_trials(trained: Any) -> None:
    job: Trained = await trained()
    await job.start_generation(A)
    await job.train(1, 0.5)
    resize = {"layout": Layout(dp_shard=2).to_json(), "why": "on request", "requested_s": 1.0}
    await job.store.intend("job_1", lambda _: {RESIZE: resize}, now=1.0, author=Author("ann"), action="jobs.resize")
    assert await job.reconcile() == resize
    assert await job.journal() == [{"kept": None, "why": "another size was requested"}]


async def test_a_layout_that_does_not_form_in_time_is_skipped(trained: Any) -> None:
    job: Trained = await trained()
    await job.start_generation(A)
    await job.train(ENOUGH, 0.5)
    await job.reconcile(now=100.0)
    await job.train(1, 0.5)
    assert await job.reconcile(now=100.0 + TRIAL_TIMEOUT_S + 1) is None
    await job.train(1, 0.5)
    resize = await job.reconcile(now=300.0)
    assert resize is not None and resize["layout"] == C.to_json()
    assert [each["measured_s"] for each in await job.journal()] == [0.5, None]


async def test_no_trial_starts_near_the_end_of_the_job(trained: Any) -> None:
    job: Trained = await trained(steps=ENOUGH + 5)
    await job.start_generation(A)
    await job.train(ENOUGH, 0.5)
    assert await job.reconcile() is None
    assert "too few steps are left" in (await job.journal())[-1]["why"]


async def test_a_requeued_job_uses_the_layout_that_was_the_fastest(trained: Any) -> None:
    job: Trained = await trained((A, B))
    await job.start_generation(A)
    await job.train(ENOUGH, 0.5)
    await job.reconcile()
    await job.start_generation(B)
    await job.train(ENOUGH, 0.2)
    assert await job.reconcile(now=100.0) is None
    assert (await job.journal())[-1]["kept"] == B.to_json()
    for source, target, reason in (
        (JobState.RUNNING, JobState.QUEUED, Reason.REQUEUED),
        (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
        (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        (JobState.STARTING, JobState.RUNNING, Reason.FIRST_STEP),
    ):
        await job.store.apply(job.lease, check_transition("job_1", source, target, reason), now=200.0)
    job.reconciler = LayoutTrialReconciler(leader_context(job.store, job.lease))
    await job.start_generation(A)
    await job.train(1, 0.5)
    resize = await job.reconcile(now=201.0)
    assert resize is not None and resize["layout"] == B.to_json()


async def test_a_single_candidate_is_kept_with_the_reason(trained: Any) -> None:
    job: Trained = await trained((A,))
    await job.start_generation(A)
    await job.train(ENOUGH, 0.5)
    assert await job.reconcile() is None
    _, kept = await job.journal()
    assert kept["kept"] == A.to_json() and kept["why"] == "there is no other legal layout"
