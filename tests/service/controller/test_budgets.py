"""Budgets of jobs and projects: jobs are suspended in time, and continue when a budget is raised, not before."""

import itertools
from typing import Any

import pytest

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.controller.budgets import BudgetReconciler
from regroup.service.domain.author import Author
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.budgets import set_budget
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.ports.cluster import supervisor_name
from regroup.service.spec.budget import UsageBudget
from regroup.service.store.rows.records import PLATFORM_FAULT, WITHIN_BUDGET, JobRow, Lease, ProjectRow
from regroup.service.store.store import Store
from tests.service.controller.test_controller import ControlSetup, controlled, eventually
from tests.service.controller.test_controller import setup as setup
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.held_devices import allocate, reservation, submit
from tests.support.inputs.sync_records import status

ANA = Author("ana")
HOUR_S = 3600.0
PRICES = "{currency: EUR, device_hour: {H100: 2.0}}"


@pytest.fixture
async def lease(setup: ControlSetup) -> Lease:
    acquired = await setup.store.acquire_lease("test", 1e6)
    assert acquired is not None
    return acquired


async def run_until_suspended(
    store: Store, lease: Lease, job_id: str, *, since_s: float, stop_s: float, **settings: Any
) -> float:
    """Reconcile a job as its task does, until it has released its devices; return that time.

    Args:
        stop_s: time from the request until the devices are released.
    """
    leader = leader_context(store, lease, **settings)
    job = await store.job(job_id)
    reconciler, now = BudgetReconciler(leader, JobAccount(job)), since_s
    while True:
        job = await store.job(job_id)
        await reconciler.reconcile(job, status(), now)
        if "suspend" in (await store.job(job_id)).intents:
            break
        now += 0.6 if reconciler.concerns(job, None) else 10.1  # type: ignore[arg-type]
        assert now < since_s + 1e5, "the job is not suspended"
    assert not reconciler.concerns(await store.job(job_id), None)  # type: ignore[arg-type]
    await store.apply(
        lease, check_transition(job_id, JobState.STARTING, JobState.QUEUED, Reason.SUSPENDED), now=now + stop_s
    )
    return now + stop_s


async def start(store: Store, lease: Lease, job_id: str, ranks: int, *, now: float, **fields: Any) -> None:
    await submit(store, job_id, resources={"device": "cuda", "accelerator": "H100"}, **fields)
    await allocate(store, lease, job_id, reservation(job_id, "a", ranks), now=now)
    await store.apply(lease, check_transition(job_id, JobState.PLACING, JobState.STARTING, Reason.RESERVED), now=now)


@pytest.mark.parametrize("stop_s", [0.0, 5.0, 40.0])
@pytest.mark.parametrize("budget", [{"device_hours": 8.0}, {"cost": 16.0}])
async def test_the_use_of_a_job_ends_within_one_percent_of_its_budget(
    setup: ControlSetup, lease: Lease, budget: dict[str, float], stop_s: float
) -> None:
    await start(setup.store, lease, "j-one", 8, now=1000.0, budget=budget)
    ended_s = await run_until_suspended(setup.store, lease, "j-one", since_s=1000.0, stop_s=stop_s, prices=PRICES)
    assert abs((ended_s - 1000.0) / HOUR_S - 1.0) <= 0.01
    job = await setup.store.job("j-one")
    unit = "device-hours" if "device_hours" in budget else "EUR"
    assert job.state is JobState.SUSPENDED and f"of {next(iter(budget.values())):.2f} {unit};" in job.message
    assert "`regroup budget j-one --" in job.message


async def test_the_use_of_a_project_ends_within_one_percent_of_its_budget(setup: ControlSetup, lease: Lease) -> None:
    store = setup.store
    await store.queue.put_project(ProjectRow("vision", budget={"device_hours": 10.0, "since": 500.0}))
    await start(store, lease, "j-old", 8, now=100.0, project="vision")
    await store.apply(
        lease, check_transition("j-old", JobState.STARTING, JobState.FAILED, Reason.USER_ERROR), now=600.0
    )
    assert await store.usage.fold("j-old", now=700.0)
    await start(store, lease, "j-other", 4, now=1000.0, project="vision")
    await start(store, lease, "j-one", 8, now=1000.0, project="vision")
    ended_s = await run_until_suspended(store, lease, "j-one", since_s=1000.0, stop_s=5.0)
    used = 8 * 100.0 + 12 * (ended_s - 1000.0)
    assert abs(used / HOUR_S - 10.0) <= 0.1, "use before `since` does not count"
    message = (await store.job("j-one")).message
    assert (
        message.startswith("project 'vision' used ")
        and "`regroup projects set vision budget.device_hours=N`" in message
    )


async def test_a_job_that_grows_is_suspended_in_time(setup: ControlSetup, lease: Lease) -> None:
    store = setup.store
    await start(store, lease, "j-one", 7, now=1000.0, budget={"device_hours": 8.0})
    leader = leader_context(store, lease)
    reconciler, now = BudgetReconciler(leader, JobAccount(await store.job("j-one"))), 1000.0
    for now in itertools.count(1000, 5):
        if now == 1000 + 3600:
            grown = reservation("j-one", "b", 9)
            await store.reallocate(lease, "j-one", allocate=[grown], now=float(now))
        await reconciler.reconcile(await store.job("j-one"), status(), float(now))
        if "suspend" in (await store.job("j-one")).intents:
            break
    used = 7.0 + 16 * (now - 1000 - 3600) / HOUR_S
    assert abs(used - 8.0) <= 0.08


async def test_a_device_without_a_price_stops_a_job_with_a_budget_in_money(setup: ControlSetup, lease: Lease) -> None:
    await submit(setup.store, "j-one", budget={"cost": 1e6})
    await allocate(setup.store, lease, "j-one", reservation("j-one", "a", 1, "A100"), now=1000.0)
    starting = check_transition("j-one", JobState.PLACING, JobState.STARTING, Reason.RESERVED)
    await setup.store.apply(lease, starting, now=1000.0)
    ended_s = await run_until_suspended(setup.store, lease, "j-one", since_s=1000.0, stop_s=0.0, prices=PRICES)
    assert ended_s == 1000.0 and "devices without a price (A100)" in (await setup.store.job("j-one")).message


async def test_a_person_who_suspends_a_job_keeps_it_suspended(setup: ControlSetup, lease: Lease) -> None:
    store = setup.store
    await submit(store, "j-one")
    await store.queue.suspend("j-one", "used up", now=1.0, author=ANA, lease=lease, for_budget=True)
    assert (await store.queue.resume("j-one", now=2.0, author=ANA, lease=lease)).state is JobState.QUEUED
    await store.queue.suspend("j-one", "used up", now=3.0, author=ANA, lease=lease, for_budget=True)
    await store.queue.suspend("j-one", "for the night", now=4.0, author=ANA)
    job = await store.queue.resume("j-one", now=5.0, author=ANA, lease=lease)
    assert job.state is JobState.SUSPENDED and job.intents["suspend"] == {"why": "for the night", "requested_s": 4.0}
    await store.queue.suspend("j-one", "used up", now=6.0, author=ANA, lease=lease, for_budget=True)
    assert "for_budget" not in (await store.job("j-one")).intents["suspend"]
    assert (await store.queue.resume("j-one", now=7.0, author=ANA)).state is JobState.QUEUED


# ------------------------------------------------------------ with the controller


def budget_reason(job: JobRow) -> str:
    return next((each.reason for each in job.conditions if each.type == WITHIN_BUDGET), "")


async def suspend_at_budget(setup: ControlSetup, job_id: str) -> None:
    """Bring a job to RUNNING, and play its supervisor until the job is suspended at its budget."""
    supervisor = await setup.supervisor(job_id)
    await supervisor.state("RUNNING", "first_step")
    change = await supervisor.wait_for_intent("change")
    assert change["is_requeue"] and change["reason"] == "suspended"
    await supervisor.state("QUEUED", "suspended")
    await setup.until_state(job_id, JobState.SUSPENDED)


async def test_a_suspended_job_continues_when_its_budget_is_raised(setup: ControlSetup) -> None:
    async with controlled(setup):
        job_id = await setup.submit(budget={"device_hours": 0.002})
        await suspend_at_budget(setup, job_id)
        job = await setup.until(job_id, lambda job: budget_reason(job) == "job_budget")
        assert "of 0.002 device-hours; `regroup budget j-gpt --device-hours N` sets a higher budget" in job.message
        await setup.store.queue.resume(job_id, now=2.0, author=ANA)
        job = await setup.until(job_id, lambda job: job.state is JobState.QUEUED and budget_reason(job) == "job_budget")
        await eventually(lambda: setup.cluster.held == {} and setup.cluster.supervisors == {})
        raised = UsageBudget(device_hours=1000.0)
        await set_budget(setup.store, job, raised, None, now=3.0, author=ANA)
        job = await setup.until_state(job_id, JobState.STARTING)
        assert budget_reason(job) == "" and job.intents["budget"] == {"device_hours": 1000.0}


async def test_jobs_of_a_project_stop_at_its_budget_and_all_continue(setup: ControlSetup) -> None:
    await setup.store.queue.put_project(ProjectRow("vision", budget={"device_hours": 0.002}))
    async with controlled(setup):
        names = ("one", "two")
        jobs = [await setup.submit(name, dp=2, project="vision") for name in names]
        for job_id in jobs:
            await suspend_at_budget(setup, job_id)
        late, other = await setup.submit("late", dp=1, project="vision"), await setup.submit("other", dp=1)
        job = await setup.until(late, lambda job: budget_reason(job) == "project_budget")
        assert job.conditions[0].message.startswith("project 'vision' used ")
        await setup.until_state(other, JobState.STARTING)
        text = (await Metrics(setup.store, QuarantinePolicy(3600.0, 600.0)).render()).decode()
        (line,) = [line for line in text.splitlines() if line.startswith("regroup_project_budget_used_ratio{")]
        assert 'project="vision"' in line and float(line.rpartition(" ")[2]) >= 0.99
        await setup.cluster.supervisors[supervisor_name(other)].state("FAILED", "user_error")
        await setup.store.cancel(late, now=1.0, author=ANA)
        await setup.store.queue.put_project(ProjectRow("vision", budget={"device_hours": 100.0}))
        for job_id in jobs:
            await setup.until_state(job_id, JobState.STARTING)


async def test_a_job_whose_budget_cannot_be_read_does_not_start(setup: ControlSetup) -> None:
    job_id, other = await setup.submit(), await setup.submit("other", dp=1)

    def damage(job: JobRow) -> dict[str, Any]:
        return {"budget": {"device_hours": -1}}

    await setup.store.intend(job_id, damage, now=1.0, author=ANA, action="jobs.budget")
    async with controlled(setup):
        await setup.until_state(other, JobState.STARTING)
        job = await setup.until(job_id, lambda job: any(each.type == PLATFORM_FAULT for each in job.conditions))
        assert job.state is JobState.QUEUED and "to check its budget" in job.conditions[0].message
