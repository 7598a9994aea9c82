"""A job goes from one candidate to the next and stays at the fastest; what came of each is in its history."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.service.controller.layout_trials import LayoutTrialReconciler
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.operations.job_plan import get_job_plan
from regroup.service.policy.elasticity.layout_trials import TRIAL_STEPS, TRIAL_TIMEOUT_S
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.spec.job import parse_spec
from regroup.service.store.projects import RESIZE
from regroup.service.store.records import Lease, NewJob
from regroup.service.store.store import Store
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.auto_layout_specs import auto_json
from tests.support.inputs.job_events import event_data
from tests.support.inputs.sync_records import status

A, B, C = Layout(dp_shard=4), Layout(dp_shard=2, tp=2), Layout(pp=4)
ENOUGH = TRIAL_STEPS + 2


@dataclass
class Trained:
    """A job of 1000 steps, what its supervisor says, and who looks at it."""

    store: Store
    lease: Lease
    refining: LayoutTrialReconciler
    heard: int = 0
    generation: int = 0
    step: int = 0

    async def hear(self, kind: str, data: dict[str, Any]) -> None:
        self.heard += 1
        time_s = 5.0 + self.heard
        data = event_data(kind, self.generation, time_s, data)
        event = SupervisorEvent(self.heard, f"{kind}:{self.heard}", kind, self.generation, time_s, data)
        await self.store.ingest(self.lease, "job_1", "boot", [event], {})

    async def forms(self, layout: Layout) -> None:
        """It goes on at this layout, and nobody wants another."""
        self.generation += 1
        ranks = [{"rank": rank, "node_id": "n1"} for rank in range(4)]
        data = {"number": self.generation, "layout": layout.to_json(), "world_size": 4, "ranks": ranks}
        await self.hear("generation", {**data, "start_step": self.step})
        await self.store.intend("job_1", lambda _: {RESIZE: None}, now=1.0, actor="test")

    async def trains(self, steps: int, each_s: float) -> None:
        for _ in range(steps):
            self.step += 1
            row = {"step": self.step, "duration_s": each_s, "tokens": 1, "samples": 16, "samples_hash": 1}
            await self.hear("step", row)

    async def look(self, now: float = 100.0) -> dict[str, Any] | None:
        """What is wanted of its size after a look."""
        await self.refining.reconcile(await self.store.job("job_1"), status(), now)
        return (await self.store.job("job_1")).intents.get(RESIZE)

    async def journal(self) -> list[dict[str, Any]]:
        return [event.data for event in await self.store.predictions.trials("job_1")]


@pytest.fixture
async def trained(tmp_path: Path) -> AsyncGenerator[Any]:
    opened: list[Store] = []

    async def make(candidates: Sequence[Layout] = (A, B, C), steps: int = 1000) -> Trained:
        store = await Store.open(f"sqlite:///{tmp_path}/regroup.db")
        opened.append(store)
        lease = await store.acquire_lease("test", 60.0)
        assert lease is not None
        spec = parse_spec(auto_json({"dp": 4}, micro_batch=2, steps=steps))
        plan = {"candidates": [{"layout": each.to_json(), "step_s": 0.1} for each in candidates]}
        await store.submit(NewJob("job_1", spec, "file:///s", plan=plan), now=1.0, actor="test")
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


async def test_each_is_run_for_a_few_steps_and_the_fastest_is_kept(trained: Any) -> None:
    job: Trained = await trained()
    for layout, each_s, following in ((A, 0.5, B), (B, 0.2, C), (C, 0.4, B)):
        await job.forms(layout)
        await job.trains(ENOUGH - 1, each_s)
        assert await job.look() is None, "too few steps to tell"
        await job.trains(1, each_s)
        wanted = await job.look()
        assert wanted is not None and wanted["layout"] == following.to_json()
        assert wanted["is_requested"] is False
        assert await job.look() == wanted, "said once"
    await job.forms(B)
    assert await job.look() is None
    await job.trains(3, 0.3)
    assert await job.look() is None
    found = await job.journal()
    assert [(each["number"], each["measured_s"], each["generation"]) for each in found[:-1]] == [
        (1, 0.5, 1), (2, 0.2, 2), (3, 0.4, 3),
    ]  # fmt: skip
    assert found[-1] == {"kept": B.to_json(), "why": "its steps were the fastest"}
    plan = await get_job_plan(job.store, await job.store.job("job_1"))
    assert [str(trial.layout) for trial in plan.trials] == [str(A), str(B), str(C)] and plan.kept == B


async def test_where_the_first_is_the_fastest_it_comes_back_to_it(trained: Any) -> None:
    job: Trained = await trained((A, B))
    await job.forms(A)
    await job.trains(ENOUGH, 0.1)
    await job.look()
    await job.forms(B)
    await job.trains(ENOUGH, 0.2)
    wanted = await job.look()
    assert wanted is not None and (wanted["layout"], wanted["why"]) == (A.to_json(), "its steps were the fastest")


async def test_a_failure_in_between_costs_steps_and_no_trial(trained: Any) -> None:
    job: Trained = await trained()
    await job.forms(A)
    await job.trains(ENOUGH - 2, 0.5)
    await job.forms(A)  # a rank died
    await job.trains(ENOUGH - 1, 0.5)
    assert await job.look() is None
    await job.trains(1, 0.5)
    assert await job.look() is not None


async def test_another_leader_goes_on_with_it(trained: Any) -> None:
    job: Trained = await trained()
    await job.forms(A)
    await job.trains(ENOUGH, 0.5)
    await job.look()
    job.refining = LayoutTrialReconciler(leader_context(job.store, job.lease))
    wanted = await job.look()
    assert wanted is not None and wanted["layout"] == B.to_json()
    assert len(await job.journal()) == 1


async def test_a_person_wants_another_size_and_it_is_given_up(trained: Any) -> None:
    job: Trained = await trained()
    await job.forms(A)
    await job.trains(1, 0.5)
    wish = {"layout": Layout(dp_shard=2).to_json(), "why": "asked", "requested_s": 1.0}
    await job.store.intend("job_1", lambda _: {RESIZE: wish}, now=1.0, actor="somebody")
    assert await job.look() == wish
    assert await job.journal() == [{"kept": None, "why": "another size was requested"}]


async def test_what_does_not_come_about_is_passed_over(trained: Any) -> None:
    job: Trained = await trained()
    await job.forms(A)
    await job.trains(ENOUGH, 0.5)
    await job.look(now=100.0)
    await job.trains(1, 0.5)
    assert await job.look(now=100.0 + TRIAL_TIMEOUT_S + 1) is None
    await job.trains(1, 0.5)
    wanted = await job.look(now=300.0)
    assert wanted is not None and wanted["layout"] == C.to_json()
    assert [each["measured_s"] for each in await job.journal()] == [0.5, None]


async def test_near_the_end_nothing_is_begun(trained: Any) -> None:
    job: Trained = await trained(steps=ENOUGH + 5)
    await job.forms(A)
    await job.trains(ENOUGH, 0.5)
    assert await job.look() is None
    assert "too few steps are left" in (await job.journal())[-1]["why"]


async def test_one_that_queued_since_goes_to_what_was_found(trained: Any) -> None:
    job: Trained = await trained((A, B))
    await job.forms(A)
    await job.trains(ENOUGH, 0.5)
    await job.look()
    await job.forms(B)
    await job.trains(ENOUGH, 0.2)
    assert await job.look(now=100.0) is None
    assert (await job.journal())[-1]["kept"] == B.to_json()
    for source, target, reason in (
        (JobState.RUNNING, JobState.QUEUED, Reason.REQUEUED),
        (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
        (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        (JobState.STARTING, JobState.RUNNING, Reason.FIRST_STEP),
    ):
        await job.store.apply(job.lease, check_transition("job_1", source, target, reason), now=200.0)
    job.refining = LayoutTrialReconciler(leader_context(job.store, job.lease))
    await job.forms(A)
    await job.trains(1, 0.5)
    wanted = await job.look(now=201.0)
    assert wanted is not None and wanted["layout"] == B.to_json()


async def test_one_candidate_is_kept_and_people_learn_why(trained: Any) -> None:
    job: Trained = await trained((A,))
    await job.forms(A)
    await job.trains(ENOUGH, 0.5)
    assert await job.look() is None
    _, kept = await job.journal()
    assert kept["kept"] == A.to_json() and kept["why"] == "there is no other legal layout"
